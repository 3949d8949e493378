"""Knowledge bases for tests that compare or damage their files, and writers for concurrent tests.

Imports little, so that the processes of these tests start fast.
"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import TensorFile, checksums_of, serialized
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
    """Return the file of the current columns of a knowledge base, which must be the only one."""
    [path] = folder.glob("kb.*.safetensors")
    return path


def vectors_of(folder: Path, encoder: str = "*") -> Path:
    """Return the file of the vectors of an encoder; by default, of the only one."""
    [path] = (folder / "vectors").glob(f"{encoder}.*")
    return path


def place_of(path: Path, name: str) -> slice:
    """Return where the bytes of an array are in a file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    begin, end = json.loads(raw[8:start])[name]["data_offsets"]
    return slice(start + begin, start + end)


def replace(path: Path, content: bytes) -> None:
    """Replace a file, which may be mapped."""
    other = path.with_name("other")
    other.write_bytes(content)
    other.replace(path)


def flip(path: Path, position: int) -> None:
    """Change one bit in a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    replace(path, content)


def edit_about(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the description in a file, but not the checksum of the header."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    about = json.loads(header["__metadata__"]["bioel"])
    change(about)
    header["__metadata__"]["bioel"] = json.dumps(about)
    with_header(path, json.dumps(header).encode())


def with_header(path: Path, text: bytes) -> None:
    """Replace the header of a file."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    replace(path, len(text).to_bytes(8, "little") + text + raw[start:])


def forge(path: Path, change: Callable[[dict[str, np.ndarray], dict[str, Any]], object]) -> None:
    """Change the arrays and the description in a file, with a correct checksum of the header."""
    file = TensorFile(np.frombuffer(path.read_bytes(), np.uint8))
    arrays, about = dict(file.arrays), {**file.about, "checksums": file.checksums}
    change(arrays, about)
    replace(path, b"".join(serialized(arrays, **about)))


def forge_array(path: Path, name: str, array: np.ndarray | None) -> None:
    """Replace or remove an array in a file, with correct checksums."""

    def change(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        del arrays[name], about["checksums"][name]
        if array is not None:
            arrays[name] = array
            about["checksums"] |= checksums_of({name: array})

    forge(path, change)


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
