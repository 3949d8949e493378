"""The decision about a mention in one sentence."""

from __future__ import annotations

from spacy_bioel.types import Link


def reason_of(link: Link, *, nil_threshold: float | None = None) -> str:
    """Reason of a link, or of none.

    nil_threshold (float | None): Score that a candidate had to have; None: not known here.
    """
    if not link.candidates:
        return "NIL: no name that it may be linked to is like it."
    if len(link.ids) > 1:
        names = ", ".join(f"{c.name} ({c.id})" for c in link.candidates[: len(link.ids)])
        return f"Linked: it is read as {len(link.ids)} names, {names}, which is likelier than one."
    best = link.candidates[0]
    limit = "" if nil_threshold is None else f", {nil_threshold:g}"
    likeliest = f"{best.name} ({best.id}) is the likeliest"
    if link.ids:
        return (
            f"Linked: {likeliest}, and its score of {best.score:.2f} reaches nil_threshold{limit}."
        )
    return f"NIL: {likeliest}, but its score of {best.score:.2f} is below nil_threshold{limit}."
