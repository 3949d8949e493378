"""Beam search among the names of a trie: all beams of all mentions of a batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

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
        owner, beam, child, total = _continuations(trie, logs, nodes, totals)
        # Twice as many as there are beams, for some of them may be done.
        chosen = _best(owner, total, len(mentions), 2 * beams)
        owner, beam, child, total = (a[chosen] for a in (owner, beam, child, total))
        nth = np.arange(len(owner)) - np.searchsorted(owner, owner)
        ends = trie.are_leaves(child)
        final = ends & (nth < beams)
        done.append((mentions[owner[final]], child[final], total[final] / np.float32(length)))
        np.add.at(n_done, mentions[owner[final]], 1)
        owner, beam, child, total = (a[~ends] for a in (owner, beam, child, total))
        nth = np.arange(len(owner)) - np.searchsorted(owner, owner)
        kept = nth < beams
        owner, beam, child, total, nth = (a[kept] for a in (owner, beam, child, total, nth))
        n_before = nodes.shape[1]
        nodes = np.full((len(mentions), beams), -1, dtype=np.int64)
        totals = np.full((len(mentions), beams), -np.inf, dtype=np.float32)
        origin = np.zeros((len(mentions), beams), dtype=np.int64)
        nodes[owner, nth], totals[owner, nth], origin[owner, nth] = child, total, beam
        goes_on = (nodes[:, 0] >= 0) & (n_done[mentions] < beams)
        going = np.flatnonzero(goes_on)
        mentions, nodes, totals = mentions[going], nodes[going], totals[going]
        step.reorder(going[:, None] * n_before + origin[going], n_mentions=len(goes_on))
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
        rows = torch.from_numpy(origin.ravel()).to(self._inside.device)
        n_rows = len(self._inside)
        self._cache.self_attention_cache.reorder_cache(rows)
        # The rows of a mention read the same source: theirs change only with their number.
        if origin.size != n_rows or len(origin) != n_mentions:
            self._cache.cross_attention_cache.reorder_cache(rows)
            self._inside = self._inside[rows]
            self._encoded = (self._encoded[0][rows],)


def _continuations(
    trie: Prefixes, logs: Tensor, nodes: IntArray, totals: FloatArray
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """All beginnings that are one piece longer: mention, beam, node and total of each."""
    n_beams = nodes.shape[1]
    indptr, child = trie.children(nodes.ravel())
    row = np.repeat(np.arange(nodes.size), np.diff(indptr))
    places = torch.from_numpy(row * logs.shape[1] + trie.pieces_at(child)).to(logs.device)
    total = logs.flatten()[places].cpu().numpy() + totals.ravel()[row]
    return row // n_beams, row % n_beams, child, total


def _best(owner: IntArray, total: FloatArray, n: int, k: int) -> IntArray:
    """Places of the k highest of each mention, by mention and the highest first; stable."""
    counts = np.bincount(owner, minlength=n)
    table = np.full((n, max(k, int(counts.max(initial=0)))), -np.inf, dtype=np.float32)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    table[owner, nth] = total
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
