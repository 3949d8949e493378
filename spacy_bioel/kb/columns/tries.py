"""Tries in the folder of a knowledge base, see `kb.words.trie`: names of folders and files.

A trie is of the names of one generation by some word pieces, and its name says both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from spacy_bioel.kb.columns.files import RawFile, map_folder
from spacy_bioel.kb.columns.layout import ABOUT_FILE, generation_name

TRIES_FOLDER = "tries"
_COLUMNS = ("first_child", "pieces", "leaves", "name_offsets", "names")
TRIE_FILES = (ABOUT_FILE, *(f"{column}.npy" for column in _COLUMNS))
_NAME = re.compile(r"[0-9a-f]{16}\.[0-9a-f]{12}")


def trie_name(pieces: str, kb: str) -> str:
    """Name of a trie, by the fingerprints of its word pieces and of the knowledge base."""
    return f"{pieces}.{generation_name(kb).partition('.')[2]}"


def trie_file(name: str, part: str) -> str:
    """Key of a file of a trie in memory."""
    return f"{TRIES_FOLDER}/{name}/{part}"


def trie_names(files: Mapping[str, RawFile]) -> list[str]:
    """Names of the tries among files."""
    paths = (name.split("/") for name in files)
    found = (path for path in paths if len(path) == 3 and path[2] == ABOUT_FILE)
    return sorted(path[1] for path in found if path[0] == TRIES_FOLDER)


def files_of_trie(files: Mapping[str, RawFile], name: str) -> dict[str, RawFile]:
    """Files of a trie, by their names in their own folder."""
    named = ((part, trie_file(name, part)) for part in TRIE_FILES)
    return {part: files[path] for part, path in named if path in files}


def map_tries(folder: Path, *, of: str) -> dict[str, RawFile]:
    """Map the tries of the names of the knowledge base with this fingerprint."""
    files: dict[str, RawFile] = {}
    for name in tries_in(folder):
        if name == trie_name(name.partition(".")[0], of):
            parts = map_folder(folder / TRIES_FOLDER / name, TRIE_FILES)
            files |= {trie_file(name, part): raw for part, raw in parts.items()}
    return files


def tries_in(folder: Path) -> list[str]:
    """Names of the tries in a folder, of any generation."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(p.name for p in (folder / TRIES_FOLDER).iterdir() if _NAME.fullmatch(p.name))
    return []


def known_tries(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Select the files of tries."""
    known: dict[str, RawFile] = {}
    for name in filter(_NAME.fullmatch, trie_names(files)):
        parts = files_of_trie(files, name)
        known |= {trie_file(name, part): raw for part, raw in parts.items()}
    return known
