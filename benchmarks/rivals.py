"""Compare speed and memory with other systems, each in a separate process with default settings.

All cores, wall time, three runs in turn; the median is recorded. `--python` is the Python of an
environment with the other systems: scispacy==0.6.2 and scipy<1.11, which scispaCy needs to build an
index (Python 3.11, numpy 1); FastHPOCR 0.1.4 and pyahocorasick.

scispacy CORPUS OTHERS: scispaCy's candidate generator with the same names and queries. With
--folder, the index of scispaCy is kept there for further runs, and for `documents`.

index        from concepts in a file to an index, with encoding
load         from a new process with imported libraries to the first answer
throughput   mentions a second: the gold mentions of train and dev, in the order of the documents;
             ours in batches of 64 documents as in `nlp.pipe`, scispaCy's all in one call
different    unique strings a second, so that caches do not help: mentions of dev, and of the file
             OTHERS, up to `n`
memory       peak memory of the linking process, with libraries
own          the same without the memory in use after the imports
accuracy     percentage of right top candidates (any id), on dev mentions whose ids the KB has

documents CORPUS: from text to links, with the light pipeline (training/configs/rescnn.cfg) that the
project has trained. The other system is spaCy's stock NER with scispaCy's EntityLinker without its
filter by definitions; the NER is trained for five rounds on the same documents, so that it finds
about as many mentions.

dictionary TEXTS hpo=KB mondo=KB: names found without training, by `mentions = "dictionary"`, by
FastHPOCR with hp.obo (in the row of the first knowledge base), and by pyahocorasick, which finds
the longest exact names in lower case.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.linking import known_texts
from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.texts import dev, mention_strings
from spacy_bioel.corpus import read_texts
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

_TURNS = 3
# -P: otherwise `import scispacy` would search the folder of the script.
THEIRS = ("-P", Path(__file__).with_name("rivals_theirs.py"))
_OURS = (sys.executable, "-m", "benchmarks.rivals_ours")
PythonOption = Annotated[
    Path, typer.Option(help="Python of an environment with the other systems.")
]
FolderOption = Annotated[Path | None, typer.Option(help="Keep scispaCy's index there.")]


@question("scispacy")
def scispacy(
    corpus: str,
    others: Annotated[Path, typer.Argument(help="Documents with more mentions to link.")],
    python: PythonOption,
    n: Annotated[int, typer.Option(help="Unique strings.")] = 10_000,
    folder: FolderOption = None,
    note: NoteOption = "",
) -> Iterator[Row]:
    kb = KnowledgeBase.open(Path("kb") / corpus)
    gold = [
        (normalize_name(text.text[m.start : m.end]), m.ids)
        for text in known_texts(corpus, kb)
        for m in text.mentions
    ]
    train = read_texts(Path("corpus") / corpus / "train.spacy")
    documents = [mention_strings(text) for text in (*train, *dev(corpus))]
    more = [string for text in read_texts(others) for string in mention_strings(text)]
    queries = [q for q in dict.fromkeys([*(string for string, _ in gold), *more]) if q][:n]
    found: dict[str, dict[str, float]] = {}
    with _work_folder(folder, corpus) as work:
        _write_concepts(kb, work / "concepts.jsonl")
        write_json(work / "queries.json", queries)
        write_json(work / "documents.json", documents)
        children: dict[str, list[Any]] = {"scispacy": [python, *THEIRS], "rescnn": [*_OURS]}
        for child in children.values():
            run(*child, "build", work)
        links = {system: [*child, "link", work] for system, child in children.items()}
        for system, result in _by_turns(links, work).items():
            top = dict(zip(queries, result.pop("found"), strict=True))
            right = [
                top[s] is not None and kb.find(top[s]) in kb.find_all(list(ids)) for s, ids in gold
            ]
            found[system] = result | {"accuracy": 100 * sum(right) / len(right)}
    about: Row = {"corpus": corpus, "names": kb.n_names, "note": note}
    about |= {"n": len(queries), "gold": len(gold)}
    about |= {"documents": len(documents), "mentions": sum(map(len, documents))}
    for system, values in found.items():
        for asked, value in values.items():
            yield from rows_of(system, {"value": value}, question=asked, **about)
    for asked, value in found["rescnn"].items():
        theirs = found["scispacy"][asked]
        # Above 1: we are faster or better. Memory: our share of theirs.
        ratio = theirs / value if asked in ("index", "load") else value / theirs
        yield from rows_of("rescnn", {"ratio": ratio}, digits=3, question=asked, **about)


@question("documents")
def documents(
    corpus: str,
    python: PythonOption,
    names: Annotated[str, typer.Option(help="Link to the names of this corpus.")] = "",
    folder: FolderOption = None,
    note: NoteOption = "",
) -> Iterator[Row]:
    """Compare complete pipelines. With --names both systems use a smaller knowledge base."""
    model = Path("models") / corpus / "final"
    kb = KnowledgeBase.open(Path("kb") / (names or corpus))
    texts = [text.text for text in dev(corpus)]
    with _work_folder(folder, names or corpus) as work:
        _write_concepts(kb, work / "concepts.jsonl")
        train = read_texts(Path("corpus") / corpus / "train.spacy")
        write_texts_jsonl(work / "train.jsonl", train)
        write_json(work / "texts.json", texts)
        for step in ("build", "train"):
            run(python, *THEIRS, step, work)
        if names:
            run(*_OURS, "exchange", work, model)
            model = work / "light"
        pipes = {
            "scispacy": [python, *THEIRS, "pipe", work],
            "light": [*_OURS, "pipe", work, model],
        }
        found = _by_turns(pipes, work)
    about = {"corpus": corpus, "names": kb.n_names, "n": len(texts), "note": note}
    for system, values in found.items():
        yield from rows_of(system, values, **about)
    speed = {s: values["documents_per_second"] for s, values in found.items()}
    yield from rows_of("light", {"ratio": speed["light"] / speed["scispacy"]}, **about)


@question("dictionary")
def dictionary(
    texts: Path,
    kbs: Annotated[list[str], typer.Argument(help="NAME=FOLDER of knowledge bases.")],
    obo: Annotated[Path, typer.Option(help="hp.obo, for FastHPOCR.")],
    python: PythonOption,
    index: Annotated[Path | None, typer.Option(help="Existing hp.index of FastHPOCR.")] = None,
    n: Annotated[int, typer.Option(help="Documents.")] = 500,
    note: NoteOption = "",
) -> Iterator[Row]:
    strings = [text.text for text in read_texts(texts)][:n]
    for number, (name, folder) in enumerate(pair.split("=", 1) for pair in kbs):
        kb = KnowledgeBase.open(folder)
        indptr, concepts, _ = kb.concepts_of_names(np.arange(kb.n_names))
        with _work_folder(None, name) as work:
            ids = kb.ids_of(concepts[indptr[:-1]])  # the first concept of each name
            write_json(work / "names.json", list(zip(kb.names, ids, strict=True)))
            write_json(work / "texts.json", strings)
            children: dict[str, list[Any]] = {
                "ours": [*_OURS, "find", work, folder],
                "aho_corasick": [python, *THEIRS, "aho_corasick", work],
            }
            if not number:
                shutil.copy(obo, work / "hp.obo")
                if index is not None:
                    shutil.copy(index, work / "hp.index")
                children["fasthpocr"] = [python, *THEIRS, "fasthpocr", work]
            found = _by_turns(children, work)
        for system, values in found.items():
            del values["found"]
            yield from rows_of(
                system, values, corpus=name, names=kb.n_names, n=len(strings), note=note
            )


def run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf8")


def _by_turns(commands: dict[str, list[Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results that commands write to FOLDER/out.json; numbers are medians.

    Commands run in turn, because the load and clock rate of the machine change over time.
    """
    found: dict[str, list[dict[str, Any]]] = {system: [] for system in commands}
    for _ in range(_TURNS):
        for system, command in commands.items():
            run(*command)
            found[system].append(json.loads((folder / "out.json").read_text("utf8")))
    return {
        system: {
            name: median(result[name] for result in results)
            if isinstance(value, int | float)
            else value
            for name, value in results[0].items()
        }
        for system, results in found.items()
    }


@contextmanager
def _work_folder(kept: Path | None, corpus: str) -> Iterator[Path]:
    """Yield a folder for a knowledge base, in `kept` or temporary."""
    if kept is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
    else:
        (kept / corpus).mkdir(parents=True, exist_ok=True)
        yield kept / corpus


def _write_concepts(kb: KnowledgeBase, path: Path) -> None:
    """Write concepts in the format of scispaCy's knowledge bases."""
    with path.open("w", encoding="utf8") as file:
        for row, id_ in enumerate(kb.ids):
            names = [normalize_name(name) for name in kb.names.take(kb.names_of(row))]
            record = {"concept_id": id_, "canonical_name": names[0], "aliases": names[1:]}
            file.write(json.dumps(record | {"types": [], "definition": ""}) + "\n")
