"""Table of the evaluation protocols: their rules, their counts and their metrics.

`bioel evaluate --help`, the output of the command, its JSON and docs/protocols.md come from this
table. This module does not import numpy, to keep `--help` fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.scoring.counts import (
    Counts,
    count_any_id,
    count_given,
    count_partial_binary,
    count_partial_fractional,
    count_sets,
    linked,
)
from spacy_bioel.types import Link, Mention

Ratio = tuple[str, str]  # names of two counts: numerator, denominator


@dataclass(frozen=True, slots=True)
class Metric:
    """Ratio of two counts, or the harmonic mean of two such ratios.

    meaning (str): Description for users.
    ratios (tuple[Ratio, ...]): One or two ratios.
    n (str): The count that `Measurement.n` reports.
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
