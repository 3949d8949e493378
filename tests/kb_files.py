"""The files of a knowledge base, for tests that damage them or that have them as they were; and
what processes beside each other do to one. Imports little, for these start fast then."""

import io
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts, compact_kb, retire_ids
from spacy_bioel.kb.folder import editing
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import write_vectors
from spacy_bioel.types import Concept


def made_kb(folder: Path, concepts: Iterable[Concept], **about: Any) -> KnowledgeBase:
    build_kb(concepts, folder, **about)
    return KnowledgeBase.open(folder)


def names_of(kb: Path | KnowledgeBase, id: str) -> list[str]:
    """Names of a concept, as the folder has it now."""
    opened = kb if isinstance(kb, KnowledgeBase) else KnowledgeBase.open(kb)
    return opened.names.take(opened.names_of(opened.find(id)))


def encode(folder: Path, fingerprint: str = "f") -> None:
    """Write vectors of an encoder to which all names are alike."""
    write_vectors(KnowledgeBase.open(folder), ones, fingerprint=fingerprint, dim=2)


def columns_of(folder: Path) -> Path:
    """The folder of the columns that a knowledge base has now."""
    return folder / json.loads((folder / "meta.json").read_text("utf8"))["generation"]


def vectors_of(folder: Path, encoder: str = "*") -> Path:
    """The folder of the vectors of the only encoder, or of one of them."""
    [home] = (folder / "vectors").glob(f"{encoder}.*")
    return home


def all_files(folder: Path) -> list[str]:
    """All files but the lock, which stays."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if path != ".lock")


def concept(i: int) -> Concept:
    """One of many whose names and definition can be told from the id."""
    return Concept(f"X:{i:03}", (f"name {i}", f"other {i}"), ("T",), (), f"Of {i}.")


def ones(names: Any) -> Any:
    return np.ones((len(names), 2))


def add(folder: Path, i: int) -> None:
    add_concepts(folder, [concept(i)])


def hold(folder: Path, held: Any) -> None:
    with editing(folder, to="encode names"):
        held.set()
        time.sleep(60)


def change(folder: Path, n: int) -> None:
    """Adds concepts one by one, encodes now and then, and takes every third out again."""
    for i in range(1, n):
        add(folder, i)
        if i % 3 == 0:
            retire_ids(folder, {f"X:{i:03}": ""})
        if i % 5 == 0:
            encode(folder)
        if i % 7 == 0:
            compact_kb(folder)


def npy_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return np.frombuffer(stream.getvalue(), dtype=np.uint8)
