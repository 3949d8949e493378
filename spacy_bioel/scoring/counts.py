"""Counts of true and false positives, and kinds of errors.

`bioel evaluate --help`, its files of errors and docs/guides/errors.md take the definitions from
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """Decide the kind of an error, by the table `KINDS`.

    gold, link: A pair, or one of both alone; ids are canonical, sorted and unique.
    labels (bool): Whether labels are compared.
    RETURNS (str): A key of `KINDS`; "": no error.
    """
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
Annotations = Sequence[Mention] | Sequence[Link]
Ids = tuple[str, ...]
Row = tuple[int, int, Ids]  # start, end, ids


def count_mentions(gold: Golds, links: Links) -> Counts:
    """Count mention detection: offsets and label must be equal; ids are ignored.

    neleval's strong_typed_mention_match. Exact duplicates collapse.
    """
    return _count_sets(_typed_spans(gold), _typed_spans(links))


def count_unlabelled_mentions(gold: Golds, links: Links) -> Counts:
    """Count mention detection by offsets alone: neleval's strong_mention_match."""
    return _count_sets({(m.start, m.end) for m in gold}, {(x.start, x.end) for x in links})


def count_strict(gold: Golds, links: Links) -> Counts:
    """Count end to end: offsets and sets of ids must be equal, over linked mentions only.

    neleval's strong_link_match: gold mentions without an id and predictions of NIL are excluded,
    each on its own side, and counted as `nil_gold` and `nil_predicted`. Exact duplicates collapse;
    labels are not compared.
    """
    return _count_sets(set(_linked_rows(gold)), set(_linked_rows(links))) | _nils(gold, links)


def count_strict_with_nil(gold: Golds, links: Links) -> Counts:
    """Count as `count_strict`, with NIL as one more id: neleval's strong_all_match."""
    return _count_sets(set(_rows(gold)), set(_rows(links))) | _nils(gold, links)


def count_any_id(gold: Golds, links: Links) -> Counts:
    """Count end to end: offsets must be equal, and the sets of ids must share an id.

    Only linked mentions count, as in `count_strict`. Precision is the share of predictions that
    agree with a gold mention, recall the share of gold mentions that agree with a prediction.
    """
    gold_rows, link_rows = set(_linked_rows(gold)), set(_linked_rows(links))
    return {
        "right_predicted": _n_agreeing(link_rows, gold_rows),
        "predicted": len(link_rows),
        "right_gold": _n_agreeing(gold_rows, link_rows),
        "gold": len(gold_rows),
    } | _nils(gold, links)


def count_partial_binary(gold: Golds, links: Links) -> Counts:
    """Count end to end: a pair with equal ids is right if the spans overlap by a character.

    Pairs are one to one, the longest overlap first, so that several predictions inside one gold
    mention give one hit. Only linked mentions count.
    """
    gold_rows, link_rows = sorted(set(_linked_rows(gold))), sorted(set(_linked_rows(links)))
    pairs = [
        (-_overlap(g, s), i, j)
        for i, g in enumerate(gold_rows)
        for j, s in enumerate(link_rows)
        if g[2] == s[2] and _overlap(g, s) > 0
    ]
    used_gold: set[int] = set()
    used_links: set[int] = set()
    for _, i, j in sorted(pairs):
        if i not in used_gold and j not in used_links:
            used_gold.add(i)
            used_links.add(j)
    n_right = len(used_gold)
    return {
        "right_predicted": n_right,
        "predicted": len(link_rows),
        "right_gold": n_right,
        "gold": len(gold_rows),
    } | _nils(gold, links)


def count_partial_fractional(gold: Golds, links: Links) -> Counts:
    """Count end to end: each mention scores the part of it that the best counterpart covers.

    neleval's overlap-maxmax::span+kbid over linked mentions: among mentions with equal ids, a
    prediction s scores max |s & g| / |s| and a gold mention g scores max |g & s| / |g|, in
    characters. Duplicates count, as in neleval. All pairs are compared, while neleval's backward
    sweep misses some pairs of nested spans.
    """
    gold_rows, link_rows = list(_linked_rows(gold)), list(_linked_rows(links))
    return {
        "right_predicted": sum(_covered_part(row, gold_rows) for row in link_rows),
        "predicted": len(link_rows),
        "right_gold": sum(_covered_part(row, link_rows) for row in gold_rows),
        "gold": len(gold_rows),
    } | _nils(gold, links)


def count_document_ids(gold: Golds, links: Links) -> Counts:
    """Count at document level: the set of ids of a document, without offsets or counts."""
    gold_ids = {id_ for mention in gold for id_ in mention.ids}
    linked_ids = {id_ for link in links for id_ in link.ids}
    return _count_sets(gold_ids, linked_ids) | _nils(gold, links)


def _count_sets(gold: set, predicted: set) -> Counts:
    n_right = len(gold & predicted)
    return {
        "right_predicted": n_right,
        "predicted": len(predicted),
        "right_gold": n_right,
        "gold": len(gold),
    }


def _nils(gold: Golds, links: Links) -> Counts:
    return {
        "nil_gold": sum(not m.ids for m in gold),
        "nil_predicted": sum(not x.ids for x in links),
    }


def _typed_spans(items: Annotations) -> set[tuple[int, int, str]]:
    return {(item.start, item.end, item.label) for item in items}


def _rows(items: Annotations) -> Iterable[Row]:
    return ((item.start, item.end, item.ids) for item in items)


def _linked_rows(items: Annotations) -> Iterable[Row]:
    return (row for row in _rows(items) if row[2])


def _n_agreeing(rows: set[Row], others: set[Row]) -> int:
    ids_at: dict[tuple[int, int], set[str]] = {}
    for start, end, ids in others:
        ids_at.setdefault((start, end), set()).update(ids)
    return sum(not ids_at.get(row[:2], set()).isdisjoint(row[2]) for row in rows)


def _overlap(a: Row, b: Row) -> int:
    return min(a[1], b[1]) - max(a[0], b[0])


def _covered_part(row: Row, others: Iterable[Row]) -> float:
    shared = (_overlap(row, other) for other in others if other[2] == row[2])
    longest = max(shared, default=0)
    return longest / (row[1] - row[0]) if longest > 0 else 0.0
