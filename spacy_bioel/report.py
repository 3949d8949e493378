"""Explanation of what a pipeline found and linked in a text, and of what it did not.

What an explanation says of organisms: which the document names, and whose gene was linked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_bioel.dictionary.unambiguous import BUT_A_WORD
from spacy_bioel.doc import text_of
from spacy_bioel.entities.genes import organism_in
from spacy_bioel.entities.homonyms import WordsOfDocument
from spacy_bioel.entities.notes.layout import OTHER, mean_other
from spacy_bioel.entities.species import is_means, is_microbe, organism_words
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.explanation import (
    ExplainedCandidate,
    Explanation,
    Features,
    explain_link,
    releases,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.search import search_names
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.decide import Ranking, rank_candidates
from spacy_bioel.linking.evidence import FEATURES
from spacy_bioel.linking.mentions import Mentions, finding_of, mention_queries
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.linking.settings import SPANS_AND_KB
from spacy_bioel.loading import find_detector, find_linker
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.types import ORGANISM, Candidate, Considered, KbRelease, Link

_N_EXCLUDED = 3
_LEAST_EXCLUDED = 0.05  # score of a concept that is worth to be called excluded
_N_NEAR = 3
_CHANGED = 0.05  # difference of scores that is worth a sentence
# Evidence of the number of a variant, and the reason.
_NUMBERS = {
    "text": "Linked: the text says its number in dbSNP.",
    "table": "Linked: the knowledge base has the number in dbSNP of this change of its gene.",
}
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
    doc = nlp(text)
    linker, detector = find_linker(nlp), find_detector(nlp)
    places = [] if mention is None else _places(doc, mention)
    considered = _consider(doc, linker, detector, lowest=_ASKED_FOR if places else _LEAST)
    if places:
        considered = [
            c
            for c in considered
            if any(c.start < place.end_char and place.start_char < c.end for place in places)
        ]
    mentions: list[Explanation] = []
    if linker is not None:
        ranking = linker.ranking([doc])
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
    if linker is not None and linker.cfg["mentions"] in ("kb", "kb_exact"):
        return "Mentions are names of the knowledge base."
    if linker is not None and linker.cfg["mentions"] == "read":
        return "Mentions are found by the network of bioel_linker."
    if detector is not None:
        found = f"Mentions are found by bioel_mentions, threshold {detector.cfg['threshold']:g}"
        if linker is not None and linker.cfg["mentions"] == SPANS_AND_KB:
            found += ", and names of the knowledge base that mean nothing else are mentions too"
        return f"{found}."
    return f"Mentions are found by other components: {', '.join(nlp.pipe_names)}."


def _consider(
    doc: Doc, linker: Linker | None, detector: MentionDetector | None, *, lowest: float
) -> list[Considered]:
    if linker is not None and linker.cfg["mentions"] == "kb":
        generator = linker.generator
        return generator.finder.consider(doc, finding_of(generator.state))
    considered = [] if detector is None else detector.consider(doc, lowest=lowest)
    if linker is not None and linker.cfg["mentions"] == SPANS_AND_KB:
        names = linker.generator.known_names
        found = (doc.char_span(c.start, c.end, label=c.label) for c in considered if c.is_mention)
        spans = names.without_words(doc, [span for span in found if span is not None])
        kept = {(span.start_char, span.end_char) for span in spans}
        considered = [
            replace(c, is_mention=False, reason=BUT_A_WORD)
            if c.is_mention and (c.start, c.end) not in kept
            else c
            for c in considered
        ]
        added = names.consider(doc, spans)
        new = [c for c in added if c.is_mention]
        considered = [
            replace(c, is_mention=False, reason="in a name of the knowledge base")
            if c.is_mention and any(n.start <= c.start and c.end <= n.end for n in new)
            else c
            for c in considered
        ] + added
        how = finding_of(linker.generator.state)
        if how.notes:
            borders = np.array([[c.start, c.end] for c in considered], np.int64).reshape(-1, 2)
            is_other = mean_other(text_of(doc), *borders.T)
            considered = [
                replace(c, is_mention=False, reason=OTHER) if other and c.is_mention else c
                for c, other in zip(considered, is_other, strict=True)
            ]
            of_notes = linker.generator.notes.find(doc, measurements=how.measurements)
            considered += [
                Considered(x.start_char, x.end_char, x.text, x.label_, 1.0, True, "", name)
                for x, name in of_notes
            ]
        considered.sort(key=lambda c: (c.start, c.end))
    return considered


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
    likely = mentions.likely if mentions.likely is None else [*mentions.likely, *[1.0] * len(spans)]
    return replace(
        mentions,
        spans=[*mentions.spans, *spans],
        queries=[*mentions.queries, *mention_queries(spans, generator.state.settings)],
        owners=[0] * (len(mentions) + len(spans)),
        likely=likely,
    )


def _explain(
    ranking: Ranking, shown: Collection[tuple[int, int]], considered: Sequence[Considered]
) -> list[Explanation]:
    """Explain mentions of one document, which are decided as `predict` does.

    shown (Collection): First token, and the one after the last, of those to explain.
    """
    (links,), spans, queries = ranking.links(), ranking.mentions.spans, ranking.mentions.queries
    probabilities = {(c.start, c.end, c.label): c.probability for c in considered}
    text = text_of(ranking.mentions.docs[0])
    organisms, words = named_organisms(spans, links, text), WordsOfDocument(text)
    explained = []
    for span, query, link in zip(spans, queries, links, strict=True):
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
                organism=organism_name(ranking.generator.kb, organism_of(generator.kb, c.id)),
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
        if ranking.mentions.likely is not None:
            reason = about.reason + _of_words(
                about, "; the score counts how likely the words are a name here."
            )
        elif about.ids and candidates[0].evidence in _NUMBERS:
            reason = _NUMBERS[candidates[0].evidence]
        elif not is_linked:
            types = "by the settings label_types or kb"
            reason = f"NIL: mentions of {about.label} are linked to nothing, {types}."
        else:
            said = of_document(about, organisms, generator.kb, ranking.generator.kb)
            reason = about.reason + _of_words(about, f". {said}")
            if about.ids and organism_of(generator.kb, about.ids[0]):
                other = generator.namesakes.other_name(about.ids[0], span.text, words)
                if other and other not in span.text:
                    reason += f' The document calls it "{other}", too.'
        explained.append(replace(about, reason=reason))
    return explained


def _features(generator: CandidateGenerator, string: str) -> dict[str, Features]:
    """Features of each candidate of a string that are not 0, by its id."""
    table = generator.gather([string] if string else [])
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


def named_organisms(
    spans: Sequence[Span], links: Sequence[Link], text: str
) -> dict[str, list[str]]:
    """Organisms that the document names, by their ids, with the words that it uses."""
    organisms: dict[str, list[str]] = {}
    ends = set()
    for span, link in zip(spans, links, strict=True):
        for id in link.ids:
            if id.startswith(ORGANISM) and not is_means(span):
                organisms.setdefault(id, []).append(span.text)
                ends.add(span.end_char)
    for start, end, id in organism_words(text):
        if end not in ends:
            organisms.setdefault(id, []).append(text[start:end])
    return organisms


def organism_of(kb: KnowledgeBase, id: str) -> str:
    """The organism that a gene is of; "" for other concepts."""
    row = kb.find(id)
    return organism_in(kb.types_of(row)) if row >= 0 else ""


def organism_name(kb: KnowledgeBase, organism: str) -> str:
    row = kb.find(organism) if organism else -1
    return kb.preferred_name(row) if row >= 0 else organism


def of_document(
    about: Explanation, organisms: Mapping[str, list[str]], kb: KnowledgeBase, whole: KnowledgeBase
) -> str:
    """Sentence on what the document says of the best candidate.

    kb, whole (KnowledgeBase): What mentions of its label are linked to; what any are.
    """
    own = organism_of(kb, about.candidates[0].id) if about.candidates else ""
    if not own:
        return "The context, or other mentions of the document, changed that."
    if not organisms:
        return "The document names no organism."
    named = (f"{of[0]} ({len(of)} times)" if len(of) > 1 else of[0] for of in organisms.values())
    sentence = f"The document names {', '.join(named)}; "
    if own in organisms and about.ids:
        return f'{sentence}it is of the organism of "{organisms[own][0]}".'
    genes = f"{about.label.lower() or 'concept'}s"
    others = {id: of[0] for id, of in organisms.items() if id != own and not is_microbe(whole, id)}
    if not others and own not in organisms:
        return f"{sentence}{genes} beside microbes are mostly those of people."
    absent = [word for id, word in others.items() if id not in kb.type_names]
    if absent and not about.ids:
        return f"{sentence}{genes} of {', '.join(absent)} are not in this knowledge base."
    return f"{sentence}it is of {'another' if others else 'this'} organism."
