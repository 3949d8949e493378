"""Documents a second, from text to links, beside a scispaCy-style pipeline.

python -m benchmarks.run documents CORPUS --python VENV/bin/python, where CORPUS is one whose light
pipeline (training/configs/rescnn.cfg) the project has trained, and the environment is that of
benchmarks.scispacy. Both pipelines get the texts of dev, link to the same names, and run in one
process each, batched by `nlp.pipe`, with all cores, times on the clock, three times by turns; the
median counts. scispaCy needs hours to index the names of a large knowledge base: with --names, both
link to those of another corpus.

light       bioel_mentions and bioel_linker, as trained
scispacy    spaCy's stock NER, trained for five rounds on the same training documents so that it
            finds a like number of mentions, then scispaCy's EntityLinker with its defaults, but
            for the filter by definitions, which these names do not have
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.record import measurement, save
from benchmarks.scispacy import THEIRS, run, run_by_turns, work_folder, write_concepts
from spacy_bioel.corpus import read_texts
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.kb.columns.store import KnowledgeBase


def main(
    corpus: str,
    python: Annotated[Path, typer.Option(help="Of the environment.")],
    names: Annotated[str, typer.Option(help="Corpus whose names both link to.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Keeps scispaCy's index.")] = None,
    note: Annotated[str, typer.Option(help="What the reader must know, e.g. a busy machine.")] = "",
) -> None:
    model = Path("models") / corpus / "final"
    kb = KnowledgeBase.open(Path("kb") / (names or corpus))
    dev = list(read_texts(Path("corpus") / corpus / "dev.jsonl"))
    with work_folder(folder, names or corpus) as folder:
        write_concepts(kb, folder / "concepts.jsonl")
        train = read_texts(Path("corpus") / corpus / "train.spacy")
        write_texts_jsonl(folder / "train.jsonl", train)
        texts = [text.text for text in dev]
        (folder / "texts.json").write_text(json.dumps(texts), "utf8")
        ours = [sys.executable, "-m", "benchmarks.scispacy_ours"]
        for step in ("build", "train"):
            run([python, *THEIRS, step, folder])
        if names:
            run([*ours, "exchange", folder, model])
            model = folder / "light"
        pipes = {
            "scispacy": [python, *THEIRS, "pipe", folder],
            "light": [*ours, "pipe", folder, model],
        }
        found = run_by_turns(pipes, folder)
    about = {"corpus": corpus, "names": kb.n_names, "n": len(texts), "note": note}
    rows = [
        measurement("documents", system, metric=metric, value=round(value, 2), **about)
        for system, values in found.items()
        for metric, value in values.items()
    ]
    speed = {s: values["documents_per_second"] for s, values in found.items()}
    ratio = round(speed["light"] / speed["scispacy"], 2)
    rows.append(measurement("documents", "light", metric="ratio", value=ratio, **about))
    for row in rows:
        typer.echo(f"{row['system']:9} {row['metric']:21} {row['value']:>12,}")
    typer.echo(save("documents", rows))


if __name__ == "__main__":
    typer.run(main)
