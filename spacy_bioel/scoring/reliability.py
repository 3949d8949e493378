"""Reliability of scores: how often the first candidate is right, among those of a like score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spacy_bioel.scoring.evaluation import canonicalised
from spacy_bioel.types import AnnotatedText, Link

BINS = 10
Point = tuple[float, bool]  # score, whether it was right


@dataclass(frozen=True, slots=True)
class Bin:
    """First candidates of a like score.

    low, high (float): Borders of the scores; `high` belongs to the next one, but for 1.
    n (int): Number of candidates.
    score, right (float): Mean score, and share of right ones; both in [0, 1].
    """

    low: float
    high: float
    n: int
    score: float
    right: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Scores against observed accuracy.

    bins (tuple[Bin, ...]): Those that have candidates, by score.
    """

    bins: tuple[Bin, ...]

    @property
    def n(self) -> int:
        return sum(one.n for one in self.bins)

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: the mean of |mean score - share of right ones| of the bins,
        weighted by their numbers of candidates; 0 without any."""
        total = sum(one.n * abs(one.score - one.right) for one in self.bins)
        return total / self.n if self.n else 0.0


def reliability(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    canonical: Callable[[str], str] = str,
    on_gold_borders: bool = False,
) -> Reliability:
    """Compare the score of the first candidate of each prediction with gold, linked or NIL.

    A first candidate is right if a gold mention of the same offsets has its id and no other.
    Predictions of several ids, and those without candidates, are left out.

    on_gold_borders (bool): Only predictions whose offsets are those of a gold mention.
    RAISES BioelError: [B080] when the numbers of documents differ.
    """
    points = _points(gold, predicted, canonical=canonical, on_gold_borders=on_gold_borders)
    in_bins: list[list[Point]] = [[] for _ in range(BINS)]
    for score, is_right in points:
        in_bins[min(int(score * BINS), BINS - 1)].append((score, is_right))
    return Reliability(tuple(_bin(i, found) for i, found in enumerate(in_bins) if found))


def _bin(number: int, points: Sequence[Point]) -> Bin:
    n = len(points)
    score, right = sum(p[0] for p in points) / n, sum(p[1] for p in points) / n
    return Bin(number / BINS, (number + 1) / BINS, n, score, right)


def _points(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    canonical: Callable[[str], str],
    on_gold_borders: bool,
) -> Iterator[Point]:
    for mentions, links in zip(*canonicalised(gold, predicted, canonical), strict=True):
        ids_at: dict[tuple[int, int], set[tuple[str, ...]]] = {}
        for mention in mentions:
            ids_at.setdefault((mention.start, mention.end), set()).add(mention.ids)
        for link in links:
            at = ids_at.get((link.start, link.end))
            if link.candidates and len(link.ids) < 2 and (at or not on_gold_borders):
                first = link.candidates[0]
                yield first.score, (first.id,) in (at or ())
