"""The report on a text: what a pipeline found and linked in it, and what it did not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from spacy.errors import Errors as SpacyErrors
from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_bioel.entities import Mentions
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.explanation import (
    Considered,
    ExplainedCandidate,
    Explanation,
    Features,
    Trace,
    explain_link,
    releases,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase, search_names
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.decide import Ranking, rank_candidates
from spacy_bioel.linking.evidence import FEATURES
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import find_detector, find_linker
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY, SPANS_KEY
from spacy_bioel.types import Candidate, KbRelease, ScoredSpan

_N_EXCLUDED = 3
_LEAST_EXCLUDED = 0.05  # score of a concept that is worth to be called excluded
_N_NEAR = 3
_CHANGED = 0.05  # difference of scores that is worth a sentence
_LEAST, _ASKED_FOR = 0.01, 1e-4  # probability of a span, and of one that was asked for


@dataclass(frozen=True, slots=True)
class Report:
    """Explanation of a whole text, or of the places of some words in it.

    model (str): Name and version of the pipeline.
    finds (str): How it finds mentions.
    considered (tuple[Considered, ...]): Spans that may have become mentions; only those that
        overlap the places.
    mentions (tuple[Explanation, ...]): Of the links; of the places, whether the pipeline found
        them or not.
    """

    text: str
    model: str
    kbs: tuple[KbRelease, ...]
    finds: str
    considered: tuple[Considered, ...]
    mentions: tuple[Explanation, ...]


def explain(nlp: Language, text: str, mention: str | None = None) -> Report:
    """Run a pipeline on a text and explain what it found, or one stretch of the text.

    mention (str | None): Each place of these characters is explained, in any case; one that the
        pipeline did not find is linked as if it had.
    RAISES BioelError: [B338] when the text has no such characters, [B339] when no place of them
        begins and ends with a token.
    """
    linker, detector = find_linker(nlp), find_detector(nlp)
    trace = Trace(nlp.make_doc(text), lowest=_ASKED_FOR if mention else _LEAST)
    ranking = _run(nlp, trace, linker, detector)
    doc = trace.doc
    places = [] if mention is None else _places(doc, mention)
    considered = trace.considered(_found(trace, ranking, linker, detector))
    if places:
        considered = [
            c
            for c in considered
            if any(c.start < place.end_char and place.start_char < c.end for place in places)
        ]
    mentions: list[Explanation] = []
    if linker is not None and ranking is not None:
        found = {(span.start, span.end) for span in ranking.mentions.spans}
        asked_for = {(place.start, place.end) for place in places}
        mentions = _explain(ranking, found & asked_for if places else found, considered)
        if missing := [place for place in places if (place.start, place.end) not in found]:
            # What was found is explained as it was decided, without them.
            asked = _with(ranking.mentions, missing, considered, ranking.generator)
            with_them = rank_candidates(ranking.generator, asked)
            of_missing = _explain(with_them, asked_for - found, considered)
            mentions += [replace(one, is_mention=False) for one in of_missing]
    return Report(
        text=text,
        model=f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}",
        kbs=releases(linker.kb) if linker is not None else (),
        finds=_finds(nlp, linker, detector),
        considered=tuple(considered),
        mentions=tuple(mentions),
    )


def pieces(report: Report) -> Iterator[tuple[str, Explanation | None]]:
    """The text in pieces, each with the mention that it is; of mentions that overlap, the first."""
    end = 0
    found = (mention for mention in report.mentions if mention.is_mention)
    for mention in sorted(found, key=lambda m: (m.start, -m.end)):
        if mention.start >= end:
            yield report.text[end : mention.start], None
            yield report.text[mention.start : mention.end], mention
            end = mention.end
    yield report.text[end:], None


def _places(doc: Doc, mention: str) -> list[Span]:
    matches = list(re.finditer(re.escape(mention), doc.text, re.IGNORECASE)) if mention else []
    if not matches:
        raise BioelError(Errors.B338.format(mention=mention))
    spans = [doc.char_span(*match.span()) for match in matches]
    kept = [span for span in spans if span is not None]
    if not kept:
        around = doc.char_span(*matches[0].span(), alignment_mode="expand")
        raise BioelError(Errors.B339.format(mention=mention, around=str(around)))
    return kept


def _finds(nlp: Language, linker: Linker | None, detector: MentionDetector | None) -> str:
    """Sentence that says where mentions come from."""
    if linker is not None and linker.cfg["mentions"] == BY_DICTIONARY:
        return "Mentions are names of the knowledge base."
    if linker is not None and linker.cfg["mentions"] == "model":
        return "Mentions are found by the network of bioel_linker."
    if detector is not None:
        found = f"Mentions are found by bioel_mentions, threshold {detector.cfg['threshold']:g}"
        if linker is not None and linker.cfg["mentions"] == SPANS_AND_DICTIONARY:
            found += ", and names of the knowledge base that mean nothing else are mentions too"
        return f"{found}."
    return f"Mentions are found by other components: {', '.join(nlp.pipe_names)}."


def _run(
    nlp: Language, trace: Trace, linker: Linker | None, detector: MentionDetector | None
) -> Ranking | None:
    """Run the pipeline on the document of a trace, which ours write; return what the linker had."""
    ranking = None
    for name, pipe in nlp.pipeline:
        if pipe is detector:
            detector.set_annotations([trace.doc], detector.predict([trace.doc], [trace]))
        elif pipe is linker:
            ranking = linker.ranking([trace.doc], [trace])
            linker.set_annotations([trace.doc], ranking.links())
        else:
            trace.doc = pipe(trace.doc)
            if trace.doc is None:
                raise ValueError(SpacyErrors.E005.format(name=name, returned_type=type(None)))
    return ranking


def _found(
    trace: Trace, ranking: Ranking | None, linker: Linker | None, detector: MentionDetector | None
) -> list[ScoredSpan]:
    """The mentions of a document in the end, with the probabilities that are known."""
    doc = trace.doc
    if ranking is None or linker is None:
        key = SPANS_KEY if detector is None else detector.cfg["spans_key"]
        spans = list(doc.spans[key]) if key in doc.spans else []
    else:
        key, spans = linker.cfg["spans_key"], list(ranking.mentions.spans)
        if detector is None:  # others found them, except those that the linker has added
            spans = [s for s in spans if trace.has_added((s.start, s.end, s.label_))]
    group = doc.spans[key] if key in doc.spans else ()
    scores = group.attrs.get("scores", ()) if group else ()
    known = {(s.start, s.end, s.label_): p for s, p in zip(group, scores, strict=False)}
    return [
        (*place, known.get(place, 1.0)) for place in ((s.start, s.end, s.label_) for s in spans)
    ]


def _with(
    mentions: Mentions,
    places: Sequence[Span],
    considered: Sequence[Considered],
    generator: CandidateGenerator,
) -> Mentions:
    """The mentions of a document, and further ones in these places, with the likeliest labels."""
    spans = []
    for place in places:
        here = [c for c in considered if (c.start, c.end) == (place.start_char, place.end_char)]
        best = max(here, key=lambda c: c.probability, default=None)
        label = best.label if best is not None else ""
        spans.append(Span(place.doc, place.start, place.end, label=label))
    probabilities = mentions.probabilities
    if probabilities is not None:
        probabilities = [*probabilities, *[1.0] * len(spans)]
    more = Mentions.of(mentions.docs, [spans], generator.state.settings)
    return replace(
        mentions,
        spans=[*mentions.spans, *spans],
        queries=[*mentions.queries, *generator.rules.ask(more).queries],
        owners=[0] * (len(mentions) + len(spans)),
        probabilities=probabilities,
    )


def _explain(
    ranking: Ranking, shown: Collection[tuple[int, int]], considered: Sequence[Considered]
) -> list[Explanation]:
    """Explain mentions of one document, which are decided as `predict` does.

    shown (Collection): First token, and the one after the last, of those to explain.
    """
    (links,), spans, queries = ranking.links(), ranking.mentions.spans, ranking.mentions.queries
    probabilities = {(c.start, c.end, c.label): c.probability for c in considered}
    said_of = ranking.generator.rules.explain(ranking.mentions, links)
    explained = []
    for number, (span, query, link) in enumerate(zip(spans, queries, links, strict=True)):
        if (span.start, span.end) not in shown:
            continue
        generator = ranking.generator.of(span.label_)
        key, unlabelled = (query.whole, span.label_), (query.whole, "")
        ranked = generator.rank([key, unlabelled])
        about = explain_link(
            span,
            link,
            kb=ranking.generator.kb,
            nil_threshold=generator.state.settings.nil_threshold,
            probability=probabilities.get((span.start_char, span.end_char, span.label_)),
        )
        of_string = {c.id: c.score for c in ranked[key]}
        features = _features(generator, query.whole)
        candidates = tuple(
            replace(
                c,
                of_string=of_string.get(c.id),
                features=features.get(c.id, ()),
                kind=_kind_of(ranking.generator.kb, generator.kb, c.id),
            )
            for c in about.candidates
        )
        is_linked = generator.types_of(about.label) != ()
        is_searched = is_linked and not candidates
        hits = search_names(ranking.generator.kb, query.whole, _N_NEAR) if is_searched else []
        about = replace(
            about,
            candidates=candidates,
            strings=tuple(dict.fromkeys([query.whole, *query.parts])),
            excluded=_excluded(generator, ranked[unlabelled], span.label_),
            near=tuple(f"{hit.name} ({hit.concept.id})" for hit in hits),
        )
        if ranking.mentions.probabilities is not None:
            reason = about.reason + _of_words(
                about, "; the score counts how likely the words are a name here."
            )
        elif not is_linked and not about.ids:
            types = "by the settings label_types or kb"
            reason = f"NIL: mentions of {about.label} are linked to nothing, {types}."
        else:
            said = said_of[number]
            changed = "The context, or other mentions of the document, changed that."
            reason = about.reason + _of_words(about, f". {said or changed}")
        explained.append(replace(about, reason=reason))
    return explained


def _kind_of(whole: KnowledgeBase, kb: KnowledgeBase, id: str) -> str:
    """Preferred name of a concept that is a type of this one, as organisms are of genes."""
    row = kb.find(id)
    types = kb.types_of(row) if row >= 0 else ()
    rows = (whole.find(name) for name in types if ":" in name)
    return next((whole.preferred_name(row) for row in rows if row >= 0), "")


def _features(generator: CandidateGenerator, string: str) -> dict[str, Features]:
    """Features of each candidate of a string that are not 0, by its id."""
    table = generator.candidate_table([string] if string else [])
    return {
        id: tuple((name, round(float(x), 4)) for name, x in zip(FEATURES, row, strict=True) if x)
        for id, row in zip(generator.kb.ids_of(table.concept), table.features, strict=True)
    }


def _of_words(about: Explanation, more: str) -> str:
    """Sentence on the best candidate, with `more`, where not the words alone decided; else ""."""
    best = about.candidates[0] if about.candidates else None
    if best is not None and best.of_string is None and about.ids == (best.id,):
        return (
            " The mention itself is no name of it: it was found by a short form, by another"
            f" spelling, or by a gene of the same symbol in another organism{more}"
        )
    if best is None or best.of_string is None or len(about.ids) > 1:
        return ""
    if abs(best.of_string - best.score) < _CHANGED:
        return ""
    return f" By its words alone it has {best.of_string:.2f}{more}"


def _excluded(
    generator: CandidateGenerator, candidates: Sequence[Candidate], label: str
) -> tuple[ExplainedCandidate, ...]:
    """Those that a label excludes, of the candidates of a mention without a label."""
    kb, likely = generator.kb, [c for c in candidates if c.score >= _LEAST_EXCLUDED]
    rows = kb.find_all([c.id for c in likely])
    allowed = generator.allowed(rows, [label], np.zeros_like(rows))
    return tuple(
        ExplainedCandidate(
            c.id, c.name, kb.preferred_name(row), c.score, evidence=", ".join(kb.types_of(row))
        )
        for c, row, is_allowed in zip(likely, rows.tolist(), allowed.tolist(), strict=True)
        if not is_allowed
    )[:_N_EXCLUDED]
