"""Tries in the folder of a knowledge base: written once for some word pieces, then mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.checks import (
    UNSEALED,
    check_contents,
    check_seal,
    checksum,
    read_json,
    sealed_json,
)
from spacy_bioel.kb.columns.files import RawFile, map_folder, read_array, write_array
from spacy_bioel.kb.columns.layout import ABOUT_FILE
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.columns.tries import TRIE_FILES, files_of_trie, trie_file, trie_name, trie_names
from spacy_bioel.kb.transaction import editing
from spacy_bioel.kb.words.trie import COLUMNS, NameTrie, ToPieces, build_trie

_NOTHING = np.zeros(0, np.uint8)  # contents of a file that is missing
_COUNTS = ("left_out", "nameless")


def write_trie(kb: KnowledgeBase, to_pieces: ToPieces, *, fingerprint: str) -> NameTrie:
    """Build the trie of all names, and keep it with the knowledge base unless it is there.

    kb (KnowledgeBase): With a folder; the names that it has now are written.
    fingerprint (str): Of the word pieces.
    RAISES BioelError: [B182] when the folder is not writable, [B212] when another writer does not
        finish in time.
    """
    assert kb.path is not None
    try:
        with editing(kb.path, to="write a trie of names") as transaction:
            now = KnowledgeBase.open(kb.path)
            name = trie_name(fingerprint, now.fingerprint)
            if trie_file(name, ABOUT_FILE) not in now.files():
                trie = build_trie(now, to_pieces)
                with transaction.trie(name) as folder:
                    for column in COLUMNS:
                        write_array(folder, column, getattr(trie, column))
                    columns = map_folder(folder, TRIE_FILES)
                    checksums = {part: checksum(raw) for part, raw in columns.items()}
                    about = {key: getattr(trie, key) for key in _COUNTS}
                    about |= {"checksums": checksums, "text": UNSEALED}
                    (folder / ABOUT_FILE).write_bytes(sealed_json(about))
            return open_trie(KnowledgeBase.open(kb.path), fingerprint=fingerprint)
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def open_trie(kb: KnowledgeBase, *, fingerprint: str) -> NameTrie:
    """Map the trie of some word pieces, which takes milliseconds at any size.

    RAISES BioelError: [B281] there is none of these names, [B282] it is damaged.
    """
    files = kb.files()
    name = trie_name(fingerprint, kb.fingerprint)
    if trie_file(name, ABOUT_FILE) not in files:
        raise BioelError(Errors.B281.format(path=kb.where))
    try:
        about = json.loads(files[trie_file(name, ABOUT_FILE)].tobytes())
        columns = (_column(files, name, part) for part in COLUMNS)
        trie = NameTrie(*columns, *(int(about[key]) for key in _COUNTS))
        _check(trie)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        where = Path(kb.where) / trie_file(name, "")
        raise BioelError(Errors.B282.format(path=where, kb=kb.where, error=error)) from error
    return trie


def verify_tries(kb: KnowledgeBase) -> None:
    """Read all tries, and compare checksums, which earlier versions did not write.

    RAISES BioelError: [B030], [B210] the description is damaged, [B024] a column is.
    """
    files = kb.files()
    for name in trie_names(files):
        file, parts = trie_file(name, ABOUT_FILE), files_of_trie(files, name)
        text = parts[ABOUT_FILE].tobytes()
        about = read_json(text, where=kb.where, file=file)
        if about.keys() == set(_COUNTS):
            continue
        check_seal(text, about.get("text"), where=kb.where, file=file)
        for part, expected in about["checksums"].items():
            raw, file = parts.get(part, _NOTHING), trie_file(name, part)
            check_contents(raw, expected, where=kb.where, file=file)


def _column(files: Mapping[str, RawFile], name: str, part: str) -> Any:
    column = read_array(files[trie_file(name, f"{part}.npy")])
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise ValueError(f"{part} is no row of numbers")
    return column


def _check(trie: NameTrie) -> None:
    """Compare lengths, and first and last entries. RAISES ValueError."""
    fits = (
        len(trie.first_child) == len(trie) + 1
        and int(trie.first_child[0]) == 1
        and int(trie.first_child[-1]) == len(trie)
        and len(trie.name_offsets) == len(trie.leaves) + 1
        and int(trie.name_offsets[-1]) == len(trie.names)
    )
    if not fits:
        raise ValueError("its columns do not fit one another")
