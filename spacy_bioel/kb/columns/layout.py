"""Layout of the folder of a knowledge base.

    meta.json                           names the generation; replaced last, in one step
    columns.3f2a9c01b7d4/               the generation: all columns; never changed
    vectors/9f3a.18a0.../about.json     description of the vectors of one encoder
    vectors/9f3a.18a0.../codes.npy ...  vectors of the names of one generation; never changed
    tries/5b1e....3f2a9c01b7d4/         trie of the names of this generation by some word pieces

The folder of an earlier version has the columns directly in it, and stays readable. In memory a
knowledge base is a mapping of files: columns by their names, those of a home (of vectors, or of a
trie) by their paths.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.arrays import RawFile
from spacy_bioel.kb.columns.files import map_folder, read_small
from spacy_bioel.kb.columns.schema import (
    COLUMN_FILES,
    HEAD_COLUMNS,
    KB_FILES,
    META_FILE,
    VECTOR_COLUMNS,
)

ABOUT_FILE = "about.json"
TRIE_COLUMNS = ("first_child", "pieces", "leaves", "name_offsets", "names")
# Files of a home, by its kind: the folder that it is in.
PARTS = {
    "vectors": (ABOUT_FILE, *(f"{x}.npy" for x in (*VECTOR_COLUMNS, *HEAD_COLUMNS)), "ann"),
    "tries": (ABOUT_FILE, *(f"{name}.npy" for name in TRIE_COLUMNS)),
}
# Name of a home: of the encoder or the word pieces, and of the time or the names.
_HOMES = {
    "vectors": re.compile(r"[\w-]+\.[0-9a-f]{16}", re.ASCII),
    "tries": re.compile(r"[0-9a-f]{16}\.[0-9a-f]{12}"),
}
GENERATION = re.compile(r"columns\.[0-9a-f]{12}(\.\d+)?")
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
        meta = read_small(folder, META_FILE)
        files = meta | map_folder(folder / generation_of(meta), COLUMN_FILES)
        now = bytes(meta.get(META_FILE, b""))
        unchanged = unchanged + 1 if now == before else 0
        if not meta or len(files) == len(KB_FILES) or unchanged == _UNCHANGED:
            break
        before = now
        time.sleep(_PAUSE)
    return files


def generation_of(files: Mapping[str, RawFile]) -> str:
    """Folder of the columns that meta.json names; "" in the earlier layout or without meta.json."""
    name = str(_parsed(files, META_FILE).get("generation"))
    return name if GENERATION.fullmatch(name) else ""


def removed_vectors(folder: Path) -> set[str]:
    """Names of the vectors that went with the last change of the columns, in the same step."""
    removed = _parsed(read_small(folder, META_FILE), META_FILE).get("removed")
    names = map(str, removed if isinstance(removed, list) else ())
    return set(filter(_HOMES["vectors"].fullmatch, names))


def generation_name(fingerprint: str) -> str:
    """Name of the folder of columns, the same for the same columns."""
    return f"columns.{blake2b(fingerprint.encode('utf8'), digest_size=6).hexdigest()}"


def is_kb(folder: Path) -> bool:
    """Whether a folder holds a knowledge base of any version, by its meta.json."""
    meta = _parsed(read_small(folder, META_FILE), META_FILE)
    columns = meta.get("columns")
    return (
        isinstance(meta.get("schema"), int) and isinstance(columns, dict) and "ids.txt" in columns
    )


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
    is_empty = out.is_dir() and all(map(_is_leftover, out.iterdir()))
    if not is_empty and not is_kb(out):  # another writer may have finished meanwhile
        raise BioelError(Errors.B029.format(path=out))


def _is_leftover(path: Path) -> bool:
    """Whether a path is a leftover of a killed writer in a folder without a knowledge base."""
    if path.name == "vectors" and path.is_dir():
        return all(_HOMES["vectors"].fullmatch(home.name) for home in path.iterdir())
    return bool(_LEFTOVERS.fullmatch(path.name))


# -- Vectors and tries --------------------------------------------------------------------------


def vectors_name(fingerprint: str) -> str:
    """New name for vectors of an encoder; newer names sort after older ones.

    RAISES ValueError: When the fingerprint has characters other than letters, digits, "_" and "-".
    """
    name = f"{fingerprint}.{time.time_ns():016x}"
    if not _HOMES["vectors"].fullmatch(name):
        raise ValueError(f"{fingerprint!r} is no fingerprint of an encoder")
    return name


def trie_name(pieces: str, kb: str) -> str:
    """Name of a trie, by the fingerprints of its word pieces and of the knowledge base."""
    return f"{pieces}.{generation_name(kb).partition('.')[2]}"


def encoder_of(name: str) -> str:
    """Fingerprint of the encoder, from the name of its vectors."""
    return name.rpartition(".")[0]


def homes_in(folder: Path, kind: str) -> list[str]:
    """Names of the homes of a kind in a folder, described or not."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = sorted(path.name for path in (folder / kind).iterdir())
        return [name for name in names if _HOMES[kind].fullmatch(name)]
    return []


def homes_of(files: Mapping[str, RawFile], kind: str) -> dict[str, dict[str, RawFile]]:
    """Files of each home, by their names in its folder; newer vectors come after older ones."""
    found: dict[str, dict[str, RawFile]] = {}
    for path in sorted(files):
        name, _, part = path.removeprefix(f"{kind}/").partition("/")
        if _HOMES[kind].fullmatch(name) and part in PARTS[kind]:
            found.setdefault(name, {})[part] = files[path]
    return {name: parts for name, parts in found.items() if ABOUT_FILE in parts}


def in_home(kind: str, name: str, parts: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Files of a home, by their paths."""
    return {f"{kind}/{name}/{part}": raw for part, raw in parts.items()}


def map_vectors(folder: Path, *, of: str | None = None) -> dict[str, RawFile]:
    """Map the vectors of all encoders.

    of (str | None): Only vectors of the knowledge base with this fingerprint; None: all.
    """
    files: dict[str, RawFile] = {}
    removed = removed_vectors(folder)
    for name in homes_in(folder, "vectors"):
        home = folder / "vectors" / name
        parts = read_small(home, ABOUT_FILE) | map_folder(home, PARTS["vectors"][1:])
        is_wanted = of in (None, _parsed(parts, ABOUT_FILE).get("kb")) and name not in removed
        if is_wanted and (home / ABOUT_FILE).is_file():  # writers remove the description first
            files |= in_home("vectors", name, parts)
    return files


def map_tries(folder: Path, *, of: str) -> dict[str, RawFile]:
    """Map the tries of the names of the knowledge base with this fingerprint."""
    files: dict[str, RawFile] = {}
    for name in homes_in(folder, "tries"):
        if name == trie_name(name.partition(".")[0], of):
            files |= in_home("tries", name, map_folder(folder / "tries" / name, PARTS["tries"]))
    return files


def known_files(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Select the files of a knowledge base."""
    known = {name: files[name] for name in KB_FILES if name in files}
    for kind in PARTS:
        for name, parts in homes_of(files, kind).items():
            known |= in_home(kind, name, parts)
    return known


def _parsed(files: Mapping[str, RawFile], name: str) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing or unreadable."""
    with suppress(ValueError, KeyError, RecursionError):
        found = json.loads(bytes(files[name]))
        return found if isinstance(found, dict) else {}
    return {}
