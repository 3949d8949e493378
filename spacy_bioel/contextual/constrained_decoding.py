"""Names written about many mentions: beam search among the names of a trie, all beams of all
mentions of a batch at once. Mentions of a batch have prompts of one length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spacy_bioel.contextual.mention_markers import Generator, Marked
from spacy_bioel.contextual.networks import places_of
from spacy_bioel.contextual.trie import NameTrie
from spacy_bioel.models.name_encoder import get_network
from spacy_bioel.models.torch_io import device_of, to_tensors
from spacy_bioel.parallel import one_thread_each

if TYPE_CHECKING:
    from transformers import PreTrainedModel


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
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
    with one_thread_each() as spread:
        written = (spread if device.type == "cpu" else map)(write, batches)
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
