"""Knowledge bases for tests that compare or damage their files, and writers for concurrent tests.

Imports little, so that the processes of these tests start fast.
"""

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
    """Return the names of a concept, from the current state of the folder."""
    opened = kb if isinstance(kb, KnowledgeBase) else KnowledgeBase.open(kb)
    return opened.names.take(opened.names_of(opened.find(id)))


def encode(folder: Path, fingerprint: str = "f") -> None:
    """Write vectors of an encoder that returns the same vector for all names."""
    write_vectors(KnowledgeBase.open(folder), ones, fingerprint=fingerprint, dim=2)


def columns_of(folder: Path) -> Path:
    """Return the folder of the current columns of a knowledge base."""
    return folder / json.loads((folder / "meta.json").read_text("utf8"))["generation"]


def vectors_of(folder: Path, encoder: str = "*") -> Path:
    """Return the folder of the vectors of an encoder; by default, of the only one."""
    [home] = (folder / "vectors").glob(f"{encoder}.*")
    return home


def all_files(folder: Path) -> list[str]:
    """Return the paths of all files except the lock, which stays after each change."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if path != ".lock")


def concept(i: int) -> Concept:
    """Return a concept whose names and definition follow from its number."""
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
    """Add concepts one by one, encode now and then, and retire every third concept."""
    for i in range(1, n):
        add(folder, i)
        if i % 3 == 0:
            retire_ids(folder, {f"X:{i:03}": ""})
        if i % 5 == 0:
            encode(folder)
        if i % 7 == 0:
            compact_kb(folder)


def npy_bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a .npy file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return np.frombuffer(stream.getvalue(), dtype=np.uint8)
