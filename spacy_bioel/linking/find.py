"""Find the mentions to link in a batch of documents, and the strings to look up for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from spacy.tokens import Doc, Span

from spacy_bioel.batch import Batch, Query
from spacy_bioel.doc import mention_spans
from spacy_bioel.explanation import Traces
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.mentions.selection import add_defined_forms
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY
from spacy_bioel.text.normalize import normalize_names
from spacy_bioel.types import ScoredSpan

_BY_DEFINITION = "by a short form that the document defines"


def find_mentions(
    docs: Iterable[Doc], generator: CandidateGenerator, traces: Traces = None
) -> Batch:
    """Find the mentions to link in a batch of documents, according to the `mentions` setting."""
    docs, settings = list(docs), generator.state.settings
    if settings.mentions == BY_DICTIONARY:
        return _find_names(docs, generator, traces)
    key = settings.spans_key
    spans = [mention_spans(doc, settings.mentions, spans_key=key) for doc in docs]
    if settings.mentions == SPANS_AND_DICTIONARY:
        spans = _with_names(docs, spans, generator, traces)
    return generator.rules.prepare(Batch.of(docs, spans, settings))


def _with_names(
    docs: Sequence[Doc],
    spans: Sequence[Sequence[Span]],
    generator: CandidateGenerator,
    traces: Traces,
) -> list[list[Span]]:
    """Add unambiguous knowledge base names and spans found by entity rules to the mentions.

    Rules that the detector has already run are run again only if names were added.
    """
    key = generator.state.settings.spans_key
    before = [scored(doc, of_doc, key) for doc, of_doc in zip(docs, spans, strict=True)]
    excluded = [_attrs_of(doc, key).get("exclude", ()) for doc in docs]
    with_names = generator.unambiguous_names.add_to(docs, before, excluded, traces)
    already_run = []
    for number, doc in enumerate(docs):
        is_unchanged = with_names[number] is before[number]
        if not is_unchanged and generator.state.settings.abbreviations:
            found = add_defined_forms(doc, with_names[number])
            if traces:
                traces[number].changed(with_names[number], found, _BY_DEFINITION)
            with_names[number] = found
        already_run.append(_attrs_of(doc, key).get("rules", ()) if is_unchanged else ())
    rules = generator.rules.for_labels(generator.labels)
    after = rules.find(docs, with_names, traces, already_run=already_run)
    return [
        list(spans[i]) if after[i] is before[i] else [Span(doc, *s[:3]) for s in after[i]]
        for i, doc in enumerate(docs)
    ]


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


def _find_names(docs: Sequence[Doc], generator: CandidateGenerator, traces: Traces) -> Batch:
    """Find exact and similar knowledge base names in texts; each mention's query is its name.

    Entity rules that apply to particular labels add their spans.
    """
    rules, settings = generator.rules, generator.state.settings
    names_of_docs = generator.dictionary.find(
        docs,
        settings.dictionary,
        forms_of=partial(rules.forms_of, settings=settings),
        why_other=rules.why_other if rules.overriding("why_other") else None,
        traces=traces,
    )
    pairs = [(number, name) for number, names in enumerate(names_of_docs) for name in names]
    strings = normalize_names(generator.kb.names.take([name.row for _, name in pairs]))
    queries: dict[tuple[int, int, int, str], Query] = {}
    spans: list[list[ScoredSpan]] = [[] for _ in docs]
    for (owner, name), string in zip(pairs, strings, strict=True):
        queries[owner, name.first, name.last + 1, ""] = Query(string)
        spans[owner].append((name.first, name.last + 1, "", name.probability))
    label_rules = rules.for_labels(generator.labels, labelled=True)
    found = label_rules.find(docs, [[] for _ in docs], traces)
    spans = [_without_overlapped(*pair) for pair in zip(spans, found, strict=True)]
    spans = rules.completing_dictionary().find(docs, spans, traces)
    rows = sorted({(owner, *span) for owner, of_doc in enumerate(spans) for span in of_doc})
    all_spans = [Span(docs[owner], start, end, label) for owner, start, end, label, _ in rows]
    new: list[list[Span]] = [[] for _ in docs]
    for row, span in zip(rows, all_spans, strict=True):
        if row[:4] not in queries:
            new[row[0]].append(span)
    added = rules.prepare(Batch.of(docs, new, settings))
    for owner, span, query in zip(added.owners, added.spans, added.queries, strict=True):
        queries[owner, span.start, span.end, span.label_] = query
    asked, owners = [queries[row[:4]] for row in rows], [row[0] for row in rows]
    return Batch(docs, all_spans, asked, owners, [row[4] for row in rows])


def _without_overlapped(
    names: Sequence[ScoredSpan], found: Sequence[ScoredSpan]
) -> list[ScoredSpan]:
    """Return the spans that rules found, as certain, and the names that do not overlap them."""
    taken = {token for start, end, *_ in found for token in range(start, end)}
    certain = [(*span[:3], 1.0) for span in found]
    return sorted([*certain, *(name for name in names if taken.isdisjoint(range(*name[:2])))])


def add_hidden_names(
    batch: Batch, generator: CandidateGenerator, traces: Traces
) -> tuple[list[int], Batch]:
    """Replace the mentions without a concept (NIL) that hide unambiguous names.

    RETURNS (tuple): Indices of the documents with such names, and a batch of their mentions.
    """
    settings, docs = generator.state.settings, batch.docs
    if settings.mentions != SPANS_AND_DICTIONARY:
        return [], batch
    spans: list[list[Span]] = [[] for _ in docs]
    nil: list[list[Span]] = [[] for _ in docs]
    for owner, span, link in zip(batch.owners, batch.spans, batch.links, strict=True):
        spans[owner].append(span)
        if not link.ids and generator.types_of(span.label_) != ():
            nil[owner].append(span)
    key, hiding = settings.spans_key, [i for i, of_doc in enumerate(nil) if of_doc]
    before = [scored(docs[i], spans[i], key) for i in hiding]
    found = generator.unambiguous_names.add_to(
        [docs[i] for i in hiding],
        before,
        [_attrs_of(docs[i], key).get("exclude", ()) for i in hiding],
        traces and [traces[i] for i in hiding],
        nil=[scored(docs[i], nil[i], key) for i in hiding],
    )
    changed = {i: x for i, old, x in zip(hiding, before, found, strict=True) if x is not old}
    if changed:
        spans = [[Span(docs[i], *s[:3]) for s in new] for i, new in changed.items()]
        batch = generator.rules.prepare(Batch.of([docs[i] for i in changed], spans, settings))
    return list(changed), batch
