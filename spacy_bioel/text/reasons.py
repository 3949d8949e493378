"""The decision about a mention in one sentence."""

from __future__ import annotations

from spacy_bioel.types import Link


def reason_of(link: Link, *, nil_threshold: float | None = None) -> str:
    """Reason of a link, or of none.

    nil_threshold (float | None): Score that a candidate had to have; None: not known here.
    """
    if not link.candidates:
        return "NIL: no name that it may be linked to is like it."
    best = link.candidates[0]
    score = f"the best candidate, {best.id}, has the score {best.score:.2f}"
    limit = "" if nil_threshold is None else f" of {nil_threshold:g}"
    if len(link.ids) > 1:
        return f"Linked to {len(link.ids)} concepts: its parts are likelier than the whole."
    if link.ids:
        return f"Linked: {score}, which reaches nil_threshold{limit}."
    return f"NIL: {score}, less than nil_threshold{limit}."
