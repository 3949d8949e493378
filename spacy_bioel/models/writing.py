"""Names written about many mentions: batches, each of one length of prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model

from spacy_bioel.models.marked import Marked, Pieces
from spacy_bioel.models.seq2seq import seq2seq_network
from spacy_bioel.nn.beams import Prefixes, Written, write_names
from spacy_bioel.processor import one_thread_each

IntArray = NDArray[np.int64]
# Mentions of a batch, and their word pieces, padding included: bound the memory.
_MENTIONS, _PIECES = 128, 8192


def write_about(
    model: Model[Any, Any], trie: Prefixes, mentions: Sequence[Marked]
) -> tuple[Written, int]:
    """Write names about mentions; those that are the same in the same context once.

    model (Generator): With its network.
    trie (Prefixes): Names that may be written.
    RETURNS (tuple): The names, by mention; and how many mentions are longer than is read of them.
    """
    different = {mention: i for i, mention in enumerate(dict.fromkeys(mentions))}
    if not different:
        return _joined([]), 0
    read = list(different)
    pieces, beams = model.attrs["pieces"], model.attrs["beams"]
    sources, prompts = pieces.sources(read), pieces.prompts(read)
    is_cut = pieces.are_cut(read)
    given = np.array([len(prompt) for prompt in prompts])
    shim: Any = model.get_ref("network").shims[0]
    backbone, device = seq2seq_network(model).backbone, shim.device

    def write(part: IntArray) -> Written:
        import torch

        ids, inside = _padded(sources, part)
        prompt = torch.tensor([prompts[i] for i in part.tolist()], device=device)
        found = write_names(
            backbone,
            trie,
            torch.from_numpy(ids).to(device),
            torch.from_numpy(inside).to(device),
            prompt,
            beams=beams,
        )
        return Written(part[found.mention], found.leaf, found.score)

    batches = list(_batches(given, sources.lengths))
    with one_thread_each() as spread:
        on_cpu = device.type == "cpu"
        written = spread(write, batches) if on_cpu else list(map(write, batches))
    places = np.array([different[mention] for mention in mentions], dtype=np.int64)
    return _of_all(_joined(written), places), int(is_cut[places].sum())


def _padded(sources: Pieces, rows: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Rows of pieces, padded with their own first ones, and where they are not."""
    lengths = sources.lengths[rows]
    starts = (np.cumsum(sources.lengths) - sources.lengths)[rows]
    within = np.arange(lengths.max())
    inside = within < lengths[:, None]
    return sources.flat[np.where(inside, starts[:, None] + within, starts[:, None])], inside


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
    """By mention, the best first."""
    none = Written(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    mention, leaf, score = (
        np.concatenate([getattr(part, name) for part in [none, *parts]])
        for name in ("mention", "leaf", "score")
    )
    order = np.argsort(mention, kind="stable")
    return Written(mention[order], leaf[order], score[order])


def _of_all(written: Written, places: IntArray) -> Written:
    """Names of all mentions, from those of the different ones. places: number of each there."""
    first = np.searchsorted(written.mention, np.arange(places.max(initial=-1) + 2))
    counts = np.diff(first)[places]
    ends = np.cumsum(counts)
    rows = np.repeat(first[places] - (ends - counts), counts) + np.arange(counts.sum())
    mention = np.repeat(np.arange(len(places)), counts)
    return Written(mention, written.leaf[rows], written.score[rows])
