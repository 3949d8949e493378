"""Compare speed and memory of complete pipelines, each in a separate process with default settings.

python -m benchmarks.run documents CORPUS: from text to links, with the light pipeline
(training/configs/rescnn.cfg) that the project has trained. The other system is spaCy's stock NER
with scispaCy's EntityLinker without its filter by definitions; the NER is trained for five rounds
on the same documents, so that it finds about as many mentions.

All cores, wall time, three runs in turn; the median is recorded. `--python` is the Python of an
environment with scispacy==0.6.2 and scipy<1.11, which scispaCy needs to build an index (Python
3.11, numpy 1). With --folder, its index is kept there for further runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.texts import dev
from spacy_bioel.corpus import read_texts
from spacy_bioel.io.jsonl import write_texts_jsonl
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

_TURNS = 3
# -P: otherwise `import scispacy` would search the folder of the script.
_THEIRS = ("-P", Path(__file__).with_name("rivals_theirs.py"))
_OURS = (sys.executable, "-m", "benchmarks.rivals_ours")


@question("documents")
def documents(
    corpus: str,
    python: Annotated[Path, typer.Option(help="Python of the environment with scispaCy.")],
    names: Annotated[str, typer.Option(help="Link to the names of this corpus.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Keep scispaCy's index there.")] = None,
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
        _write_json(work / "texts.json", texts)
        for step in ("build", "train"):
            _run(python, *_THEIRS, step, work)
        if names:
            _run(*_OURS, "exchange", work, model)
            model = work / "light"
        pipes = {
            "scispacy": [python, *_THEIRS, "pipe", work],
            "light": [*_OURS, "pipe", work, model],
        }
        found = _by_turns(pipes, work)
    about = {"corpus": corpus, "names": kb.n_names, "n": len(texts), "note": note}
    for system, values in found.items():
        yield from rows_of(system, values, **about)
    speed = {s: values["documents_per_second"] for s, values in found.items()}
    yield from rows_of("light", {"ratio": speed["light"] / speed["scispacy"]}, **about)


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf8")


def _by_turns(commands: dict[str, list[Any]], folder: Path) -> dict[str, dict[str, float]]:
    """Return the results that commands write to FOLDER/out.json; medians of the turns.

    Commands run in turn, because the load and clock rate of the machine change over time.
    """
    found: dict[str, list[dict[str, float]]] = {system: [] for system in commands}
    for _ in range(_TURNS):
        for system, command in commands.items():
            _run(*command)
            found[system].append(json.loads((folder / "out.json").read_text("utf8")))
    return {
        system: {name: median(result[name] for result in results) for name in results[0]}
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
