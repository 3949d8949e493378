"""Names of a knowledge base written about mentions: a trie of the names, as arrays, says which word
piece may follow a beginning, and beam search goes through it.

Nodes of the trie are numbered level by level, those of one parent one after the other. So the
children of node i are the nodes first_child[i] to first_child[i + 1], in the order of their pieces,
and no pointer is stored. Each path ends with the end piece; its last node, a leaf, has the names.

The search goes on with all beams of all mentions of a batch at once. Mentions of a batch have
prompts of one length.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacy_bioel.contextual.networks import places_of
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import offsets_of, positions_of, read_array, write_array
from spacy_bioel.kb.folder import (
    ABOUT_FILE,
    TRIE_COLUMNS,
    describe_home,
    editing,
    homes_of,
    trie_name,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.name_encoder import get_network
from spacy_bioel.models.torch_io import device_of, to_tensors
from spacy_bioel.parallel import one_thread_each
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import FloatArray, IntArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from spacy_bioel.contextual.generative import Generator, Marked


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
        return positions_of(self.first_child, nodes)

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
        indptr, places = positions_of(self.name_offsets, at)
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


# Mentions of a batch, and their word pieces, padding included: bound the memory.
_MENTIONS, _PIECES = 128, 8192


class Written(NamedTuple):
    """Names that were written, by mention, the best first. Shape (n,) each.

    mention (IntArray): Number of the mention.
    leaf (IntArray): Node of the trie.
    score (FloatArray): Mean log-probability of the pieces and the end piece.
    """

    mention: IntArray
    leaf: IntArray
    score: FloatArray


def write_about(
    model: Generator, trie: NameTrie, mentions: Sequence[Marked]
) -> tuple[Written, int]:
    """Write names of a trie about mentions.

    RETURNS (tuple): The names, by mention; and how many mentions are longer than is read of them.
    """
    pieces, beams = model.attrs["pieces"], model.attrs["beams"]
    (flat, lengths), prompts = pieces.sources(mentions), pieces.prompts(mentions)
    backbone, device = get_network(model).backbone, device_of(model.get_ref("network"))
    starts = np.cumsum(lengths) - lengths

    def write(part: IntArray) -> Written:
        ids, first, n = to_tensors((flat, starts[part], lengths[part]), device)
        places, inside = places_of(first, n)
        prompt = torch.tensor([prompts[i] for i in part.tolist()], device=device)
        found = write_names(backbone, trie, ids[places], inside, prompt, beams=beams)
        return found._replace(mention=part[found.mention])

    batches = _batches(np.array([len(prompt) for prompt in prompts]), lengths)
    with one_thread_each() as parallel_map:
        written = (parallel_map if device.type == "cpu" else map)(write, batches)
        return _joined(list(written)), int(pieces.are_cut(mentions).sum())


def _batches(given: IntArray, lengths: IntArray) -> Iterator[IntArray]:
    """Mentions with prompts of one length, those with sources of like length together."""
    order = np.lexsort((lengths, given))
    start = 0
    while start < len(order):
        same = given[order] == given[order[start]]
        end = start + 1
        while (
            end < len(order)
            and same[end]
            and end - start < _MENTIONS
            and (end - start + 1) * lengths[order[end]] <= _PIECES
        ):
            end += 1
        yield order[start:end]
        start = end


def _joined(parts: Sequence[Written]) -> Written:
    """By mention, the best first, of equal ones the first leaf."""
    none = Written(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    mention, leaf, score = map(np.concatenate, zip(none, *parts, strict=True))
    order = np.lexsort((leaf, -score, mention))
    return Written(mention[order], leaf[order], score[order])


@torch.inference_mode()
def write_names(
    backbone: PreTrainedModel,
    trie: NameTrie,
    sources: Tensor,
    inside: Tensor,
    prompts: Tensor,
    *,
    beams: int,
) -> Written:
    """Write names about mentions whose prompts have one length.

    Of the beginnings of a mention, each step keeps the best; among equals that of the better beam,
    then that of the lower piece. One that ends is a name, and leaves its beam: a mention is done
    with `beams` names, or without beginnings. Probabilities are shares of all pieces, allowed or
    not.

    sources (Tensor): Piece ids of mentions in their contexts, padded. Shape (n, length).
    inside (Tensor): False at padding. Shape (n, length).
    prompts (Tensor): Pieces that the decoder begins with. Shape (n, n_prompt).
    """
    encoded = backbone.get_encoder()(input_ids=sources, attention_mask=inside.long())[0]
    step = _Decoder(backbone, encoded, inside)
    n = len(sources)
    free = np.full(n, beams)  # beams of each mention that have not ended
    rows = _Beginnings(np.arange(n), np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.float32))
    done: list[Written] = []
    pieces, length = prompts, 0
    while len(rows.owner):
        length += 1
        longer = _continuations(trie, step(pieces), rows)
        longer = longer.take(_best(longer, free))
        ends = trie.are_leaves(longer.node)
        final, going_on = longer.take(np.flatnonzero(ends)), longer.take(np.flatnonzero(~ends))
        done.append(Written(final.owner, final.node, final.total / np.float32(length)))
        np.subtract.at(free, final.owner, 1)
        step.reorder(going_on.beam, same_owners=np.array_equal(going_on.owner, rows.owner))
        rows = going_on
        pieces = torch.from_numpy(trie.pieces_at(rows.node))[:, None].to(prompts.device)
    return _joined(done)


class _Decoder:
    """The decoder with its cache: rows are beams, those of one mention together."""

    def __init__(self, backbone: PreTrainedModel, encoded: Tensor, inside: Tensor) -> None:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        self._backbone = backbone
        self._encoded, self._inside = encoded, inside.long()
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def __call__(self, pieces: Tensor) -> Tensor:
        """Logits of what follows. pieces (Tensor): Shape (n_rows, n_new)."""
        made = self._backbone(
            encoder_outputs=(self._encoded,),
            attention_mask=self._inside,
            decoder_input_ids=pieces,
            past_key_values=self._cache,
            use_cache=True,
        )
        logits: Tensor = made.logits[:, -1].float()
        return logits

    def reorder(self, origin: IntArray, *, same_owners: bool) -> None:
        """Take other rows.

        origin (IntArray): Earlier row of each. Shape (n_rows,).
        same_owners (bool): Whether all are of the mentions that were there, which is all that the
            keys and values of the sources depend on.
        """
        rows: Any = torch.from_numpy(origin).to(self._inside.device)
        self._cache.self_attention_cache.reorder_cache(rows)
        if not same_owners:
            self._cache.cross_attention_cache.reorder_cache(rows)
            self._inside = self._inside[rows]
            # Of these only the shape is read, once their keys and values are in the cache.
            self._encoded = self._encoded[:1].expand(len(rows), -1, -1)


class _Beginnings(NamedTuple):
    """Beginnings of names, those of one mention together: mention, row that each came from, node
    and sum of log-probabilities. Shape (n,) each."""

    owner: IntArray
    beam: IntArray
    node: IntArray
    total: FloatArray

    def take(self, places: IntArray) -> _Beginnings:
        return _Beginnings(
            self.owner[places], self.beam[places], self.node[places], self.total[places]
        )

    @property
    def nth(self) -> IntArray:
        """Place of each among those of its mention."""
        return np.arange(len(self.owner)) - np.searchsorted(self.owner, self.owner)


def _continuations(trie: NameTrie, logits: Tensor, rows: _Beginnings) -> _Beginnings:
    """All beginnings that are one piece longer."""
    indptr, child = trie.children(rows.node)
    row = np.repeat(np.arange(len(rows.node)), np.diff(indptr))
    places = torch.from_numpy(row * logits.shape[1] + trie.pieces_at(child)).to(logits.device)
    # The logarithms of all probabilities would be a table to write, of which little is read.
    before = rows.total - logits.logsumexp(dim=1).cpu().numpy()
    total = logits.flatten()[places].cpu().numpy() + before[row]
    return _Beginnings(rows.owner[row], row, child, total)


def _best(found: _Beginnings, n_of_each: IntArray) -> IntArray:
    """Places of the highest of each mention, the highest first; stable."""
    owner, total, most = found.owner, found.total, int(n_of_each.max(initial=1))
    counts = np.bincount(owner, minlength=len(n_of_each))
    table = np.full((len(counts), max(most, int(counts.max()))), -np.inf, dtype=np.float32)
    table[owner, found.nth] = total
    lowest = torch.from_numpy(table).topk(most, dim=1).values[:, -1].numpy()
    high = np.flatnonzero(total >= lowest[owner])
    high = high[np.lexsort((-total[high], owner[high]))]
    nth = np.arange(len(high)) - np.searchsorted(owner[high], owner[high])
    return high[nth < n_of_each[owner[high]]]
