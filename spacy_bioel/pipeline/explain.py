"""Explanation of what a pipeline found and linked in a text, and of what it did not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, Span

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.search import search_names
from spacy_bioel.pipeline.explanation import (
    ExplainedCandidate,
    Explanation,
    explain_link,
    releases,
    said_of,
)
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.decision import Ranking, rank_candidates
from spacy_bioel.pipeline.linker.evidence import FEATURES, Candidates
from spacy_bioel.pipeline.linker.fusion import default_fusion, share
from spacy_bioel.pipeline.linker.queries import Mentions, looking_up, mention_queries
from spacy_bioel.pipeline.loading import find_detector, find_linker
from spacy_bioel.pipeline.mentions.choosing import Considered
from spacy_bioel.pipeline.mentions.detector import MentionDetector
from spacy_bioel.types import ORGANISM, KbRelease, Link

_N_EXCLUDED = 3
_LEAST_EXCLUDED = 0.05  # score of a concept that is worth to be called excluded
_N_NEAR = 3
_CHANGED = 0.05  # difference of scores that is worth a sentence
_ASKED_FOR = 1e-4  # least probability of a span that was asked for


@dataclass(frozen=True, slots=True)
class Report:
    """Explanation of a whole text.

    text (str): The text.
    model (str): Name and version of the pipeline.
    kbs (tuple[KbRelease, ...]): Its knowledge bases.
    finds (str): How it finds mentions.
    considered (tuple[Considered, ...]): Spans that may have become mentions. With a question about
        a stretch of text, those that overlap it.
    mentions (tuple[Explanation, ...]): Of the links. With a question, those of the stretches that
        were asked for, whether the pipeline found them or not.
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
    places = None if mention is None else _places(doc, mention)
    lowest = {} if places is None else {"lowest": _ASKED_FOR}
    considered = _consider(doc, linker, detector, **lowest)
    if places is not None:
        ranges = [(span.start_char, span.end_char) for span in places]
        considered = [
            c for c in considered if any(c.start < end and start < c.end for start, end in ranges)
        ]
    mentions: list[Explanation] = []
    if linker is not None:
        ranking = linker.ranking([doc])
        are_mentions = {(span.start, span.end) for span in ranking.mentions.spans}
        shown = are_mentions if places is None else {(p.start, p.end) for p in places}
        found = list(_explain(ranking, shown))
        if missing := [p for p in places or () if (p.start, p.end) not in are_mentions]:
            # What was found is explained as it was decided, without them.
            asked = _with(ranking.mentions, missing, considered, ranking.generator)
            with_them = rank_candidates(linker.model, ranking.generator, asked)
            found += _explain(with_them, shown - are_mentions)
        probabilities = {(c.start, c.end, c.label): c.probability for c in considered}
        mentions = [
            replace(
                explained,
                probability=probabilities.get((span.start_char, span.end_char, span.label_)),
                is_mention=(span.start, span.end) in are_mentions,
            )
            for span, explained in found
        ]
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
    for mention in sorted(report.mentions, key=lambda m: (m.start, -m.end)):
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
        return f"Mentions are found by bioel_mentions, threshold {detector.threshold:g}."
    return f"Mentions are found by other components: {', '.join(nlp.pipe_names)}."


def _consider(
    doc: Doc, linker: Linker | None, detector: MentionDetector | None, **lowest: float
) -> list[Considered]:
    if linker is not None and linker.cfg["mentions"] == "kb":
        settings = linker.state.settings
        options: dict[str, Any] = {**dict(settings.finding), **looking_up(settings)}
        found: list[Considered] = linker.generator.finder.consider(
            doc, weights=linker.finding, **options
        )
        return found
    return [] if detector is None else detector.consider(doc, **lowest)


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
    ranking: Ranking, shown: Collection[tuple[int, int]]
) -> Iterator[tuple[Span, Explanation]]:
    """Explanations of the mentions of one document, which are decided as `predict` does.

    shown (Collection): First token, and the one after the last, of those to explain.
    """
    mentions, kb = ranking.mentions, ranking.generator.kb
    (links,) = ranking.links()
    organisms = _organisms(mentions.spans, links)
    for span, query, link in zip(mentions.spans, mentions.queries, links, strict=True):
        if (span.start, span.end) not in shown:
            continue
        generator: CandidateGenerator = ranking.generator.of(span.label_)
        about = explain_link(
            link,
            text=span.text,
            kb=kb,
            nil_threshold=generator.state.settings.nil_threshold,
            said=said_of(span),
        )
        table = generator.gather([query.whole] if query.whole else [])
        details = _details(generator, table, query.whole, span.label_)
        candidates = tuple(replace(c, **details.get(c.id, {})) for c in about.candidates)
        yield (
            span,
            replace(
                about,
                candidates=candidates,
                reason=_reason(
                    about,
                    candidates,
                    generator,
                    weighed=mentions.likely is not None,
                    document=_of_organism(about, organisms, generator.kb)
                    or "The context, or other mentions of the document, changed that.",
                ),
                strings=tuple(dict.fromkeys([query.whole, *query.parts])),
                excluded=_excluded(generator, table, query.whole, span.label_),
                near=() if candidates else _near(kb, query.whole),
            ),
        )


def _reason(
    about: Explanation,
    candidates: Sequence[ExplainedCandidate],
    generator: CandidateGenerator,
    *,
    weighed: bool,
    document: str,
) -> str:
    """The decision in one sentence, and another where not the string alone decided.

    weighed (bool): Scores are multiplied by the probability that the mention is a name.
    document (str): What the document says of the best candidate.
    """
    if not weighed and generator.types_of(about.label) == ():
        label = about.label
        return f"NIL: mentions of {label} are linked to nothing, by the settings label_types or kb."
    best = candidates[0] if candidates else None
    if best is None or best.of_string is None or len(about.ids) > 1:
        return about.reason
    if abs(best.of_string - best.score) < _CHANGED:
        return about.reason
    by_words = f"By its words alone it has {best.of_string:.2f}"
    if weighed:
        return f"{about.reason} {by_words}; the score counts how likely the words are a name here."
    return f"{about.reason} {by_words}. {document}"


def _organisms(spans: Sequence[Span], links: Sequence[Link]) -> dict[str, str]:
    """The organisms that a document names, each by the word that it names it by first."""
    named: dict[str, str] = {}
    for span, link in zip(spans, links, strict=True):
        for id in link.ids:
            if id.startswith(ORGANISM):
                named.setdefault(id, span.text.lower())
    return named


def _of_organism(about: Explanation, organisms: Mapping[str, str], kb: KnowledgeBase) -> str:
    """Sentence on a gene in a document that names organisms; "" for others, or where none is named.

    kb (KnowledgeBase): What its label is linked to.
    """
    row = kb.find(about.candidates[0].id) if about.candidates else -1
    own = next((t for t in kb.types_of(row) if t.startswith(ORGANISM)), "") if row >= 0 else ""
    others = {id: word for id, word in organisms.items() if id != own}
    if not own or not organisms:
        return ""
    if not others or (about.ids and own in organisms):
        return "The document names its organism."
    absent = [word for id, word in others.items() if id not in kb.type_names]
    theirs = f"{about.label.lower() or 'concept'}s of {', '.join(absent)}"
    why = f"{theirs} are not in this knowledge base" if absent else "this is of another organism"
    return f"The document names {', '.join(others.values())}; {why}."


def _near(kb: KnowledgeBase, string: str) -> tuple[str, ...]:
    """Names that are spelled most like a string, with their ids."""
    hits = search_names(kb, string, _N_NEAR)
    return tuple(f"{hit.name} ({hit.concept.id})" for hit in hits)


def _details(
    generator: CandidateGenerator, table: Candidates, string: str, label: str
) -> dict[str, dict[str, Any]]:
    """Of each concept that a string has as a candidate, its evidence as numbers."""
    ranked = generator.rank([(string, label)])[string, label]
    of_string = {c.id: c.score for c in ranked}
    ids = generator.kb.ids_of(table.concept)
    return {
        id: {
            "of_string": of_string.get(id),
            "features": tuple(
                (name, round(float(value), 4))
                for name, value in zip(FEATURES, row, strict=True)
                if value
            ),
        }
        for id, row in zip(ids, table.features, strict=True)
    }


def _excluded(
    generator: CandidateGenerator, table: Candidates, string: str, label: str
) -> tuple[ExplainedCandidate, ...]:
    """The best concepts that a label excludes, with the score that they would have."""
    scores = (generator.state.fusion or default_fusion()).scores(table.features)
    shares = share(scores, table.query)
    allowed = generator.allowed(table.concept, [label], np.zeros_like(table.concept))
    out = ~allowed & (shares >= _LEAST_EXCLUDED)
    best = np.flatnonzero(out)[np.argsort(-shares[out], kind="stable")][:_N_EXCLUDED]
    kb = generator.kb
    return tuple(
        ExplainedCandidate(
            id=kb.ids[row],
            name=kb.name(name) if name >= 0 else string,
            preferred=kb.preferred_name(row),
            score=round(float(shares[i]), 4),
            evidence=", ".join(kb.types_of(row)),
        )
        for i, row, name in zip(
            best.tolist(), table.concept[best].tolist(), table.name[best].tolist(), strict=True
        )
    )
