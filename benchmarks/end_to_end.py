"""Accuracy of finding and linking mentions in bare text, and the gain of reading.

python -m benchmarks.end_to_end CORPUS SYSTEM records the development figures of the pipeline that
`project run all . --vars.corpus CORPUS --vars.config SYSTEM` has made. Where the linker reads, also
of two others with the same weights, tuned on dev like the first: SYSTEM_strings links by the
strings of the mentions alone, and SYSTEM_context (of a dual encoder) by what was read alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer

from benchmarks.linking import subsets
from benchmarks.record import add, figures, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.pipeline.measuring import link_given, link_open
from spacy_bioel.scoring.evaluation import evaluate

KEY = ("corpus", "system", "protocol", "subset", "metric", "seed")
# Metrics that are recorded, by protocol.
TEXT_ONLY = {
    "mention": ("precision", "recall", "f1"),
    "strict": ("precision", "recall", "f1"),
    "partial": ("precision", "recall", "f1"),
    "partial_fractional": ("f1",),
}
_GIVEN = (
    "accuracy@1", "accuracy@1_nil_ignored", "accuracy@1_nil_ignored_normalised", "mrr",
    "mrr_normalised", "recall@10",
)  # fmt: skip
GIVEN = {"gold": _GIVEN, "gold_any": _GIVEN}
CANDIDATES = 10
# Protocols that the result file calls as the literature does.
_NAMES = {"end_to_end": "strict", "partial_binary": "partial"}


def main(
    corpus: str,
    system: str,
    model: Annotated[Path | None, typer.Option(help="Default: models/CORPUS/final.")] = None,
    seed: Annotated[int, typer.Option(help="Of the training.")] = 0,
) -> None:
    model = model or Path("models") / corpus / "final"
    rows = measure(model, corpus)
    found = [measurement("end_to_end", system, seed=seed, **row) for row in rows]
    for name, evidence in variants(model).items():
        with retuned(model, corpus, evidence) as tuned:
            rows = measure(tuned, corpus)
        called = f"{system}_{name}"
        found += [measurement("end_to_end", called, seed=seed, **row) for row in rows]
    for row in found:
        if row["metric"] in ("f1", "accuracy@1") and not row["subset"]:
            interval = f"{row['value']} ({row['low']}-{row['high']})"
            typer.echo(f"{row['system']} {row['protocol']} {row['metric']} {interval}")
    typer.echo(add("end_to_end", found, key=KEY))


def variants(model: Path) -> dict[str, dict[str, bool]]:
    """Evidence to switch, by the name of what is left; nothing for a linker that does not read."""
    linker: Any = spacy.load(model).get_pipe("bioel_linker")
    if not linker.reads:
        return {}
    found = {"strings": {"context": False}}
    if linker.model.name == "dual_encoder":
        found["context"] = dict.fromkeys(linker.cfg["evidence"], False) | {"context": True}
    return found


@contextmanager
def retuned(model: Path, corpus: str, evidence: Mapping[str, bool]) -> Iterator[Path]:
    """The pipeline with some evidence switched, and tuned anew on dev."""
    with tempfile.TemporaryDirectory() as folder:
        changed, tuned = Path(folder) / "changed", Path(folder) / "tuned"
        nlp = spacy.load(model)
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.cfg["evidence"] |= evidence
        nlp.to_disk(changed)
        dev = Path("corpus") / corpus / "dev.jsonl"
        kb = Path("kb") / corpus
        tune = ["-m", "spacy_bioel", "tune", changed, dev, tuned, "--kb", kb]
        subprocess.run([sys.executable, *map(str, tune)], check=True)
        yield tuned


def measure(model: Path, corpus: str) -> list[dict[str, Any]]:
    """Figures of one pipeline on dev; of given mentions also by parts of them."""
    nlp: Any = spacy.load(model)
    linker = nlp.get_pipe("bioel_linker")
    texts = list(read_texts(Path("corpus") / corpus / "dev.jsonl"))
    rows = []
    if "bioel_mentions" in nlp.pipe_names:
        rows += _score(texts, list(link_open(nlp, linker, texts)), TEXT_ONLY, linker.kb)
    linker.cfg["max_candidates"] = CANDIDATES  # for recall@10
    links = list(link_given(nlp, linker, texts))
    for subset, belongs in subsets(corpus, linker.kb).items():
        part = [
            replace(t, mentions=tuple(m for m in t.mentions if belongs(t.text[m.start : m.end], m)))
            for t in texts
        ]
        rows += [row | {"subset": subset} for row in _score(part, links, GIVEN, linker.kb)]
    return [{"corpus": corpus, "split": "dev", "subset": "", **row} for row in rows]


def _score(texts: Any, links: Any, wanted: Mapping[str, Any], kb: Any) -> list[dict[str, Any]]:
    found = evaluate(
        texts,
        links,
        protocols=wanted,
        canonical=kb.canonical,
        max_candidates=CANDIDATES,
        per_label=False,
    )
    return [
        {"protocol": name, **figures(row), "kb": kb.fingerprint}
        for row in found
        if row.n and row.metric in wanted[name := _NAMES.get(row.protocol, row.protocol)]
    ]


if __name__ == "__main__":
    typer.run(main)
