"""Selection of settings by metrics of `spacy_bioel.scoring`, with cross-fitting by document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import percent
from spacy_bioel.scoring.protocols import Metric, get_protocol

Value = float | bool | str
IntArray = NDArray[np.int64]
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices of the documents to fit on and of the held-out documents to measure on."""

    fitting: IntArray
    held_out: IntArray


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings chosen on development documents, with their fitted and cross-fitted figures.

    what (str): Name of the pipe.
    chosen (dict): Its chosen settings, by name.
    protocol, metric (str): Protocol and metric that were maximised, as in `bioel evaluate`.
    fitted (float): Percentage on the documents used for the choice, which is optimistic.
    cross_fitted (float | None): The same, each document measured with the settings chosen on the
        other folds; settings of earlier steps are not chosen again. None: only one document.
    """

    what: str
    chosen: dict[str, Value]
    protocol: str
    metric: str
    fitted: float
    cross_fitted: float | None

    def to_json(self) -> dict[str, Any]:
        rounded = {"fitted": round(self.fitted, 2)}
        if self.cross_fitted is not None:
            rounded["cross_fitted"] = round(self.cross_fitted, 2)
        return asdict(self) | rounded


def document_folds(n_documents: int, *, seed: int = 0) -> list[Fold]:
    """Split documents into folds, deterministically; no folds for a single document."""
    if n_documents < 2:
        return []
    n_folds = min(FOLDS, n_documents)
    fold = np.random.default_rng(seed).permutation(n_documents) % n_folds
    return [
        Fold(np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(n_folds)
    ]


def choose(
    what: str,
    settings: Sequence[dict[str, Value]],
    counts: Sequence[Sequence[Counts]],
    *,
    protocol: str,
    metric: str = "f1",
    folds: Sequence[Fold],
) -> Tuned:
    """Choose the settings of a pipe with the highest metric; at a tie, the first.

    settings (Sequence): At least one, in the order of preference.
    counts (Sequence): For each of the settings, the counts of each document.
    folds (Sequence[Fold]): Folds of the documents; empty: no cross-fitting.
    """
    how = metric_of(protocol, metric)
    names = sorted({name for ratio in how.ratios for name in ratio})
    counts_sdc = np.array([[[row[n] for n in names] for row in rows] for rows in counts], float)

    def percents(sums_sc: NDArray[np.float64]) -> NDArray[np.float64]:
        return percent(how, dict(zip(names, sums_sc.T, strict=True)))

    on_all = percents(counts_sdc.sum(axis=1))
    best = int(np.argmax(on_all))
    cross_fitted = None
    if folds:
        total_c = np.zeros(len(names))
        for fold in folds:
            chosen = int(np.argmax(percents(counts_sdc[:, fold.fitting].sum(axis=1))))
            total_c += counts_sdc[chosen, fold.held_out].sum(axis=0)
        cross_fitted = float(percents(total_c[None])[0])
    return Tuned(what, dict(settings[best]), protocol, metric, float(on_all[best]), cross_fitted)


def percent_of(counts: Sequence[Counts], metric: Metric) -> float:
    """Compute a metric, in percent, from the summed counts of documents."""
    names = {name for ratio in metric.ratios for name in ratio}
    sums = {name: np.array([sum(row[name] for row in counts)], float) for name in names}
    return float(percent(metric, sums)[0])


def metric_of(protocol: str, metric: str) -> Metric:
    """Look up a metric in the table of protocols."""
    return get_protocol(protocol)[1].metrics[metric]
