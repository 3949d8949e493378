"""Speed and memory of finding names with an ontology, without training.

python -m benchmarks.finding TEXTS hpo=FOLDER mondo=FOLDER --obo hp.obo --python VENV/bin/python,
where TEXTS are documents in any format, FOLDER is a knowledge base, and that environment has
FastHPOCR 0.1.4 and pyahocorasick. Each system reads all documents in one process, three times by
turns, times on the clock; the median counts.

ours          `mentions = "kb"`, by batches of 64 documents in one process
fasthpocr     FastHPOCR, against hp.obo alone, in the row of the first knowledge base
aho_corasick  longest exact names of the same knowledge base in lower case, and nothing else
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.record import measurement, save
from benchmarks.scispacy import run_by_turns
from spacy_bioel.corpus import read_texts
from spacy_bioel.kb.columns.store import KnowledgeBase

# -P: a script's folder is no place to import libraries from.
THEIRS = ("-P", Path(__file__).with_name("finding_theirs.py"))
_FIGURES = ("load", "documents_per_second", "memory")


def main(
    texts: Path,
    kbs: Annotated[list[str], typer.Argument(help="NAME=FOLDER of knowledge bases.")],
    obo: Annotated[Path, typer.Option(help="Of the first, for FastHPOCR.")],
    python: Annotated[Path, typer.Option(help="Of the environment.")],
    index: Annotated[Path | None, typer.Option(help="FastHPOCR's hp.index, made before.")] = None,
    n: Annotated[int, typer.Option(help="Documents.")] = 500,
    note: Annotated[str, typer.Option(help="What the reader must know, e.g. a busy machine.")] = "",
) -> None:
    documents = [text.text for text in read_texts(texts)][:n]
    rows: list[dict[str, Any]] = []
    for number, (name, folder) in enumerate(pair.split("=", 1) for pair in kbs):
        kb = KnowledgeBase.open(folder)
        with tempfile.TemporaryDirectory() as work:
            write_inputs(Path(work), kb, documents)
            children: dict[str, list[Any]] = {
                "ours": [sys.executable, "-m", "benchmarks.finding_ours", work, folder],
                "aho_corasick": [python, *THEIRS, "aho_corasick", work],
            }
            if not number:
                shutil.copy(obo, Path(work) / "hp.obo")
                if index is not None:
                    shutil.copy(index, Path(work) / "hp.index")
                children["fasthpocr"] = [python, *THEIRS, "fasthpocr", work]
            found = run_by_turns(children, Path(work))
        about = {"corpus": name, "names": kb.n_names, "n": len(documents), "note": note}
        rows += [
            measurement("finding", system, metric=metric, value=round(values[metric], 2), **about)
            for system, values in found.items()
            for metric in _FIGURES
        ]
    for row in rows:
        line = f"{row['corpus']:8} {row['system']:13} {row['metric']:21} {row['value']:>12,}"
        typer.echo(line)
    typer.echo(save("finding", rows))


def write_inputs(folder: Path, kb: KnowledgeBase, texts: list[str]) -> None:
    """Texts, and the names of a knowledge base, each with the first of its ids."""
    indptr, concepts, _ = kb.concepts_of_names(np.arange(kb.n_names))
    ids = kb.ids_of(concepts[indptr[:-1]])
    names = list(zip(kb.names, ids, strict=True))
    (folder / "names.json").write_text(json.dumps(names), encoding="utf8")
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf8")


if __name__ == "__main__":
    typer.run(main)
