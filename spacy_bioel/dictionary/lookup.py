"""Names of any knowledge base in texts, as they are or nearly so, without training on labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.tokens import Doc

from spacy_bioel.dictionary.matching import (
    EQUAL,
    Evidence,
    NameEvidence,
    has_capitals_alone,
    ruled_out,
)
from spacy_bioel.dictionary.span_matches import SpanMatches, Words, find_span_matches, read_words
from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.explanation import Considered, Trace
from spacy_bioel.kb.columns import positions_of
from spacy_bioel.kb.gazetteer import BagsOfWords, stem_key
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import Misspellings
from spacy_bioel.text.normalize import AMOUNT_WORDS, LINKING_WORDS, normalize_names, stem_of

_ASSETS = Path(__file__).parents[1] / "assets"
_MOST_KEPT = 1 << 17
_SAMPLED = 1000
_MANY = 100  # concepts: of the head of a smaller list, users want the mentions
# A span this near to a name, EQUAL to FAMILY_ORDERED, is one with this probability.
_LIKELY = np.array([0.95, 0.9, 0.85, 0.75, 0.6])
_TYPO = 0.9  # times this for each misspelled word


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name in a document, by its first and last token, and its row in the knowledge base."""

    first: int
    last: int
    row: int
    probability: float


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """How names are found: see `settings.DictionarySettings`."""

    variants: bool = True
    typos: bool = True
    threshold: float = 0.5
    nested: bool = False
    exclude: frozenset[str] = frozenset()  # normalised names


FormsOf = Callable[[Doc], dict[str, str]]
# From places in a document to why each cannot be a name, or "".
WhyOther = Callable[[Doc, NDArray[np.int64], NDArray[np.int64]], Sequence[str]]


class Weighed(NamedTuple):
    """Spans near a name: their name rows, the evidence, and why each is ruled out, or ""."""

    hits: SpanMatches
    rows: NDArray[np.int64]
    evidence: Evidence
    reasons: list[str]


class DictionaryLookup:
    """Finds the names of one knowledge base; may be shared by threads."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.bags = BagsOfWords.from_kb(kb, _nouns())
        correct = partial(Misspellings(self.bags.words).correction, known=common_words())
        self._correct = lru_cache(maxsize=_MOST_KEPT)(correct)
        self.evidence = NameEvidence(kb, self.bags)
        self.kb = kb
        self._stems = {stem_of(word) for word in (*self.bags.words, *_nouns(), *AMOUNT_WORDS)}
        self._general = _above_most(kb)
        self._capitals = has_capitals_alone(
            kb.names.take(np.arange(0, kb.n_names, max(1, kb.n_names // _SAMPLED)))
        )

    def look_up(
        self, docs: Sequence[Doc], how: LookupOptions, forms_of: FormsOf = long_forms
    ) -> tuple[Words, SpanMatches]:
        """Look up all spans that may be names."""
        words = read_words(docs, stem_key, forms_of)
        if how.typos:
            words.meant = tuple(map(self._meant, words.forms))
            for number, (form, other) in enumerate(zip(words.forms, words.meant, strict=True)):
                if form != other:
                    words.keys[(words.form == number) & ~words.is_short] = stem_key(other)
        is_known = [word in LINKING_WORDS or stem_of(word) in self._stems for word in words.meant]
        known = np.array(is_known, dtype=bool)
        return words, find_span_matches(words, self.bags, known, loosely=how.variants)

    def _meant(self, form: str) -> str:
        # "Drowsy" is no slip for "dropsy" where a name has "drowsiness"; "dizzyness" is one.
        meant, stem = self._correct(form) or form, stem_of(form)
        return form if stem in self._stems and stem_of(meant) != stem else meant

    def weigh(self, words: Words, hits: SpanMatches) -> Weighed:
        """Return the spans near a name with the evidence, and why some are ruled out."""
        rows, evidence = self.evidence.of(words, hits)
        reasons = ruled_out(
            words, hits, rows, evidence, self.kb, self._general, capitals=self._capitals
        )
        named = np.flatnonzero(rows >= 0)
        of_named = [reasons[i] for i in named.tolist()]
        return Weighed(hits.take(named), rows[named], evidence.take(named), of_named)

    def find(
        self,
        docs: Sequence[Doc],
        how: LookupOptions = LookupOptions(),
        *,
        forms_of: FormsOf = long_forms,
        why_other: WhyOther | None = None,
        traces: Sequence[Trace] | None = None,
    ) -> list[list[FoundName]]:
        """Find the names in each document, left to right. Only parts of coordinations overlap.

        forms_of (Callable): What short forms in a document stand for.
        why_other (Callable | None): Tells why places of a document cannot be names.
        traces (Sequence[Trace] | None): Of each document, to be told what was considered.
        """
        found: list[list[FoundName]] = [[] for _ in docs]
        if not docs:
            return found
        words, hits = self.look_up(docs, how, forms_of)
        weighed = self.weigh(words, hits)
        if why_other is not None:
            _rule_out(words, weighed, why_other)
        probability, kept = self._decide(weighed, how)
        start, end = weighed.hits.start[kept], weighed.hits.end[kept]
        of_doc = words.doc[start]
        first, last = (words.token[i] - words.token_starts[of_doc] for i in (start, end - 1))
        order = np.lexsort((last, first))
        columns = (of_doc, first, last, weighed.rows[kept], probability[kept])
        for doc, *name in zip(*(column[order].tolist() for column in columns), strict=True):
            found[doc].append(FoundName(*name))
        if traces is not None:
            self._record(traces, words, weighed, probability, set(kept.tolist()), how)
        return found

    def _record(
        self,
        traces: Sequence[Trace],
        words: Words,
        weighed: Weighed,
        probability: NDArray[np.float64],
        kept: set[int],
        how: LookupOptions,
    ) -> None:
        """Write which spans are names or nearly so, and why each was kept or not."""
        hits, rows, _, reasons = weighed
        starts, ends = words.places(hits.start, hits.end)
        columns = (words.doc[hits.start], starts, ends, probability)
        names = self.kb.names.take(rows)
        for i, (doc, start, end, p, name, reason) in enumerate(
            zip(*(column.tolist() for column in columns), names, reasons, strict=True)
        ):
            if not reason and i not in kept:
                reason = "overlaps a longer or likelier name"
                if p < how.threshold:
                    reason = f"below the threshold of {how.threshold:g}"
            text = text_of(traces[doc].doc)[start:end]
            one = Considered(start, end, text, "", round(p, 4), i in kept, reason, name)
            traces[doc].record([one])

    def _decide(
        self, weighed: Weighed, how: LookupOptions
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Choose among the spans that are not ruled out: return the probability that each means the
        name, and the rows of those that are kept.
        """
        hits, rows, evidence, reasons = weighed
        likely = _LIKELY[evidence.near] * np.sqrt(evidence.share) * _TYPO**evidence.typos
        is_equal = evidence.near == EQUAL
        if not how.variants:
            likely[~is_equal] = 0.0
        # No text tells what users mean by the words that they add.
        added = self.kb.is_added[rows] & is_equal & evidence.is_single
        likely[added] = np.maximum(likely[added], _LIKELY[EQUAL])
        if how.exclude:
            names = normalize_names(self.kb.names.take(rows))
            for i in np.flatnonzero([name in how.exclude for name in names]).tolist():
                reasons[i] = reasons[i] or "left out by `dictionary.exclude`"
        likely[[bool(reason) for reason in reasons]] = 0.0
        return likely, choose(hits, likely, threshold=how.threshold, nested=how.nested)


def _rule_out(words: Words, weighed: Weighed, why_other: WhyOther) -> None:
    """Write reasons for spans that cannot be names."""
    hits, reasons = weighed.hits, weighed.reasons
    starts, ends = words.places(hits.start, hits.end)
    of_doc = words.doc[hits.start]
    for number, doc in enumerate(words.docs):
        here = np.flatnonzero(of_doc == number)
        for i, why in zip(here.tolist(), why_other(doc, starts[here], ends[here]), strict=True):
            reasons[i] = reasons[i] or why


def _above_most(kb: KnowledgeBase) -> NDArray[np.bool_]:
    """Tell which concepts are above most others, as "cell" is in the Cell Ontology: that a text
    has one of them says nothing. Judged by a sample of concepts. Shape (n_concepts,).
    """
    n, step = len(kb), max(1, len(kb) // _SAMPLED)
    concept = np.arange(0, n, step)
    of = concept  # the concept of the sample that another is above
    pairs = np.zeros(0, dtype=np.int64)  # both as one number
    while len(concept):
        indptr, at = positions_of(kb.parent_offsets, concept)
        found = np.repeat(of, np.diff(indptr)) * n + kb.parents[at]
        new = np.setdiff1d(found, pairs)
        pairs = np.union1d(pairs, new)
        of, concept = np.divmod(new, n)
    return np.bincount(pairs % max(n, 1), minlength=n) * step > max(n / 2, _MANY)


def choose(
    hits: SpanMatches, probability: NDArray[np.float64], *, threshold: float, nested: bool = False
) -> NDArray[np.int64]:
    """Choose the rows of hits to keep: the likely ones, the longest first where they overlap.

    The parts of a coordination stay beside the whole name that they share words with.

    nested (bool): Keep what lies within one that is kept; of equal spans the likeliest.
    """
    likely = np.flatnonzero((probability >= threshold) & (probability > 0))
    order = likely[np.lexsort((-probability[likely], (hits.start - hits.end)[likely]))]
    coordinated = (hits.gap < hits.end)[order]
    taken = np.zeros(int(hits.end.max(initial=0)) + 1, dtype=bool)
    kept: list[int] = []
    spans: set[tuple[int, int]] = set()
    around = np.full(len(taken), -1)  # of each word, the first kept hit that has it
    for i in [*order[~coordinated].tolist(), *order[coordinated].tolist()]:
        start, end = int(hits.start[i]), int(hits.end[i])
        if hits.gap[i] < hits.end[i]:
            if (start, end) in spans:
                continue
        elif taken[start:end].any():
            outer = around[start]
            is_within = outer >= 0 and (around[start:end] == outer).all()
            if not (nested and is_within and (start, end) not in spans):
                continue
        taken[start:end] = True
        around[start:end] = np.where(around[start:end] < 0, i, around[start:end])
        spans.add((start, end))
        kept.append(i)
    return np.array(kept, dtype=np.int64)


@cache
def _nouns() -> dict[str, str]:
    """Read the nouns that adjectives stand for, see training/scripts/adjectives.py."""
    return srsly.read_json(_ASSETS / "adjectives.json")
