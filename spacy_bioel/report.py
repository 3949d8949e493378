"""Report which spans in a text a pipeline considered, which it linked, and why."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from spacy.errors import Errors as SpacyErrors
from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_bioel.batch import Batch
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.explanation import (
    Considered,
    ExplainedCandidate,
    Explanation,
    Features,
    Reasons,
    candidate_cells,
    explain_link,
    releases,
)
from spacy_bioel.kb.knowledge_base import search_names
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.evidence import FEATURES
from spacy_bioel.linking.find import scored
from spacy_bioel.linking.link import decide, rank_candidates
from spacy_bioel.linking.names import NameLookup
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import find_detector, find_linker, spans_key
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY, SPANS_KEY
from spacy_bioel.types import Candidate, KbRelease, ScoredSpan

SPAN_COLUMNS = ("start", "end", "text", "label or name", "probability", "mention")
CANDIDATE_COLUMNS = (
    *("id", "preferred name", "matched name"),
    *("score", "score before document context", "evidence"),
)
_MAX_EXCLUDED = 3
_MIN_EXCLUDED_SCORE = 0.05
_MAX_SIMILAR_NAMES = 3
_MIN_CHANGE = 0.05  # smaller score changes are not explained.
# Minimum probability for reporting a span: by default, and if the user asks about a phrase.
_MIN_PROBABILITY, _MIN_ASKED_PROBABILITY = 0.01, 1e-4


@dataclass(frozen=True, slots=True)
class Report:
    """Explanation of a whole text, or of each occurrence of a phrase in the text.

    model (str): Name and version of the pipeline.
    finds (str): How the pipeline finds mentions, in a sentence.
    considered (tuple[Considered, ...]): Spans that were considered as mentions; for a phrase, only
        spans that overlap an occurrence.
    mentions (tuple[Explanation, ...]): Explanations of all links; for a phrase, of each occurrence,
        whether the pipeline found it or not.
    """

    text: str
    model: str
    kbs: tuple[KbRelease, ...]
    finds: str
    considered: tuple[Considered, ...]
    mentions: tuple[Explanation, ...]


def explain(nlp: Language, text: str, mention: str | None = None) -> Report:
    """Run a pipeline on a text and explain all mentions that it found, or a phrase in the text.

    mention (str | None): Explain each occurrence of this phrase; case is ignored. An occurrence
        that the pipeline did not find is linked as if it had been found.
    RAISES BioelError: [B338] if the phrase does not occur in the text, [B339] if no occurrence
        starts and ends at token boundaries.
    """
    linker, detector = find_linker(nlp), find_detector(nlp)
    lowest = _MIN_ASKED_PROBABILITY if mention else _MIN_PROBABILITY
    reasons = Reasons()
    doc, batch = _run_nlp(nlp, text, linker, detector, reasons, min_probability=lowest)
    words = [] if mention is None else _find_occurrences(doc, mention)
    considered = reasons.considered(doc, _final_mentions(doc, reasons, batch, linker, detector))
    if words:
        considered = [
            c
            for c in considered
            if any(c.start < w.end_char and w.start_char < c.end for w in words)
        ]
    mentions: list[Explanation] = []
    if linker is not None and batch is not None:
        generator = linker.generator
        found = {(span.start, span.end) for span in batch.spans}
        asked_for = {(span.start, span.end) for span in words}
        mentions = _explain_mentions(
            generator, batch, found & asked_for if words else found, considered
        )
        if missing := [span for span in words if (span.start, span.end) not in found]:
            # Rank these separately, so that they do not change the scores of the mentions found.
            extended = _add_spans(batch, missing, considered, generator)
            hypothetical = decide(rank_candidates(extended, generator), generator)
            others = _explain_mentions(generator, hypothetical, asked_for - found, considered)
            mentions += [replace(explanation, is_mention=False) for explanation in others]
    return Report(
        text=text,
        model=f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}",
        kbs=releases(linker.kb) if linker is not None else (),
        finds=_how_mentions_are_found(nlp, linker, detector),
        considered=tuple(considered),
        mentions=tuple(mentions),
    )


def pieces(report: Report) -> Iterator[tuple[str, Explanation | None]]:
    """Yield (text piece, mention or None) pairs; if mentions overlap, only the first counts."""
    end = 0
    for mention in sorted(report.mentions, key=lambda m: (m.start, -m.end)):
        if mention.is_mention and mention.start >= end:
            yield report.text[end : mention.start], None
            yield report.text[mention.start : mention.end], mention
            end = mention.end
    yield report.text[end:], None


def span_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the cells of `SPAN_COLUMNS` for each span that was considered as a mention."""
    return [
        (
            *(str(span.start), str(span.end), span.text, span.label or span.name),
            f"{span.probability:.4f}",
            ": ".join(filter(None, ("yes" if span.is_mention else "no", span.reason))),
        )
        for span in report.considered
    ]


def mention_parts(report: Report) -> Iterator[tuple[Explanation, list[str], list[Any], list[str]]]:
    """Yield each mention with the lines about it, its candidates' cells (see `CANDIDATE_COLUMNS`),
    and the lines about other concepts."""
    for m in report.mentions:
        before = [m.reason, f"Looked up: {', '.join(map(repr, m.strings))}"]
        before += [f"In the text: {m.said}"] if m.said else []
        if not m.is_mention:
            before.insert(0, "The pipeline does not find this mention. If it were a mention:")
        after = [f"Similar names: {'; '.join(m.near)}"] if m.near else []
        after += [
            f"Not allowed for {m.label}: {concept.id} {concept.preferred} (score "
            f"{concept.score:.2f}; types: {concept.evidence or 'none'})"
            for concept in m.excluded
        ]
        yield m, before, [(c.id, *candidate_cells(c)) for c in m.candidates], after


def _find_occurrences(doc: Doc, mention: str) -> list[Span]:
    matches = list(re.finditer(re.escape(mention), doc.text, re.IGNORECASE)) if mention else []
    if not matches:
        raise BioelError(Errors.B338.format(mention=mention))
    spans = [doc.char_span(*match.span()) for match in matches]
    kept = [span for span in spans if span is not None]
    if not kept:
        around = doc.char_span(*matches[0].span(), alignment_mode="expand")
        raise BioelError(Errors.B339.format(mention=mention, around=str(around)))
    return kept


def _how_mentions_are_found(
    nlp: Language, linker: Linker | None, detector: MentionDetector | None
) -> str:
    setting = None if linker is None else linker.cfg["mentions"]
    if setting == BY_DICTIONARY:
        return "Mentions are names of the knowledge base."
    if setting == "model":
        return "Mentions are found by bioel_linker's model."
    if detector is None:
        others = [name for name, pipe in nlp.pipeline if pipe is not linker]
        return f"Mentions are found by other components: {', '.join(others)}."
    sentence = f"Mentions are found by bioel_mentions, threshold {detector.cfg['threshold']:g}"
    if setting == SPANS_AND_DICTIONARY:
        sentence += ", and unambiguous names in the knowledge base are also taken as mentions"
    return f"{sentence}."


def _run_nlp(
    nlp: Language,
    text: str,
    linker: Linker | None,
    detector: MentionDetector | None,
    reasons: Reasons,
    *,
    min_probability: float,
) -> tuple[Doc, Batch | None]:
    """Run a pipeline on a text, and return the document and the mentions that the linker linked.

    reasons (Reasons): Collects the reasons for the mentions of the detector and the linker.
    """
    doc, batch = nlp.make_doc(text), None
    for name, pipe in nlp.pipeline:
        if pipe is detector:
            (found,) = detector.find([doc], min_probability=min_probability)
            reasons.read(found)
            detector.set_annotations([doc], [found.spans])
        elif pipe is linker:
            batch, links = linker.link([doc])
            for of_doc in filter(None, batch.found):
                reasons.read(of_doc)
            linker.set_annotations([doc], links)
        elif isinstance(pipe, NameLookup):
            reasons.read(*pipe.annotate([doc]))
        else:
            doc = pipe(doc)
            if doc is None:
                raise ValueError(SpacyErrors.E005.format(name=name, returned_type=type(None)))
    return doc, batch


def _final_mentions(
    doc: Doc,
    reasons: Reasons,
    batch: Batch | None,
    linker: Linker | None,
    detector: MentionDetector | None,
) -> list[ScoredSpan]:
    """Return the mentions after the last pipe, with their probabilities, or 1 if unknown."""
    if batch is None:
        key = SPANS_KEY if detector is None else detector.cfg["spans_key"]
        return scored(doc, doc.spans.get(key, ()), key)
    mentions = scored(doc, batch.spans, spans_key(linker))
    if batch.probabilities:
        pairs = zip(mentions, batch.probabilities, strict=True)
        mentions = [m if p is None else (*m[:3], p) for m, p in pairs]
    if detector is None:  # keep only mentions added by the linker
        mentions = [m for m in mentions if reasons.has_added(doc, m)]
    return mentions


def _add_spans(
    batch: Batch,
    added: Sequence[Span],
    considered: Sequence[Considered],
    generator: CandidateGenerator,
) -> Batch:
    """Add spans to the mentions in a document, each with its most probable label."""
    spans = []
    for span in added:
        here = [c for c in considered if (c.start, c.end) == (span.start_char, span.end_char)]
        best = max(here, key=lambda c: c.probability, default=None)
        label = best.label if best is not None else ""
        spans.append(Span(span.doc, span.start, span.end, label=label))
    more = generator.rules.prepare(Batch.of(batch.docs, [spans], generator.state.settings))
    if batch.probabilities or generator.state.settings.mentions == BY_DICTIONARY:
        more = replace(more, probabilities=[1.0] * len(spans))
    return replace(batch.followed_by(more), n_parts=0, states=None, candidates=())


def _explain_mentions(
    generator: CandidateGenerator,
    batch: Batch,
    wanted: Collection[tuple[int, int]],
    considered: Sequence[Considered],
) -> list[Explanation]:
    """Explain what `Linker.predict` decides for the mentions at the wanted (start, end) tokens."""
    probabilities = {(c.start, c.end, c.label): c.probability for c in considered}
    rule_reasons = generator.rules.explain(batch)
    explained = []
    for number, (span, link) in enumerate(zip(batch.spans, batch.links, strict=True)):
        if (span.start, span.end) not in wanted:
            continue
        explanation = explain_link(
            span,
            link,
            kb=generator.kb,
            nil_threshold=generator.state.settings.nil_threshold,
            probability=probabilities.get((span.start_char, span.end_char, span.label_)),
        )
        query, of_label = batch.queries[number], generator.for_label(span.label_)
        with_label, without_label = (query.whole, span.label_), (query.whole, "")
        ranked = of_label.rank([with_label, without_label])
        of_string = {c.id: c.score for c in ranked[with_label]}
        features = _features(of_label, query.whole)
        explanation = replace(
            explanation,
            candidates=tuple(
                replace(c, of_string=of_string.get(c.id), features=features.get(c.id, ()))
                for c in explanation.candidates
            ),
            strings=tuple(dict.fromkeys([query.whole, *query.parts])),
            excluded=_excluded(of_label, ranked[without_label], span.label_),
        )
        is_linked = of_label.types_of(link.label) != ()
        if is_linked and not link.candidates:
            hits = search_names(generator.kb, query.whole, _MAX_SIMILAR_NAMES)
            near = tuple(f"{hit.name} ({hit.concept.id})" for hit in hits)
            explanation = replace(explanation, near=near)
        is_name = bool(batch.probabilities) and batch.probabilities[number] is not None
        if not link.candidates and rule_reasons[number]:
            reason = rule_reasons[number]
        elif not (is_name or is_linked or link.ids):
            reason = f"NIL: the label_types or kb setting excludes mentions of {link.label}."
        else:
            change = _of_change(explanation, rule_reasons[number], is_name=is_name)
            reason = explanation.reason + change
        explained.append(replace(explanation, reason=reason))
    return explained


def _features(generator: CandidateGenerator, string: str) -> dict[str, Features]:
    """Return the nonzero features of each candidate for a string, by concept id."""
    table = generator.candidate_table([string] if string else [])
    return {
        id: tuple((name, round(float(x), 4)) for name, x in zip(FEATURES, row, strict=True) if x)
        for id, row in zip(generator.kb.ids_of(table.concept), table.features, strict=True)
    }


def _of_change(explanation: Explanation, rule_reason: str, *, is_name: bool) -> str:
    """Explain how context changed the top score; "" if only the string mattered.

    rule_reason (str): Explanation from the entity rules, in a sentence; may be empty.
    is_name (bool): Whether the dictionary found the mention; if so, its probability scales scores.
    """
    if not explanation.candidates:
        return ""
    best = explanation.candidates[0]
    if best.of_string is None and best.name and explanation.ids == (best.id,):
        is_exact = "exact" in best.evidence
        sentence = "" if is_exact else "The mention is not a name of this concept. "
        default = (
            "The concept was found through a short form, another spelling, or the same gene symbol"
            " in another species."
        )
    elif best.of_string is None or len(explanation.ids) > 1:
        return ""
    elif abs(best.of_string - best.score) < _MIN_CHANGE:
        return ""
    elif is_name and best.score < best.of_string:
        return (
            f" The name matches with {best.of_string:.2f}; the score is lower because these words"
            " may not be a name here."
        )
    else:
        sentence = f"The score before document context was {best.of_string:.2f}. "
        default = "The text or other mentions of the document changed the score."
    return f" {sentence}{rule_reason or default}"


def _excluded(
    generator: CandidateGenerator, candidates: Sequence[Candidate], label: str
) -> tuple[ExplainedCandidate, ...]:
    """Return the best candidates that mentions with a label cannot link to."""
    kb = generator.kb
    candidates = [c for c in candidates if c.score >= _MIN_EXCLUDED_SCORE]
    rows = kb.find_all([c.id for c in candidates])
    allowed = generator.allowed(rows, [label], np.zeros_like(rows))
    excluded = []
    for c, row, is_allowed in zip(candidates, rows.tolist(), allowed.tolist(), strict=True):
        if not is_allowed:
            types = ", ".join(kb.types_of(row))
            preferred = kb.preferred_name(row)
            excluded.append(ExplainedCandidate(c.id, c.name, preferred, c.score, evidence=types))
    return tuple(excluded[:_MAX_EXCLUDED])
