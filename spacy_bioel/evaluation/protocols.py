"""Counts of one document, from bare text or with the gold mentions given, and kinds of errors.

`bioel evaluate --help`, its files of errors and docs/guides/errors.md take the definitions from
here. Ids are canonical, sorted and unique.

Table of the evaluation protocols: their rules, their counts and their metrics.

`bioel evaluate --help`, the output of the command, its JSON and docs/reference/protocols.md come from this
table. This module does not import numpy, to keep `--help` fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from spacy_bioel.errors import BioelError, Errors
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


Ratio = tuple[str, str]  # names of two counts: numerator, denominator


@dataclass(frozen=True, slots=True)
class Metric:
    """Ratio of two counts, or the harmonic mean of two such ratios.

    meaning (str): Description for users.
    ratios (tuple[Ratio, ...]): One or two ratios.
    n (str): The count that `Figure.n` reports.
    rank (int): Number of candidates of a mention that the metric considers; 0: it uses no ranks.
    """

    meaning: str
    ratios: tuple[Ratio, ...]
    n: str = "gold"
    rank: int = 0


_PRECISION = ("right_predicted", "predicted")
_RECALL = ("right_gold", "gold")
_F1 = {
    "precision": Metric("right predictions, of all predictions", (_PRECISION,)),
    "recall": Metric("gold annotations that were found, of all of them", (_RECALL,)),
    "f1": Metric("harmonic mean of precision and recall", (_PRECISION, _RECALL)),
}


def _share(meaning: str, top: str, n: str = "gold", rank: int = 0) -> Metric:
    return Metric(meaning, ((top, n),), n, rank)


_SERVED = "as {}, over the mentions whose gold ids are candidates or were linked"
_IGNORED = "as accuracy@1, but where the link is NIL, the first candidate stands for it"
_NO_ID = "the link is NIL, of the gold mentions without an id"
_ACCURACY = {
    "accuracy@1": _share("the linked ids are right; NIL is wrong, for gold has an id", "right"),
    "accuracy@1_nil_ignored": _share(_IGNORED, "right_nil_ignored"),
    "accuracy@1_normalised": _share(_SERVED.format("accuracy@1"), "right", "among_candidates"),
    "accuracy@1_nil_ignored_normalised": _share(
        _SERVED.format("accuracy@1_nil_ignored"), "right_nil_ignored", "among_candidates"
    ),
    "recall@1": _share("the gold ids are the first candidates", "recalled@1", rank=1),
    "recall@5": _share("the gold ids are among the first 5 candidates", "recalled@5", rank=5),
    "recall@10": _share("the gold ids are among the first 10 candidates", "recalled@10", rank=10),
    "mrr": _share(
        "mean of 1 / rank of the gold ids; 0 where they are no candidates", "reciprocal_ranks"
    ),
    "mrr_normalised": _share(_SERVED.format("mrr"), "reciprocal_ranks", "among_candidates"),
    "accuracy@1_tie_optimistic": _share(
        "as accuracy@1, a tie of the highest score decided for the gold id", "right_at_best"
    ),
    "accuracy@1_tie_pessimistic": _share(
        "as accuracy@1, such a tie decided against it", "right_at_worst"
    ),
    "nil_accuracy": _share(_NO_ID, "right_nil", "nil"),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a protocol; each field is a phrase for users.

    offsets, label, ids (str): Required agreement of prediction and gold.
    counted (str): Unit of the counts.
    nil (str): Treatment of gold mentions without an id and of NIL predictions.
    composites (str): Condition for a mention of several ids to be right.
    retired (str): Treatment of retired ids.
    neleval (str): The equivalent measure of neleval; "": none.
    """

    offsets: str
    label: str
    ids: str
    counted: str
    nil: str
    composites: str
    retired: str = "compared as their current ids, on both sides"
    neleval: str = ""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Named way to compare links with gold mentions.

    count (Callable): Counts one document.
    given_mentions (bool): The linker is given the gold mentions; otherwise it sees only text.
    """

    rules: Rules
    count: Callable[[Sequence[Mention], Sequence[Link]], Counts]
    given_mentions: bool = False

    @property
    def metrics(self) -> dict[str, Metric]:
        """Metrics of the summed counts, by name."""
        return _ACCURACY if self.given_mentions else _F1


_ONE_MENTION = ("counts as any other mention", "one mention", "no ids are compared")
_PLACES_AND_IDS = "different offsets with their ids"
_NIL_OUT = "left out, on its own side"
_EXACTLY, _ONE_OF = "right with exactly its ids", "right with one of its ids"
_GIVEN = "every gold mention with an id"
_NIL_GIVEN = "wrong where gold has an id; a gold mention without one: only in nil_accuracy"
_OVERLAP = "overlap by a character; pairs are one to one, the longest overlap first"
_SHARE = "overlap; counted is the share of characters that is covered"

PROTOCOLS: dict[str, Protocol] = {
    "mention": Protocol(
        Rules(
            *("equal", "equal", "ignored", "different offsets with their label", *_ONE_MENTION),
            neleval="strong_typed_mention_match",
        ),
        partial(count_sets, parts=lambda x: [(x.start, x.end, x.label)], ids=False),
    ),
    "mention_unlabelled": Protocol(
        Rules(
            *("equal", "ignored", "ignored", "different offsets", *_ONE_MENTION),
            neleval="strong_mention_match",
        ),
        partial(count_sets, parts=lambda x: [(x.start, x.end)], ids=False),
    ),
    "end_to_end": Protocol(
        Rules(
            *("equal", "ignored", "equal sets", _PLACES_AND_IDS, _NIL_OUT, _EXACTLY),
            neleval="strong_link_match",
        ),
        partial(count_sets, parts=linked),
    ),
    "end_to_end_any": Protocol(
        Rules("equal", "ignored", "one in common", _PLACES_AND_IDS, _NIL_OUT, _ONE_OF),
        count_any_id,
    ),
    "end_to_end_with_nil": Protocol(
        Rules(
            *("equal", "ignored", "equal sets", _PLACES_AND_IDS),
            nil="one more id: right where both sides have it",
            composites=_EXACTLY,
            neleval="strong_all_match",
        ),
        partial(count_sets, parts=lambda x: [(x.start, x.end, x.ids)]),
    ),
    "partial_binary": Protocol(
        Rules(_OVERLAP, "ignored", "equal sets", _PLACES_AND_IDS, _NIL_OUT, _EXACTLY),
        count_partial_binary,
    ),
    "partial_fractional": Protocol(
        Rules(
            *(_SHARE, "ignored", "equal sets", "every mention, duplicates too", _NIL_OUT, _EXACTLY),
            neleval="overlap-maxmax::span+kbid",
        ),
        count_partial_fractional,
    ),
    "document": Protocol(
        Rules(
            *("ignored", "ignored", "equal, one by one", "different ids of a document", _NIL_OUT),
            composites="each of its ids by itself",
        ),
        partial(count_sets, parts=lambda x: x.ids),
    ),
    "gold": Protocol(
        Rules(
            *("given", "given", "equal sets", _GIVEN, _NIL_GIVEN),
            composites=f"{_EXACTLY}; its rank is that of the last of them",
        ),
        partial(count_given, all_ids=True),
        given_mentions=True,
    ),
    "gold_any": Protocol(
        Rules(
            *("given", "given", "one in common", _GIVEN, _NIL_GIVEN),
            composites=f"{_ONE_OF}; its rank is that of the first of them",
        ),
        partial(count_given, all_ids=False),
        given_mentions=True,
    ),
}
ALIASES = {"strict": "end_to_end", "partial": "partial_binary"}


def get_protocol(name: str) -> tuple[str, Protocol]:
    """Return the proper name, and the protocol, of a name or alias. RAISES BioelError: [B081]"""
    proper = ALIASES.get(name, name)
    if proper not in PROTOCOLS:
        known = ", ".join([*PROTOCOLS, *ALIASES])
        raise BioelError(Errors.B081.format(name=name, known=known))
    return proper, PROTOCOLS[proper]


def describe(name: str) -> str:
    """Describe a protocol in one line: required agreement, NIL and composites."""
    rules = PROTOCOLS[name].rules
    return (
        f"offsets {rules.offsets}, label {rules.label}, ids {rules.ids}; NIL: {rules.nil}; "
        f"a composite: {rules.composites}"
    )
