"""Find the mentions to link in a batch of documents, and the strings to look up for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spacy.tokens import Doc, Span

from spacy_bioel.batch import Batch
from spacy_bioel.doc import mention_spans
from spacy_bioel.found import FoundSpans
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.mentions.find import find, steps_of_linker
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY, LinkerSettings
from spacy_bioel.types import ScoredSpan, SpanKey


def find_mentions(docs: Iterable[Doc], generator: CandidateGenerator) -> Batch:
    """Find the mentions to link in a batch of documents, according to the `mentions` setting.

    The batch has `found` if the linker finds names itself, with or without a detector.
    """
    docs, settings = list(docs), generator.state.settings
    if settings.mentions == BY_DICTIONARY:
        return _find_names(docs, generator)
    key = settings.spans_key
    spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    if settings.mentions != SPANS_AND_DICTIONARY:
        return generator.rules.prepare(Batch.of(docs, spans, settings))
    rules = generator.rules.for_labels(generator.labels)
    abbreviations = settings.abbreviations
    steps = steps_of_linker(generator.unambiguous_names, rules, abbreviations=abbreviations)
    found = find([_read(*pair, key) for pair in zip(docs, spans, strict=True)], steps)
    return generator.rules.prepare(_of_found(found, settings, spans))


def _of_found(
    found: Sequence[FoundSpans], settings: LinkerSettings, before: Sequence[list[Span]] = ()
) -> Batch:
    """Return the mentions of documents.

    before (Sequence[list[Span]]): They stay if they have not changed, with their attributes.
    """
    spans = [
        list(before[i])
        if before and not of_doc.n_changes
        else [Span(of_doc.doc, *span[:3]) for span in of_doc.spans]
        for i, of_doc in enumerate(found)
    ]
    docs = [of_doc.doc for of_doc in found]
    return Batch.of(docs, spans, settings, found=found)


def _read(doc: Doc, spans: Iterable[Span], key: str) -> FoundSpans:
    """Return the mentions of a document, with the words that the detector excludes."""
    excluded = _attrs_of(doc, key).get("exclude", ())
    return FoundSpans(doc, scored(doc, spans, key), excluded=excluded)


def _attrs_of(doc: Doc, key: str) -> Mapping[str, Any]:
    return doc.spans[key].attrs if key in doc.spans else {}


def scored(doc: Doc, spans: Iterable[Span], key: str) -> list[ScoredSpan]:
    """Return mentions with their probabilities in the span group, or 1 if unknown."""
    group, scores = doc.spans.get(key, ()), _attrs_of(doc, key).get("scores", ())
    places = [(s.start, s.end, s.label_) for s in group]
    known = dict(zip(places, scores, strict=True)) if len(scores) == len(places) else {}
    return [
        (*place, known.get(place, 1.0)) for place in ((s.start, s.end, s.label_) for s in spans)
    ]


def _find_names(docs: Sequence[Doc], generator: CandidateGenerator) -> Batch:
    """Find exact and similar knowledge base names in texts; each mention's query is its name.

    Rules for particular labels add their spans, as certain, in place of names; then those that
    complete the dictionary change both. Rules prepare the queries of what they have added.
    """
    rules, settings = generator.rules, generator.state.settings
    found = generator.dictionary.find(
        docs,
        settings.dictionary,
        forms_of=partial(rules.forms_of, settings=settings),
        why_other=rules.why_other if rules.overriding("why_other") else None,
    )
    names, labelled = [dict(of_doc.names) for of_doc in found], list(map(FoundSpans, docs))
    rules.for_labels(generator.labels, labelled=True).propose(labelled)
    for of_doc, of_rules in zip(found, labelled, strict=True):
        near = [name for span in of_rules.spans for name in of_doc.overlapping(*span[:2])]
        of_doc.drop(near, "overlaps a mention found by rules")
        for span in of_rules.spans:
            of_doc.add((*span[:3], 1.0))
        of_doc.log += of_rules.log
    rules.completing_dictionary().propose(found)
    batch = _of_found(found, settings)
    keys = [(span.start, span.end, span.label_) for span in batch.spans]
    added = [
        row
        for row, (owner, key) in enumerate(zip(batch.owners, keys, strict=True))
        if key not in names[owner] or names[owner][key] != found[owner].names.get(key)
    ]
    prepared = dict(zip(added, rules.prepare(batch.take(added)).queries, strict=True))
    queries = [prepared.get(i, query) for i, query in enumerate(batch.queries)]
    probabilities = [span[3] for of_doc in found for span in of_doc.spans]
    return replace(batch, queries=queries, probabilities=probabilities)


def add_hidden_names(batch: Batch, generator: CandidateGenerator) -> tuple[list[int], Batch]:
    """Replace the mentions without a concept (NIL) that hide unambiguous names.

    RETURNS (tuple): Indices of the documents with such names, and a batch of their mentions.
    """
    settings = generator.state.settings
    if settings.mentions != SPANS_AND_DICTIONARY:
        return [], batch
    nil: list[list[SpanKey]] = [[] for _ in batch.docs]
    for owner, span, link in zip(batch.owners, batch.spans, batch.links, strict=True):
        if not link.ids and generator.types_of(span.label_) != ():
            nil[owner].append((span.start, span.end, span.label_))
    hiding = [i for i, of_doc in enumerate(nil) if of_doc]
    found = [batch.found[i] for i in hiding]
    before = [of_doc.n_changes for of_doc in found]
    generator.unambiguous_names.propose(found, [nil[i] for i in hiding])
    changed = [j for j, of_doc in enumerate(found) if of_doc.n_changes > before[j]]
    if not changed:
        return [], batch
    batch = _of_found([found[j] for j in changed], settings)
    return [hiding[j] for j in changed], generator.rules.prepare(batch)
