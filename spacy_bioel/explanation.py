"""Explanations: the trace of a document, records, and the sentence that says why.

The trace says why spans became mentions, or did not, and is written while it is decided: whoever
adds, drops or widens spans says so there, if there is a trace. So an explanation cannot differ from
what was done.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from math import expm1
from typing import Any

from spacy.tokens import Doc, Span

from spacy_bioel.doc import context_of, record_of, split_ids
from spacy_bioel.errors import BioelError, Warnings
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Candidate, Context, KbRelease, Link, ScoredSpan, is_tied, opened

Place = tuple[int, int, str]  # start token, end token, label


@dataclass(frozen=True, slots=True)
class Considered:
    """A span that might have become a mention, by character offsets.

    label (str): "" where names are found with a knowledge base.
    reason (str): "" for a mention that was simply likely enough.
    name (str): The name in the knowledge base that it matches; "" with a trained detector.
    """

    start: int
    end: int
    text: str
    label: str
    probability: float
    is_mention: bool
    reason: str = ""
    name: str = ""


class Trace:
    """What happened to the spans of one document.

    lowest (float): Least probability of the spans that a detector reports.
    """

    def __init__(self, doc: Doc, *, lowest: float = 0.0) -> None:
        self.doc, self.lowest = doc, lowest
        self._added: dict[Place, tuple[str, str]] = {}
        self._others: list[Considered] = []

    @property
    def n_said(self) -> int:
        """How many reasons were recorded."""
        return len(self._added) + len(self._others)

    def changed(self, before: Iterable[ScoredSpan], after: Iterable[ScoredSpan], why: str) -> None:
        """Record the spans that a step has dropped, and those that it has added."""
        spans, kept = {span[:3]: span for span in before}, {span[:3] for span in after}
        for place, span in spans.items():
            if place not in kept:
                self.drop(span, why)
        self._added |= dict.fromkeys(kept - spans.keys(), (why, ""))

    def add(self, place: Place, why: str, name: str = "") -> None:
        """Record why a span was added. name (str): That it has in the knowledge base."""
        self._added[place] = why, name

    def has_added(self, place: Place) -> bool:
        """Whether a step has added a span."""
        return place in self._added

    def drop(self, span: ScoredSpan, why: str, name: str = "") -> None:
        """Record why a span is not a mention."""
        self._others.append(self._considered(span, False, why, name))

    def record(self, considered: Iterable[Considered]) -> None:
        """Record spans whose fate is known already."""
        self._others += considered

    def considered(self, mentions: Iterable[ScoredSpan]) -> list[Considered]:
        """List what was considered, in the order of the text. mentions: Those of the end."""
        known = {(c.start, c.end, c.label) for c in self._others if c.is_mention}
        found = [
            self._considered(span, True, *self._added.get(span[:3], ("", ""))) for span in mentions
        ]
        new = [c for c in found if (c.start, c.end, c.label) not in known]
        return sorted(
            {*new, *self._others}, key=lambda c: (c.start, c.end, c.label, not c.is_mention, c.name)
        )

    def _considered(self, span: ScoredSpan, is_mention: bool, why: str, name: str) -> Considered:
        start, end, label, probability = span
        place = self.doc[start:end]
        chars = place.start_char, place.end_char, place.text
        return Considered(*chars, label, round(probability, 4), is_mention, why, name)


Features = tuple[tuple[str, float], ...]  # names and values


@dataclass(frozen=True, slots=True)
class ExplainedCandidate:
    """Candidate with everything that speaks for it, see `Candidate`.

    preferred (str): Preferred name of the concept.
    of_string (float | None): Its score by the mention's string alone, before the document, the
        context and how sure the mention is had a say; None where names need no search.
    features (tuple): Pairs of a feature of `linking.evidence` and its value, not 0.
    kind (str): Preferred name of a concept that is the type of this one: the organism of a gene.
    """

    id: str
    name: str
    preferred: str
    score: float
    evidence: str
    of_string: float | None = None
    features: Features = ()
    kind: str = ""

    @property
    def title(self) -> str:
        return f"{self.preferred} ({self.kind})" if self.kind else self.preferred


@dataclass(frozen=True, slots=True)
class Explanation:
    """Decision about a mention.

    ids (tuple[str, ...]): Of the link; none: NIL.
    reason (str): The decision in a sentence or two.
    nil_threshold (float): Score that a candidate had to have.
    probability (float | None): That it is a mention, by the detector; None: nothing is known.
    candidates (tuple[ExplainedCandidate, ...]): Best first.
    kbs (tuple[KbRelease, ...]): The knowledge bases that were searched; none when they are not open
        in this process.
    strings (tuple[str, ...]): Strings that were looked up: the whole mention, normalised, its short
        forms written out, and the parts of a composite.
    excluded (tuple[ExplainedCandidate, ...]): The best concepts that mentions of this label may not
        link to, by the setting `label_types` or the knowledge base of the label.
    near (tuple[str, ...]): Where there is no candidate: names that are spelled most like it.
    is_mention (bool): Whether the pipeline found it; otherwise this is what would be, if it had.
    said (str): What the text says of it, with the words that say so; "": nothing, or the pipe
        `bioel_context` did not run.
    """

    start: int
    end: int
    text: str
    label: str
    ids: tuple[str, ...]
    reason: str
    nil_threshold: float
    probability: float | None
    candidates: tuple[ExplainedCandidate, ...]
    kbs: tuple[KbRelease, ...]
    strings: tuple[str, ...] = ()
    excluded: tuple[ExplainedCandidate, ...] = ()
    near: tuple[str, ...] = ()
    is_mention: bool = True
    said: str = ""

    def __str__(self) -> str:
        lines = [f"{self.text!r} {self.label} -> {' | '.join(self.ids) or 'NIL'}", self.reason]
        lines += [f"In the text: {self.said}"] if self.said else []
        for c in self.candidates:
            matched = f", matched {c.name!r}" if c.name != c.preferred else ""
            lines.append(f"  {c.score:.4f} {c.id} {c.title}{matched} ({c.evidence})")
        lines += [f"Knowledge base: {kb}" for kb in self.kbs]
        return "\n".join(lines)


def features_text(features: Features) -> str:
    """Features in words: "a name of it, the preferred one; linked to it 7x in training (100%)"."""
    of = dict(features)
    parts = []
    if "exact" in of:
        spelled = "" if of["exact"] == 1 else " except for its spelling"
        preferred = ", the preferred one" if "preferred" in of else ""
        shared = round(of["exact"] / of["unique"])
        others = f", of {shared} concepts" if shared > 1 else ""
        parts.append(f"a name of it{spelled}{preferred}{others}")
    else:
        kinds = {"ngram": "spelling", "dense": "vector"}
        parts += [
            f"{kind} of its nearest name {of[name]:.2f}"
            for name, kind in kinds.items()
            if name in of
        ]
    if "alias_share" in of:
        n = expm1(of["alias_count"])
        parts.append(f"linked to it {n:,.0f}x in training ({of['alias_share']:.0%})")
    elif recalled := max(of.get("alias_ngram", 0.0), of.get("alias_dense", 0.0)):
        parts.append(f"like a training mention of it {recalled:.2f}")
    if "prior" in of:
        parts.append(f"concept {expm1(of['prior']):,.0f}x in training")
    return "; ".join(parts)


def candidate_cells(candidate: ExplainedCandidate) -> tuple[str, ...]:
    """Preferred name, matched name, score, score by the words alone and evidence, for tables."""
    of_string = "" if candidate.of_string is None else f"{candidate.of_string:.4f}"
    evidence = features_text(candidate.features) or candidate.evidence
    return candidate.title, candidate.name, f"{candidate.score:.4f}", of_string, evidence


def explain_span(span: Span) -> Explanation | None:
    """Explain a linked span by what is stored with its document; None: it is no mention.

    The pipeline is not needed. Where its knowledge base is not open, preferred names are those that
    matched.
    """
    found = record_of(span)
    if found is None:
        return None
    link, group = found
    places = [(other.start, other.end, other.label) for other in group]
    scores = dict(zip(places, group.attrs.get("scores", ()), strict=False))
    kb: Any = None
    with suppress(BioelError):  # it is not open in this process
        kb = opened(group.attrs.get("kb", ""))
    return explain_link(
        span,
        link,
        kb=kb,
        nil_threshold=float(group.attrs.get("nil_threshold", 0.0)),
        probability=scores.get((span.start, span.end, span.label)),
    )


def explain_link(
    span: Span,
    link: Link,
    *,
    kb: KnowledgeBase | None,
    nil_threshold: float,
    probability: float | None,
) -> Explanation:
    """Explain a link by itself.

    kb (KnowledgeBase | None): Where its candidates are from, if it is open.
    """
    candidates = []
    for c in link.candidates:
        row = -1 if kb is None else kb.find(c.id)
        preferred = c.name if kb is None or row < 0 else kb.preferred_name(row)
        candidates.append(ExplainedCandidate(c.id, c.name, preferred, c.score, c.evidence))
    context = context_of(span)
    return Explanation(
        start=link.start,
        end=link.end,
        text=span.text,
        label=link.label,
        ids=link.ids,
        reason=reason_of(link, nil_threshold=nil_threshold),
        nil_threshold=nil_threshold,
        probability=probability,
        candidates=tuple(candidates),
        kbs=releases(kb, link.label) if kb is not None else (),
        said="" if context is None else describe(context, span.doc.text),
    )


def releases(kb: KnowledgeBase, label: str = "") -> tuple[KbRelease, ...]:
    """The knowledge bases that mentions of a label may link to; "": all."""
    if isinstance(kb, JoinedKnowledgeBase) and (number := kb.part_of(label)) is not None:
        return kb.parts[number].releases
    return kb.releases


def register_extensions(facts: Iterable[str] = ()) -> None:
    """Make `span._.cui`, `span._.cuis`, `span._.candidates`, `span._.explanation` (see
    `explain_span`); one for each of the facts of rules, such as `span._.hgvs`; `span._.negated`,
    `uncertain`, `historical`, `hypothetical`, `experiencer` and `context_cues`, None without the
    pipe `bioel_context`.

    One that another package has registered stays, with a warning [W270].
    """
    for name, getter in (_GETTERS | {fact: _getter_of_fact(fact) for fact in facts}).items():
        if not Span.has_extension(name):
            Span.set_extension(name, getter=getter)
        elif Span.get_extension(name)[2] is not getter:
            warnings.warn(Warnings.W270.format(name=name), stacklevel=2)


def _get_cuis(span: Span) -> tuple[str, ...]:
    return split_ids(span.kb_id_)


def _get_cui(span: Span) -> str | None:
    ids = split_ids(span.kb_id_)
    return ids[0] if ids else None


def _get_candidates(span: Span) -> tuple[Candidate, ...]:
    found = record_of(span)
    return () if found is None else found[0].candidates


@cache  # so that it is the same wherever it is registered
def _getter_of_fact(name: str) -> Callable[[Span], Any]:
    return partial(_get_fact, name)


def _get_fact(name: str, span: Span) -> Any:
    found = record_of(span)
    return None if found is None else found[0].facts.get(name)


def _get_of_context(name: str, span: Span) -> Any:
    said = context_of(span)
    return None if said is None else getattr(said, name)


def _get_cues(span: Span) -> tuple[str, ...] | None:
    said = context_of(span)
    return None if said is None else tuple(span.doc.text[a:b] for a, b, _ in said.cues)


_GETTERS: dict[str, Callable[[Span], Any]] = {
    "cui": _get_cui,
    "cuis": _get_cuis,
    "candidates": _get_candidates,
    "explanation": explain_span,
    **{
        name: partial(_get_of_context, name)
        for name in ("negated", "uncertain", "historical", "hypothetical", "experiencer")
    },
    "context_cues": _get_cues,
}


def reason_of(link: Link, *, nil_threshold: float | None = None) -> str:
    """Return the reason of a link, or of none, in one sentence.

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
    score = f"its score of {best.score:.2f}"
    if link.ids:
        return f"Linked: {likeliest}, and {score} reaches nil_threshold{limit}."
    if is_tied(link.candidates) and best.score >= (nil_threshold or 0.0):
        tied = (f"{c.name} ({c.id})" for c in link.candidates if c.score == best.score)
        return f"NIL: {' and '.join(tied)} are equally likely."
    return f"NIL: {likeliest}, but {score} is below nil_threshold{limit}."


def describe(said: Context, text: str) -> str:
    """Write what a text says of a mention, and the words that say so: 'negated ("denies")'."""
    cues: dict[str, list[str]] = defaultdict(list)
    for start, end, says in said.cues:
        cues[says].append(" ".join(text[start:end].split()))
    return ", ".join(f'{says} ("{", ".join(words)}")' for says, words in cues.items())
