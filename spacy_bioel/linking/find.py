"""Find the mentions to link in a batch of documents, and the strings to look up for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from spacy.tokens import Doc, Span

from spacy_bioel.batch import Batch
from spacy_bioel.doc import mention_spans, stored_names
from spacy_bioel.found import FoundSpans
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.mentions.find import find, steps_of_linker
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY, LinkerSettings
from spacy_bioel.types import ScoredSpan, SpanKey


def find_mentions(docs: Iterable[Doc], generator: CandidateGenerator) -> Batch:
    """Find the mentions to link in a batch of documents, according to the `mentions` setting.

    A span group also contains the names that the `bioel_names` pipe has added.
    """
    docs, settings = list(docs), generator.state.settings
    key = settings.spans_key
    if settings.mentions in (BY_DICTIONARY, SPANS_AND_DICTIONARY):
        if settings.mentions == BY_DICTIONARY:
            mentions = list(map(FoundSpans, docs))
        else:
            mentions = [mentions_of(doc, settings.mentions, key) for doc in docs]
        names = find_names(mentions, generator, settings)
        return generator.rules.prepare(batch_of(names, settings))
    found = [
        mentions_of(doc, settings.mentions, key) if stored_names(doc, key) else None for doc in docs
    ]
    spans = [
        of_doc.to_spans() if of_doc else mention_spans(doc, settings.mentions, spans_key=key)
        for doc, of_doc in zip(docs, found, strict=True)
    ]
    return generator.rules.prepare(Batch.of(docs, spans, settings, found=found))


def find_names(
    mentions: Sequence[FoundSpans], generator: CandidateGenerator, settings: LinkerSettings
) -> Sequence[FoundSpans]:
    """Find names that are not yet mentions: all of them if `mentions = "dictionary"`, otherwise
    only unambiguous ones."""
    if settings.mentions == BY_DICTIONARY:
        found = _find_all_names([of_doc.doc for of_doc in mentions], generator, settings)
        for of_doc, before in zip(found, mentions, strict=True):
            for span in before.spans:
                of_doc.drop(of_doc.overlapping(*span[:2]), "overlaps a mention of an earlier pipe")
            for span in before.spans:
                of_doc.add(span)
        return found
    rules = generator.rules.for_labels(generator.labels)
    abbreviations = settings.abbreviations
    steps = steps_of_linker(generator.unambiguous_names, rules, abbreviations=abbreviations)
    found = find(mentions, steps)
    for of_doc in found:
        of_doc.has_unambiguous = True
    return found


def mentions_of(doc: Doc, mentions: str, key: str) -> FoundSpans:
    """Return a document's mentions with their probabilities, the detector's excluded words, and
    the names stored by the `bioel_names` pipe."""
    spans, stored = mention_spans(doc, mentions, spans_key=key), stored_names(doc, key)
    rows = {(start, end, label): row for start, end, label, *row in stored.get("rows", ())}
    read, names, meant = list[ScoredSpan](), dict[SpanKey, str](), dict[SpanKey, float]()
    for span, (first, end, label, p) in zip(spans, scored(doc, spans, key), strict=True):
        place = span.start_char, span.end_char
        if (*place, "") in rows:
            label = ""  # a linker has set the span's label
        read.append((first, end, label, p))
        name, probability = rows.get((*place, label), ("", None))
        if name:
            names[first, end, label] = name
        if probability is not None:
            meant[first, end, label] = probability
    found = FoundSpans(doc, read, excluded=_attrs_of(doc, key).get("exclude", ()))
    found.names, found.meant = names, meant
    found.has_unambiguous = stored.get("unambiguous", False)
    return found


def batch_of(found: Sequence[FoundSpans], settings: LinkerSettings) -> Batch:
    docs = [of_doc.doc for of_doc in found]
    return Batch.of(docs, [of_doc.to_spans() for of_doc in found], settings, found=found)


def _attrs_of(doc: Doc, key: str) -> Mapping[str, Any]:
    return doc.spans[key].attrs if key in doc.spans else {}


def scored(doc: Doc, spans: Iterable[Span], key: str) -> list[ScoredSpan]:
    """Return mentions with their probabilities from the span group (1 if unknown)."""
    group, scores = doc.spans.get(key, ()), _attrs_of(doc, key).get("scores", ())
    places = [(s.start, s.end, s.label_) for s in group]
    known = dict(zip(places, scores, strict=True)) if len(scores) == len(places) else {}
    return [
        (*place, known.get(place, 1.0)) for place in ((s.start, s.end, s.label_) for s in spans)
    ]


def _find_all_names(
    docs: Sequence[Doc], generator: CandidateGenerator, settings: LinkerSettings
) -> Sequence[FoundSpans]:
    """Find exact and similar knowledge base names in text; each span's query is the matched name.

    Spans added by rules for particular labels have probability 1 and replace overlapping names.
    Rules that complete the dictionary may then change any span.
    """
    rules = generator.rules
    found = generator.dictionary.find(
        docs,
        settings.dictionary,
        forms_of=partial(rules.forms_of, settings=settings),
        why_other=rules.why_other if rules.overriding("why_other") else None,
    )
    labelled = list(map(FoundSpans, docs))
    rules.for_labels(generator.labels, labelled=True).propose(labelled)
    for of_doc, of_rules in zip(found, labelled, strict=True):
        near = [name for span in of_rules.spans for name in of_doc.overlapping(*span[:2])]
        of_doc.drop(near, "overlaps a mention found by rules")
        for span in of_rules.spans:
            of_doc.add((*span[:3], 1.0))
        of_doc.log += of_rules.log
    rules.completing_dictionary().propose(found)
    for of_doc in found:
        of_doc.meant = {span[:3]: span[3] for span in of_doc.spans}
    return found


def add_hidden_names(batch: Batch, generator: CandidateGenerator) -> tuple[list[int], Batch]:
    """Replace NIL mentions (mentions without a concept) with the unambiguous names they hide.

    RETURNS (tuple): Indices of the documents that changed, and a batch of their mentions.
    """
    nil: list[list[SpanKey]] = [[] for _ in batch.docs]
    for owner, span, link in zip(batch.owners, batch.spans, batch.links, strict=True):
        if not link.ids and generator.types_of(span.label_) != ():
            nil[owner].append((span.start, span.end, span.label_))
    hiding = [
        (i, of_doc, nil[i])
        for i, of_doc in enumerate(batch.found)
        if of_doc and of_doc.has_unambiguous and nil[i]
    ]
    before = [of_doc.n_changes for _, of_doc, _ in hiding]
    generator.unambiguous_names.propose([f for _, f, _ in hiding], [n for *_, n in hiding])
    pairs = zip(hiding, before, strict=True)
    changed = {i: of_doc for (i, of_doc, _), n in pairs if of_doc.n_changes > n}
    named = batch_of(list(changed.values()), generator.state.settings)
    return list(changed), generator.rules.prepare(named)
