"""Evaluation of predicted links by named protocols, and reliability of their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.measure import Measurement, measure
from spacy_bioel.scoring.protocols import Protocol, get_protocol
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

BINS = 10
Point = tuple[float, bool]  # score, whether it was right


@dataclass(frozen=True, slots=True)
class Bin:
    """First candidates of a like score.

    low, high (float): Borders of the scores; `high` belongs to the next one, except 1.
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


def evaluate(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    protocols: Iterable[str],
    canonical: Callable[[str], str] = str,
    in_kb: Callable[[str], bool] | None = None,
    max_candidates: int = 1,
    per_label: bool = True,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Measurement]:
    """Score the predicted links of documents against their gold mentions.

    gold (Sequence[AnnotatedText]): The gold documents. Where they say what they annotate, links
        with another label are left out.
    predicted (Sequence[Sequence[Link]]): The links of each document. For the protocols "gold"
        and "gold_any" they must be predictions on the gold mentions.
    protocols (Iterable[str]): Names in PROTOCOLS, or aliases.
    canonical (Callable[[str], str]): Maps an id to the current one; applied to both sides.
    in_kb (Callable[[str], bool] | None): Whether the KB has a canonical id. Gold mentions with
        other ids count as wrong; with `in_kb` the details count them: `missing_from_kb` (none of
        the ids is known) and `partly_missing_from_kb`.
    max_candidates (int): Maximum number of candidates of a mention. Recall at a greater k is left
        out, for it would equal the recall at this one.
    per_label (bool): Also measure each label separately.
    n_resamples, seed (int): Number of resamples and seed of the bootstrap over documents.
    RETURNS (list[Measurement]): By protocol, then label (all labels first), then metric.
    RAISES BioelError: [B080] when the numbers of documents differ, [B081] for an unknown protocol.
    """
    chosen = [get_protocol(name) for name in protocols]
    golds, links = canonicalised(gold, predicted, canonical)
    labels = [""] + (_labels(golds, links) if per_label else [])
    found = []
    for name, protocol in chosen:
        metrics = {key: m for key, m in protocol.metrics.items() if m.rank <= max_candidates}
        for label in labels:
            rows = _count_documents(golds, links, protocol=protocol, label=label, in_kb=in_kb)
            found += measure(
                rows,
                metrics,
                protocol=name,
                label=label,
                candidates=max_candidates if protocol.given_mentions else 0,
                n_resamples=n_resamples,
                seed=seed,
            )
    return found


def count_documents(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    protocol: str,
    canonical: Callable[[str], str] = str,
) -> list[Counts]:
    """Count each document under one protocol, before `evaluate` sums the counts.

    RAISES BioelError: Those of `evaluate`.
    """
    _, chosen = get_protocol(protocol)
    golds, links = canonicalised(gold, predicted, canonical)
    return [chosen.count(*of_doc) for of_doc in zip(golds, links, strict=True)]


def canonicalised(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    canonical: Callable[[str], str],
) -> tuple[list[list[Mention]], list[list[Link]]]:
    """Gold mentions and links of each document, with canonical ids."""
    if len(gold) != len(predicted):
        raise BioelError(Errors.B080.format(n_gold=len(gold), n_predicted=len(predicted)))
    # The candidates of all mentions repeat a few thousand ids.
    canonical = cache(canonical)
    golds = [[_canonical_mention(m, canonical) for m in text.mentions] for text in gold]
    links = [
        [
            canonical_link(link, canonical)
            for link in doc_links
            if not text.annotates or link.label in text.annotates
        ]
        for text, doc_links in zip(gold, predicted, strict=True)
    ]
    return golds, links


def canonical_link(link: Link, canonical: Callable[[str], str] = str) -> Link:
    """Canonicalise the ids of a link for the functions of `counts`.

    RETURNS (Link): Canonical ids, sorted and unique; the best candidate of each concept.
    """
    best: dict[str, Candidate] = {}
    for candidate in link.candidates:
        id_ = canonical(candidate.id)
        best.setdefault(id_, replace(candidate, id=id_))
    ids = tuple(sorted({canonical(id_) for id_ in link.ids}))
    return replace(link, ids=ids, candidates=tuple(best.values()))


def _canonical_mention(mention: Mention, canonical: Callable[[str], str]) -> Mention:
    return replace(mention, ids=tuple(sorted({canonical(id_) for id_ in mention.ids})))


def _labels(golds: list[list[Mention]], links: list[list[Link]]) -> list[str]:
    gold_labels = {m.label for mentions in golds for m in mentions}
    link_labels = {x.label for doc_links in links for x in doc_links}
    return sorted((gold_labels | link_labels) - {""})


def _count_documents(
    golds: list[list[Mention]],
    links: list[list[Link]],
    *,
    protocol: Protocol,
    label: str,
    in_kb: Callable[[str], bool] | None,
) -> list[Counts]:
    rows = []
    for mentions, doc_links in zip(golds, links, strict=True):
        if label:
            mentions = [m for m in mentions if m.label == label]
            doc_links = [x for x in doc_links if x.label == label]
        row = protocol.count(mentions, doc_links)
        rows.append(row | (_count_missing(mentions, in_kb) if in_kb else {}))
    return rows


def _count_missing(mentions: Iterable[Mention], in_kb: Callable[[str], bool]) -> Counts:
    missing: Counts = {"missing_from_kb": 0, "partly_missing_from_kb": 0}
    for mention in mentions:
        known = [in_kb(id_) for id_ in mention.ids]
        missing["missing_from_kb"] += bool(known) and not any(known)
        missing["partly_missing_from_kb"] += any(known) and not all(known)
    return missing
