"""Evaluation of predicted links: figures by protocol, and errors by kind."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors
from spacy_bioel.scoring.protocols import (
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

_RESAMPLES = 1000
_RESAMPLES_PER_BLOCK = 50  # resamples drawn at a time, to limit memory use for large corpora


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric with its value, protocol, sample size and interval.

    protocol (str): Name in `protocols.PROTOCOLS`.
    metric (str): "precision", "recall", "f1", "accuracy@1", "recall@5", "mrr", ...
    value (float): A percentage, 0 to 100; 0 if nothing was predicted or there is no gold.
    n (int): Number of gold items in the denominator.
    label (str): Label that gold and predictions were restricted to; "" for all labels.
    low, high (float): 95 % interval, bootstrapped over documents.
    candidates (int): Maximum number of candidates per mention, within which ranks are counted;
        0: the protocol does not use ranks.
    details (dict[str, float]): All counts of the protocol, including excluded items.
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


def evaluate_links(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    protocols: Iterable[str],
    canonical: Callable[[str], str] = str,
    in_kb: Callable[[str], bool] | None = None,
    max_candidates: int = 1,
    per_label: bool = True,
    seed: int = 0,
) -> list[Figure]:
    """Score predicted links against gold mentions.

    gold (Sequence[AnnotatedText]): The gold documents. If a document lists the labels that it
        annotates, links with other labels are ignored.
    predicted (Sequence[Sequence[Link]]): The links of each document. For the "gold" and
        "gold_any" protocols, they must be predictions on the gold mentions.
    protocols (Iterable[str]): Names in PROTOCOLS, or aliases.
    canonical (Callable[[str], str]): Maps an id to the current id; applied to both sides.
    in_kb (Callable[[str], bool] | None): Whether the KB contains a canonical id. Gold mentions
        with other ids count as wrong; if `in_kb` is passed, the details count these mentions:
        `missing_from_kb` (none of the ids is in the KB) and `partly_missing_from_kb`.
    max_candidates (int): Maximum number of candidates per mention. Recall at a greater k is
        omitted, because it would be the same as recall at this number.
    per_label (bool): Also measure each label separately.
    seed (int): Seed of the bootstrap over documents.
    RETURNS (list[Figure]): By protocol, then label (all labels first), then metric; metrics
        that have no items to count are omitted.
    RAISES BioelError: [B080] if the numbers of documents differ, [B081] if a protocol is unknown.
    """
    chosen = [get_protocol(name) for name in protocols]
    golds, links = canonicalise(gold, predicted, canonical)
    items = chain[Mention | Link](*golds, *links)
    labels = {item.label for item in items} if per_label else set()
    figures: list[Figure] = []
    if not golds:
        return figures
    for (name, protocol), label in product(chosen, ("", *sorted(labels - {""}))):
        candidates = max_candidates if protocol.given_mentions else 0
        rows = _count(golds, links, protocol=protocol, label=label, in_kb=in_kb)
        names = list(rows[0])
        counts_dc = np.array([[row[key] for key in names] for row in rows], dtype=np.float64)
        sums_rc = bootstrap_sums(counts_dc, seed=seed)
        total = dict(zip(names, counts_dc.sum(axis=0).reshape(len(names), 1), strict=True))
        resampled = dict(zip(names, sums_rc.T, strict=True))
        details = {key: float(column[0]) for key, column in total.items()}
        for key, metric in protocol.metrics.items():
            if metric.rank <= max_candidates and _has_items(metric, total)[0]:
                # A resample has no value for a label that none of its documents has.
                usable = percent(metric, resampled)[_has_items(metric, resampled)]
                ends = np.percentile(usable, [2.5, 97.5]) if len(usable) else (0.0, 100.0)
                low, high = map(float, ends)
                value, n = float(percent(metric, total)[0]), int(details[metric.n])
                figures.append(Figure(name, key, value, n, label, low, high, candidates, details))
    return figures


def count_documents(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    protocol: str,
    canonical: Callable[[str], str] = str,
) -> list[Counts]:
    """Return each document's counts for a protocol. Raises the same errors as `evaluate_links`."""
    return _count(*canonicalise(gold, predicted, canonical), protocol=get_protocol(protocol)[1])


def canonicalise(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    canonical: Callable[[str], str],
) -> tuple[list[list[Mention]], list[list[Link]]]:
    """Return each document's gold mentions and links with sorted, unique, canonical ids.

    Of several candidates with the same canonical id, only the best is kept.

    RAISES BioelError: [B080] if the numbers of documents differ.
    """
    if len(gold) != len(predicted):
        raise BioelError(EvaluationErrors.B080.format(n_gold=len(gold), n_predicted=len(predicted)))
    # Worth caching, because the same few thousand ids recur among the candidates of all mentions.
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
        [canonical_link(x) for x in doc_links if not text.annotates or x.label in text.annotates]
        for text, doc_links in zip(gold, predicted, strict=True)
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
    for mentions, doc_links in zip(golds, links, strict=True):
        if label:
            mentions = [m for m in mentions if m.label == label]
            doc_links = [x for x in doc_links if x.label == label]
        row = protocol.count(mentions, doc_links)
        if in_kb is not None:
            ids_in_kb = [[in_kb(id_) for id_ in m.ids] for m in mentions if m.ids]
            row["missing_from_kb"] = sum(not any(known) for known in ids_in_kb)
            row["partly_missing_from_kb"] = sum(any(k) and not all(k) for k in ids_in_kb)
        rows.append(row)
    return rows


def percent(metric: Metric, sums: Mapping[str, DoubleArray]) -> DoubleArray:
    """Compute a metric for several sums of counts at once.

    sums (Mapping[str, DoubleArray]): Sums by count name. Shape (n_sums,) each.
    RETURNS (DoubleArray): Percentages; 0 if a denominator is 0. Shape (n_sums,).
    """
    values = [_ratio(sums[numerator], sums[total]) for numerator, total in metric.ratios]
    if len(values) == 2:
        values = [_ratio(2 * values[0] * values[1], values[0] + values[1])]
    return 100.0 * values[0]


def _ratio(numerator: DoubleArray, total: DoubleArray) -> DoubleArray:
    return np.divide(numerator, total, out=np.zeros_like(numerator), where=total > 0)


def _has_items(metric: Metric, sums: Mapping[str, DoubleArray]) -> NDArray[np.bool_]:
    """Return whether each sum includes gold or predicted items for a metric. Shape (n_sums,)."""
    totals = [sums[metric.n], *(sums[total] for _, total in metric.ratios)]
    return np.any(np.stack(totals) > 0, axis=0)


def bootstrap_sums(counts_dc: DoubleArray, *, seed: int) -> DoubleArray:
    """Sum counts over documents drawn with replacement.

    Documents are drawn, not mentions, because mentions in the same document are not independent.

    counts_dc (DoubleArray): Counts of each document. Shape (n_documents, n_counts).
    RETURNS (DoubleArray): One row per resample. Shape (_RESAMPLES, n_counts).
    """
    n_docs = len(counts_dc)
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(_RESAMPLES // _RESAMPLES_PER_BLOCK):
        drawn = rng.integers(n_docs, size=(_RESAMPLES_PER_BLOCK, n_docs))
        times_drawn = np.stack([np.bincount(row, minlength=n_docs) for row in drawn])
        blocks.append(times_drawn @ counts_dc)
    return np.concatenate(blocks)


GoldLinkPair = tuple[Mention | None, Link | None]


@dataclass(frozen=True)
class GoldLookup:
    """Looks up gold mentions in a knowledge base and an alias table.

    canonical (Callable): Returns the current id for an id.
    knows (Callable): Whether the knowledge base contains a current id.
    has_name (Callable): Whether the concept with an id has a name, after normalisation.
    is_seen (Callable | None): Whether the alias table contains a string or any of its gold ids;
        None: the alias table is empty.
    """

    canonical: Callable[[str], str]
    knows: Callable[[str], bool]
    has_name: Callable[[str, str], bool]
    is_seen: Callable[[str, Ids], bool] | None = None


@dataclass(frozen=True, slots=True)
class LinkingError:
    """A linking error, with canonical ids on both sides.

    text (AnnotatedText): The gold document.
    gold (Mention | None), link (Link | None): The pair; None for a missing counterpart.
    kind (str): A key of `protocols.KINDS`.
    marks (tuple[str, ...]): Keys of `protocols.MARKS`, in the same order.
    """

    text: AnnotatedText
    gold: Mention | None
    link: Link | None
    kind: str
    marks: tuple[str, ...] = ()

    @property
    def place(self) -> Mention | Link:
        """The gold mention, or the spurious prediction if there is no gold mention."""
        mention = self.gold or self.link
        assert mention is not None
        return mention

    @property
    def string(self) -> str:
        return self.text.text[self.place.start : self.place.end]

    @property
    def rank(self) -> int:
        """Rank of the first candidate with a gold id, counted from 1; 0 if there is none."""
        candidates = self.link.candidates if self.link else ()
        ids = self.gold.ids if self.gold else ()
        return next((rank for rank, c in enumerate(candidates, start=1) if c.id in ids), 0)


def find_errors(
    gold: Sequence[AnnotatedText],
    predicted: Sequence[Sequence[Link]],
    *,
    knowledge: GoldLookup | None = None,
    labels: bool = True,
    given: bool = False,
) -> Iterator[LinkingError]:
    """Find the errors in all documents, ordered by document and offsets.

    gold (Sequence[AnnotatedText]): If a document lists the labels that it annotates, links with
        other labels are ignored.
    knowledge (GoldLookup | None): Lookup for ids; None: nothing was linked, so ids are ignored.
    labels (bool): Whether labels are compared.
    given (bool): Whether the linker was given the gold mentions; if so, mentions that were widened
        to whole tokens count as the gold mentions.
    RAISES BioelError: [B080] if the numbers of documents differ.
    """
    golds, links = canonicalise(gold, predicted, knowledge.canonical if knowledge else str)
    for text, mentions, doc_links in zip(gold, golds, links, strict=True):
        if knowledge is None:
            mentions = [replace(mention, ids=()) for mention in mentions]
        if given:
            pairs: list[GoldLinkPair] = [
                (m, link and replace(link, start=m.start, end=m.end, label=m.label))
                for m, link in pair_by_offsets(mentions, doc_links)
            ]
        else:
            pairs = pair_mentions(mentions, doc_links)
        retired = {  # mentions with a retired id
            current
            for original, current in zip(text.mentions, mentions, strict=True)
            if not set(original.ids) <= set(current.ids)
        }
        errors = [
            LinkingError(text, mention, link, kind)
            for mention, link in pairs
            if (kind := kind_of(mention, link, labels=labels))
        ]
        for error in sorted(errors, key=lambda e: (e.place.start, e.place.end, e.gold is None)):
            marks = _marks(error, knowledge, retired) if knowledge else ()
            yield replace(error, marks=tuple(marks))


def pair_mentions(gold: Iterable[Mention], links: Iterable[Link]) -> list[GoldLinkPair]:
    """Pair gold mentions with predictions (see `protocols.PAIRING`); unpaired items get None."""
    mentions, predictions = _without_duplicates(gold), _without_duplicates(links)
    link_of_mention = one_to_one(_ranked_pairs(mentions, predictions))
    taken = set(link_of_mention.values())
    pairs: list[GoldLinkPair] = [(mentions[i], predictions[j]) for i, j in link_of_mention.items()]
    pairs += [(m, None) for i, m in enumerate(mentions) if i not in link_of_mention]
    pairs += [(None, x) for j, x in enumerate(predictions) if j not in taken]
    return pairs


def confusions(errors: Iterable[LinkingError]) -> Counter[tuple[Ids, Ids]]:
    """Count the pairs of different gold and predicted ids at the same offsets."""
    return Counter(
        (error.gold.ids, error.link.ids)
        for error in errors
        if error.kind == "wrong_id" and error.gold and error.link
    )


def strings_of(errors: Iterable[LinkingError], kind: str) -> Counter[tuple[str, str]]:
    """Count the (lower-cased string, label) pairs among errors of one kind."""
    return Counter((e.string.lower(), e.place.label) for e in errors if e.kind == kind)


def _ranked_pairs(
    gold: Sequence[Mention], links: Sequence[Link]
) -> Iterator[tuple[tuple[int, bool, bool], int, int]]:
    order = sorted(range(len(links)), key=lambda j: links[j].start)
    starts = [links[j].start for j in order]
    longest = max((link.end - link.start for link in links), default=0)
    for i, m in enumerate(gold):
        # Links that begin even earlier are too short to reach the mention.
        near = slice(bisect_left(starts, m.start - longest), bisect_left(starts, m.end))
        for j in order[near]:
            link = links[j]
            shared = min(m.end, link.end) - max(m.start, link.start)
            if (m.start, m.end) == (link.start, link.end):
                shared = sys.maxsize
            if shared > 0:
                yield (-shared, m.ids != link.ids, m.label != link.label), i, j


def _without_duplicates(items: Iterable) -> list:
    return list({(x.start, x.end, x.label, x.ids): x for x in items}.values())


def _marks(error: LinkingError, knowledge: GoldLookup, retired: set[Mention]) -> Iterator[str]:
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


def percent_of(counts: Sequence[Counts], protocol: str, metric: str) -> float:
    """Compute a protocol's metric from all documents' counts, in percent."""
    definition = get_protocol(protocol)[1].metrics[metric]
    names = {name for ratio in definition.ratios for name in ratio}
    sums = {name: np.array([sum(row[name] for row in counts)], float) for name in names}
    return float(percent(definition, sums)[0])
