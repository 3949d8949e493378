"""Kinds of text that need rules of their own: genes, variants, composites, notes; or yours.

A set of rules is an object of a class that inherits from `EntityRules`, made by a registered
function that the configs of the pipes name:

    [components.bioel_linker.entities.antibodies]
    @misc = "my-antibodies.v1"

The pipes call the sets in the order of their configs, with batches of documents or mentions, and
know nothing else of them. `bioel_mentions` calls `find`; `bioel_linker` calls the other functions,
and `find` where it adds names of a knowledge base to the mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span
from spacy.util import filter_spans

from spacy_bioel.doc import long_forms
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.explanation import Trace
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.text.sentences import expand_abbreviations
from spacy_bioel.types import Candidate, Link, ScoredSpan

String = tuple[str, str]  # normalised, and the label of the mention
Rank = Callable[[Sequence[String]], Mapping[String, tuple[Candidate, ...]]]


class Vocabulary(NamedTuple):
    """A knowledge base, and which of its concepts mentions of a label may link to; None: all."""

    kb: KnowledgeBase
    mask: NDArray[np.bool_] | None


class Knowledge(Protocol):
    """What a linker links with, as rules see it."""

    @property
    def kb(self) -> KnowledgeBase:
        """The knowledge base, or several that are joined."""

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """Vocabulary of each label that has one of its own."""

    def kb_of(self, label: str) -> KnowledgeBase:
        """The knowledge base that mentions of a label are linked to."""

    def linked_kbs(self, labels: Collection[str]) -> dict[str, KnowledgeBase]:
        """The same for several labels, without those whose mentions are linked to nothing."""


@dataclass(frozen=True, slots=True)
class Query:
    """Strings to look up for a mention, normalised.

    whole (str): The mention, its abbreviations written out.
    readings (tuple): Ways to read it as a composite, the likeliest first: the parts of each.
    others (tuple[str, ...]): Further strings that rules will ask for, ranked in the same batch.
    parts_agree (bool): The parts of a reading are right or wrong together: genes of one organism.
    text (str): What `whole` was made of.
    """

    whole: str
    readings: tuple[tuple[str, ...], ...] = ()
    others: tuple[str, ...] = ()
    parts_agree: bool = False
    text: str = ""

    @classmethod
    def of(cls, text: str) -> Query:
        """Look up a string, as a text or a knowledge base writes it."""
        return cls(normalize_name(text), text=text)

    @property
    def parts(self) -> list[str]:
        """Different parts of all readings."""
        return list(dict.fromkeys(chain.from_iterable(self.readings)))


@dataclass(frozen=True)
class Mentions:
    """Mentions of a batch of documents, and behind them the parts of composites.

    owners (Sequence[int]): Number of the document of each mention.
    likely (Sequence[float] | None): How likely each is the name that its query says. None:
        another than the finder found them.
    states (dict | None): Of the model that found them, which will read them; None: another did.
    n_parts (int): How many of the spans, the last ones, are parts.
    """

    docs: Sequence[Doc]
    spans: Sequence[Span]
    queries: Sequence[Query]
    owners: Sequence[int]
    likely: Sequence[float] | None = None
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
        """Make queries of the mentions of each document, of their text alone."""
        flat = list(chain.from_iterable(spans))
        owners = [number for number, of_doc in enumerate(spans) for _ in of_doc]
        forms = {i: found for i, doc in enumerate(docs) if (found := long_forms(doc))}
        texts = [
            expand_abbreviations(span.text, forms[owner])
            if settings.abbreviations and owner in forms
            else span.text
            for span, owner in zip(flat, owners, strict=True)
        ]
        pairs = zip(normalize_names(texts), texts, strict=True)
        queries = [Query(whole, text=text) for whole, text in pairs]
        return cls(docs, flat, queries, owners, states=states)

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def n_wholes(self) -> int:
        """How many of the spans are mentions, and not parts of them: the first ones."""
        return len(self.spans) - self.n_parts

    @cached_property
    def strings(self) -> list[str]:
        """Normalised, abbreviations written out."""
        return [query.whole for query in self.queries]

    @cached_property
    def labels(self) -> list[str]:
        return [span.label_ for span in self.spans]

    def parts(self) -> Mentions:
        """The parts of composites, each in the place of the words that only it has."""
        mentions = zip(self.spans, self.queries, self.owners, strict=True)
        parts = [
            (_place_of(part, query, span), Query(part), owner)
            for span, query, owner in mentions
            for part in query.parts
        ]
        spans, queries, owners = map(list, zip(*parts, strict=True)) if parts else ([], [], [])
        return Mentions(self.docs, spans, queries, owners, n_parts=len(spans))

    def token_ranges(self) -> NDArray[np.int64]:
        """First token, and the one after the last, counted over all documents. Shape (n, 2)."""
        first = np.cumsum([0, *map(len, self.docs)]).tolist()
        places = zip(self.spans, self.owners, strict=True)
        pairs = [(first[owner] + span.start, first[owner] + span.end) for span, owner in places]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _place_of(part: str, query: Query, span: Span) -> Span:
    """Place of a part: as a whole, or its own words, or the composite where neither is found."""
    reading = next(reading for reading in query.readings if part in reading)
    others = {word for other in reading if other != part for word in other.split()}
    own = " ".join(word for word in part.split() if word not in others)
    text = span.text.lower()
    for words in filter(None, (part, own)):
        start = span.start_char + text.find(words)
        place = span.doc.char_span(start, start + len(words), label=span.label_)
        if words in text and place is not None:
            return place
    return span


@dataclass(frozen=True)
class Candidates:
    """Candidates of mentions, and a way to rank further strings.

    of_mentions (Sequence): Candidates of each mention and of each part, best first.
    nil_threshold (float): Score that a candidate needs to be linked.
    rank (Callable): From pairs of a normalised string and a label to their candidates. Strings
        that `queries` gave cost nothing here.
    """

    of_mentions: Sequence[tuple[Candidate, ...]]
    nil_threshold: float
    rank: Rank


class EntityRules:
    """Rules for one kind of text. Override what you need: each function has a default.

    labels (tuple[str, ...]): Labels of the mentions that the rules are for: they run in pipelines
        that have one of them. Empty: in all pipelines.
    fact_names (tuple[str, ...]): Names of all facts that `facts` may return; each becomes an
        extension, `span._.NAME`, a column of CSV files, and a key of JSON.
    knowledge (Knowledge | None): What the linker links with; None in `bioel_mentions`.
    """

    labels: tuple[str, ...] = ()
    fact_names: tuple[str, ...] = ()
    knowledge: Knowledge | None = None

    def with_knowledge(self, knowledge: Knowledge) -> Self:
        """These rules, for a linker with its knowledge bases as they are now."""
        bound = copy(self)
        bound.knowledge = knowledge
        return bound

    def run(self, name: str, *args: Any, n: int | None = None) -> Any:
        """Call one of the functions.

        n (int | None): How many results it has to return.
        RAISES BioelError: [B497] instead of errors without code, [B503] on another number.
        """
        try:
            found = getattr(self, name)(*args)
            if n is None or len(found) == n:
                return found
        except BioelError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise self.error(Errors.B497, name=name, found=reason) from error
        raise self.error(Errors.B503, name=name, found=len(found), n=n)

    def error(self, message: str, **about: Any) -> BioelError:
        return BioelError(message.format(rules=type(self).__name__, **about))

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None,
    ) -> Sequence[list[ScoredSpan]]:
        """Add spans to those of each document, drop some, or widen them. `add_spans` may help.

        traces (Sequence[Trace] | None): Of each document, for an explanation. Rules may say there
            why; of rules that say nothing it has their name.
        """
        return spans

    def short_forms(self, doc: Doc) -> dict[str, str]:
        """What short forms in a document stand for, which its text does not define."""
        return {}

    def why_other(
        self, doc: Doc, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[str]:
        """Tell why each of some places of a document cannot be a name, or "".

        starts, ends (NDArray[int64]): Character offsets. Shape (n,) each.
        """
        return [""] * len(starts)

    def queries(self, mentions: Mentions) -> Sequence[Query]:
        """Return the query of each mention, with what should be looked up for it."""
        return mentions.queries

    def rewrite(
        self, strings: Sequence[str], kb: KnowledgeBase, seen: Container[str]
    ) -> Sequence[str]:
        """Rewrite normalised strings before they are looked up in a knowledge base.

        seen (Container[str]): Strings of the training mentions, which are known as they are.
        """
        return strings

    def wants_all(self, kb: KnowledgeBase) -> bool:
        """Whether all concepts of a name have to stay candidates until `rescore` has chosen."""
        return False

    def rescore(self, mentions: Mentions, candidates: Candidates) -> Sequence[Sequence[Candidate]]:
        """Return the candidates of each mention, by what the documents say of them; best first."""
        return candidates.of_mentions

    def facts(self, mentions: Mentions, links: Sequence[Link]) -> Sequence[Mapping[str, Any]]:
        """Return what else the text says of each mention: JSON values by `fact_names`."""
        return [{}] * len(links)

    def explain(self, mentions: Mentions, links: Sequence[Link]) -> Sequence[str]:
        """Return for each link a sentence on what these rules did to it; "" for none."""
        return [""] * len(links)


def add_spans(
    doc: Doc,
    spans: Sequence[ScoredSpan],
    places: Iterable[tuple[int, int]],
    label: str,
    *,
    probability: float = 0.99,
) -> list[ScoredSpan]:
    """Add mentions at some places of a document, instead of the spans that overlap them.

    Of places that overlap, the longest is taken, as whole tokens. Spans of other labels with a
    probability of 1 stay: what a user has forced, and names that mean nothing else.

    places (Iterable): Character offsets, start and end.
    """
    wide = (doc.char_span(*place, label, alignment_mode="expand") for place in places)
    certain = [s for s in spans if s[3] == 1 and s[2] != label]
    stays = {token for start, end, *_ in certain for token in range(start, end)}
    new = [
        (span.start, span.end, label, probability)
        for span in filter_spans(filter(None, wide))
        if stays.isdisjoint(range(span.start, span.end))
    ]
    taken = {token for start, end, *_ in new for token in range(start, end)}
    return sorted([*new, *(s for s in spans if taken.isdisjoint(range(s[0], s[1])))])


class RuleSet:
    """The rules of a pipe, by the names that its config has; called in order, and only those that
    have something to say.

    RAISES BioelError: [B499] when two give a fact of the same name.
    """

    def __init__(self, rules: Mapping[str, EntityRules]) -> None:
        self.rules = dict(rules)
        owner: dict[str, str] = {}
        for name, one in self.rules.items():
            for fact in one.fact_names:
                if fact in owner:
                    raise BioelError(Errors.B499.format(fact=fact, first=owner[fact], second=name))
                owner[fact] = name
        self.fact_names = tuple(owner)
        self.labels = {label for one in self.rules.values() for label in one.labels}
        self._having: dict[str, list[tuple[str, EntityRules]]] = {}

    def having(self, function: str) -> list[tuple[str, EntityRules]]:
        """Names and rules of those that override a function."""
        if function not in self._having:
            rules, default = self.rules.items(), getattr(EntityRules, function)
            self._having[function] = [
                pair for pair in rules if getattr(type(pair[1]), function) is not default
            ]
        return self._having[function]

    def with_knowledge(self, knowledge: Knowledge) -> RuleSet:
        return RuleSet({name: one.with_knowledge(knowledge) for name, one in self.rules.items()})

    def for_labels(self, labels: Collection[str], *, labelled: bool = False) -> RuleSet:
        """The rules that are for one of these labels, and those that are for all.

        labelled (bool): Without the latter.
        """
        wanted = {
            name: one
            for name, one in self.rules.items()
            if (not one.labels and not labelled) or not set(one.labels).isdisjoint(labels)
        }
        return RuleSet(wanted)

    def find(
        self,
        docs: Sequence[Doc],
        spans: Sequence[list[ScoredSpan]],
        traces: Sequence[Trace] | None = None,
        *,
        known: Sequence[Collection[str]] = (),
    ) -> list[list[ScoredSpan]]:
        """Let the rules change the spans of documents.

        known (Sequence[Collection[str]]): Names of the rules that a document need not be shown to.
        RAISES BioelError: [B498] when rules return a span that is not in its document.
        """
        found = list(spans)
        for name, one in self.having("find"):
            numbers = [i for i in range(len(docs)) if not known or name not in known[i]]
            said = [trace.n_reasons for trace in traces or ()]
            changed = one.run(
                "find",
                [docs[i] for i in numbers],
                [found[i] for i in numbers],
                [traces[i] for i in numbers] if traces else None,
                n=len(numbers),
            )
            for i, of_doc in zip(numbers, changed, strict=True):
                if traces and traces[i].n_reasons == said[i]:
                    traces[i].changed(found[i], of_doc, f"by the rules {name}")
                found[i] = of_doc
                for span in of_doc:
                    if not 0 <= span[0] < span[1] <= len(docs[i]):
                        raise one.error(Errors.B498, span=span[:3], n=len(docs[i]))
        return found

    def forms_of(self, doc: Doc, *, settings: LinkerSettings) -> dict[str, str]:
        """What short forms in a document stand for; what it defines goes first."""
        found: dict[str, str] = {}
        for _, one in self.having("short_forms"):
            found |= one.run("short_forms", doc)
        return found | long_forms(doc) if settings.abbreviations else found

    def why_other(
        self, doc: Doc, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[str]:
        """Why each of some places of a document cannot be a name, or ""."""
        rules, n = self.having("why_other"), len(starts)
        reasons = [one.run("why_other", doc, starts, ends, n=n) for _, one in rules]
        said = zip(*reasons, strict=True)
        return [next(filter(None, of_place), "") for of_place in said] or [""] * n

    def ask(self, mentions: Mentions) -> Mentions:
        """The mentions with the strings that rules want to be looked up."""
        for _, one in self.having("queries"):
            mentions = replace(mentions, queries=one.run("queries", mentions, n=len(mentions)))
        return mentions

    def with_parts(self, mentions: Mentions) -> Mentions:
        """Add the parts of composites behind all mentions: what a document says of mentions it says
        of parts."""
        if not len(parts := mentions.parts()):
            return mentions
        parts = self.ask(parts)
        return replace(
            mentions,
            spans=[*mentions.spans, *parts.spans],
            queries=[*mentions.queries, *parts.queries],
            owners=[*mentions.owners, *parts.owners],
            n_parts=len(parts),
        )

    def rewrite(
        self, strings: Sequence[str], kb: KnowledgeBase, seen: Container[str]
    ) -> Sequence[str]:
        """Strings as they are looked up in a knowledge base."""
        for _, one in self.having("rewrite"):
            strings = one.run("rewrite", strings, kb, seen, n=len(strings))
        return strings

    def want_all(self, kb: KnowledgeBase) -> bool:
        """Whether all concepts of a name have to stay candidates until `rescore`."""
        return any(one.run("wants_all", kb) for _, one in self.having("wants_all"))

    def rescore(
        self, mentions: Mentions, candidates: Candidates
    ) -> Sequence[tuple[Candidate, ...]]:
        """Candidates of each mention, by what the documents say of them.

        RAISES BioelError: [B500] when rules add one that the knowledge base of its label lacks.
        """
        for _, one in self.having("rescore"):
            rescored = one.run("rescore", mentions, candidates, n=len(mentions))
            _check_added(one, mentions.labels, candidates.of_mentions, rescored)
            candidates = replace(candidates, of_mentions=list(map(tuple, rescored)))
        return candidates.of_mentions

    def facts(self, mentions: Mentions, links: Sequence[Link]) -> list[dict[str, Any]]:
        """All facts of each mention. RAISES BioelError: [B504] on one that `fact_names` lacks."""
        found: list[dict[str, Any]] = [{} for _ in links]
        for _, one in self.having("facts"):
            said = one.run("facts", mentions, links, n=len(links))
            for known, more in zip(found, said, strict=True):
                if unknown := more.keys() - set(one.fact_names):
                    raise one.error(Errors.B504, fact=min(unknown))
                known.update(more)
        return found

    def explain(self, mentions: Mentions, links: Sequence[Link]) -> list[str]:
        """Sentences on what the rules did to each link."""
        n = len(links)
        said = [one.run("explain", mentions, links, n=n) for _, one in self.having("explain")]
        sentences = [" ".join(filter(None, of_link)) for of_link in zip(*said, strict=True)]
        return sentences or [""] * n


def _check_added(
    rules: EntityRules,
    labels: Sequence[str],
    before: Sequence[Sequence[Candidate]],
    after: Sequence[Sequence[Candidate]],
) -> None:
    """RAISES BioelError: [B500] on a new candidate that the knowledge base of its label lacks,
    unless a score of 1 says that it is of another vocabulary."""
    added: dict[str, set[str]] = {}
    for label, old, new in zip(labels, before, after, strict=True):
        if new != old:
            more = {c.id for c in new if c.score < 1}.difference(c.id for c in old)
            added.setdefault(label, set()).update(more)
    for label, of_label in added.items():
        if not of_label or rules.knowledge is None:
            continue
        ids = sorted(of_label)
        rows = rules.knowledge.kb_of(label).find_all(ids)
        if (rows < 0).any():
            raise rules.error(Errors.B500, id=ids[int(np.argmin(rows))], label=label)
