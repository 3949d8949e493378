"""Explain why spans are mentions and how they are linked, and register the Span extensions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from math import expm1
from typing import Any

from spacy.tokens import Doc, Span

from spacy_bioel.doc import RECORDS, Record, facts_of, fits_tokens, link_of, record_of, split_kb_id
from spacy_bioel.errors import BioelError, Warnings
from spacy_bioel.found import FoundSpans, SpanChange
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.registered import declared_facts
from spacy_bioel.types import (
    Candidate,
    KbRelease,
    Link,
    ScoredSpan,
    SpanKey,
    is_tied,
    opened,
    type_name,
)


@dataclass(frozen=True, slots=True)
class Considered:
    """A span that was considered as a mention, with its character offsets.

    label (str): "" if the span was found as a name in a knowledge base.
    reason (str): Why the span is a mention or not; "" if its probability alone decided.
    name (str): The knowledge base name that matches the span; "" for trained detectors.
    """

    start: int
    end: int
    text: str
    label: str
    probability: float
    is_mention: bool
    reason: str = ""
    name: str = ""


class Reasons:
    """Why spans in a text did or did not become mentions, by character offsets."""

    def __init__(self) -> None:
        self._added: dict[SpanKey, tuple[str, str]] = {}
        self._dropped: set[Considered] = set()

    def read(self, found: FoundSpans) -> None:
        """Read a document's log of why spans changed. Call this before changing the tokens."""
        for entry in found.log:
            for before, after, why, name in [entry] if isinstance(entry, SpanChange) else entry():
                keys = {span[:3] for span in before}, {span[:3] for span in after}
                of_dropped = "" if after else name
                for span in before:
                    if span[:3] not in keys[1]:
                        self._dropped.add(_considered(found.doc, span, False, why, of_dropped))
                for span in after:
                    if span[:3] not in keys[0]:
                        self._added[_place(found.doc, span)] = why, name

    def has_added(self, doc: Doc, span: ScoredSpan) -> bool:
        """Return whether the log says that a span was added."""
        return _place(doc, span) in self._added

    def considered(self, doc: Doc, mentions: Iterable[ScoredSpan]) -> list[Considered]:
        """List the considered spans in text order; `mentions` are the final mentions."""
        considered = set[Considered]()
        for span in mentions:
            why, name = self._added.get(_place(doc, span), ("", ""))
            considered.add(_considered(doc, span, True, why, name))
        # Skip names that were dropped at first but became mentions later.
        found = {(c.start, c.end, c.name) for c in considered if c.name}
        considered |= {c for c in self._dropped if (c.start, c.end, c.name) not in found}
        return sorted(considered, key=lambda c: (c.start, c.end, c.label, not c.is_mention, c.name))


def _place(doc: Doc, span: ScoredSpan) -> SpanKey:
    words = doc[span[0] : span[1]]
    return words.start_char, words.end_char, span[2]


def _considered(doc: Doc, span: ScoredSpan, is_mention: bool, why: str, name: str) -> Considered:
    start, end, label = _place(doc, span)
    p, text = round(span[3], 4), doc[span[0] : span[1]].text
    return Considered(start, end, text, label, p, is_mention, why, name)


Features = tuple[tuple[str, float], ...]  # (name, value) pairs


@dataclass(frozen=True, slots=True)
class ExplainedCandidate:
    """A candidate with its evidence (see `Candidate`).

    preferred (str): Preferred name of the concept.
    of_string (float | None): Score before document context, based on the mention's string only;
        None if this is not a candidate for the string.
    features (tuple): Name and value of each nonzero feature (see `linking.evidence`).
    kind (str): Preferred name of the concept's type, such as the species of a gene (see
        `types.type_name`); else "".
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
    """The decision for a mention, with its reasons.

    ids (tuple[str, ...]): Linked ids; empty for NIL.
    reason (str): Why the mention was linked or not, in one or two sentences.
    nil_threshold (float): Minimum score of a link.
    probability (float | None): Probability of the mention from the detector; None if unknown.
    candidates (tuple[ExplainedCandidate, ...]): Best first.
    kbs (tuple[KbRelease, ...]): The knowledge bases that were searched; empty if they are not open
        in this process.
    strings (tuple[str, ...]): Strings that were looked up: the whole mention, normalised and with
        short forms expanded, and the parts of a composite mention.
    excluded (tuple[ExplainedCandidate, ...]): The best concepts that mentions with this label
        cannot link to because of the `label_types` setting or the label's knowledge base.
    near (tuple[str, ...]): The most similarly spelled names, if there is no candidate.
    is_mention (bool): Whether the pipeline found the mention; if not, the explanation shows the
        decision it would have made.
    said (str): What the text says about the mention (negated, ...), with the cues; "" if nothing,
        or if the `bioel_context` pipe did not run.
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
    """Describe features: "exact match with its preferred name; linked to it 7x in training ..."."""
    values = dict(features)
    parts = []
    if "exact" in values:
        match = "exact match with" if values["exact"] == 1 else "spelling variant of"
        name = "its preferred name" if "preferred" in values else "one of its names"
        n_concepts = round(values["exact"] / values["unique"])
        shared = f", shared by {n_concepts} concepts" if n_concepts > 1 else ""
        parts.append(f"{match} {name}{shared}")
    else:
        if "ngram" in values:
            parts.append(f"n-gram similarity to its closest name {values['ngram']:.2f}")
        if "dense" in values:
            parts.append(f"vector similarity to its closest name {values['dense']:.2f}")
    similarity = max(values.get("alias_ngram", 0.0), values.get("alias_dense", 0.0))
    if "alias_share" in values:
        n, share = expm1(values["alias_count"]), values["alias_share"]
        parts.append(f"linked to it {n:,.0f}x in training ({share:.0%} of this string)")
    elif similarity:
        parts.append(f"similarity to one of its training mentions {similarity:.2f}")
    if "prior" in values:
        parts.append(f"concept mentioned {expm1(values['prior']):,.0f}x in training")
    return "; ".join(parts)


def candidate_cells(candidate: ExplainedCandidate) -> tuple[str, ...]:
    """Return a candidate's table cells: names, scores (also before document context), evidence."""
    of_string = "" if candidate.of_string is None else f"{candidate.of_string:.4f}"
    evidence = features_text(candidate.features) or candidate.evidence
    return candidate.title, candidate.name, f"{candidate.score:.4f}", of_string, evidence


def explain_span(span: Span) -> Explanation | None:
    """Explain a linked span from its record in the document; None if no candidates are stored.

    The pipeline is not needed. If its knowledge base is not open, matched names are shown instead
    of preferred names.
    """
    record = record_of(span)
    if record is None or "candidates" not in record:
        return None
    kb: Any = None
    with suppress(BioelError):  # the knowledge base may not be open in this process
        kb = opened(record.get("kb", ""))
    return explain_link(
        span,
        link_of(span, record),
        kb=kb,
        nil_threshold=float(record.get("nil_threshold", 0.0)),
        probability=record.get("probability"),
    )


def explain_link(
    span: Span,
    link: Link,
    *,
    kb: KnowledgeBase | None,
    nil_threshold: float,
    probability: float | None,
) -> Explanation:
    """Explain a link; `kb` is its candidates' knowledge base, if that is open."""
    candidates = []
    for c in link.candidates:
        columns = c.id, c.name, c.preferred_name or c.name, c.score, c.evidence
        candidates.append(ExplainedCandidate(*columns, kind=type_name(c)))
    # Records are stored by label, but the dictionary labels mentions only after finding them.
    labelled = Span(span.doc, span.start, span.end, link.label)
    facts = facts_of(labelled, record_of(labelled) or {})
    said = [
        declared.described(facts[name], span.doc.text)
        for name, declared in declared_facts().items()
        if name in facts
    ]
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
        said="; ".join(filter(None, said)),
    )


def releases(kb: KnowledgeBase, label: str = "") -> tuple[KbRelease, ...]:
    """Return the knowledge base releases that a label can link to, or all releases for ""."""
    if isinstance(kb, JoinedKnowledgeBase) and (number := kb.labels.get(label)) is not None:
        return kb.parts[number].releases
    return kb.releases


def register_extensions(facts: Iterable[str] = ()) -> None:
    """Register the Span extensions.

    `span._.concept_id` and its synonym `span._.cui` return the linked concept's id in any
    vocabulary, or None; `span._.cuis` returns all ids. `span._.candidates` and
    `span._.explanation` (see `explain_span`) show how the concept was chosen. Extensions of
    declared facts, such as `span._.negated`, are None for spans without the fact. Extensions
    registered by another package are kept, with a warning [W270].

    facts (Iterable[str]): Facts that entity rules add, such as "hgvs"; each becomes an extension.
    """
    if not Span.has_extension(RECORDS):
        Span.set_extension(RECORDS, default=None)  # so that spaCy also stores its values as JSON
    for name, getter in (extension_getters() | {f: _getter_of_fact(f) for f in facts}).items():
        if not Span.has_extension(name):
            Span.set_extension(name, getter=getter)
        elif Span.get_extension(name)[2] is not getter:
            warnings.warn(Warnings.W270.format(name=name), stacklevel=2)


def _get_cuis(span: Span) -> tuple[str, ...]:
    if span.kb_id and not fits_tokens(span):
        place, text = (span.start_char, span.end_char), span.text[:40]
        warnings.warn(Warnings.W326.format(place=place, text=text), stacklevel=4)
    return split_kb_id(span.kb_id_)


def _get_concept_id(span: Span) -> str | None:
    return next(iter(_get_cuis(span)), None)


def _stored_record(span: Span, part: str = "facts") -> Record:
    """Return a span's record, and warn if a linked span has lost part of its record."""
    record = record_of(span) or {}
    if span.kb_id and part not in record:
        missing = "candidates" if part == "candidates" else "facts and context"
        warnings.warn(Warnings.W324.format(part=missing, text=span.text[:40]), stacklevel=4)
    return record


def _get_candidates(span: Span) -> tuple[Candidate, ...]:
    return link_of(span, _stored_record(span, "candidates")).candidates


@cache  # cached because `register_extensions` compares getters by identity
def _getter_of_fact(name: str) -> Callable[[Span], Any]:
    return partial(_get_fact, name)  # not a closure: the `spawn` start method pickles extensions


def _get_fact(name: str, span: Span) -> Any:
    return _stored_record(span).get("facts", {}).get(name)


def _get_declared(fact: str, read: Callable[[Any, str], Any], span: Span) -> Any:
    facts = facts_of(span, _stored_record(span))
    return read(facts[fact], span.doc.text) if fact in facts else None


@cache  # cached because `register_extensions` compares getters by identity
def extension_getters() -> dict[str, Callable[[Span], Any]]:
    """Return the getters of all Span extensions, including those of declared facts."""
    own: dict[str, Callable[[Span], Any]] = {
        "concept_id": _get_concept_id,
        "cui": _get_concept_id,
        "cuis": _get_cuis,
        "candidates": _get_candidates,
        "explanation": explain_span,
    }
    return own | {
        name: partial(_get_declared, fact, read)
        for fact, declared in declared_facts().items()
        for name, read in declared.extensions.items()
    }


def reason_of(link: Link, *, nil_threshold: float | None = None) -> str:
    """Explain in one sentence why a mention is linked or NIL.

    nil_threshold (float | None): Minimum score of a link; None if unknown.
    """
    if not link.candidates:
        return "NIL: the knowledge base has no similar name for this mention."
    best = link.candidates[0]
    if len(link.ids) > 1:
        names = [f"{c.name} ({c.id})" for c in link.candidates[: len(link.ids)]]
        return f"Linked: the mention refers to {len(names)} concepts, {', '.join(names)}."
    if not link.ids and is_tied(link.candidates) and best.score >= (nil_threshold or 0.0):
        tied = (f"{c.name} ({c.id})" for c in link.candidates if c.score == best.score)
        return f"NIL: {' and '.join(tied)} scored equally ({best.score:.2f})."
    decision, relation = ("Linked", "above") if link.ids else ("NIL", "below")
    threshold = "" if nil_threshold is None else f" ({nil_threshold:g})"
    concept = f"{best.name} ({best.id})" if best.name else f"{best.id}, an id from your rules,"
    return (
        f"{decision}: {concept} scored highest ({best.score:.2f}), "
        f"{relation} nil_threshold{threshold}."
    )
