"""Comparison with scispaCy's candidate generator: same names, same queries.

python -m benchmarks.run scispacy CORPUS OTHERS --python VENV/bin/python, where that environment
has scispacy==0.6.2 and scipy<1.11, which it needs to build an index (Python 3.11, numpy 1). The
knowledge base is the one of a corpus of the project, names only. Both build and link in processes
of their own, with all cores, times on the clock, at the settings that each has by default; they
link three times by turns, and the median counts. With --folder, the index of scispaCy is kept there
for the next time, and for benchmarks.documents.

index        from concepts in a file to an index, encoding included
load         from a new process, libraries imported, to the first answer
throughput   mentions a second: the gold mentions of train and dev, as they follow in the documents;
             ours by batches of 64 documents as in `nlp.pipe`, scispaCy's all in one call
different    strings a second that are all different, so that no cache can help: those of
             the mentions of dev, and of a file in any format, up to `n`
memory       of the process that linked, at its peak, libraries included
own          the part of it that was not there when the libraries had been imported
accuracy     top candidate right (any id), dev mentions whose ids the knowledge base has; percent
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.linking import known_texts
from benchmarks.record import measurement, save
from spacy_bioel.corpus import read_texts
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText

ROUNDS = 3
# -P: a script's folder is no place to import `scispacy` from.
THEIRS = ("-P", Path(__file__).with_name("scispacy_theirs.py"))


def main(
    corpus: str,
    others: Annotated[Path, typer.Argument(help="Documents whose mentions are queries too.")],
    python: Annotated[Path, typer.Option(help="Of the environment.")],
    n: Annotated[int, typer.Option(help="Different strings.")] = 10_000,
    folder: Annotated[Path | None, typer.Option(help="Keeps scispaCy's index.")] = None,
    note: Annotated[str, typer.Option(help="What the reader must know, e.g. a busy machine.")] = "",
) -> None:
    kb = KnowledgeBase.open(Path("kb") / corpus)
    gold = [
        (normalize_name(text.text[m.start : m.end]), m.ids)
        for text in known_texts(corpus, kb)
        for m in text.mentions
    ]
    documents = [
        mention_strings(text)
        for split in ("train.spacy", "dev.jsonl")
        for text in read_texts(Path("corpus") / corpus / split)
    ]
    more = [string for text in read_texts(others) for string in mention_strings(text)]
    queries = [q for q in dict.fromkeys([*(string for string, _ in gold), *more]) if q][:n]
    found: dict[str, dict[str, float]] = {}
    with work_folder(folder, corpus) as folder:
        write_concepts(kb, folder / "concepts.jsonl")
        (folder / "queries.json").write_text(json.dumps(queries), encoding="utf8")
        (folder / "documents.json").write_text(json.dumps(documents), encoding="utf8")
        children: dict[str, list[Any]] = {
            "scispacy": [python, *THEIRS],
            "rescnn": [sys.executable, "-m", "benchmarks.scispacy_ours"],
        }
        for child in children.values():
            run([*child, "build", folder])
        links = {system: [*child, "link", folder] for system, child in children.items()}
        for system, result in run_by_turns(links, folder).items():
            top = dict(zip(queries, result.pop("ranked"), strict=True))
            right = [
                top[s] is not None and kb.find(top[s]) in kb.find_all(list(ids)) for s, ids in gold
            ]
            found[system] = result | {"accuracy": 100 * sum(right) / len(right)}
    about: dict[str, Any] = {"corpus": corpus, "names": kb.n_names, "note": note}
    about |= {"n": len(queries), "gold": len(gold)}
    about |= {"documents": len(documents), "mentions": sum(map(len, documents))}
    rows: list[dict[str, Any]] = [
        measurement(question, system, metric="value", value=round(value, 2), **about)
        for system, values in found.items()
        for question, value in values.items()
    ]
    for question, value in found["rescnn"].items():
        theirs = found["scispacy"][question]
        # Above 1: we are faster, or better. Memory: the part of theirs that we take.
        ratio = theirs / value if question in ("index", "load") else value / theirs
        rows.append(measurement(question, "rescnn", metric="ratio", value=round(ratio, 3), **about))
    for row in rows:
        typer.echo(f"{row['question']:11} {row['system']:9} {row['metric']:6} {row['value']:>12,}")
    typer.echo(save("scispacy", rows))


def run(command: Sequence[Any]) -> None:
    subprocess.run(list(map(str, command)), check=True)


def run_by_turns(commands: dict[str, list[Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Results of each system's command, run `ROUNDS` times by turns; of numbers, the median.

    By turns, for other programs and the machine's clock may change from minute to minute.
    """
    found: dict[str, list[dict[str, Any]]] = {system: [] for system in commands}
    for _ in range(ROUNDS):
        for system, command in commands.items():
            run(command)
            found[system].append(json.loads((folder / "out.json").read_text("utf8")))
    return {
        system: results[0]
        | {
            name: median(result[name] for result in results)
            for name, value in results[0].items()
            if isinstance(value, int | float)
        }
        for system, results in found.items()
    }


def mention_strings(text: AnnotatedText) -> list[str]:
    """Normalised, in their order; those without a word left out."""
    strings = (normalize_name(text.text[m.start : m.end]) for m in text.mentions)
    return [string for string in strings if string]


@contextmanager
def work_folder(kept: Path | None, corpus: str) -> Iterator[Path]:
    """A folder for the knowledge base of a corpus, in one that is kept, or a temporary one."""
    if kept is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    else:
        (kept / corpus).mkdir(parents=True, exist_ok=True)
        yield kept / corpus


def write_concepts(kb: KnowledgeBase, path: Path) -> None:
    """Write concepts in the format of scispaCy's knowledge bases."""
    with path.open("w", encoding="utf8") as file:
        for row, id_ in enumerate(kb.ids):
            names = [normalize_name(name) for name in kb.names.take(kb.names_of(row))]
            record = {"concept_id": id_, "canonical_name": names[0], "aliases": names[1:]}
            file.write(json.dumps(record | {"types": [], "definition": ""}) + "\n")


if __name__ == "__main__":
    typer.run(main)
