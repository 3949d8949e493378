"""Fitted probabilities of spans: `SpanSelection` weighs what the document says about each span.

The network scores each span by the words around it. How often and how surely the same words are
scored elsewhere in the document, the spans that overlap, the letters of the span, and names of
knowledge bases say more. For each label, a small network combines this evidence. Its weights are
fitted by training/scripts/selection.py, on documents that the detector has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log1p
from typing import Any

import numpy as np

from spacy_bioel.dictionary.unambiguous import common_words, everyday_words
from spacy_bioel.doc import long_forms, text_of, texts_of
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.gazetteer import MAX_TYPES, Gazetteer
from spacy_bioel.kb.knowledge_base import name_keys
from spacy_bioel.models.fusion import Fusion, read_weights
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import DECIMALS, DoubleArray, FloatArray, IntArray

COLUMNS = (
    "logit", "best_same", "mean_same", "n_same", "n_text",  # the same words in the document
    "best_over", "best_other_over", "n_over", "best_around", "best_inside",  # overlapping spans
    "tokens", "characters", "capitals", "capitalised", "digit", "hyphen", "frequency", "everyday",
    "known", "preferred", "n_types", "defined", "logit_of_definition",
    "after_bracket", "before_bracket", "before_hyphen",
)  # fmt: skip
_LOWEST = -6.0  # log-odds of spans that are not there
_OPENING, _CLOSING, _HYPHENS = set("(["), set(")]"), set("-/")


class SpanSelection:
    """Combines the evidence for spans; spans of labels without weights keep their probabilities.

    weights (Mapping[str, Fusion]): Weights of `COLUMNS` for each label.
    """

    def __init__(self, weights: Mapping[str, Fusion] | None = None) -> None:
        self.weights = dict(weights or {})

    def to_json(self) -> dict[str, Any]:
        return {label: fusion.to_json(COLUMNS) for label, fusion in self.weights.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SpanSelection:
        """Create weights from the result of `to_json`, without those of other columns [W062].

        RAISES BioelError: The same errors as `read_weights`.
        """
        read = {label: read_weights(weights, COLUMNS) for label, weights in data.items()}
        return cls({label: fusion for label, fusion in read.items() if fusion})

    def for_labels(self, starts: Mapping[str, str | None]) -> SpanSelection:
        """Return the weights of new labels: those of the label that each begins as, if any."""
        pairs = ((new, self.weights.get(start or "")) for new, start in starts.items())
        return SpanSelection({new: fusion for new, fusion in pairs if fusion})

    def weigh(self, found: Sequence[FoundSpans], gazetteer: Gazetteer) -> None:
        """Replace the probabilities of spans, rounded to four decimals."""
        if not self.weights:
            return
        table, spans = columns_of(found, gazetteer), [s for one in found for s in one.spans]
        p = np.array([span[3] for span in spans])
        labels = np.array([span[2] for span in spans], dtype=object)
        for label, fusion in self.weights.items():
            rows = np.flatnonzero(labels == label)
            p[rows] = np.round(1 / (1 + np.exp(-fusion.scores(table[rows]))), DECIMALS)
        fitted = iter(p.tolist())
        for one in found:
            one.become([(*span[:3], next(fitted)) for span in one.spans])


def columns_of(found: Sequence[FoundSpans], gazetteer: Gazetteer) -> FloatArray:
    """Return the evidence for all spans in documents. Shape (n_spans, len(COLUMNS))."""
    texts = [texts_of(of_doc.doc, of_doc.spans) for of_doc in found]
    strings = [normalize_names(of_doc) for of_doc in texts]
    parts = [_places_of(*row) for row in zip(found, texts, strict=True)]
    spans = [span for of_doc in found for span in of_doc.spans]
    if not spans:
        return np.zeros((0, len(COLUMNS)), np.float32)
    p = np.clip(np.array([span[3] for span in spans]), 1e-4, 1 - 1e-4)
    logit = np.log(p) - np.log1p(-p)
    _, labels = _numbered(span[2] for span in spans)
    unique, words = _numbered(string for of_doc in strings for string in of_doc)
    # One long document, in which spans of different documents do not overlap.
    sizes = np.array([len(of_doc.spans) for of_doc in found])
    lengths = np.array([len(of_doc.doc) for of_doc in found])
    offsets = np.repeat(np.cumsum(lengths) - lengths, sizes)
    starts = np.array([span[0] for span in spans]) + offsets
    ends = np.array([span[1] for span in spans]) + offsets
    owners = np.repeat(np.arange(len(found)), sizes)
    keys = (owners * len(unique) + words) * (labels.max() + 1) + labels
    same = np.unique(keys, return_inverse=True)[1]
    masks = gazetteer.names.find(name_keys(unique))[words]
    shapes = np.array([_shape_of(text) for of_doc in texts for text in of_doc])
    table = np.concatenate(
        [
            logit[:, None],
            _of_same_words(logit, same),
            np.concatenate([part[:, :1] for part in parts]),
            _of_overlaps(logit, starts, ends, labels),
            (ends - starts)[:, None],
            shapes,
            _of_masks(masks),
            _of_definitions(found, texts, logit, sizes),
            np.concatenate([part[:, 1:] for part in parts]),
        ],
        axis=1,
    )
    return table.astype(np.float32)


def _numbered(values: Iterable[str]) -> tuple[list[str], IntArray]:
    """Return the distinct values, and the number of each value among them."""
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(rows, dtype=np.int64)


def _of_same_words(logit: DoubleArray, same: IntArray) -> DoubleArray:
    """Return the best and mean log-odds of the other spans in a group, and the group's size."""
    n = np.bincount(same)[same]
    order = np.lexsort((-logit, same))
    first = np.searchsorted(same[order], np.arange(same.max() + 1))
    best = order[first]
    second = np.append(order, 0)[np.minimum(first + 1, len(order))]
    other = np.where(np.arange(len(same)) == best[same], second[same], best[same])
    mean = (np.bincount(same, logit)[same] - logit) / np.maximum(n - 1, 1)
    is_alone = n == 1
    columns = np.where(is_alone, _LOWEST, logit[other]), np.where(is_alone, _LOWEST, mean), n
    return np.stack(columns, axis=1)


def _of_overlaps(
    logit: DoubleArray, starts: IntArray, ends: IntArray, labels: IntArray
) -> DoubleArray:
    """Return the best log-odds of overlapping spans with the same label and with others, their
    number, and the best of spans around and inside each span, with the same label."""
    longest = int((ends - starts).max())
    first = np.searchsorted(starts, starts - longest, side="right")
    n_near = np.searchsorted(starts, ends, side="left") - first
    i = np.repeat(np.arange(len(starts)), n_near)
    j = np.arange(n_near.sum()) - np.repeat(np.cumsum(n_near) - n_near - first, n_near)
    overlaps = (ends[j] > starts[i]) & (i != j)
    i, j = i[overlaps], j[overlaps]
    is_same = labels[i] == labels[j]
    is_around = is_same & (starts[j] <= starts[i]) & (ends[j] >= ends[i])
    is_inside = is_same & (starts[j] >= starts[i]) & (ends[j] <= ends[i])
    columns = []
    for chosen in (is_same, ~is_same, is_around, is_inside):
        best = np.full(len(starts), _LOWEST)
        np.maximum.at(best, i[chosen], logit[j[chosen]])
        columns.append(best)
    columns.insert(2, np.bincount(i, minlength=len(starts)))
    return np.stack(columns, axis=1)


@lru_cache(maxsize=1 << 16)
def _shape_of(text: str) -> tuple[float, ...]:
    """Return the columns from `characters` to `everyday`."""
    lowered = text.lower()
    return (
        len(text),
        sum(map(str.isupper, text)) / len(text),
        text[0].isupper(),
        any(map(str.isdigit, text)),
        "-" in text,
        log1p(common_words().get(lowered, 0.0)),
        lowered in everyday_words(),
    )


def _of_masks(masks: Any) -> DoubleArray:
    """Return whether spans are names, whether preferred ones, and how many types these have."""
    types = masks & np.uint64((1 << MAX_TYPES) - 1)
    columns = masks != 0, masks >> np.uint64(MAX_TYPES), np.bitwise_count(types)
    return np.stack(columns, axis=1).astype(float)


def _of_definitions(
    found: Sequence[FoundSpans], texts: Sequence[Sequence[str]], logit: DoubleArray, sizes: IntArray
) -> DoubleArray:
    """Return whether the document defines each span, and the best log-odds of its long form."""
    columns = np.tile([0.0, _LOWEST], (len(logit), 1))
    row = 0
    for of_doc, texts_of_doc, size in zip(found, texts, sizes.tolist(), strict=True):
        if forms := dict(long_forms(of_doc.doc).pairs()):
            best: dict[tuple[str, str], float] = {}
            keys = [(text, span[2]) for text, span in zip(texts_of_doc, of_doc.spans, strict=True)]
            for key, x in zip(keys, logit[row : row + size].tolist(), strict=True):
                best[key] = max(x, best.get(key, _LOWEST))
            for i, (text, label) in enumerate(keys):
                if text in forms:
                    columns[row + i] = 1.0, best.get((forms[text], label), _LOWEST)
        row += size
    return columns


def _places_of(found: FoundSpans, texts: Sequence[str]) -> DoubleArray:
    """Return `n_text` of each span, and the columns from `after_bracket` to `before_hyphen`."""
    text, doc = text_of(found.doc), found.doc
    n = {span_text: text.count(span_text) for span_text in dict.fromkeys(texts)}
    rows = []
    for (start, *_), span_text in zip(found.spans, texts, strict=True):
        first = doc[start].idx
        last = first + len(span_text)
        before, after = text[max(0, first - 1) : first], text[last : last + 1]
        rows.append((n[span_text], before in _OPENING, after in _CLOSING, after in _HYPHENS))
    return np.array(rows, dtype=float).reshape(-1, 4)
