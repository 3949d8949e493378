"""A batch of mentions and their links as a table with one row per mention.

`linking.find` fills the columns `spans` and `queries` (the strings to look up); `linking.link`
fills `candidates` and `links`. Rules and contextual models read columns and return new columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

from spacy.tokens import Doc, Span

from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.found import FoundSpans
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.text.normalize import normalize_name, normalize_names, subscripts
from spacy_bioel.text.sentences import expand_abbreviations
from spacy_bioel.types import Candidate, Link

LabelledString = tuple[str, str]  # a normalised string, and its mention's label or ""
AS_NAME = "\0"  # label for names found by the dictionary, which need no search
Ranked = Mapping[LabelledString, tuple[Candidate, ...]]  # the candidates, best first


@dataclass(frozen=True, slots=True)
class Query:
    """The normalised strings to look up for a mention.

    whole (str): The mention, with abbreviations expanded.
    readings (tuple): The ways in which rules split a composite mention, most likely first; each
        reading is a tuple of parts: ("breast cancer", "ovarian cancer").
    others (tuple[str, ...]): Other strings that rules will look up, such as spellings of a gene;
        ranking these strings in the same batch puts the results into the cache.
    parts_agree (bool): All parts are correct, or none is, as with genes from one organism.
    text (str): The mention with abbreviations expanded, before normalisation.
    """

    whole: str
    readings: tuple[tuple[str, ...], ...] = ()
    others: tuple[str, ...] = ()
    parts_agree: bool = False
    text: str = ""

    @classmethod
    def of(cls, text: str) -> Query:
        """Build the query for a string that has not been normalised yet."""
        return cls(normalize_name(text), text=text)

    @property
    def parts(self) -> list[str]:
        """The distinct parts of all readings."""
        return list(dict.fromkeys(chain.from_iterable(self.readings)))


@dataclass(frozen=True)
class Batch:
    """The mentions in a batch of documents, followed by the parts of composite mentions while the
    parts are ranked and rescored.

    spans (Sequence[Span]): The mentions and parts.
    queries (Sequence[Query]): The strings to look up for each mention and part.
    owners (Sequence[int]): Index of the document that contains each mention and part.
    probabilities (Sequence[float | None]): For a name found by the dictionary, or a part of one,
        the probability that its words mean the name here; otherwise None. Empty if all are None.
    states (dict | None): Hidden states of the contextual model, if the model found the mentions.
    n_parts (int): Number of parts at the end of these columns.
    candidates (Sequence): Candidates of each mention and part, best first; empty until ranked.
    nil_threshold (float): Minimum score of a linked candidate, used by rules; set by `decide`.
    links (Sequence[Link]): The decision for each mention; empty until `decide`.
    found (Sequence[FoundSpans | None]): Each document's spans; None if names were not looked for.
    """

    docs: Sequence[Doc]
    spans: Sequence[Span]
    queries: Sequence[Query]
    owners: Sequence[int]
    probabilities: Sequence[float | None] = ()
    states: dict[str, Any] | None = None
    n_parts: int = 0
    candidates: Sequence[tuple[Candidate, ...]] = ()
    nil_threshold: float = 0.0
    links: Sequence[Link] = ()
    found: Sequence[FoundSpans | None] = ()

    @classmethod
    def of(
        cls,
        docs: Sequence[Doc],
        spans: Sequence[Sequence[Span]],
        settings: LinkerSettings,
        *,
        states: dict[str, Any] | None = None,
        found: Sequence[FoundSpans | None] = (),
    ) -> Batch:
        """Collect the mentions in each document, with a query for each: the name that the span
        stands for, or else the span's text, with the document's abbreviations expanded and
        subscripts written out."""
        all_spans: list[Span] = []
        owners: list[int] = []
        texts: list[str] = []
        probabilities: list[float | None] = []
        for doc_index, doc_spans in enumerate(spans):
            document = text_of(docs[doc_index])
            forms = long_forms(docs[doc_index]) if settings.abbreviations else None
            of_doc = found[doc_index] if found else None
            stands_for, of_names = (of_doc.names, of_doc.meant) if of_doc else ({}, {})
            for span in doc_spans:
                text = span.text
                for start, end, plain in list(subscripts(text, document))[::-1]:  # from the end
                    text = text[:start] + plain + text[end:]
                if forms:
                    text = expand_abbreviations(text, partial(forms.at, span.start_char))
                key = span.start, span.end, span.label_
                texts.append(stands_for.get(key, text))
                probabilities.append(of_names.get(key))
                all_spans.append(span)
                owners.append(doc_index)
        names = normalize_names(texts)
        queries = [Query(name, text=text) for name, text in zip(names, texts, strict=True)]
        if not any(of_doc and of_doc.meant for of_doc in found):
            probabilities = []
        return cls(docs, all_spans, queries, owners, probabilities, states, found=found)

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def n_wholes(self) -> int:
        """Number of spans at the start of `spans` that are whole mentions."""
        return len(self.spans) - self.n_parts

    @cached_property
    def strings(self) -> list[str]:
        """The normalised mentions and parts, with abbreviations expanded."""
        return [query.whole for query in self.queries]

    @cached_property
    def labels(self) -> list[str]:
        """The label of each mention and part."""
        return [span.label_ for span in self.spans]

    def parts(self) -> Batch:
        """Return the parts of all composites, in the order of `Query.parts`."""
        rows = [
            (_span_of_part(part, query, span), Query(part), owner)
            for span, query, owner in zip(self.spans, self.queries, self.owners, strict=True)
            for part in query.parts
        ]
        spans, queries, owners = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
        pairs = zip(self.probabilities, self.queries, strict=False)  # () if there are none
        probabilities = [p for p, query in pairs for _ in query.parts]
        return Batch(self.docs, spans, queries, owners, probabilities, n_parts=len(rows))

    def followed_by(self, parts: Batch) -> Batch:
        """Append the parts to the mentions in one batch, so that rules see both."""
        names = ("spans", "queries", "owners", "probabilities")
        columns: dict[str, Any] = {n: [*getattr(self, n), *getattr(parts, n)] for n in names}
        return replace(self, **columns, n_parts=len(parts))

    def without_parts(self) -> Batch:
        """Return only the mentions, with their candidates."""
        names = ("spans", "queries", "owners", "probabilities", "candidates")
        columns: dict[str, Any] = {name: getattr(self, name)[: self.n_wholes] for name in names}
        return replace(self, **columns, n_parts=0)

    def links_of_docs(self) -> list[list[Link]]:
        """Return the links of each document, in the order of its mentions."""
        links: list[list[Link]] = [[] for _ in self.docs]
        for owner, link in zip(self.owners, self.links, strict=True):
            links[owner].append(link)
        return links


def _span_of_part(part: str, query: Query, composite: Span) -> Span:
    """Return the span of a part, of the words that only it has, or of the whole composite."""
    reading = next(reading for reading in query.readings if part in reading)
    shared = {word for other in reading if other != part for word in other.split()}
    distinctive = " ".join(word for word in part.split() if word not in shared)
    text = composite.text.lower()
    for words in (part, distinctive):
        if words and words in text:
            start = composite.start_char + text.find(words)
            span = composite.doc.char_span(start, start + len(words), label=composite.label_)
            if span is not None:
                return span
    return composite
