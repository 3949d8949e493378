"""Table of the kinds of errors, and the decision which kind an error is of.

`bioel evaluate --help`, its files of errors and docs/guides/errors.md take the definitions from
here. This module does not import numpy, to keep `--help` fast.
"""

from __future__ import annotations

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
# What else may be said of an error, whatever its kind. It may have several of these marks, or none.
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
