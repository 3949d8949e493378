"""Evaluation protocols (rules, per-document counts and metrics) and error kinds.

The help, output and error files of `bioel evaluate`, docs/reference/protocols.md and
docs/guides/errors.md take their definitions from here. Ids are canonical, sorted and unique. This
module does not import numpy, to keep `--help` fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import Link, Mention

# Kinds of errors; each error has exactly one kind.
KINDS = {
    "missed": "a gold mention without a paired prediction",
    "spurious": "a prediction without a paired gold mention",
    "wrong_borders": "the spans overlap but their offsets differ; labels and ids are not compared",
    "wrong_label": "the offsets are equal but the labels differ; ids are not compared",
    "not_nil": "offsets and labels are equal; the prediction has an id, but gold has none",
    "nil_first_right": (
        "offsets and labels are equal; the prediction is NIL, although its first candidate is "
        "exactly the gold id"
    ),
    "nil": (
        "offsets and labels are equal; the prediction is NIL, and either it has no candidates or "
        "its first candidate is not the gold id"
    ),
    "wrong_id": "offsets and labels are equal; both have ids, but the sets of ids differ",
}
# Additional error marks; an error of any kind may have any number of them.
MARKS = {
    "homonym": (
        "the ids differ, and the name that matched the predicted concept is also a name of the "
        "gold concept"
    ),
    "missing": ("at least one gold id is not in the knowledge base, so it cannot be predicted"),
    "retired": "at least one gold id is retired, so its replacement was compared instead",
    "unseen": (
        "the linker's alias table contains neither the string nor any id of the gold mention; this "
        "mark is not used if the alias table is empty"
    ),
}
PAIRING = (
    "Each gold mention is paired with at most one prediction, and each prediction with at most one "
    "gold mention. Mentions with equal offsets are paired first; among these, equal ids take "
    "precedence, followed by equal labels. The remaining mentions are paired by overlap, starting "
    "with the longest. A pair with equal offsets, labels and ids is not an error."
)


def kind_of(gold: Mention | None, link: Link | None, *, labels: bool = True) -> str:
    """Return the error kind (a key of `KINDS`) of a pair or unpaired item; "" if it is correct."""
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
OffsetsAndIds = tuple[int, int, Ids]  # start, end, ids


def count_sets(
    gold: Golds,
    links: Links,
    *,
    items_of: Callable[[Annotation], Iterable[object]],
    ids: bool = True,
) -> Counts:
    """Count the items shared by gold and predictions. Exact duplicates are counted once.

    items_of (Callable): Returns the items to compare for a gold mention or a link.
    ids (bool): Whether ids are compared, so that NIL gold and NIL predictions are counted too.
    """
    golds = {item for mention in gold for item in items_of(mention)}
    predicted = {item for link in links for item in items_of(link)}
    n_right = len(golds & predicted)
    counts = _prf_counts(n_right, len(predicted), n_right, len(golds))
    return counts | _nil_counts(gold, links) if ids else counts


def offsets_and_ids(item: Annotation) -> list[OffsetsAndIds]:
    """Return a gold mention's or link's offsets and ids as one item, or [] if it is NIL."""
    return [(item.start, item.end, item.ids)] if item.ids else []


def count_any_id(gold: Golds, links: Links) -> Counts:
    """Count end-to-end matches: offsets must be identical, and at least one id must match.

    NIL is excluded. Precision is the fraction of predictions that match a gold mention; recall is
    the fraction of gold mentions that match a prediction.
    """
    golds, predicted = set(_linked_rows(gold)), set(_linked_rows(links))
    counts = _prf_counts(
        _n_agreeing(predicted, golds), len(predicted), _n_agreeing(golds, predicted), len(golds)
    )
    return counts | _nil_counts(gold, links)


def count_partial_binary(gold: Golds, links: Links) -> Counts:
    """Count end-to-end matches: a pair with identical ids is correct if its spans overlap.

    Pairs are one-to-one, starting with the longest overlap: several predictions inside one gold
    mention count as one hit. NIL is excluded.
    """
    golds, predicted = sorted(set(_linked_rows(gold))), sorted(set(_linked_rows(links)))
    n_right = len(
        one_to_one(
            (-_overlap(g, s), i, j)
            for i, g in enumerate(golds)
            for j, s in enumerate(predicted)
            if g[2] == s[2] and _overlap(g, s) > 0
        )
    )
    return _prf_counts(n_right, len(predicted), n_right, len(golds)) | _nil_counts(gold, links)


def count_partial_fractional(gold: Golds, links: Links) -> Counts:
    """Sum end-to-end scores: a mention's score is the fraction that its best counterpart covers.

    This is neleval's overlap-maxmax::span+kbid without NIL. Among mentions with identical ids, a
    prediction s scores max |s & g| / |s| and a gold mention g scores max |g & s| / |g|, in
    characters. Duplicates count, as in neleval. All pairs are compared, whereas neleval's backward
    sweep misses some pairs of nested spans.
    """
    golds, predicted = _linked_rows(gold), _linked_rows(links)
    right_predicted = sum(_covered_part(row, golds) for row in predicted)
    right_gold = sum(_covered_part(row, predicted) for row in golds)
    counts = _prf_counts(right_predicted, len(predicted), right_gold, len(golds))
    return counts | _nil_counts(gold, links)


def one_to_one(ranked: Iterable[tuple[Any, int, int]]) -> dict[int, int]:
    """Choose pairs greedily, lowest rank first, using no index on either side twice.

    ranked (Iterable): Rank, index on one side, index on the other side.
    RETURNS (dict[int, int]): Maps the index on one side to the index on the other side.
    """
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, j in sorted(ranked):
        if i not in pairs and j not in taken:
            pairs[i] = j
            taken.add(j)
    return pairs


def _prf_counts(*counts: float) -> Counts:
    return dict(zip((*_PRECISION, *_RECALL), counts, strict=True))


def _nil_counts(gold: Golds, links: Links) -> Counts:
    return {
        "nil_gold": sum(not m.ids for m in gold),
        "nil_predicted": sum(not x.ids for x in links),
    }


def _linked_rows(items: Golds | Links) -> list[OffsetsAndIds]:
    return [row for item in items for row in offsets_and_ids(item)]


def _n_agreeing(rows: set[OffsetsAndIds], others: set[OffsetsAndIds]) -> int:
    """Count the rows that share their offsets and at least one id with a row in `others`."""
    linked = {(start, end, id) for start, end, ids in others for id in ids}
    return sum(any((start, end, id) in linked for id in ids) for start, end, ids in rows)


def _overlap(a: OffsetsAndIds, b: OffsetsAndIds) -> int:
    return min(a[1], b[1]) - max(a[0], b[0])


def _covered_part(row: OffsetsAndIds, others: Iterable[OffsetsAndIds]) -> float:
    longest = max((_overlap(row, other) for other in others if other[2] == row[2]), default=0)
    return longest / (row[1] - row[0]) if longest > 0 else 0.0


def count_given(gold: Golds, links: Links, *, all_ids: bool) -> Counts:
    """Count the results of linking gold mentions.

    accuracy@1 compares the linked ids with the gold ids; NIL is incorrect, as only mentions with a
    gold id count. accuracy@1_nil_ignored replaces NIL with the best candidate, so it measures the
    ranking without the threshold. recall@k requires the gold ids to be among the first k candidates
    (or the first n, for a composite with n > k ids). mrr is the mean of 1 / rank, or 0 if a gold id
    is not a candidate; a composite's rank is 1 plus the number of wrong candidates before the last
    required id. Ranks are counted among a link's candidates. The denominator is all gold mentions
    with an id, whether or not the id is in the knowledge base or was predicted.

    Normalised metrics have the same numerators. Their denominator is the number of mentions whose
    gold ids are among the candidates or were linked. Multiplying a normalised metric by the
    fraction of these mentions, `among_candidates` / `gold`, gives the original metric.

    all_ids (bool): True: a composite is correct if exactly its ids are linked. False: one matching
        id or, for ranks, one candidate suffices, as in the evaluation of BioSyn and SapBERT.
    """

    def is_right(predicted_ids: Ids) -> bool:
        return predicted_ids == ids if all_ids else not set(ids).isdisjoint(predicted_ids)

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
        right_nil_ignored = is_right(link.ids or tuple(c.id for c in link.candidates[:1]))
        tied = _tied_ids(link)
        outcomes = [is_right((id_,)) for id_ in tied] or [right]
        counts["widened"] += (link.start, link.end) != (mention.start, mention.end)
        counts["right"] += right
        counts["right_nil_ignored"] += right_nil_ignored
        counts["tied"] += bool(tied)
        counts["right_at_best"] += any(outcomes)
        counts["right_at_worst"] += all(outcomes)
        n_required = len(ids) if all_ids else 1
        # 1-based rank of the last required candidate; 0 if a required candidate is missing.
        ranks = [rank for rank, c in enumerate(link.candidates, start=1) if c.id in ids]
        last = ranks[n_required - 1] if len(ranks) >= n_required else 0
        for k in (1, 5, 10):
            counts[f"recalled@{k}"] += 0 < last <= max(k, n_required)
        counts["reciprocal_ranks"] += 1 / (last - n_required + 1) if last else 0.0
        counts["among_candidates"] += right_nil_ignored or last > 0
    return counts


def pair_by_offsets(gold: Golds, links: Links) -> list[tuple[Mention, Link | None]]:
    """Pair each gold mention with its link; the linker must have been given the gold mentions.

    Links are matched by offsets (and by label if several links have the same offsets). A mention
    that begins or ends inside a token was widened to whole tokens: its link is the shortest link
    that covers it, has its label and matches no other mention.
    """
    exact = {(x.start, x.end, x.label): x for x in reversed(links)}
    by_span = {(x.start, x.end): x for x in reversed(links)}
    gold_spans = {(m.start, m.end) for m in gold}
    spare = [x for x in links if (x.start, x.end) not in gold_spans]
    spare.sort(key=lambda x: (x.end - x.start, x.start))

    def link_of(m: Mention) -> Link | None:
        link = exact.get((m.start, m.end, m.label)) or by_span.get((m.start, m.end))
        covering = (x for x in spare if x.start <= m.start and m.end <= x.end)
        return link or next((x for x in covering if x.label == m.label), None)

    return [(m, link_of(m)) for m in gold]


def _tied_ids(link: Link) -> Ids:
    """Return the ids that tie for the top score, or () if the linked id is not one of them."""
    if len(link.ids) != 1 or not link.candidates:
        return ()
    best = max(candidate.score for candidate in link.candidates)
    tied = tuple(c.id for c in link.candidates if c.score == best)
    return tied if len(tied) > 1 and link.ids[0] in tied else ()


Ratio = tuple[str, str]  # names of two counts: numerator, denominator


@dataclass(frozen=True, slots=True)
class Metric:
    """A ratio of two counts, or the harmonic mean of two such ratios.

    meaning (str): Description for users.
    ratios (tuple[Ratio, ...]): One or two ratios.
    n (str): The count that `Figure.n` reports.
    rank (int): Number of candidates per mention that the metric considers; 0: no ranks are used.
    """

    meaning: str
    ratios: tuple[Ratio, ...]
    n: str = "gold"
    rank: int = 0


_PRECISION = ("right_predicted", "predicted")
_RECALL = ("right_gold", "gold")
_F1 = {
    "precision": Metric("fraction of predictions that are correct", (_PRECISION,)),
    "recall": Metric("fraction of gold annotations that are found", (_RECALL,)),
    "f1": Metric("harmonic mean of precision and recall", (_PRECISION, _RECALL)),
}


def _metric(meaning: str, numerator: str, n: str = "gold", rank: int = 0) -> Metric:
    return Metric(meaning, ((numerator, n),), n, rank)


_CORRECT = "fraction of mentions whose linked ids are correct; NIL counts as incorrect"
_NIL_IGNORED = "like accuracy@1, but a NIL prediction is replaced by its first candidate"
_NORMALISED = "like {}, but only over mentions whose gold ids are candidates or were linked"
_RECALLED = "fraction of mentions whose gold ids are among the first {} candidates"
_TIED = "like accuracy@1, but a tie for the highest score is resolved {} the gold id"
_NIL_ACCURACY = "fraction of gold mentions without an id for which NIL is predicted"
_ACCURACY = {
    "accuracy@1": _metric(_CORRECT, "right"),
    "accuracy@1_nil_ignored": _metric(_NIL_IGNORED, "right_nil_ignored"),
    "accuracy@1_normalised": _metric(_NORMALISED.format("accuracy@1"), "right", "among_candidates"),
    "accuracy@1_nil_ignored_normalised": _metric(
        _NORMALISED.format("accuracy@1_nil_ignored"), "right_nil_ignored", "among_candidates"
    ),
    "recall@1": _metric("fraction of mentions whose gold ids rank first", "recalled@1", rank=1),
    "recall@5": _metric(_RECALLED.format(5), "recalled@5", rank=5),
    "recall@10": _metric(_RECALLED.format(10), "recalled@10", rank=10),
    "mrr": _metric(
        "mean reciprocal rank of the gold ids, or 0 if they are not candidates", "reciprocal_ranks"
    ),
    "mrr_normalised": _metric(_NORMALISED.format("mrr"), "reciprocal_ranks", "among_candidates"),
    "accuracy@1_tie_optimistic": _metric(_TIED.format("in favour of"), "right_at_best"),
    "accuracy@1_tie_pessimistic": _metric(_TIED.format("against"), "right_at_worst"),
    "nil_accuracy": _metric(_NIL_ACCURACY, "right_nil", "nil"),
}

_EXACTLY = "correct if the predicted ids are exactly the gold ids"
_AT_LEAST_ONE = "correct if at least one id matches"


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A way to compare links with gold mentions. The defaults are the rules of `end_to_end`.

    count (Callable): Counts one document.
    given_mentions (bool): Whether the linker is given the gold mentions, or sees only the text.

    The other fields are the rules, phrased for users.

    offsets, label, ids (str): Required agreement of prediction and gold.
    counted (str): Unit of the counts.
    nil (str): Treatment of gold mentions without an id and of NIL predictions.
    composites (str): When a mention with several ids is correct.
    retired (str): Treatment of retired ids.
    neleval (str): The equivalent measure in neleval; "": none.
    """

    count: Callable[[Sequence[Mention], Sequence[Link]], Counts]
    given_mentions: bool = False
    offsets: str = "equal"
    label: str = "ignored"
    ids: str = "equal sets"
    counted: str = "distinct spans with ids"
    nil: str = "NIL gold mentions and NIL predictions are excluded independently"
    composites: str = _EXACTLY
    retired: str = "replaced by current ids in gold and predictions"
    neleval: str = ""

    @property
    def metrics(self) -> dict[str, Metric]:
        return _ACCURACY if self.given_mentions else _F1

    @property
    def rules(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if isinstance(value, str)}


_without_ids = partial(
    Protocol,
    ids="ignored",
    nil="NIL mentions are counted like all other mentions",
    composites="counted as one mention",
    retired="ids are not compared",
)
_on_gold_mentions = partial(
    Protocol,
    given_mentions=True,
    offsets="given",
    label="given",
    counted="every gold mention with an id",
    nil="NIL predictions are incorrect; gold mentions without an id affect only nil_accuracy",
)
PROTOCOLS: dict[str, Protocol] = {
    "mention": _without_ids(
        count=partial(count_sets, items_of=lambda x: [(x.start, x.end, x.label)], ids=False),
        label="equal",
        counted="distinct labelled spans",
        neleval="strong_typed_mention_match",
    ),
    "mention_unlabelled": _without_ids(
        count=partial(count_sets, items_of=lambda x: [(x.start, x.end)], ids=False),
        counted="distinct spans",
        neleval="strong_mention_match",
    ),
    "end_to_end": Protocol(
        count=partial(count_sets, items_of=offsets_and_ids), neleval="strong_link_match"
    ),
    "end_to_end_any": Protocol(
        count=count_any_id, ids="at least one id matches", composites=_AT_LEAST_ONE
    ),
    "end_to_end_with_nil": Protocol(
        count=partial(count_sets, items_of=lambda x: [(x.start, x.end, x.ids)]),
        nil="NIL is treated as an id, so a NIL prediction is correct if gold is NIL",
        neleval="strong_all_match",
    ),
    "partial_binary": Protocol(
        count=count_partial_binary,
        offsets="overlap of at least one character; pairs are one-to-one, longest overlap first",
    ),
    "partial_fractional": Protocol(
        count=count_partial_fractional,
        offsets="overlap; a mention's score is the fraction of its characters that is covered",
        counted="every mention, including duplicates",
        neleval="overlap-maxmax::span+kbid",
    ),
    "document": Protocol(
        count=partial(count_sets, items_of=lambda x: x.ids),
        offsets="ignored",
        ids="equal; each id is compared separately",
        counted="distinct ids in each document",
        composites="each id is counted separately",
    ),
    "gold": _on_gold_mentions(
        count=partial(count_given, all_ids=True),
        composites=f"{_EXACTLY}; ranked by the last gold id",
    ),
    "gold_any": _on_gold_mentions(
        count=partial(count_given, all_ids=False),
        ids="at least one id matches",
        composites=f"{_AT_LEAST_ONE}; ranked by the first gold id",
    ),
}
ALIASES = {"strict": "end_to_end", "partial": "partial_binary"}


def get_protocol(name: str) -> tuple[str, Protocol]:
    """Return a protocol and its canonical name. RAISES BioelError: [B081] if `name` is unknown."""
    canonical_name = ALIASES.get(name, name)
    if canonical_name not in PROTOCOLS:
        known = ", ".join([*PROTOCOLS, *ALIASES])
        raise BioelError(Errors.B081.format(name=name, known=known))
    return canonical_name, PROTOCOLS[canonical_name]


def protocol_summary(name: str) -> str:
    """Summarise a protocol in one line: what must agree, and how NIL and composites are treated."""
    one = PROTOCOLS[name]
    return (
        f"Offsets: {one.offsets}. Labels: {one.label}. Ids: {one.ids}. {one.nil}. "
        f"Composites: {one.composites}"
    )
