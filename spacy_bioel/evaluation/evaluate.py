"""Evaluation of predicted links by named protocols, and reliability of their scores.

Errors of a pipeline on gold documents: gold mentions and predictions in pairs, by kinds.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.evaluation.protocols import (
    Counts,
    Ids,
    Metric,
    Protocol,
    get_protocol,
    kind_of,
    one_to_one,
    pair_by_offsets,
)
from spacy_bioel.types import AnnotatedText, Candidate, DoubleArray, Link, Mention

BINS = 10
_BLOCK = 50  # resamples drawn at a time, to bound memory on corpora of many documents


@dataclass(frozen=True, slots=True)
class Figure:
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
) -> list[Figure]:
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
    RETURNS (list[Figure]): By protocol, then label (all labels first), then metric; metrics
        without any item to count are left out.
    RAISES BioelError: [B080] when the numbers of documents differ, [B081] for an unknown protocol.
    """
    chosen = [get_protocol(name) for name in protocols]
    golds, links = canonicalised(gold, predicted, canonical)
    labels: set[str] = set()
    if per_label:
        labels |= {m.label for of_doc in golds for m in of_doc}
        labels |= {x.label for of_doc in links for x in of_doc}
    found: list[Figure] = []
    for name, protocol in chosen:
        metrics = {key: m for key, m in protocol.metrics.items() if m.rank <= max_candidates}
        candidates = max_candidates if protocol.given_mentions else 0
        for label in ("", *sorted(labels - {""})):
            rows = _count(golds, links, protocol=protocol, label=label, in_kb=in_kb)
            make = partial(Figure, protocol=name, label=label, candidates=candidates)
            found += _measure(rows, metrics, make, n_resamples=n_resamples, seed=seed)
    return found


def _measure(
    rows: Sequence[Counts],
    metrics: Mapping[str, Metric],
    make: Callable[..., Figure],
    *,
    n_resamples: int,
    seed: int,
) -> Iterator[Figure]:
    """Sum the counts of all documents and turn them into percentages with intervals."""
    if not rows:
        return
    names = list(rows[0])
    counts_dc = np.array([[row[key] for key in names] for row in rows], dtype=np.float64)
    sums_rc = bootstrap_sums(counts_dc, n_resamples=n_resamples, seed=seed)
    total = dict(zip(names, counts_dc.sum(axis=0).reshape(len(names), 1), strict=True))
    resampled = dict(zip(names, sums_rc.T, strict=True))
    details = {key: float(column[0]) for key, column in total.items()}
    for key, metric in metrics.items():
        if _has_items(metric, total)[0]:
            # Resamples without a document that has this label have no value for it.
            usable = percent(metric, resampled)[_has_items(metric, resampled)]
            ends = np.percentile(usable, [2.5, 97.5]) if len(usable) else (0.0, 100.0)
            low, high = map(float, ends)
            value, n = float(percent(metric, total)[0]), int(details[metric.n])
            yield make(metric=key, value=value, n=n, low=low, high=high, details=details)


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
    return _count(*canonicalised(gold, predicted, canonical), protocol=get_protocol(protocol)[1])


def canonicalised(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    canonical: Callable[[str], str],
) -> tuple[list[list[Mention]], list[list[Link]]]:
    """Return gold mentions and links of each document, with canonical ids, sorted and unique, and
    the best candidate of each concept. RAISES BioelError: [B080]."""
    if len(gold) != len(predicted):
        raise BioelError(Errors.B080.format(n_gold=len(gold), n_predicted=len(predicted)))
    # The candidates of all mentions repeat a few thousand ids.
    canonical = cache(canonical)

    def ids_of(item: Mention | Link) -> tuple[str, ...]:
        return tuple(sorted(set(map(canonical, item.ids))))

    def canonical_link(link: Link) -> Link:
        best: dict[str, Candidate] = {}
        for candidate in link.candidates:
            id_ = canonical(candidate.id)
            best.setdefault(id_, replace(candidate, id=id_))
        return replace(link, ids=ids_of(link), candidates=tuple(best.values()))

    golds = [[replace(m, ids=ids_of(m)) for m in text.mentions] for text in gold]
    links = [
        [canonical_link(x) for x in found if not text.annotates or x.label in text.annotates]
        for text, found in zip(gold, predicted, strict=True)
    ]
    return golds, links


def _count(
    golds: list[list[Mention]],
    links: list[list[Link]],
    *,
    protocol: Protocol,
    label: str = "",
    in_kb: Callable[[str], bool] | None = None,
) -> list[Counts]:
    rows = []
    for mentions, found in zip(golds, links, strict=True):
        if label:
            mentions = [m for m in mentions if m.label == label]
            found = [x for x in found if x.label == label]
        row = protocol.count(mentions, found)
        if in_kb is not None:
            known = [[in_kb(id_) for id_ in m.ids] for m in mentions if m.ids]
            row["missing_from_kb"] = sum(not any(of_ids) for of_ids in known)
            row["partly_missing_from_kb"] = sum(any(ids) and not all(ids) for ids in known)
        rows.append(row)
    return rows


def percent(metric: Metric, sums: Mapping[str, DoubleArray]) -> DoubleArray:
    """Compute a metric from several sums of counts at once.

    sums (Mapping[str, DoubleArray]): Sums by name of the count. Shape (n_sums,) each.
    RETURNS (DoubleArray): Percentages; 0 where a denominator is 0. Shape (n_sums,).
    """
    values = [_ratio(sums[top], sums[bottom]) for top, bottom in metric.ratios]
    if len(values) == 2:
        values = [_ratio(2 * values[0] * values[1], values[0] + values[1])]
    return 100.0 * values[0]


def _ratio(top: DoubleArray, bottom: DoubleArray) -> DoubleArray:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def _has_items(metric: Metric, sums: Mapping[str, DoubleArray]) -> NDArray[np.bool_]:
    """Whether each sum has items, gold or predicted, to compute a metric from. Shape (n_sums,)."""
    counted = [sums[metric.n], *(sums[bottom] for _, bottom in metric.ratios)]
    return np.any(np.stack(counted) > 0, axis=0)


def bootstrap_sums(counts_dc: DoubleArray, *, n_resamples: int, seed: int) -> DoubleArray:
    """Sum counts over documents drawn with replacement.

    The unit is the document, because mentions of one document are not independent.

    counts_dc (DoubleArray): Counts of each document. Shape (n_documents, n_counts).
    RETURNS (DoubleArray): One row per resample. Shape (n_resamples, n_counts).
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
    """Scores against observed accuracy, in the bins that have candidates."""

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
    points: dict[int, list[tuple[float, bool]]] = {}
    for mentions, links in zip(*canonicalised(gold, predicted, canonical), strict=True):
        places = {(m.start, m.end) for m in mentions}
        right = {(m.start, m.end, m.ids) for m in mentions}
        for link in links:
            if link.candidates and len(link.ids) < 2:
                first = link.candidates[0]
                if not on_gold_borders or (link.start, link.end) in places:
                    is_right = (link.start, link.end, (first.id,)) in right
                    number = min(int(first.score * BINS), BINS - 1)
                    points.setdefault(number, []).append((first.score, is_right))
    bins = []
    for number, found in sorted(points.items()):
        score, right_share = (sum(values) / len(found) for values in zip(*found, strict=True))
        bins.append(Bin(number / BINS, (number + 1) / BINS, len(found), score, right_share))
    return Reliability(tuple(bins))


Pair = tuple[Mention | None, Link | None]


@dataclass(frozen=True)
class Knowledge:
    """Answers of a knowledge base, and of mention statistics, to questions about gold mentions.

    canonical (Callable): The current id of an id.
    knows (Callable): Whether the knowledge base has a current id.
    has_name (Callable): Whether a concept, by its id, has a name, however it is spelled.
    is_seen (Callable | None): Whether a string or one of these ids was in the training documents;
        None: nothing is known of these.
    """

    canonical: Callable[[str], str]
    knows: Callable[[str], bool]
    has_name: Callable[[str, str], bool]
    is_seen: Callable[[str, Ids], bool] | None = None


@dataclass(frozen=True, slots=True)
class LinkingError:
    """An error, with canonical ids on both sides.

    text (AnnotatedText): The gold document.
    gold (Mention | None), link (Link | None): Both for a pair.
    kind (str): A key of `counts.KINDS`.
    marks (tuple[str, ...]): Keys of `counts.MARKS`, in their order.
    """

    text: AnnotatedText
    gold: Mention | None
    link: Link | None
    kind: str
    marks: tuple[str, ...] = ()

    @property
    def place(self) -> Mention | Link:
        """The gold mention; of a spurious prediction, the prediction."""
        found = self.gold or self.link
        assert found is not None
        return found

    @property
    def string(self) -> str:
        return self.text.text[self.place.start : self.place.end]

    @property
    def rank(self) -> int:
        """Rank, from 1, of the first candidate that is a gold id; 0: there is none."""
        if self.gold is None or self.link is None:
            return 0
        ranks = (i for i, c in enumerate(self.link.candidates, start=1) if c.id in self.gold.ids)
        return next(ranks, 0)


def find_errors(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    knowledge: Knowledge | None = None,
    labels: bool = True,
    given: bool = False,
) -> Iterator[LinkingError]:
    """Find the errors of all documents, in the order of the documents and of their offsets.

    gold (Sequence[AnnotatedText]): Where a document says what it annotates, links with another
        label are left out.
    knowledge (Knowledge | None): None: ids are not compared, for nothing was linked.
    labels (bool): Whether labels are compared.
    given (bool): The linker was given the gold mentions: what it widened to whole tokens stands for
        them.
    RAISES BioelError: [B080] when the numbers of documents differ.
    """
    golds, links = canonicalised(gold, predicted, knowledge.canonical if knowledge else str)
    for text, mentions, doc_links in zip(gold, golds, links, strict=True):
        if knowledge is None:
            mentions = [replace(mention, ids=()) for mention in mentions]
        found = _given_pairs(mentions, doc_links) if given else pairs(mentions, doc_links)
        # Mentions that lost an id of the corpus, because it was replaced.
        before_and_after = zip(text.mentions, mentions, strict=True)
        retired = {m for original, m in before_and_after if not set(original.ids) <= set(m.ids)}
        errors = (
            LinkingError(text, mention, link, kind)
            for mention, link in found
            if (kind := kind_of(mention, link, labels=labels))
        )
        for error in sorted(errors, key=lambda e: (e.place.start, e.place.end, e.gold is None)):
            marks = _marks(error, knowledge, retired) if knowledge else ()
            yield replace(error, marks=tuple(marks))


def _given_pairs(gold: Sequence[Mention], links: Sequence[Link]) -> list[Pair]:
    return [
        (m, link and replace(link, start=m.start, end=m.end, label=m.label))
        for m, link in pair_by_offsets(gold, links)
    ]


def pairs(gold: Iterable[Mention], links: Iterable[Link]) -> list[Pair]:
    """Pair gold mentions with predictions as `counts.PAIRING` says; what is left has None."""
    mentions, rest = _different(gold), _different(links)
    paired = one_to_one(_ranked(mentions, rest))
    found: list[Pair] = [(mentions[i], rest[j]) for i, j in paired.items()]
    found += [(m, None) for i, m in enumerate(mentions) if i not in paired]
    taken = set(paired.values())
    return found + [(None, x) for j, x in enumerate(rest) if j not in taken]


def confusions(errors: Iterable[LinkingError]) -> Counter[tuple[Ids, Ids]]:
    """Count the pairs of gold ids and other predicted ids, on the same offsets."""
    return Counter(
        (error.gold.ids, error.link.ids)
        for error in errors
        if error.kind == "wrong_id" and error.gold and error.link
    )


def strings_of(errors: Iterable[LinkingError], kind: str) -> Counter[tuple[str, str]]:
    """Count the strings of the errors of a kind, in lower case, each with its label."""
    return Counter((e.string.lower(), e.place.label) for e in errors if e.kind == kind)


def _ranked(
    gold: Sequence[Mention], links: Sequence[Link]
) -> Iterator[tuple[tuple[int, bool, bool], int, int]]:
    order = sorted(range(len(links)), key=lambda j: links[j].start)
    starts = [links[j].start for j in order]
    longest = max((link.end - link.start for link in links), default=0)
    for i, m in enumerate(gold):
        # None that begins farther to the left reaches the mention.
        near = slice(bisect_left(starts, m.start - longest), bisect_left(starts, m.end))
        for j in order[near]:
            link = links[j]
            shared = min(m.end, link.end) - max(m.start, link.start)
            if (m.start, m.end) == (link.start, link.end):
                shared = sys.maxsize
            if shared > 0:
                yield (-shared, m.ids != link.ids, m.label != link.label), i, j


def _different(items: Iterable) -> list:
    """Return the items without exact duplicates."""
    return list({(x.start, x.end, x.label, x.ids): x for x in items}.values())


def _marks(error: LinkingError, knowledge: Knowledge, retired: set[Mention]) -> Iterator[str]:
    gold, link = error.gold, error.link
    if gold is None or not gold.ids:
        return
    if link is not None:
        wrong = set(link.ids) - set(gold.ids)
        names = [c.name for c in link.candidates if c.id in wrong]
        others = [id for id in gold.ids if id not in link.ids]
        if any(knowledge.has_name(id, name) for name in names for id in others):
            yield "homonym"
    if not all(map(knowledge.knows, gold.ids)):
        yield "missing"
    if gold in retired:
        yield "retired"
    if knowledge.is_seen is not None and not knowledge.is_seen(error.string, gold.ids):
        yield "unseen"
