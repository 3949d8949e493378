"""Counts of one document, from bare text or with the gold mentions given, and kinds of errors.

`bioel evaluate --help`, its files of errors and docs/guides/errors.md take the definitions from
here. Ids are canonical, sorted and unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from spacy_bioel.types import Link, Mention

# The kind of an error, and when it is of that kind. Each error is of exactly one.
KINDS = {
    "missed": "a gold mention that is paired with no prediction",
    "spurious": "a prediction that is paired with no gold mention",
    "wrong_borders": (
        "a pair of other offsets that overlaps by a character; labels and ids are not compared"
    ),
    "wrong_label": "a pair of equal offsets and another label; ids are not compared",
    "not_nil": "a pair of equal offsets and label: gold has no id, the prediction has one",
    "nil_first_right": (
        "a pair of equal offsets and label: the prediction is NIL, though its first candidate is "
        "exactly the gold id"
    ),
    "nil": (
        "a pair of equal offsets and label: the prediction is NIL, and its first candidate is not "
        "the gold id, or there is none"
    ),
    "wrong_id": "a pair of equal offsets and label: both have ids, and these differ as sets",
}
# What else may be said of an error of any kind. It may have several of these marks, or none.
MARKS = {
    "homonym": (
        "gold and prediction have different ids, and the name that the predicted concept matched "
        "by is a name of the gold concept too"
    ),
    "missing": "the knowledge base does not know one of the gold ids, so that it cannot be found",
    "retired": "the knowledge base has replaced one of the gold ids by another, which is compared",
    "unseen": (
        "neither the string of the gold mention nor any of its gold ids is in the mention "
        "statistics of the linker; not given where these are empty"
    ),
}
PAIRING = (
    "Each gold mention is paired with at most one prediction, and each prediction with at most one "
    "gold mention: first those of equal offsets, those of equal ids and then of equal labels "
    "before others; then those that overlap, the longest overlap first. A pair of equal offsets, "
    "label and ids is no error."
)


def kind_of(gold: Mention | None, link: Link | None, *, labels: bool = True) -> str:
    """Return the kind, a key of `KINDS`, of a pair or one of both alone; "": no error."""
    if gold is None:
        return "spurious"
    if link is None:
        return "missed"
    if (gold.start, gold.end) != (link.start, link.end):
        return "wrong_borders"
    if labels and gold.label != link.label:
        return "wrong_label"
    if gold.ids == link.ids:
        return ""
    if not gold.ids:
        return "not_nil"
    if link.ids:
        return "wrong_id"
    first = tuple(candidate.id for candidate in link.candidates[:1])
    return "nil_first_right" if first == gold.ids else "nil"


Counts = dict[str, float]
Golds = Sequence[Mention]
Links = Sequence[Link]
Annotation = Mention | Link
Ids = tuple[str, ...]
Row = tuple[int, int, Ids]  # start, end, ids


def count_sets(
    gold: Golds,
    links: Links,
    *,
    parts: Callable[[Annotation], Iterable[object]],
    ids: bool = True,
) -> Counts:
    """Count what both sides have. Exact duplicates collapse.

    parts (Callable): What is counted of a gold mention or a link.
    ids (bool): Whether ids are compared, and those without any are counted on either side.
    """
    golds, predicted = ({part for x in items for part in parts(x)} for items in (gold, links))
    n_right = len(golds & predicted)
    return _counts(n_right, len(predicted), n_right, len(golds)) | (
        _nils(gold, links) if ids else {}
    )


def linked(item: Annotation) -> list[Row]:
    """Offsets and ids of a mention with an id: one without is left out, on its own side."""
    return [(item.start, item.end, item.ids)] if item.ids else []


def count_any_id(gold: Golds, links: Links) -> Counts:
    """Count end to end: offsets must be equal, and the sets of ids must share an id.

    Only linked mentions count. Precision is the share of predictions that
    agree with a gold mention, recall the share of gold mentions that agree with a prediction.
    """
    golds, predicted = set(_rows(gold)), set(_rows(links))
    found = _n_agreeing(predicted, golds), len(predicted), _n_agreeing(golds, predicted), len(golds)
    return _counts(*found) | _nils(gold, links)


def count_partial_binary(gold: Golds, links: Links) -> Counts:
    """Count end to end: a pair with equal ids is right if the spans overlap by a character.

    Pairs are one to one, the longest overlap first, so that several predictions inside one gold
    mention give one hit. Only linked mentions count.
    """
    golds, predicted = sorted(set(_rows(gold))), sorted(set(_rows(links)))
    n_right = len(
        one_to_one(
            (-_overlap(g, s), i, j)
            for i, g in enumerate(golds)
            for j, s in enumerate(predicted)
            if g[2] == s[2] and _overlap(g, s) > 0
        )
    )
    return _counts(n_right, len(predicted), n_right, len(golds)) | _nils(gold, links)


def count_partial_fractional(gold: Golds, links: Links) -> Counts:
    """Count end to end: each mention scores the part of it that the best counterpart covers.

    neleval's overlap-maxmax::span+kbid over linked mentions: among mentions with equal ids, a
    prediction s scores max |s & g| / |s| and a gold mention g scores max |g & s| / |g|, in
    characters. Duplicates count, as in neleval. All pairs are compared, while neleval's backward
    sweep misses some pairs of nested spans.
    """
    golds, predicted = list(_rows(gold)), list(_rows(links))
    right_predicted = sum(_covered_part(row, golds) for row in predicted)
    right_gold = sum(_covered_part(row, predicted) for row in golds)
    return _counts(right_predicted, len(predicted), right_gold, len(golds)) | _nils(gold, links)


def one_to_one(ranked: Iterable[tuple[Any, int, int]]) -> dict[int, int]:
    """Choose pairs, the lowest rank first, so that no index of either side is in two of them.

    ranked (Iterable): Rank, index of one side, index of the other.
    RETURNS (dict[int, int]): From the index of one side to that of the other.
    """
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, j in sorted(ranked):
        if i not in pairs and j not in taken:
            pairs[i] = j
            taken.add(j)
    return pairs


def _counts(right_predicted: float, predicted: int, right_gold: float, gold: int) -> Counts:
    return {
        "right_predicted": right_predicted,
        "predicted": predicted,
        "right_gold": right_gold,
        "gold": gold,
    }


def _nils(gold: Golds, links: Links) -> Counts:
    return {
        "nil_gold": sum(not m.ids for m in gold),
        "nil_predicted": sum(not x.ids for x in links),
    }


def _rows(items: Golds | Links) -> Iterable[Row]:
    return chain.from_iterable(map(linked, items))


def _n_agreeing(rows: set[Row], others: set[Row]) -> int:
    ids_at: dict[tuple[int, int], set[str]] = {}
    for start, end, ids in others:
        ids_at.setdefault((start, end), set()).update(ids)
    return sum(not ids_at.get(row[:2], set()).isdisjoint(row[2]) for row in rows)


def _overlap(a: Row, b: Row) -> int:
    return min(a[1], b[1]) - max(a[0], b[0])


def _covered_part(row: Row, others: Iterable[Row]) -> float:
    longest = max((_overlap(row, other) for other in others if other[2] == row[2]), default=0)
    return longest / (row[1] - row[0]) if longest > 0 else 0.0


def count_given(gold: Golds, links: Links, *, all_ids: bool) -> Counts:
    """Count linking of given mentions.

    accuracy@1 compares the linked ids with the gold ids; NIL is wrong, for all these mentions have
    an id. accuracy@1_nil_ignored replaces NIL by the best candidate: it measures the ranking,
    without the threshold. recall@k requires the gold ids among the first k candidates (for a
    composite of more than k ids, among as many as it has ids). mrr is the mean of 1 / rank, 0 where
    a gold id is no candidate; the rank of a composite is 1 plus the number of wrong candidates
    before the last required id. Ranks are counted within the candidates of a link. The denominator
    is all gold mentions with an id, whether in the knowledge base or not, predicted or not.

    Normalised metrics have the same numerators. Their denominator is the mentions served by
    candidate generation: the gold ids are candidates, or were linked. A normalised metric times
    the share of these mentions, `among_candidates` / `gold`, is the metric itself.

    all_ids (bool): Whether a composite is right with exactly its ids, else with one of them, as in
        BioSyn, SapBERT and others; one is also enough as a candidate then.
    """

    def is_right(found: Ids) -> bool:
        return found == ids if all_ids else not set(ids).isdisjoint(found)

    counts: Counts = dict.fromkeys(
        (
            "gold", "right", "right_nil_ignored", "recalled@1", "recalled@5", "recalled@10",
            "reciprocal_ranks", "among_candidates", "tied", "right_at_best", "right_at_worst",
            "nil", "right_nil", "not_predicted", "nil_not_predicted", "widened",
        ),
        0,
    )  # fmt: skip
    for mention, link in pair_by_offsets(gold, links):
        ids = mention.ids
        if not ids:
            counts["nil"] += 1
            counts["right_nil"] += link is not None and not link.ids
            counts["nil_not_predicted"] += link is None
            continue
        counts["gold"] += 1
        if link is None:
            counts["not_predicted"] += 1
            continue
        right = is_right(link.ids)
        hit = is_right(link.ids or tuple(c.id for c in link.candidates[:1]))
        tied = _tied_ids(link)
        outcomes = [is_right((id_,)) for id_ in tied] or [right]
        counts["widened"] += (link.start, link.end) != (mention.start, mention.end)
        counts["right"] += right
        counts["right_nil_ignored"] += hit
        counts["tied"] += bool(tied)
        counts["right_at_best"] += any(outcomes)
        counts["right_at_worst"] += all(outcomes)
        n = len(ids) if all_ids else 1
        # Rank, from 1, of the n-th candidate with a gold id; 0: fewer than n are candidates.
        ranks = [rank for rank, c in enumerate(link.candidates, start=1) if c.id in ids]
        last = ranks[n - 1] if len(ranks) >= n else 0
        for k in (1, 5, 10):
            counts[f"recalled@{k}"] += 0 < last <= max(k, n)
        counts["reciprocal_ranks"] += 1 / (last - n + 1) if last else 0.0
        counts["among_candidates"] += hit or last > 0
    return counts


def pair_by_offsets(gold: Golds, links: Links) -> list[tuple[Mention, Link | None]]:
    """Find the link of each gold mention, where the linker was given the gold mentions.

    Links are matched by equal offsets (and label, if several have these offsets). A mention that
    begins or ends inside a token was widened to whole tokens: its link is the shortest one that
    covers it, has its label and matches no other mention.
    """
    exact = {(x.start, x.end, x.label): x for x in reversed(links)}
    by_span = {(x.start, x.end): x for x in reversed(links)}
    gold_spans = {(m.start, m.end) for m in gold}
    spare = [x for x in links if (x.start, x.end) not in gold_spans]
    spare.sort(key=lambda x: (x.end - x.start, x.start))

    def link_of(m: Mention) -> Link | None:
        found = exact.get((m.start, m.end, m.label)) or by_span.get((m.start, m.end))
        wide = (x for x in spare if x.start <= m.start and m.end <= x.end and x.label == m.label)
        return found or next(wide, None)

    return [(m, link_of(m)) for m in gold]


def _tied_ids(link: Link) -> Ids:
    """Ids tied with the linked one for the top score, itself included; () without a tie."""
    if len(link.ids) != 1 or not link.candidates:
        return ()
    best = max(candidate.score for candidate in link.candidates)
    tied = tuple(c.id for c in link.candidates if c.score == best)
    return tied if len(tied) > 1 and link.ids[0] in tied else ()
