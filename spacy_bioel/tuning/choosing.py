"""Selection of settings by metrics of `spacy_bioel.scoring`, with cross-fitting by document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import percent
from spacy_bioel.scoring.protocols import get_protocol

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
    fitted (float | None): Percentage on the documents used for the choice, which is optimistic.
        None: not measured yet, see `tune`.
    cross_fitted (float | None): The same, each document measured with the settings chosen on the
        other folds; settings of earlier steps are not chosen again. None: only one document.
    """

    what: str
    chosen: dict[str, Value]
    protocol: str
    metric: str
    fitted: float | None
    cross_fitted: float | None

    def to_json(self) -> dict[str, Any]:
        figures = {"fitted": self.fitted, "cross_fitted": self.cross_fitted}
        return asdict(self) | {n: x if x is None else round(x, 2) for n, x in figures.items()}


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
    folds: Sequence[Fold],
) -> Tuned:
    """Choose the settings of a pipe with the highest F1; at a tie, the first.

    settings (Sequence): At least one, in the order of preference.
    counts (Sequence): For each of the settings, the counts of each document.
    folds (Sequence[Fold]): Folds of the documents; empty: no cross-fitting.
    """

    def best_on(documents: Iterable[int]) -> int:
        chosen = list(documents)
        found = [percent_of([rows[i] for i in chosen], protocol, "f1") for rows in counts]
        return int(np.argmax(found))

    best = best_on(range(len(counts[0])))
    fitted = percent_of(counts[best], protocol, "f1")
    held_out: list[Counts] = []
    for fold in folds:
        of_others = counts[best_on(fold.fitting.tolist())]
        held_out += [of_others[i] for i in fold.held_out.tolist()]
    cross_fitted = percent_of(held_out, protocol, "f1") if folds else None
    return Tuned(what, dict(settings[best]), protocol, "f1", fitted, cross_fitted)


def wrong_names(
    found: Iterable[Sequence[tuple[str, bool]]], n_gold: int, *, least: int
) -> list[str]:
    """Choose names without which F1 is higher: they are right less often than half of F1.

    found (Iterable): Of each document its names, and whether each is right.
    least (int): Times that a name is found and wrong; 0: no name is left out.
    """
    right, times = Counter[str](), Counter[str]()
    for name, is_right in chain.from_iterable(found):
        times[name] += 1
        right[name] += is_right
    half = right.total() / max(times.total() + n_gold, 1)
    return [
        name
        for name, n in times.items()
        if least and n - right[name] >= least and right[name] / n < half
    ]


def percent_of(counts: Sequence[Counts], protocol: str, metric: str) -> float:
    """Compute a metric of a protocol, in percent, from the summed counts of documents."""
    how = get_protocol(protocol)[1].metrics[metric]
    names = {name for ratio in how.ratios for name in ratio}
    sums = {name: np.array([sum(row[name] for row in counts)], float) for name in names}
    return float(percent(how, sums)[0])
