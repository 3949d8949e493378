"""Measure what scores mean: their reliability, and metrics at various score thresholds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spacy_bioel.plugins.evaluation.evaluate import canonicalise, percent_of
from spacy_bioel.scoring.protocols import get_protocol
from spacy_bioel.types import AnnotatedText, Link

BINS = 10


class Bin(NamedTuple):
    """First candidates with scores in [low, high), or in [low, 1] for the last bin.

    score, right (float): Mean score and fraction of correct candidates, both in [0, 1].
    n (int): Number of candidates.
    """

    score: float
    right: float
    n: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Scores compared with the observed accuracy in each bin; empty bins are omitted."""

    bins: tuple[Bin, ...]

    @property
    def n(self) -> int:
        return sum(bin.n for bin in self.bins)

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: the mean |mean score - share of correct candidates| over all
        bins, weighted by their number of candidates; 0 if there are no candidates."""
        total = sum(bin.n * abs(bin.score - bin.right) for bin in self.bins)
        return total / self.n if self.n else 0.0


def reliability(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    canonical: Callable[[str], str] = str,
    on_gold_borders: bool = False,
) -> Reliability:
    """Compare first candidates' scores with their accuracy, even if the link is NIL.

    A first candidate is correct if a gold mention with the same offsets has this id and no other.
    Predictions with several ids or without candidates are skipped.

    on_gold_borders (bool): Use only predictions with the same offsets as a gold mention.
    RAISES BioelError: [B080] if the numbers of documents differ.
    """
    points: dict[int, list[tuple[float, bool]]] = {}
    for mentions, links in zip(*canonicalise(gold, predicted, canonical), strict=True):
        gold_offsets = {(m.start, m.end) for m in mentions}
        gold_links = {(m.start, m.end, m.ids) for m in mentions}
        for link in links:
            if link.candidates and len(link.ids) < 2:
                first = link.candidates[0]
                if not on_gold_borders or (link.start, link.end) in gold_offsets:
                    is_right = (link.start, link.end, (first.id,)) in gold_links
                    number = min(int(first.score * BINS), BINS - 1)
                    points.setdefault(number, []).append((first.score, is_right))
    bins = []
    for number, in_bin in sorted(points.items()):
        score = sum(score for score, _ in in_bin) / len(in_bin)
        right = sum(is_right for _, is_right in in_bin) / len(in_bin)
        bins.append(Bin(score, right, len(in_bin), number / BINS, (number + 1) / BINS))
    return Reliability(tuple(bins))


def curves_over_scores(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    thresholds: Iterable[float],
    *,
    protocol: str,
    canonical: Callable[[str], str] = str,
) -> dict[str, list[tuple[float, float]]]:
    """Measure links at several thresholds, counting links that score below a threshold as NIL.

    The score of a link is the lowest score of its ids. Links without candidates are kept.

    RETURNS (dict): The (threshold, percentage) points of each metric, by ascending threshold. The
        percentage is NaN if its denominator is 0, as for precision if nothing is linked.
    RAISES BioelError: [B080] if the numbers of documents differ, [B081] if a protocol is unknown.
    """

    def above(threshold: float, link: Link) -> Link:
        scores = (c.score for c in link.candidates if c.id in link.ids)
        return link if min(scores, default=1.0) >= threshold else replace(link, ids=())

    golds, links = canonicalise(gold, predicted, canonical)
    _, rules = get_protocol(protocol)
    curves: dict[str, list[tuple[float, float]]] = {metric: [] for metric in rules.metrics}
    for threshold in sorted(thresholds):
        links = [[above(threshold, link) for link in of_doc] for of_doc in links]
        counts = list(map(rules.count, golds, links))
        for metric, points in curves.items():
            (_, total), *others = rules.metrics[metric].ratios
            is_defined = others or any(row[total] for row in counts)
            value = percent_of(counts, protocol, metric) if is_defined else math.nan
            points.append((threshold, value))
    return curves
