"""Accuracy of linking bare phrases of social media.

python -m benchmarks.phrases askapatient --data FOLDER --folds 8

Each fold is fetched, converted, trained on (training/configs/phrases.cfg) and measured on its test
phrases, by recall@1. The checkpoint and the weights of the evidence are chosen on its validation
phrases: the weights from the start that suits these better. Floors are those of benchmarks.linking.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import linking
from benchmarks.record import add, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.pipeline.linker.fusion import default_fusion
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.tuning.development import gather_development, gold_docs
from spacy_bioel.tuning.fusion import fit_nearest

_FLOORS = ("exact", "tfidf", "bm25")


def main(
    corpus: str,
    data: Annotated[Path, typer.Option()],
    folds: Annotated[int, typer.Option()] = 10,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    for fold in range(folds):
        prepare(corpus, data, fold)
        model = Path("models") / f"{corpus}_linker_{fold}"
        if not (model / "model-best").is_dir():  # a run that was stopped goes on
            script("train.py", corpus, "training/configs/phrases.cfg", model, "--seed", seed)
        rows: list[dict[str, Any]] = []
        for system in (*_FLOORS, "lexical", "rescnn"):
            found = measure(corpus, system, encoder=str(model / "model-best"))
            rows += [
                measurement(
                    "linking", system, corpus=corpus, split="test", fold=fold, seed=seed, **row
                )
                for row in found
            ]
            typer.echo(f"{corpus} fold {fold} {system} {found[0]['metric']} {found[0]['value']}")
        add("linking", rows, key=linking.KEY)


def prepare(corpus: str, data: Path, fold: int) -> None:
    script("corpora.py", "fetch", corpus, "--data", data, "--fold", fold)
    for split in ("train", "dev", "test"):
        script("corpora.py", "convert", corpus, split)
    script("corpora.py", "kb", corpus)


def script(name: str, *arguments: object) -> None:
    subprocess.run([sys.executable, f"training/scripts/{name}", *map(str, arguments)], check=True)


def measure(corpus: str, system: str, *, encoder: str) -> list[dict[str, Any]]:
    """Recall on the test phrases of the fold that is prepared."""
    chosen = linking.SYSTEMS[system]
    nlp, linker = linking.make_pipeline(corpus, chosen, encoder=encoder, uses_training=True)
    folder = Path("corpus") / corpus
    if chosen.ranks_by:
        linker.fusion = linking.Similarity(chosen.ranks_by)
    else:
        dev = gold_docs(nlp, read_texts(folder / "dev.jsonl"))
        linker.fusion = fit_nearest(gather_development(linker, dev), [default_fusion(), None])
    test = list(read_texts(folder / "test.jsonl"))
    measured = evaluate(
        test,
        list(link_given(nlp, linker, test)),
        protocols=["gold_any"],
        canonical=linker.kb.canonical,
        max_candidates=linking.CANDIDATES,
        per_label=False,
    )
    return [
        {
            "protocol": "biosyn",
            "subset": "",
            "metric": one.metric,
            "value": round(one.value, 2),
            "n": one.n,
        }
        for one in measured
        if one.metric in ("recall@1", "recall@5")
    ]


if __name__ == "__main__":
    typer.run(main)
