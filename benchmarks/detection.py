"""Accuracy of ways to find mentions, every span scored or tags, and what each of them misses.

python -m benchmarks.detection CORPUS trains the detectors of training/configs/mentions*.cfg on the
same token vectors (a CNN), for the same number of updates, and measures them on dev. Threshold,
consistency and overlap are chosen on dev for each. Recall is also given by the tokens of
the gold mentions, and for those that overlap others, which tags cannot express.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer

from benchmarks.record import add, figures, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.pipeline.measuring import link_open
from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.types import AnnotatedText, Mention

KEY = ("corpus", "system", "protocol", "subset", "metric", "seed")
SYSTEMS = {
    "spans": "mentions.cfg",
    "linear_spans": "mentions_linear.cfg",
    "tags": "mentions_bio.cfg",
}
_METRICS = ("precision", "recall", "f1")


def main(corpus: str, seed: Annotated[int, typer.Option()] = 0) -> None:
    texts = list(read_texts(Path("corpus") / corpus / "dev.jsonl"))
    rows = []
    for system, config in SYSTEMS.items():
        nlp = spacy.load(train(corpus, system, Path("training/configs") / config, seed=seed))
        links = list(link_open(nlp, None, texts))
        about = {"corpus": corpus, "split": "dev", "protocol": "mention", "seed": seed}
        for subset, found in subsets(texts, links, nlp).items():
            rows += [
                measurement("detection", system, **about, subset=subset, **row) for row in found
            ]
        f1 = next(row["value"] for row in rows[::-1] if row["metric"] == "f1")
        typer.echo(f"{corpus} {system}: mention F1 {f1}")
    typer.echo(add("detection", rows, key=KEY))


def train(corpus: str, system: str, config: Path, *, seed: int) -> Path:
    """Train and tune, unless that was done before. RETURNS (Path): The tuned pipeline."""
    folder = Path("models") / f"{corpus}_{system}_{seed}"
    tuned = folder / "final"
    if not tuned.is_dir():
        script = ["training/scripts/train.py", corpus, config, folder, "--seed", seed]
        subprocess.run([sys.executable, *map(str, script)], check=True)
        dev = Path("corpus") / corpus / "dev.jsonl"
        tune = ["-m", "spacy_bioel", "tune", folder / "model-best", dev, tuned]
        subprocess.run([sys.executable, *map(str, tune)], check=True)
    return tuned


def subsets(
    texts: Sequence[AnnotatedText], links: Any, nlp: Any
) -> dict[str, list[dict[str, Any]]]:
    """Metrics of all mentions, and recall of parts of the gold mentions."""
    parts: dict[str, Callable[[AnnotatedText, Mention], bool]] = {
        "": lambda text, m: True,
        "one token": lambda text, m: _tokens(nlp, text, m) == 1,
        "two tokens": lambda text, m: _tokens(nlp, text, m) == 2,
        "three to five tokens": lambda text, m: 2 < _tokens(nlp, text, m) < 6,
        "six or more tokens": lambda text, m: _tokens(nlp, text, m) > 5,
        "overlaps another": lambda text, m: any(
            other is not m and other.start < m.end and m.start < other.end
            for other in text.mentions
        ),
    }
    found = {}
    for name, belongs in parts.items():
        chosen = [
            AnnotatedText(t.id, t.text, tuple(m for m in t.mentions if belongs(t, m)))
            for t in texts
        ]
        rows = evaluate(chosen, links, protocols=["mention"], per_label=False)
        wanted = ("recall",) if name else _METRICS
        found[name] = [figures(row) for row in rows if row.metric in wanted]
    return found


def _tokens(nlp: Any, text: AnnotatedText, mention: Mention) -> int:
    return len(nlp.make_doc(text.text[mention.start : mention.end]))


if __name__ == "__main__":
    typer.run(main)
