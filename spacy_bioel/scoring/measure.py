"""Percentages with bootstrap intervals from counts per document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.protocols import Metric

FloatArray = NDArray[np.float64]

_BLOCK = 50  # resamples drawn at a time, to bound memory on corpora of many documents


@dataclass(frozen=True, slots=True)
class Measurement:
    """Value of a metric, with its protocol, sample size and interval.

    protocol (str): Name in `protocols.PROTOCOLS`.
    metric (str): "precision", "recall", "f1", "accuracy@1", "recall@5", "mrr", ...
    value (float): A percentage, 0 to 100; 0 if nothing was predicted or there is no gold.
    n (int): Number of gold items in the denominator.
    label (str): Label that gold and predictions were restricted to; "" for all labels.
    low, high (float): 95 % interval, bootstrapped over documents.
    candidates (int): Maximum number of candidates of a mention, among which ranks are counted;
        0: the protocol counts no ranks.
    details (dict[str, float]): All counts of the protocol, excluded items included.
    """

    protocol: str
    metric: str
    value: float
    n: int
    label: str = ""
    low: float = 0.0
    high: float = 100.0
    candidates: int = 0
    details: dict[str, float] = field(default_factory=dict)


def measure(
    counts: Sequence[Counts],
    metrics: Mapping[str, Metric],
    *,
    protocol: str,
    label: str = "",
    candidates: int = 0,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Measurement]:
    """Sum the counts of all documents and turn them into percentages with intervals.

    counts (Sequence[Counts]): Counts of each document, all with the same names.
    metrics (Mapping[str, Metric]): Metrics to compute, by name.
    label, candidates: See `Measurement`.
    n_resamples, seed (int): Number of resamples and seed of the bootstrap over documents.
    RETURNS (list[Measurement]): One per metric; metrics without any item to count are left out.
    """
    if not counts:
        return []
    names = list(counts[0])
    counts_dc = np.array([[row[name] for name in names] for row in counts], dtype=np.float64)
    sums_rc = bootstrap_sums(counts_dc, n_resamples=n_resamples, seed=seed)
    total = dict(zip(names, counts_dc.sum(axis=0).reshape(len(names), 1), strict=True))
    resampled = dict(zip(names, sums_rc.T, strict=True))
    details = {name: float(column[0]) for name, column in total.items()}
    found = []
    for name, metric in metrics.items():
        if not _has_items(metric, total)[0]:
            continue
        # Resamples without a document that has this label have no value for it.
        usable = percent(metric, resampled)[_has_items(metric, resampled)]
        low, high = np.percentile(usable, [2.5, 97.5]) if len(usable) else (0.0, 100.0)
        value = float(percent(metric, total)[0])
        n = int(details[metric.n])
        interval = float(low), float(high)
        found.append(Measurement(protocol, name, value, n, label, *interval, candidates, details))
    return found


def percent(metric: Metric, sums: Mapping[str, FloatArray]) -> FloatArray:
    """Compute a metric from several sums of counts at once.

    sums (Mapping[str, FloatArray]): Sums by name of the count. Shape (n_sums,) each.
    RETURNS (FloatArray): Percentages; 0 where a denominator is 0. Shape (n_sums,).
    """
    values = [_ratio(sums[top], sums[bottom]) for top, bottom in metric.ratios]
    if len(values) == 2:
        values = [_ratio(2 * values[0] * values[1], values[0] + values[1])]
    return 100.0 * values[0]


def _has_items(metric: Metric, sums: Mapping[str, FloatArray]) -> NDArray[np.bool_]:
    """Whether each sum has items, gold or predicted, to compute a metric from. Shape (n_sums,)."""
    counted = [sums[metric.n], *(sums[bottom] for _, bottom in metric.ratios)]
    return np.any(np.stack(counted) > 0, axis=0)


def bootstrap_sums(counts_dc: FloatArray, *, n_resamples: int, seed: int) -> FloatArray:
    """Sum counts over documents drawn with replacement.

    The unit is the document, because mentions of one document are not independent.

    counts_dc (FloatArray): Counts of each document. Shape (n_documents, n_counts).
    RETURNS (FloatArray): One row per resample. Shape (n_resamples, n_counts).
    """
    n_docs = len(counts_dc)
    rng = np.random.default_rng(seed)
    sums_rc = np.empty((n_resamples, counts_dc.shape[1]))
    for start in range(0, n_resamples, _BLOCK):
        n_rows = min(_BLOCK, n_resamples - start)
        drawn = rng.integers(n_docs, size=(n_rows, n_docs))
        times_drawn = np.stack([np.bincount(row, minlength=n_docs) for row in drawn])
        sums_rc[start : start + n_rows] = times_drawn @ counts_dc
    return sums_rc


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
