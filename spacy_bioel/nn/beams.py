"""Beam search among the names of a trie: all beams of all mentions of a batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]


class Prefixes(Protocol):
    """Beginnings of names; `kb.words.trie.NameTrie` is one. Node 0 is the empty beginning."""

    def children(self, nodes: IntArray) -> tuple[IntArray, IntArray]: ...
    def pieces_at(self, nodes: IntArray) -> IntArray: ...
    def are_leaves(self, nodes: IntArray) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class Written:
    """Names that were written, by mention, the best first.

    mention (IntArray): Number of the mention. Shape (n,).
    leaf (IntArray): Node of the trie. Shape (n,).
    score (FloatArray): Mean log-probability of the pieces and the end piece. Shape (n,).
    """

    mention: IntArray
    leaf: IntArray
    score: FloatArray


@torch.inference_mode()
def write_names(
    backbone: Any, trie: Prefixes, sources: Tensor, inside: Tensor, prompts: Tensor, *, beams: int
) -> Written:
    """Write names about mentions whose prompts have one length.

    Of the beginnings of a mention, each step keeps the best; among equals that of the better beam,
    then that of the lower piece. One that ends is a name, and leaves its beam: a mention is done
    with `beams` names, or without beginnings. Probabilities are shares of all pieces, allowed or
    not.

    backbone (PreTrainedModel): An encoder-decoder.
    sources (Tensor): Piece ids of mentions in their contexts, padded. Shape (n, length).
    inside (Tensor): False at padding. Shape (n, length).
    prompts (Tensor): Pieces that the decoder begins with. Shape (n, n_prompt).
    """
    encoded = backbone.get_encoder()(input_ids=sources, attention_mask=inside.long())[0]
    step = _Decoder(backbone, encoded, inside)
    n = len(sources)
    free = np.full(n, beams)  # beams of each mention that have not ended
    rows = _Beginnings(np.arange(n), np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.float32))
    done: list[tuple[IntArray, IntArray, FloatArray]] = []
    pieces, length = prompts, 0
    while len(rows.owner):
        length += 1
        longer = _continuations(trie, step(pieces), rows)
        longer = longer.take(_best(longer, free))
        ends = trie.are_leaves(longer.node)
        final, going_on = longer.take(np.flatnonzero(ends)), longer.take(np.flatnonzero(~ends))
        done.append((final.owner, final.node, final.total / np.float32(length)))
        np.subtract.at(free, final.owner, 1)
        step.reorder(going_on.beam, same_owners=np.array_equal(going_on.owner, rows.owner))
        rows = going_on
        pieces = torch.from_numpy(trie.pieces_at(rows.node))[:, None].to(prompts.device)
    return _sorted(done)


class _Decoder:
    """The decoder with its cache: rows are beams, those of one mention together."""

    def __init__(self, backbone: Any, encoded: Tensor, inside: Tensor) -> None:
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


def _continuations(trie: Prefixes, logits: Tensor, rows: _Beginnings) -> _Beginnings:
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


def _sorted(done: list[tuple[IntArray, IntArray, FloatArray]]) -> Written:
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    mention, leaf, score = (np.concatenate(parts) for parts in zip(none, *done, strict=True))
    order = np.lexsort((leaf, -score, mention))
    return Written(mention[order], leaf[order], score[order])
