"""The interface for entity rules, such as the rules for genes, variants, composites and notes.

A rule set is an instance of a subclass of `EntityRules`, made by a registered function that is
named in the pipe's config:

    [components.bioel_linker.entities.antibodies]
    @misc = "my-antibodies.v1"

A pipe calls its rule sets in config order, with batches of documents or mentions, and does not
depend on what a rule set does. `bioel_mentions` calls `find`; `bioel_linker` calls the other
functions, and also `find` when it adds names from a knowledge base to the mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.explanation import Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.text.normalize import normalize_name, normalize_names, subscripts
from spacy_bioel.text.sentences import expand_abbreviations
from spacy_bioel.types import Candidate, Link, ScoredSpan

LabelledString = tuple[str, str]  # a normalised string and the label of its mention
RULE_PROBABILITY = 0.9  # of mentions that rules find by their context
Rank = Callable[[Sequence[LabelledString]], Mapping[LabelledString, tuple[Candidate, ...]]]


class Vocabulary(NamedTuple):
    """A knowledge base and a mask of the concepts that a label may link to (None: all concepts)."""

    kb: KnowledgeBase
    mask: NDArray[np.bool_] | None


class LinkerKnowledge(Protocol):
    """The linker's knowledge bases, as seen by entity rules."""

    @property
    def kb(self) -> KnowledgeBase:
        """The knowledge base; several knowledge bases are joined into one."""

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """The vocabulary for each label that is not linked to the whole knowledge base."""

    def kb_of(self, label: str) -> KnowledgeBase:
        """Return the knowledge base that mentions with a label are linked to."""

    def linked_kbs(self, labels: Collection[str]) -> dict[str, KnowledgeBase]:
        """Return the knowledge base for each label, leaving out labels that are never linked."""


@dataclass(frozen=True, slots=True)
class Query:
    """The normalised strings to look up for a mention.

    whole (str): The mention, with abbreviations expanded.
    readings (tuple): Readings as a composite, the likeliest first; each is a tuple of parts.
    others (tuple[str, ...]): Other strings that rules will ask for, ranked in the same batch.
    parts_agree (bool): The parts are all right or all wrong, such as genes from one organism.
    text (str): The string before normalisation.
    """

    whole: str
    readings: tuple[tuple[str, ...], ...] = ()
    others: tuple[str, ...] = ()
    parts_agree: bool = False
    text: str = ""

    @classmethod
    def of(cls, text: str) -> Query:
        """Return the query for a string that has not been normalised yet."""
        return cls(normalize_name(text), text=text)

    @property
    def parts(self) -> list[str]:
        """The distinct parts of all readings."""
        return list(dict.fromkeys(chain.from_iterable(self.readings)))


@dataclass(frozen=True)
class Mentions:
    """The mentions in a batch of documents, followed by the parts of composite mentions.

    owners (Sequence[int]): Index of each mention's document.
    probabilities (Sequence[float] | None): Probability that each mention is the name in its query;
        None: the mentions were not found by the dictionary.
    states (dict | None): Hidden states of the contextual model, if it found the mentions.
    n_parts (int): Number of spans at the end of `spans` that are parts of composites.
    """

    docs: Sequence[Doc]
    spans: Sequence[Span]
    queries: Sequence[Query]
    owners: Sequence[int]
    probabilities: Sequence[float] | None = None
    states: dict[str, Any] | None = None
    n_parts: int = 0

    @classmethod
    def of(
        cls,
        docs: Sequence[Doc],
        spans: Sequence[Sequence[Span]],
        settings: LinkerSettings,
        *,
        states: dict[str, Any] | None = None,
    ) -> Mentions:
        """Collect the mentions in each document, with their texts as queries."""
        all_spans: list[Span] = []
        owners: list[int] = []
        texts: list[str] = []
        for doc_index, doc_spans in enumerate(spans):
            document = text_of(docs[doc_index])
            forms = long_forms(docs[doc_index]) if settings.abbreviations else None
            for span in doc_spans:
                text = span.text
                for start, end, plain in list(subscripts(text, document))[::-1]:
                    text = text[:start] + plain + text[end:]
                if forms:
                    text = expand_abbreviations(text, partial(forms.at, span.start_char))
                texts.append(text)
                all_spans.append(span)
                owners.append(doc_index)
        names = normalize_names(texts)
        queries = [Query(name, text=text) for name, text in zip(names, texts, strict=True)]
        return cls(docs, all_spans, queries, owners, states=states)

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def n_wholes(self) -> int:
        """Number of spans at the start of `spans` that are whole mentions."""
        return len(self.spans) - self.n_parts

    @cached_property
    def strings(self) -> list[str]:
        """The normalised mentions, with abbreviations expanded."""
        return [query.whole for query in self.queries]

    @cached_property
    def labels(self) -> list[str]:
        return [span.label_ for span in self.spans]

    def parts(self) -> Mentions:
        """Return the parts of all composites, with the span of the words unique to each part."""
        spans: list[Span] = []
        queries: list[Query] = []
        owners: list[int] = []
        for span, query, owner in zip(self.spans, self.queries, self.owners, strict=True):
            for part in query.parts:
                spans.append(_span_of_part(part, query, span))
                queries.append(Query(part))
                owners.append(owner)
        return Mentions(self.docs, spans, queries, owners, n_parts=len(spans))

    def token_ranges(self) -> NDArray[np.int64]:
        """Return each span's start and end token, counted over all documents. Shape (n, 2)."""
        offsets = np.cumsum([0, *map(len, self.docs)]).tolist()
        ranges = [
            (offsets[owner] + span.start, offsets[owner] + span.end)
            for span, owner in zip(self.spans, self.owners, strict=True)
        ]
        return np.array(ranges, dtype=np.int64).reshape(-1, 2)


def _span_of_part(part: str, query: Query, composite: Span) -> Span:
    """Return the span of a part, or else of the words unique to it, or else of the composite."""
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


@dataclass(frozen=True)
class Candidates:
    """The candidates for mentions, and a function that ranks candidates for other strings.

    of_mentions (Sequence): Candidates for each mention and for each part, best first.
    nil_threshold (float): Score that a candidate needs to be linked.
    rank (Callable): Maps (normalised string, label) pairs to their candidates. Strings that
        `queries` returned are already ranked.
    """

    of_mentions: Sequence[tuple[Candidate, ...]]
    nil_threshold: float
    rank: Rank


class EntityRules:
    """Rules for one kind of entity or text. Override what you need: each function has a default.

    labels (tuple[str, ...]): Labels of the mentions.
    needs_label (bool): Run only in pipelines that link or find one of `labels`, as the default
        rules do, which every pipeline has.
    fact_names (tuple[str, ...]): Names of all facts that `facts` may return; each becomes an
        extension, `span._.NAME`, a column in CSV files, and a key in JSON.
    completes_dictionary (bool): `find` also runs on the names found by the dictionary, in pipelines
        without a detector.
    outside_ids (bool): Candidates may have ids that the knowledge base lacks, with any score. If
        the `kb` setting lists labels, but not one of `labels`, no candidates are sought for it.
    knowledge (LinkerKnowledge | None): The linker's knowledge bases; None in `bioel_mentions`.
    """

    labels: tuple[str, ...] = ()
    needs_label: bool = False
    fact_names: tuple[str, ...] = ()
    completes_dictionary: bool = False
    outside_ids: bool = False
    knowledge: LinkerKnowledge | None = None
    config_name: str = ""  # set by `RuleSet`, for error messages

    def with_knowledge(self, knowledge: LinkerKnowledge) -> Self:
        """Return a copy of these rules bound to a linker's current knowledge bases."""
        bound = copy(self)
        bound.knowledge = knowledge
        return bound

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> Sequence[list[ScoredSpan]]:
        """Add, drop or widen spans in each document. `add_spans` may help.

        traces (Sequence[Trace] | None): Traces in which to record the reasons that explanations
            show.
        """
        return spans

    def short_forms(self, doc: Doc) -> dict[str, str]:
        """Return the long forms of short forms that a document uses without defining them."""
        return {}

    def why_other(
        self, doc: Doc, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[str]:
        """Return the reason why each character span cannot be a name, or "" if it can.

        starts, ends (NDArray[int64]): Character offsets. Shape (n,) each.
        """
        return [""] * len(starts)

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        """Return the query for each mention: the strings to look up."""
        return mentions.queries

    def rewrite(
        self, strings: Sequence[str], kb: KnowledgeBase, seen: Container[str]
    ) -> Sequence[str]:
        """Rewrite normalised strings before they are looked up in a knowledge base.

        seen (Container[str]): Strings seen as mentions in training, which need no rewriting.
        """
        return strings

    def wants_all(self, kb: KnowledgeBase) -> bool:
        """Whether all concepts sharing a name must stay candidates until `rescore` has chosen."""
        return False

    def rescore(self, mentions: Mentions, candidates: Candidates) -> Sequence[Sequence[Candidate]]:
        """Return the candidates for each mention, rescored using its document, best first."""
        return candidates.of_mentions

    def facts(self, mentions: Mentions, links: Sequence[Link]) -> Sequence[Mapping[str, Any]]:
        """Return other facts that the text states about each mention, as JSON values by name."""
        return [{}] * len(links)

    def explain(self, mentions: Mentions, links: Sequence[Link]) -> Sequence[str]:
        """Return, for each link, a sentence that explains the effect of these rules, or ""."""
        return [""] * len(links)


def add_spans(
    doc: Doc,
    spans: Sequence[ScoredSpan],
    places: Iterable[tuple[int, int]],
    label: str,
    *,
    probability: float = 0.99,
) -> list[ScoredSpan]:
    """Add mentions to a document, replacing the spans that overlap them.

    If places overlap, the longest is used, widened to whole tokens. Spans with another label and a
    probability of 1 stay: they were forced by the user, or are unambiguous names.

    places (Iterable): Start and end of each mention, in characters.
    """
    new_spans = (doc.char_span(*place, label, alignment_mode="expand") for place in places)
    certain = [s for s in spans if s[3] == 1 and s[2] != label]
    certain_tokens = {token for start, end, *_ in certain for token in range(start, end)}
    added = [
        (span.start, span.end, label, probability)
        for span in filter_spans(filter(None, new_spans))
        if certain_tokens.isdisjoint(range(span.start, span.end))
    ]
    taken = {token for start, end, *_ in added for token in range(start, end)}
    return sorted([*added, *(s for s in spans if taken.isdisjoint(range(s[0], s[1])))])
