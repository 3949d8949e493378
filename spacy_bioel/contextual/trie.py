"""Trie of the names of a knowledge base, as arrays: which word piece may follow a beginning.

Nodes are numbered level by level, those of one parent one after the other. So the children of node
i are the nodes first_child[i] to first_child[i + 1], in the order of their pieces, and no pointer
is stored. Each path ends with the end piece; its last node, a leaf, has the names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.arrays import (
    IntArray,
    gather,
    offsets_of,
    read_array,
    write_array,
)
from spacy_bioel.kb.folder import ABOUT_FILE, TRIE_COLUMNS, describe_home, homes_of, trie_name
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.transaction import editing
from spacy_bioel.text.normalize import normalize_names

# From normalised names to the pieces of each, the end piece included; None: it cannot be written.
ToPieces = Callable[[Sequence[str]], Iterable[Sequence[int] | None]]
_TOGETHER = 1 << 14  # names that are tokenised at a time


@dataclass(frozen=True)
class NameTrie:
    """Columns of a trie, possibly mapped. Node 0 is the root, whose piece means nothing."""

    first_child: NDArray[Any]  # shape (n_nodes + 1,)
    pieces: NDArray[Any]  # that lead to each node; shape (n_nodes,)
    leaves: NDArray[Any]  # nodes without children, ascending
    name_offsets: NDArray[Any]  # of the names of each leaf; shape (n_leaves + 1,)
    names: NDArray[Any]  # name rows
    left_out: int = 0  # names that the pieces cannot write
    nameless: int = 0  # concepts none of whose names is here

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.pieces)

    def children(self, nodes: NDArray[Any]) -> tuple[IntArray, IntArray]:
        """Children of many nodes, none of -1: indptr, shape (n + 1,), and nodes."""
        return gather(self.first_child, nodes)

    def pieces_at(self, nodes: IntArray) -> IntArray:
        """Pieces that lead to nodes. Any shape; returns the same."""
        return self.pieces[nodes].astype(np.int64)

    def are_leaves(self, nodes: IntArray) -> NDArray[np.bool_]:
        """Whether nodes end a name. Any shape; returns the same."""
        found: NDArray[np.bool_] = self.first_child[nodes] == self.first_child[nodes + 1]
        return found

    def names_of(self, leaves: IntArray) -> tuple[IntArray, IntArray]:
        """Name rows of many leaves: indptr, shape (n + 1,), and rows."""
        at = np.searchsorted(self.leaves, leaves.astype(self.leaves.dtype))
        indptr, places = gather(self.name_offsets, at)
        return indptr, self.names[places].astype(np.int64)


def build_trie(
    kb: KnowledgeBase, to_pieces: ToPieces, *, rows: NDArray[Any] | None = None
) -> NameTrie:
    """Build the trie of the names of a knowledge base.

    to_pieces (ToPieces): Pieces of names, which no name of its own ends within.
    rows (NDArray | None): Name rows to take; None: all.
    """
    rows = np.arange(kb.n_names) if rows is None else np.asarray(rows)
    flat: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    lengths = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _TOGETHER):
        part = rows[start : start + _TOGETHER]
        found = [p or () for p in to_pieces(normalize_names(kb.names.take(part)))]
        lengths[start : start + len(part)] = [len(pieces) for pieces in found]
        flat.append(np.array([i for pieces in found for i in pieces], dtype=np.int32))
    trie = trie_of(np.concatenate(flat), lengths, rows)
    nameless = len(kb) - len(np.unique(kb.concepts_of_names(trie.names)[1]))
    return replace(trie, left_out=int((lengths == 0).sum()), nameless=nameless)


def trie_of(flat: NDArray[Any], lengths: IntArray, rows: NDArray[Any]) -> NameTrie:
    """Build a trie level by level: a node is a different pair of a parent and a piece.

    flat (NDArray): Pieces of all names, concatenated. Shape (n_pieces,).
    lengths (IntArray): Of each name; those of length 0 are left out. Shape (n,).
    rows (NDArray): Name row of each. Shape (n,).
    """
    starts = offsets_of(lengths)[:-1]
    node = np.zeros(len(lengths), dtype=np.int64)  # that each name has come to
    n_pieces = int(flat.max(initial=0)) + 1
    kind = np.uint16 if n_pieces <= 1 << 16 else np.uint32
    levels, parents, n_nodes = [np.zeros(1, dtype=kind)], [np.zeros(0, np.int64)], 1
    going = np.flatnonzero(lengths)
    for level in range(int(lengths.max(initial=0))):
        going = going[lengths[going] > level]
        keys = node[going] * n_pieces + flat[starts[going] + level]
        different, place = np.unique(keys, return_inverse=True)
        node[going] = n_nodes + place
        levels.append((different % n_pieces).astype(kind))
        parents.append(different // n_pieces)
        n_nodes += len(different)
    n_children = np.bincount(np.concatenate(parents), minlength=n_nodes)
    # Names by leaf, the lower row first; a leaf has no child, for the end piece is its own.
    here = np.flatnonzero(lengths)
    here = here[np.argsort(node[here], kind="stable")]
    leaves, counts = np.unique(node[here], return_counts=True)
    return NameTrie(
        first_child=(1 + offsets_of(n_children)).astype(np.uint32),
        pieces=np.concatenate(levels),
        leaves=leaves.astype(np.uint32),
        name_offsets=offsets_of(counts).astype(np.uint32),
        names=rows[here].astype(np.int32),
    )


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
            if name not in homes_of(now.files(), "tries"):
                trie = build_trie(now, to_pieces)
                with transaction.adding("tries", name) as folder:
                    for column in TRIE_COLUMNS:
                        write_array(folder, column, getattr(trie, column))
                    describe_home(folder, "tries", {key: getattr(trie, key) for key in _COUNTS})
            return open_trie(now, fingerprint=fingerprint)
    except OSError as error:
        raise BioelError(Errors.B182.format(path=kb.where, error=error)) from error


def open_trie(kb: KnowledgeBase, *, fingerprint: str) -> NameTrie:
    """Map the trie of some word pieces, which takes milliseconds at any size.

    RAISES BioelError: [B281] there is none of these names, [B282] it is damaged.
    """
    name = trie_name(fingerprint, kb.fingerprint)
    files = homes_of(kb.files(), "tries").get(name)
    if files is None:
        raise BioelError(Errors.B281.format(path=kb.where))
    try:
        about = json.loads(files[ABOUT_FILE].tobytes())
        columns: list[Any] = [read_array(files[f"{column}.npy"]) for column in TRIE_COLUMNS]
        return NameTrie(*columns, *(int(about[key]) for key in _COUNTS))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        where = Path(kb.where) / "tries" / name
        raise BioelError(Errors.B282.format(path=where, kb=kb.where, error=error)) from error
