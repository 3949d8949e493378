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

    Each step keeps the `beams` best beginnings of a mention; among equals that of the better beam,
    then that of the lower piece. A name is done with its end piece; a mention, with `beams` names
    or without beginnings. Probabilities are shares of all pieces, allowed or not.

    backbone (PreTrainedModel): An encoder-decoder.
    sources (Tensor): Piece ids of mentions in their contexts, padded. Shape (n, length).
    inside (Tensor): False at padding. Shape (n, length).
    prompts (Tensor): Pieces that the decoder begins with. Shape (n, n_prompt).
    """
    encoded = backbone.get_encoder()(input_ids=sources, attention_mask=inside.long())[0]
    step = _Decoder(backbone, encoded, inside)
    mentions = np.arange(len(sources))  # those that go on
    nodes = np.zeros((len(sources), 1), dtype=np.int64)  # of each beam; -1 for none
    totals = np.zeros((len(sources), 1), dtype=np.float32)
    n_done = np.zeros(len(sources), dtype=np.int64)
    done: list[tuple[IntArray, IntArray, FloatArray]] = []
    pieces, length = prompts, 0
    while len(mentions):
        length += 1
        logs = step(pieces)
        longer = _continuations(trie, logs, nodes, totals)
        # Twice as many as there are beams, for some of them may be done.
        longer = longer.take(_best(longer, len(mentions), 2 * beams))
        ends = trie.are_leaves(longer.node)
        final = longer.take(np.flatnonzero(ends & (longer.nth < beams)))
        done.append((mentions[final.owner], final.node, final.total / np.float32(length)))
        np.add.at(n_done, mentions[final.owner], 1)
        going_on = longer.take(np.flatnonzero(~ends))
        going_on = going_on.take(np.flatnonzero(going_on.nth < beams))
        n_before, n_mentions = nodes.shape[1], len(mentions)
        nodes = np.full((n_mentions, beams), -1, dtype=np.int64)
        totals = np.full((n_mentions, beams), -np.inf, dtype=np.float32)
        origin = np.zeros((n_mentions, beams), dtype=np.int64)
        at = going_on.owner, going_on.nth
        nodes[at], totals[at], origin[at] = going_on.node, going_on.total, going_on.beam
        left = np.flatnonzero((nodes[:, 0] >= 0) & (n_done[mentions] < beams))
        mentions, nodes, totals = mentions[left], nodes[left], totals[left]
        step.reorder(left[:, None] * n_before + origin[left], n_mentions=n_mentions)
        pieces = torch.from_numpy(trie.pieces_at(np.maximum(nodes, 0))).reshape(-1, 1)
        pieces = pieces.to(prompts.device)
    return _sorted(done, beams)


class _Decoder:
    """The decoder with its cache: rows are beams, those of one mention together."""

    def __init__(self, backbone: Any, encoded: Tensor, inside: Tensor) -> None:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        self._backbone = backbone
        self._encoded, self._inside = (encoded,), inside.long()
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def __call__(self, pieces: Tensor) -> Tensor:
        """Log-probabilities of what follows. pieces (Tensor): Shape (n_rows, n_new)."""
        made = self._backbone(
            encoder_outputs=self._encoded,
            attention_mask=self._inside,
            decoder_input_ids=pieces,
            past_key_values=self._cache,
            use_cache=True,
        )
        return torch.log_softmax(made.logits[:, -1].float(), dim=-1)

    def reorder(self, origin: IntArray, *, n_mentions: int) -> None:
        """Take other rows. origin (IntArray): Earlier row of each. Shape (n_going, beams)."""
        rows: Any = torch.from_numpy(origin.ravel()).to(self._inside.device)
        n_rows = len(self._inside)
        self._cache.self_attention_cache.reorder_cache(rows)
        # The rows of a mention read the same source: theirs change only with their number.
        if origin.size != n_rows or len(origin) != n_mentions:
            self._cache.cross_attention_cache.reorder_cache(rows)
            self._inside = self._inside[rows]
            self._encoded = (self._encoded[0][rows],)


class _Beginnings(NamedTuple):
    """Beginnings of names, those of one mention together: mention, beam that each came from, node
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


def _continuations(
    trie: Prefixes, logs: Tensor, nodes: IntArray, totals: FloatArray
) -> _Beginnings:
    """All beginnings that are one piece longer."""
    n_beams = nodes.shape[1]
    indptr, child = trie.children(nodes.ravel())
    row = np.repeat(np.arange(nodes.size), np.diff(indptr))
    places = torch.from_numpy(row * logs.shape[1] + trie.pieces_at(child)).to(logs.device)
    total = logs.flatten()[places].cpu().numpy() + totals.ravel()[row]
    return _Beginnings(row // n_beams, row % n_beams, child, total)


def _best(found: _Beginnings, n: int, k: int) -> IntArray:
    """Places of the k highest of each of n mentions, the highest first; stable."""
    owner, total = found.owner, found.total
    counts = np.bincount(owner, minlength=n)
    table = np.full((n, max(k, int(counts.max(initial=0)))), -np.inf, dtype=np.float32)
    table[owner, found.nth] = total
    lowest = torch.from_numpy(table).topk(k, dim=1).values[:, -1].numpy()
    high = np.flatnonzero(total >= lowest[owner])
    high = high[np.lexsort((-total[high], owner[high]))]
    first = np.searchsorted(owner[high], owner[high])
    return high[np.arange(len(high)) - first < k]


def _sorted(done: list[tuple[IntArray, IntArray, FloatArray]], beams: int) -> Written:
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    mention, leaf, score = (np.concatenate(parts) for parts in zip(none, *done, strict=True))
    order = np.lexsort((leaf, -score, mention))
    first = np.searchsorted(mention[order], mention[order])
    order = order[np.arange(len(order)) - first < beams]
    return Written(mention[order], leaf[order], score[order])
