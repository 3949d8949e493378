"""Find knowledge base names in texts without training, even if reworded or misspelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import srsly
from spacy.tokens import Doc

from spacy_bioel.dictionary.matching import EQUAL, MatchedNames, NameMatcher
from spacy_bioel.dictionary.span_matches import (
    SpanMatches,
    WordTable,
    find_span_matches,
    read_words,
)
from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.explanation import Considered, Trace
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.gazetteer import BagsOfWords, stem_key
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import Misspellings
from spacy_bioel.settings import DictionarySettings
from spacy_bioel.text.normalize import AMOUNT_WORDS, LINKING_WORDS, normalize_names, stem_of
from spacy_bioel.text.sentences import broken_words
from spacy_bioel.types import DoubleArray, IntArray

# Probability that a span means the name it matches, for each kind of difference between the two,
# from EQUAL to FAMILY_ORDERED.
_PROBABILITIES = np.array([0.95, 0.9, 0.85, 0.75, 0.6])
_DEFAULTS = DictionarySettings()
_TYPO_FACTOR = 0.9  # applied to the probability once for each misspelled word


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name found in a document: its first and last tokens, and its row in the knowledge base."""

    first: int
    last: int
    row: int
    probability: float


FormsOf = Callable[[Doc], dict[str, str]]
# Takes a document and the start and end characters of spans. Returns why each span cannot be a
# name, or "".
WhyOther = Callable[[Doc, IntArray, IntArray], Sequence[str]]


class DictionaryLookup:
    """Finds a knowledge base's names in documents; can be shared between threads."""

    def __init__(self, kb: KnowledgeBase) -> None:
        # The noun for each adjective, from training/scripts/adjectives.py.
        nouns: dict[str, str] = srsly.read_json(ASSETS_FOLDER / "adjectives.json")
        self.kb = kb
        self.bags_of_words = BagsOfWords.from_kb(kb, nouns)
        correct = partial(Misspellings(self.bags_of_words.words).correction, known=common_words())
        self._correct = lru_cache(maxsize=1 << 17)(correct)
        self._matcher = NameMatcher(kb, self.bags_of_words)
        known_words = (*self.bags_of_words.words, *nouns, *AMOUNT_WORDS)
        self._stems = {stem_of(word) for word in known_words}

    def find(
        self,
        docs: Sequence[Doc],
        options: DictionarySettings = _DEFAULTS,
        *,
        forms_of: FormsOf = long_forms,
        why_other: WhyOther | None = None,
        traces: Sequence[Trace] | None = None,
    ) -> list[list[FoundName]]:
        """Find the names in each document, from left to right.

        Names overlap only in coordinations or, with the `nested` option, if one contains the other.

        forms_of (Callable): Returns the short forms in a document with their long forms.
        why_other (Callable | None): Explains why spans in a document cannot be names.
        traces (Sequence[Trace] | None): One for each document, to record the spans considered.
        """
        names: list[list[FoundName]] = [[] for _ in docs]
        if not docs:
            return names
        words, spans = self._look_up(docs, options, forms_of)
        matched = self._matcher.match(words, spans)
        if why_other is not None:
            _add_reasons(words, matched, why_other)
        probability, kept = self._choose(matched, options)
        start, end = matched.spans.start[kept], matched.spans.end[kept]
        doc_indices = words.doc[start]
        first = words.token[start] - words.first_token[doc_indices]
        last = words.token[end - 1] - words.first_token[doc_indices]
        order = np.lexsort((last, first))
        columns = (doc_indices, first, last, matched.rows[kept], probability[kept])
        for doc_index, *name in zip(*(column[order].tolist() for column in columns), strict=True):
            names[doc_index].append(FoundName(*name))
        if traces is not None:
            self._record(traces, words, matched, probability, set(kept.tolist()), options)
        return names

    def _look_up(
        self, docs: Sequence[Doc], options: DictionarySettings, forms_of: FormsOf
    ) -> tuple[WordTable, SpanMatches]:
        """Read and correct the words in documents, and look up all spans that may be names."""
        words = read_words(docs, stem_key, lambda doc: self._broken_words(doc) | forms_of(doc))
        if options.typos:
            words.corrected = tuple(map(self._corrected, words.forms))
            for form, corrected in enumerate(words.corrected):
                if corrected != words.forms[form]:
                    words.keys[(words.form == form) & ~words.is_short_form] = stem_key(corrected)
        is_known = [w in LINKING_WORDS or stem_of(w) in self._stems for w in words.corrected]
        known = np.array(is_known, dtype=bool)
        return words, find_span_matches(words, self.bags_of_words, known, inexact=options.variants)

    def _broken_words(self, doc: Doc) -> dict[str, str]:
        """Return the words of names that a hyphen breaks at the end of a line."""
        text = text_of(doc)
        broken = ((text[start:end], whole) for start, end, whole in broken_words(text))
        return {word: whole for word, whole in broken if stem_of(whole.lower()) in self._stems}

    def _corrected(self, word: str) -> str:
        """Return the correct form of a misspelled word, and any other word unchanged."""
        corrected, stem = self._correct(word) or word, stem_of(word)
        # "Drowsy" is not a misspelling of "dropsy" if a name contains "drowsiness", but "dizzyness"
        # is a misspelling of "dizziness".
        return word if stem in self._stems and stem_of(corrected) != stem else corrected

    def _choose(
        self, matched: MatchedNames, options: DictionarySettings
    ) -> tuple[DoubleArray, IntArray]:
        """Return each span's probability and the spans to keep; add reasons from the settings."""
        spans, rows, reasons, difference, substitute_share, n_typos, is_single = matched
        probability = _PROBABILITIES[difference] * np.sqrt(substitute_share)
        probability = probability * _TYPO_FACTOR**n_typos
        is_equal = difference == EQUAL
        if not options.variants:
            probability[~is_equal] = 0.0
        # Users may have added words that usually mean something else.
        added = self.kb.is_added[rows] & is_equal & is_single
        probability[added] = np.maximum(probability[added], _PROBABILITIES[EQUAL])
        if options.exclude:
            excluded = frozenset(normalize_names(options.exclude))
            for i, name in enumerate(normalize_names(self.kb.names.take(rows))):
                if name in excluded:
                    reasons[i] = reasons[i] or "excluded by `dictionary.exclude`"
        probability[[bool(reason) for reason in reasons]] = 0.0
        return probability, _spans_to_keep(spans, probability, options)

    def _record(
        self,
        traces: Sequence[Trace],
        words: WordTable,
        matched: MatchedNames,
        probability: DoubleArray,
        kept: set[int],
        options: DictionarySettings,
    ) -> None:
        """Record the spans that match a name, and why each was kept or dropped."""
        spans, rows, reasons, *_ = matched
        starts, ends = words.char_spans(spans.start, spans.end)
        columns = (words.doc[spans.start], starts, ends, probability)
        names = self.kb.names.take(rows)
        table = zip(*(column.tolist() for column in columns), strict=True)
        for i, (doc_index, start, end, p) in enumerate(table):
            reason = reasons[i]
            if not reason and i not in kept:
                reason = "overlaps a longer or likelier name"
                if p < options.threshold:
                    reason = f"below the threshold of {options.threshold:g}"
            text = text_of(traces[doc_index].doc)[start:end]
            considered = Considered(start, end, text, "", round(p, 4), i in kept, reason, names[i])
            traces[doc_index].record([considered])


def _add_reasons(words: WordTable, matched: MatchedNames, why_other: WhyOther) -> None:
    """Add the entity rules' reasons against spans to `matched.reasons`."""
    spans, reasons = matched.spans, matched.reasons
    starts, ends = words.char_spans(spans.start, spans.end)
    doc_indices = words.doc[spans.start]
    for doc_index, doc in enumerate(words.docs):
        in_doc = np.flatnonzero(doc_indices == doc_index)
        new = why_other(doc, starts[in_doc], ends[in_doc])
        for i, reason in zip(in_doc.tolist(), new, strict=True):
            reasons[i] = reasons[i] or reason


def _spans_to_keep(
    spans: SpanMatches, probability: DoubleArray, options: DictionarySettings
) -> IntArray:
    """Choose the spans above the threshold, preferring the longest of overlapping spans.

    The parts of a coordination are kept along with the whole name that they share words with. With
    `nested`, spans inside a kept span are kept too. Of identical spans, the most probable is kept.
    """
    above = np.flatnonzero((probability >= options.threshold) & (probability > 0))
    order = above[np.lexsort((-probability[above], (spans.start - spans.end)[above]))]
    has_gap = (spans.gap < spans.end)[order]
    kept: list[int] = []
    borders: set[tuple[int, int]] = set()
    # For each word, the first kept span that contains it.
    outermost = np.full(int(spans.end.max(initial=0)) + 1, -1)
    for i in [*order[~has_gap].tolist(), *order[has_gap].tolist()]:
        start, end = int(spans.start[i]), int(spans.end[i])
        if spans.gap[i] < spans.end[i]:
            if (start, end) in borders:
                continue
        elif (outermost[start:end] >= 0).any():
            outer = outermost[start]
            is_within = outer >= 0 and (outermost[start:end] == outer).all()
            if not (options.nested and is_within and (start, end) not in borders):
                continue
        outermost[start:end] = np.where(outermost[start:end] < 0, i, outermost[start:end])
        borders.add((start, end))
        kept.append(i)
    return np.array(kept, dtype=np.int64)
