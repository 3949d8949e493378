"""Where the files of a knowledge base lie in its folder.

    meta.json                           names the generation; replaced last, in one step
    columns.3f2a9c01b7d4/               the generation: all columns; nothing in it changes
    vectors/9f3a.18a0.../about.json     vectors of one encoder, of the names of one generation;
    vectors/9f3a.18a0.../codes.npy ...  nothing in it changes

A folder that an earlier version wrote has the columns, vectors.json and the vectors of one encoder
directly in it, and is read as it is. In memory a knowledge base is a table of files: columns by
their names, vectors by their paths, whatever the folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.files import RawFile, map_folder
from spacy_bioel.kb.columns.schema import COLUMN_FILES, KB_FILES, META_FILE, VECTOR_COLUMNS

VECTORS_FOLDER = "vectors"
ABOUT_FILE = "about.json"
SET_FILES = (ABOUT_FILE, *(f"{name}.npy" for name in VECTOR_COLUMNS), "ann")
# Of an earlier version: describes its vectors, and has their generation in it.
OLD_VECTORS_FILE = "vectors.json"
# The encoder of vectors whose description cannot be read.
UNKNOWN_ENCODER = "unknown"

GENERATION = re.compile(r"columns\.[0-9a-f]{12}(\.\d+)?")
_SET = re.compile(r"([\w-]+)\.[0-9a-f]{16}", re.ASCII)
_OLD_SET = "0" * 16  # older than any other
_LEFTOVERS = re.compile(rf"\.(lock|holder|encoding|new\..*|meta\.json\..*)|{GENERATION.pattern}")
_MOST, _UNCHANGED, _PAUSE = 200, 3, 0.005  # attempts to open, and seconds between them


# -- Columns ------------------------------------------------------------------------------------


def map_columns(folder: Path) -> dict[str, RawFile]:
    """Map meta.json and the columns that it is about; without what is not there.

    A writer may remove the columns while they are being opened. Then meta.json is another one.
    """
    before, unchanged = None, 0
    for _ in range(_MOST):
        meta = map_meta(folder)
        files = meta | map_folder(folder / generation_of(meta), COLUMN_FILES)
        now = bytes(meta.get(META_FILE, b""))
        unchanged = unchanged + 1 if now == before else 0
        if len(files) == len(KB_FILES) or not meta or unchanged == _UNCHANGED:
            break
        before = now
        time.sleep(_PAUSE)
    return files


def map_meta(folder: Path) -> dict[str, RawFile]:
    """meta.json alone; empty if it is not there."""
    return _read_small(folder / META_FILE, META_FILE)


def generation_of(files: Mapping[str, RawFile]) -> str:
    """The folder of the columns that meta.json names; "" in an earlier version's, or without."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        name = json.loads(bytes(files[META_FILE]))["generation"]
        return str(name) if GENERATION.fullmatch(name) else ""
    return ""


def generation_name(fingerprint: str) -> str:
    """Name of the folder of columns; the same for the same columns."""
    return f"columns.{blake2b(fingerprint.encode('utf8'), digest_size=6).hexdigest()}"


def is_kb(folder: Path) -> bool:
    """Whether a folder holds a knowledge base of any version, by what its meta.json says."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        meta = json.loads(bytes(map_meta(folder)[META_FILE]))
        return isinstance(meta["schema"], int) and "ids.txt" in dict(meta["columns"])
    return False


def has_columns(folder: Path) -> bool:
    """Whether a folder has some files of a knowledge base, though others may be missing."""
    old = any((folder / name).is_file() for name in ("ids.txt", "names.txt"))
    return old or is_kb(folder) or any(folder.glob("columns.*/*.npy"))


def check_replaceable(out: Path) -> None:
    """Refuse to overwrite anything but a knowledge base or an empty folder.

    RAISES BioelError: [B029].
    """
    if not out.exists() or is_kb(out):
        return
    if out.is_dir() and all(_is_leftover(path) for path in out.iterdir()):
        return
    raise BioelError(Errors.B029.format(path=out))


def _is_leftover(path: Path) -> bool:
    """Whether a writer that was killed has left this where there was no knowledge base."""
    if path.name == VECTORS_FOLDER and path.is_dir():
        return all(_SET.fullmatch(home.name) for home in path.iterdir())
    return bool(_LEFTOVERS.fullmatch(path.name))


def left_by_earlier(folder: Path) -> Path | None:
    """The knowledge base that an earlier version moved away, to put another one in its place."""
    moved = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{12}}\.old")
    with suppress(OSError):
        return next((path for path in folder.parent.iterdir() if moved.fullmatch(path.name)), None)
    return None


# -- Vectors ------------------------------------------------------------------------------------


def set_name(fingerprint: str) -> str:
    """A new name for vectors of an encoder; newer names come later in the order of the alphabet.

    RAISES ValueError: When the fingerprint is not made of letters, digits, "_" and "-".
    """
    name = f"{fingerprint}.{time.time_ns():016x}"
    if not _SET.fullmatch(name):
        raise ValueError(f"{fingerprint!r} is no fingerprint of an encoder")
    return name


def is_old_set(name: str) -> bool:
    """Whether these vectors are those of an earlier version."""
    return name.endswith(_OLD_SET)


def encoder_of(name: str) -> str:
    """The fingerprint of the encoder that made vectors of this name."""
    return name.rpartition(".")[0]


def set_file(name: str, part: str) -> str:
    """A file of vectors as it is called in memory: a column, or the approximate index "ann"."""
    return f"{VECTORS_FOLDER}/{name}/{part}" + (".npy" if part in VECTOR_COLUMNS else "")


def set_names(files: Mapping[str, RawFile]) -> list[str]:
    """Vectors that are among files, newer ones of an encoder after older ones."""
    paths = (name.split("/") for name in files)
    return sorted(path[1] for path in paths if len(path) == 3 and path[2] == ABOUT_FILE)


def files_of_set(files: Mapping[str, RawFile], name: str) -> dict[str, RawFile]:
    """The files of vectors, as they are called in their own folder."""
    named = ((part, f"{VECTORS_FOLDER}/{name}/{part}") for part in SET_FILES)
    return {part: files[path] for part, path in named if path in files}


def map_vectors(folder: Path, *, of: str | None = None) -> dict[str, RawFile]:
    """Map the vectors that are there.

    of (str | None): Only those of the names of the knowledge base with this fingerprint.
    """
    files = _old_vectors(map_folder(folder, _old_names(folder)))
    for name in _sets_in(folder):
        files |= _map_set(folder, name)
    if of is None:
        return files
    wanted = {name for name in set_names(files) if _state(files, name) == of}
    return {path: raw for path, raw in files.items() if path.split("/")[1] in wanted}


def known_files(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """The files of a knowledge base among others, by the names that they have in this version."""
    known = {name: files[name] for name in KB_FILES if name in files}
    for name in set_names(files):
        if _SET.fullmatch(name):
            parts = files_of_set(files, name)
            known |= {f"{VECTORS_FOLDER}/{name}/{part}": raw for part, raw in parts.items()}
    return known | _old_vectors(files)


def _sets_in(folder: Path) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in (folder / VECTORS_FOLDER).iterdir():
            if _SET.fullmatch(path.name):
                yield path.name


def _map_set(folder: Path, name: str) -> dict[str, RawFile]:
    """One encoder's vectors; nothing if they are being removed."""
    home = folder / VECTORS_FOLDER / name
    parts = _read_small(home / ABOUT_FILE, ABOUT_FILE) | map_folder(home, SET_FILES[1:])
    if not (home / ABOUT_FILE).is_file():  # which is removed first
        return {}
    return {f"{VECTORS_FOLDER}/{name}/{part}": raw for part, raw in parts.items()}


def _state(files: Mapping[str, RawFile], name: str) -> str | None:
    """Fingerprint of the knowledge base that was encoded; None if that cannot be read."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(bytes(files[set_file(name, ABOUT_FILE)]))["kb"])
    return None


def _old_names(folder: Path) -> list[str]:
    about = _read_small(folder / OLD_VECTORS_FILE, OLD_VECTORS_FILE)
    return [OLD_VECTORS_FILE, *_old_parts(_old_about(about))] if about else []


def _old_vectors(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Files that an earlier version made of vectors, as they are called now."""
    if OLD_VECTORS_FILE not in files:
        return {}
    about = _old_about(files)
    encoder = str(about.get("fingerprint", ""))
    name = f"{encoder}.{_OLD_SET}"
    if not _SET.fullmatch(name):
        name = f"{UNKNOWN_ENCODER}.{_OLD_SET}"
    parts = _old_parts(about).items()
    vectors = {set_file(name, part): files[old] for old, part in parts if old in files}
    return {set_file(name, ABOUT_FILE): files[OLD_VECTORS_FILE]} | vectors


def _old_parts(about: Mapping[str, Any]) -> dict[str, str]:
    """Old name of each part of the vectors."""
    generation = str(about.get("generation", ""))
    if not generation.isalnum():  # nor a path to somewhere else
        return {}
    columns = {f"vectors.{generation}.{part}.npy": part for part in VECTOR_COLUMNS}
    return columns | {f"vectors.{generation}.ann": "ann"}


def _old_about(files: Mapping[str, RawFile]) -> dict[str, Any]:
    with suppress(ValueError, TypeError, RecursionError):
        return dict(json.loads(bytes(files[OLD_VECTORS_FILE])))
    return {}


def _read_small(path: Path, name: str) -> dict[str, RawFile]:
    """A file that is replaced while others read it, as it is now; empty if it is not there."""
    try:
        return {name: np.frombuffer(path.read_bytes(), dtype=np.uint8)}
    except (FileNotFoundError, NotADirectoryError):
        return {}
