"""Layout of the folder of a knowledge base.

    meta.json                           names the generation; replaced last, in one step
    columns.3f2a9c01b7d4/               the generation: all columns; never changed
    vectors/9f3a.18a0.../about.json     description of the vectors of one encoder
    vectors/9f3a.18a0.../codes.npy ...  vectors of the names of one generation; never changed
    tries/5b1e....3f2a9c01b7d4/         trie of the names of this generation by some word pieces

The folder of an earlier version has the columns, vectors.json and the vectors of one encoder
directly in it, and stays readable. In memory a knowledge base is a mapping of files in any layout:
columns by their names, vectors by their paths.
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
from spacy_bioel.kb.columns.schema import (
    COLUMN_FILES,
    KB_FILES,
    META_FILE,
    VECTOR_COLUMNS,
    columns_of_version,
)

VECTORS_FOLDER = "vectors"
ABOUT_FILE = "about.json"
SET_FILES = (ABOUT_FILE, *(f"{name}.npy" for name in VECTOR_COLUMNS), "ann")
# Description of the vectors in the layout of an earlier version, with their generation.
OLD_VECTORS_FILE = "vectors.json"
# Fingerprint of the encoder if the description of the vectors is unreadable.
UNKNOWN_ENCODER = "unknown"

GENERATION = re.compile(r"columns\.[0-9a-f]{12}(\.\d+)?")
_SET = re.compile(r"([\w-]+)\.[0-9a-f]{16}", re.ASCII)
_OLD_SET = "0" * 16  # time of vectors of an earlier version, before all others
_LEFTOVERS = re.compile(rf"\.(lock|holder|encoding|new\..*|meta\.json\..*)|{GENERATION.pattern}")
# Attempts to open, attempts with the same meta.json, and seconds between attempts.
_MOST, _UNCHANGED, _PAUSE = 200, 3, 0.005


# -- Columns ------------------------------------------------------------------------------------


def map_columns(folder: Path) -> dict[str, RawFile]:
    """Map meta.json and the columns that it describes; missing files are left out.

    If a writer removes the columns meanwhile, meta.json has changed, and both are read again.
    """
    before, unchanged = None, 0
    for _ in range(_MOST):
        meta = map_meta(folder)
        files = meta | map_folder(folder / generation_of(meta), COLUMN_FILES)
        now = bytes(meta.get(META_FILE, b""))
        unchanged = unchanged + 1 if now == before else 0
        if len(files) >= _n_files(meta) or unchanged == _UNCHANGED:
            break
        before = now
        time.sleep(_PAUSE)
    return files


def _n_files(meta: Mapping[str, RawFile]) -> int:
    """Number of files of a knowledge base of the version in meta.json."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return 1 + len(columns_of_version(int(json.loads(bytes(meta[META_FILE]))["schema"])))
    return len(KB_FILES) if meta else 0


def map_meta(folder: Path) -> dict[str, RawFile]:
    """Read meta.json alone. RETURNS (dict): Empty if it is missing."""
    return _read_small(folder / META_FILE, META_FILE)


def generation_of(files: Mapping[str, RawFile]) -> str:
    """Folder of the columns that meta.json names; "" in the earlier layout or without meta.json."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        name = json.loads(bytes(files[META_FILE]))["generation"]
        return str(name) if GENERATION.fullmatch(name) else ""
    return ""


def removed_sets(files: Mapping[str, RawFile]) -> set[str]:
    """Names of the vectors that went with the last change of the columns, in the same step."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return set(filter(_SET.fullmatch, json.loads(bytes(files[META_FILE]))["removed"]))
    return set()


def generation_name(fingerprint: str) -> str:
    """Name of the folder of columns, the same for the same columns."""
    return f"columns.{blake2b(fingerprint.encode('utf8'), digest_size=6).hexdigest()}"


def is_kb(folder: Path) -> bool:
    """Whether a folder holds a knowledge base of any version, by its meta.json."""
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
    if is_kb(out):  # another writer has finished since it was asked above
        return
    raise BioelError(Errors.B029.format(path=out))


def _is_leftover(path: Path) -> bool:
    """Whether a path is a leftover of a killed writer in a folder without a knowledge base."""
    if path.name == VECTORS_FOLDER and path.is_dir():
        return all(_SET.fullmatch(home.name) for home in path.iterdir())
    return bool(_LEFTOVERS.fullmatch(path.name))


def left_by_earlier(folder: Path, kinds: str = "old") -> list[Path]:
    """Folders that an earlier version made beside a knowledge base while it replaced it.

    kinds (str): "old": the knowledge base as it was; "new": what should have come in its place;
        or both, as "new|old".
    """
    made = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{12}}\.({kinds})")
    with suppress(OSError):
        found = (path for path in folder.parent.iterdir() if made.fullmatch(path.name))
        return [path for path in found if path.is_dir() and not path.is_symlink()]
    return []


# -- Vectors ------------------------------------------------------------------------------------


def set_name(fingerprint: str) -> str:
    """New name for vectors of an encoder; newer names sort after older ones.

    RAISES ValueError: When the fingerprint has characters other than letters, digits, "_" and "-".
    """
    name = f"{fingerprint}.{time.time_ns():016x}"
    if not _SET.fullmatch(name):
        raise ValueError(f"{fingerprint!r} is no fingerprint of an encoder")
    return name


def is_old_set(name: str) -> bool:
    """Whether vectors are in the layout of an earlier version."""
    return name.endswith(_OLD_SET)


def encoder_of(name: str) -> str:
    """Fingerprint of the encoder, from the name of its vectors."""
    return name.rpartition(".")[0]


def set_file(name: str, part: str) -> str:
    """Key of a file of vectors in memory: a column, or the approximate index "ann"."""
    return f"{VECTORS_FOLDER}/{name}/{part}" + (".npy" if part in VECTOR_COLUMNS else "")


def set_names(files: Mapping[str, RawFile]) -> list[str]:
    """Names of the vectors among files, newer ones of an encoder after older ones."""
    paths = (name.split("/") for name in files)
    found = (path for path in paths if len(path) == 3 and path[2] == ABOUT_FILE)
    return sorted(path[1] for path in found if path[0] == VECTORS_FOLDER)


def files_of_set(files: Mapping[str, RawFile], name: str) -> dict[str, RawFile]:
    """Files of vectors, by their names in their own folder."""
    named = ((part, f"{VECTORS_FOLDER}/{name}/{part}") for part in SET_FILES)
    return {part: files[path] for part, path in named if path in files}


def map_vectors(folder: Path, *, of: str | None = None) -> dict[str, RawFile]:
    """Map the vectors of all encoders.

    of (str | None): Only vectors of the knowledge base with this fingerprint; None: all.
    """
    files = _old_vectors(map_folder(folder, _old_names(folder)))
    for name in sets_in(folder):
        files |= _map_set(folder, name)
    removed = removed_sets(map_meta(folder))
    wanted = {name for name in set_names(files) if of is None or _state(files, name) == of}
    return {path: raw for path, raw in files.items() if path.split("/")[1] in wanted - removed}


def known_files(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Select the files of a knowledge base, by their names in the current layout."""
    known = {name: files[name] for name in KB_FILES if name in files}
    for name in set_names(files):
        if _SET.fullmatch(name):
            parts = files_of_set(files, name)
            known |= {f"{VECTORS_FOLDER}/{name}/{part}": raw for part, raw in parts.items()}
    return known | _old_vectors(files)


def sets_in(folder: Path) -> Iterator[str]:
    """Names of the vectors in a folder, described or not."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in (folder / VECTORS_FOLDER).iterdir():
            if _SET.fullmatch(path.name):
                yield path.name


def _map_set(folder: Path, name: str) -> dict[str, RawFile]:
    """Map the vectors of one name. RETURNS (dict): Empty while they are being removed."""
    home = folder / VECTORS_FOLDER / name
    parts = _read_small(home / ABOUT_FILE, ABOUT_FILE) | map_folder(home, SET_FILES[1:])
    if not (home / ABOUT_FILE).is_file():  # writers remove the description first
        return {}
    return {f"{VECTORS_FOLDER}/{name}/{part}": raw for part, raw in parts.items()}


def _state(files: Mapping[str, RawFile], name: str) -> str | None:
    """Fingerprint of the encoded knowledge base; None if the description is unreadable."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(bytes(files[set_file(name, ABOUT_FILE)]))["kb"])
    return None


def _old_names(folder: Path) -> list[str]:
    about = _read_small(folder / OLD_VECTORS_FILE, OLD_VECTORS_FILE)
    return [OLD_VECTORS_FILE, *_old_parts(_old_about(about))] if about else []


def _old_vectors(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Vectors in the layout of an earlier version, by their names in the current layout."""
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
    """From old file name to part of the vectors."""
    generation = str(about.get("generation", ""))
    if not generation.isalnum():  # missing, or a path to another folder
        return {}
    columns = {f"vectors.{generation}.{part}.npy": part for part in VECTOR_COLUMNS}
    return columns | {f"vectors.{generation}.ann": "ann"}


def _old_about(files: Mapping[str, RawFile]) -> dict[str, Any]:
    with suppress(ValueError, TypeError, RecursionError):
        return dict(json.loads(bytes(files[OLD_VECTORS_FILE])))
    return {}


def _read_small(path: Path, name: str) -> dict[str, RawFile]:
    """Read a file that may be replaced meanwhile. RETURNS (dict): Empty if it is missing."""
    try:
        return {name: np.frombuffer(path.read_bytes(), dtype=np.uint8)}
    except (FileNotFoundError, NotADirectoryError):
        return {}
