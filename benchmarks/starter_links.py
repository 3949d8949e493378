"""Accuracy of linking given mentions of one type, without training.

python -m benchmarks.starter_links KB --label Gene --corpus nlm_gene --corpus gnormplus links the
gold mentions of the development documents that the project has fetched by their names alone,
without the encoder. `kb/genes` of the results: `bioel kb build kb/genes
Homo_sapiens.gene_info.gz --types protein-coding`. Subsets: documents all of whose mentions the
knowledge base knows, and the mentions that it knows. `gold` wants all ids of a mention, `gold_any`
one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import spacy
import typer

from benchmarks.record import add, figures, measurement
from benchmarks.starter import KEY, METRICS, development_texts, subsets
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.scoring.evaluation import evaluate

_CANDIDATES = 10


def main(
    kb: Path,
    label: Annotated[str, typer.Option()],
    corpus: Annotated[list[str], typer.Option()],
) -> None:
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    config = {"kb": str(kb), "max_candidates": _CANDIDATES, "evidence": {"dense": False}}
    linker = nlp.add_pipe("bioel_linker", config=config)
    rows = []
    for name in corpus:
        for subset, texts in subsets(development_texts(name), label, linker.kb).items():
            found = evaluate(
                texts,
                list(link_given(nlp, linker, texts)),
                protocols=["gold", "gold_any"],
                canonical=linker.kb.canonical,
                max_candidates=_CANDIDATES,
                per_label=False,
            )
            about = {"corpus": name, "split": "dev", "seed": 0, "subset": f"{label}, {subset}"}
            for row in found:
                if row.metric in METRICS and row.n:
                    measured = figures(row) | {"metric": METRICS[row.metric]}
                    about["protocol"] = row.protocol
                    rows.append(measurement("starter", "names", **about, **measured))
                    typer.echo(f"{name} {subset} {row.protocol} {measured}")
    typer.echo(add("starter", rows, key=KEY))


if __name__ == "__main__":
    typer.run(main)
