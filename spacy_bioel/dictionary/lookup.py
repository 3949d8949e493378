"""Find knowledge base names in texts without training, even if they are reworded or misspelled.

`DictionaryLookup` determines how well each span found by `span_matches.py` matches a name, and
looks for reasons to reject it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import srsly
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.dictionary.span_matches import (
    COMMA,
    DASH,
    LINE,
    NOTHING,
    SpanMatches,
    WordTable,
    count_in,
    find_span_matches,
    read_words,
)
from spacy_bioel.dictionary.unambiguous import (
    MIN_NAME_LENGTH,
    correct_words,
    is_acronym,
    is_in_capitals,
    why_not_name,
)
from spacy_bioel.dictionary.written_forms import (
    WrittenForms,
    are_words_in_capitals,
    has_mostly_codes,
    is_common_word,
)
from spacy_bioel.doc import long_forms, text_of
from spacy_bioel.found import FoundSpans, SpanChange
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.columns import find_sorted, offsets_of, positions_of
from spacy_bioel.kb.gazetteer import NEGATIONS, BagsOfWords, stem_key
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.spelling import Misspellings
from spacy_bioel.settings import DictionarySettings
from spacy_bioel.text.normalize import (
    AMOUNT_WORDS,
    LINKING_WORDS,
    amount_of,
    are_forms_of_one_word,
    is_amount,
    linking_words_of,
    normalize_name,
    normalize_names,
    singular_of,
    stem_of,
    words_of,
)
from spacy_bioel.text.sentences import LongForms, broken_words
from spacy_bioel.types import BoolArray, DoubleArray, IntArray, ScoredSpan

# Differences between a string and a name. SPELLED: a plural or British spelling; ADJECTIVE: the
# adjective for a one-word name; ORDERED: a different word order; FAMILY: a related word ("bowing"
# for "bowed"); FAMILY_ORDERED: related words in a different order.
EQUAL, SPELLED, ADJECTIVE, ORDERED, FAMILY, FAMILY_ORDERED = range(6)
_OTHER_MEANING = FAMILY_ORDERED + 1
_SAMPLE_SIZE = 1000  # concepts sampled to estimate how many descendants a concept has.
# A concept with fewer descendants than this is never too general, because users of small knowledge
# bases want mentions of general concepts too.
_MIN_BELOW_TOO_GENERAL = 100
_MIN_ADJECTIVE_LENGTH = 6  # min. letters in an adjective whose stem differs from its noun's.
# Probability that a span means the name it matches, by how they differ: EQUAL, SPELLED, ...
PROBABILITIES = np.array([0.95, 0.9, 0.9, 0.85, 0.75, 0.6])
_DEFAULTS = DictionarySettings()
_SIGN = re.compile(r"(?<=\w)(?:\+|[-−](?!\w))")  # "CD4+", "CD28-"
TYPO_FACTOR = 0.9  # multiplies the probability once per misspelled word


FormsOf = Callable[[Doc], LongForms]
# Takes a document and the start and end characters of spans; returns why each span cannot be a
# name, or "" if it can.
WhyOther = Callable[[Doc, IntArray, IntArray], Sequence[str]]


class NameMatch(NamedTuple):
    """The name most similar to a string, among all names with the same bag of words.

    row (int): Row of the name; -1 if the string does not mean any name in the bag.
    difference (int): EQUAL to FAMILY_ORDERED.
    is_single (bool): Whether the string is one word.
    has_comma (bool): Whether the name has a comma.
    has_sign (bool): Whether a word in the name has a sign, as in "CD4+".
    """

    row: int
    difference: int
    is_single: bool = False
    has_comma: bool = False
    has_sign: bool = False


class MatchedNames(NamedTuple):
    """Spans that match names, with name rows, reasons to reject a span (or ""), and probabilities.

    is_equal (BoolArray): Whether a span is equal to its name.
    """

    spans: SpanMatches
    rows: IntArray
    reasons: list[str]
    probability: DoubleArray
    is_equal: BoolArray


class DictionaryLookup:
    """Finds a knowledge base's names in documents. Thread-safe."""

    def __init__(self, kb: KnowledgeBase) -> None:
        # The noun for each adjective, from training/scripts/adjectives.py.
        nouns: dict[str, str] = srsly.read_json(ASSETS_FOLDER / "adjectives.json")
        self.kb = kb
        self.bags_of_words = BagsOfWords.from_kb(kb, nouns)
        correct = partial(Misspellings(self.bags_of_words.words).correction, known=correct_words())
        self._correct = lru_cache(maxsize=1 << 17)(correct)
        match_string = partial(_most_similar_name, kb, self.bags_of_words)
        self._match_string = lru_cache(maxsize=1 << 16)(match_string)
        self.too_general = _concepts_above_most(kb)
        self.ignores_capitals = are_words_in_capitals(kb)
        self.has_codes = has_mostly_codes(kb)
        self.written_forms = WrittenForms(kb)
        known_words = (*self.bags_of_words.words, *nouns, *AMOUNT_WORDS)
        self._stems = {stem_of(word) for word in known_words}

    def find(
        self,
        docs: Sequence[Doc],
        options: DictionarySettings = _DEFAULTS,
        *,
        forms_of: FormsOf = long_forms,
        why_other: WhyOther | None = None,
    ) -> list[FoundSpans]:
        """Find names in documents, as unlabelled spans that record the name to look up.

        Names overlap only in coordinations or, with the `nested` option, if one contains the other.

        forms_of (Callable): Returns the short forms in a document with their long forms.
        why_other (Callable | None): Explains why spans in a document cannot be names.
        """
        found = list(map(FoundSpans, docs))
        words, spans = self._look_up(docs, options, forms_of)
        matched = self._match(words, spans)
        if why_other is not None:
            _add_reasons(words, matched, why_other)
        kept = self._choose(matched, options)
        for doc_index, span, name in self._scored_spans(words, matched, kept):
            found[doc_index].add(span, stands_for=name)
        dropped = np.delete(np.arange(len(matched.rows)), kept)
        for doc_index, of_doc in enumerate(found):
            in_doc = dropped[words.doc[matched.spans.start[dropped]] == doc_index]
            of_doc.log.append(partial(self._reasons, words, matched, in_doc, options))
        return found

    def _look_up(
        self, docs: Sequence[Doc], options: DictionarySettings, forms_of: FormsOf
    ) -> tuple[WordTable, SpanMatches]:
        """Read and correct the words in documents, and look up all spans that may be names."""
        words = read_words(docs, stem_key, partial(self._forms_of, forms_of=forms_of))
        correct = self.corrected_word if options.typos else str
        words.corrected = tuple(map(correct, words.forms))
        for form, corrected in enumerate(words.corrected):
            if corrected != words.forms[form]:
                words.keys[(words.form == form) & ~words.is_short_form] = stem_key(corrected)
        is_known = [w in LINKING_WORDS or stem_of(w) in self._stems for w in words.corrected]
        known = np.array(is_known, dtype=bool)
        return words, find_span_matches(words, self.bags_of_words, known, inexact=options.variants)

    def _forms_of(self, doc: Doc, *, forms_of: FormsOf) -> LongForms:
        text = text_of(doc)
        broken = {
            text[start:end]: whole
            for start, end, whole in broken_words(text)
            if stem_of(whole.lower()) in self._stems
        }
        return broken | self.written_forms.find(text) | forms_of(doc)

    def corrected_word(self, word: str) -> str:
        """Correct a misspelled word, and return any other word unchanged."""
        corrected, stem = self._correct(word) or word, stem_of(word)
        # "Strial" is not a misspelling of "atrial" if a name contains "stria", but "dizzyness"
        # is a misspelling of "dizziness".
        return word if stem in self._stems and stem_of(corrected) != stem else corrected

    def _match(self, words: WordTable, matches: SpanMatches) -> MatchedNames:
        """Return the spans that match a name, with reasons to reject some of them."""
        names = [
            min((self._match_string(string, bag) for string in strings), key=itemgetter(1))
            for strings, bag in self._strings(words, matches)
        ]
        table = np.array(names, dtype=np.int64).reshape(-1, len(NameMatch._fields))
        rows, difference, single, has_comma, has_sign = table.T
        start, end, is_replaced = matches.start, matches.end, matches.substitute >= 0
        inside, may_end = np.minimum(start + 1, len(words)), words.may_end_before()[end]
        is_cut = count_in(words.separator == COMMA, inside, end) > 0
        is_dashed = count_in(words.separator == DASH, inside, end) > 0
        fits = ~is_cut | ((has_comma > 0) & (difference <= SPELLED) & ~is_replaced & may_end)
        fits &= ~is_dashed | (may_end & (difference <= ORDERED))
        fits &= (single == 0) | (difference <= ADJECTIVE)
        # "Shortness of breath and leg swelling" does not mean a short leg.
        fits &= (matches.gap == end) | (difference <= ORDERED)
        kept = np.flatnonzero(fits & (rows >= 0))
        matches, rows, difference, single = matches.take(kept), *table[kept, :3].T
        start, end, is_replaced = matches.start, matches.end, is_replaced[kept]
        # A replaced word counts as FAMILY ("renal stones") or, on its own, as ADJECTIVE ("renal").
        difference = np.where(is_replaced, np.maximum(difference, FAMILY), difference)
        difference[is_replaced & (end - start == 1)] = ADJECTIVE
        is_adjective = difference == ADJECTIVE
        pairs = zip(words.forms, words.corrected, strict=True)
        is_typo = np.array([form != corrected for form, corrected in pairs], dtype=bool)[words.form]
        n_typos = count_in(is_typo & ~words.is_short_form, start, end)
        shares = np.append(self.bags_of_words.substitutes.share, np.float32(0))[matches.substitute]
        factor = np.sqrt(np.where(is_replaced & ~is_adjective, shares, 1.0))
        probability = PROBABILITIES[difference] * factor * TYPO_FACTOR**n_typos
        # User-added names are as probable as EQUAL matches, even if they usually mean other things.
        is_equal = difference == EQUAL
        added = self.kb.is_added[rows] & is_equal & (single > 0)
        probability[added] = np.maximum(probability[added], PROBABILITIES[EQUAL])
        reasons = self._reasons_against(words, matches, rows, single > 0)
        for i in np.flatnonzero(is_adjective & self._modify_nouns(words, start)).tolist():
            reasons[i] = reasons[i] or "the adjective of a noun in other names"
        for i in np.flatnonzero(has_sign[kept]).tolist():
            (first,), (last,) = words.char_spans(start[[i]], end[[i]])
            signs = _SIGN.findall(text_of(words.docs[words.doc[start[i]]])[first : last + 2])
            if signs and signs != _SIGN.findall(self.kb.names[int(rows[i])]):
                reasons[i] = "another sign than in the name"
        return MatchedNames(matches, rows, reasons, probability, is_equal)

    def _modify_nouns(self, words: WordTable, word: IntArray) -> BoolArray:
        """Return whether each word modifies an adjacent noun in a phrase that occurs in names.

        In "tibial plateau", "tibial" does not mean the tibia. The noun may also come before a dash
        or comma, as in "Muscle - Skeletal". Shape (n,), like `word`.
        """
        keys, none = words.keys, np.uint64(0)
        is_after = np.isin(words.separator, (DASH, COMMA))
        after = np.append(np.where(words.separator <= LINE, keys, none), none)[word + 1]
        before = np.where(is_after, np.roll(keys, 1), none)[word]
        phrases = np.stack([keys[word] + after, keys[word] + before])
        with_next, with_last = find_sorted(self.bags_of_words.phrases, phrases)[1]
        return with_next | with_last

    def _strings(self, words: WordTable, matches: SpanMatches) -> Iterator[tuple[list[str], int]]:
        """Yield the strings to look up for each span, and the bag of words that the span matches.

        Words around a dash are also looked up in reverse: "Nerve - Tibial" is the tibial nerve.
        """
        dashes = set(np.flatnonzero(words.separator == DASH).tolist())
        columns = [column.tolist() for column in vars(matches).values()]
        for start, end, gap, resume, bag, replaced, substitute in zip(*columns, strict=True):
            span_words = [words.corrected[form] for form in words.form[start:end].tolist()]
            if substitute >= 0:
                span_words[replaced - start] = self.bags_of_words.substitutes.replacement[
                    substitute
                ]
            if words.expanded:
                for i, word in enumerate(span_words):
                    span_words[i] = " ".join(words.expanded.get(start + i, [word]))
            strings = [" ".join(span_words[: gap - start] + span_words[resume - start :])]
            is_whole = gap == end and substitute < 0
            for dash in dashes.intersection(range(start + 1, end)) if is_whole else ():
                whole, part = span_words[: dash - start], span_words[dash - start :]
                if self.kb.lookup_names([" ".join(part)])[0] < 0:
                    strings.append(" ".join(part + whole))
            yield strings, bag

    def _reasons_against(
        self, words: WordTable, matches: SpanMatches, rows: IntArray, is_single: BoolArray
    ) -> list[str]:
        """Return why each span cannot mean the name in its row, or "" if it can."""
        is_added, is_preferred = self.kb.is_added[rows], _are_preferred(self.kb, rows)
        # "No nail changes" does not mean "no nail", which is a name in HPO.
        is_article = words.are("a".__eq__)
        is_next = np.append((words.separator == NOTHING) & (words.keys != 0) & ~is_article, False)
        is_negated = words.are(NEGATIONS.__contains__)[matches.start] & is_next[matches.end]
        reasons = ["begins with a negation" if negated else "" for negated in is_negated.tolist()]
        n_of_short_forms = count_in(words.is_short_form, matches.start, matches.end)
        single = np.flatnonzero(is_single & (n_of_short_forms == 0))
        indptr, concepts, _ = self.kb.concepts_of_names(rows[single])
        n_general = np.diff(offsets_of(self.too_general[concepts])[indptr]).tolist()
        starts, ends = words.char_spans(matches.start[single], matches.end[single])
        docs = words.doc[matches.start[single]]
        texts = {doc_index: text_of(words.docs[doc_index]) for doc_index in set(docs.tolist())}
        in_capitals = {doc_index: is_in_capitals(text) for doc_index, text in texts.items()}
        names = self.kb.names.take(rows[single])
        columns = (single.tolist(), docs.tolist(), starts.tolist(), ends.tolist(), names, n_general)
        for i, doc_index, start, end, name, is_general in zip(*columns, strict=True):
            text = texts[doc_index][start:end]
            if is_added[i] and (text == name or not _needs_case(name)):
                reasons[i] = ""  # a name added by the user is always found
            elif is_general:
                reasons[i] = "too general: most concepts are below it"
            elif self.has_codes and is_common_word(texts[doc_index], start, end, name):
                reasons[i] = "a common word, without its case or a word such as kit beside it"
            else:
                if self.ignores_capitals and (text != name or in_capitals[doc_index]):
                    name = name.lower()
                preferred = bool(is_preferred[i])
                reasons[i] = why_not_name(text, name, in_capitals[doc_index], preferred=preferred)
        return reasons

    def _choose(self, matched: MatchedNames, options: DictionarySettings) -> IntArray:
        """Apply the settings to `matched` in place, and return the indices of the spans to keep."""
        spans, rows, reasons, probability, is_equal = matched
        if not options.variants:
            probability[~is_equal] = 0.0
        if options.exclude:
            excluded = frozenset(normalize_names(options.exclude))
            for i, name in enumerate(normalize_names(self.kb.names.take(rows))):
                if name in excluded:
                    reasons[i] = reasons[i] or "excluded by `dictionary.exclude`"
        probability[[bool(reason) for reason in reasons]] = 0.0
        return _spans_to_keep(spans, probability, options)

    def _scored_spans(
        self, words: WordTable, matched: MatchedNames, indices: IntArray
    ) -> list[tuple[int, ScoredSpan, str]]:
        """Return the document index, unlabelled span and name of each match at these indices."""
        start, end = matched.spans.start[indices], matched.spans.end[indices]
        doc_indices = words.doc[start]
        first = words.token[start] - words.first_token[doc_indices]
        last = words.token[end - 1] - words.first_token[doc_indices] + 1
        columns = (doc_indices, first, last, matched.probability[indices])
        names = self.kb.names.take(matched.rows[indices])
        table = zip(*(column.tolist() for column in columns), names, strict=True)
        return [(doc_index, (start, end, "", p), name) for doc_index, start, end, p, name in table]

    def _reasons(
        self,
        words: WordTable,
        matched: MatchedNames,
        dropped: IntArray,
        options: DictionarySettings,
    ) -> Iterator[SpanChange]:
        """Yield each span that matches a name but is not a mention, with the reason."""
        spans = self._scored_spans(words, matched, dropped)
        for i, (_, span, name) in zip(dropped.tolist(), spans, strict=True):
            reason = "overlaps a longer or likelier name"
            if span[3] < options.threshold:
                reason = f"below the threshold of {options.threshold:g}"
            yield SpanChange((span,), (), matched.reasons[i] or reason, name)


def _add_reasons(words: WordTable, matched: MatchedNames, why_other: WhyOther) -> None:
    """Add the entity rules' reasons for rejecting spans to `matched.reasons`."""
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
    has_gap = spans.gap < spans.end
    keys = -probability, spans.start - spans.end, has_gap
    order = above[np.lexsort([key[above] for key in keys])]
    kept: list[int] = []
    borders: set[tuple[int, int]] = set()
    # The first kept span that contains each word; -1: none.
    outermost = np.full(int(spans.end.max(initial=0)) + 1, -1)
    for i in order.tolist():
        start, end = int(spans.start[i]), int(spans.end[i])
        if has_gap[i]:
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


def _are_preferred(kb: KnowledgeBase, rows: IntArray) -> BoolArray:
    """Return whether each name is the preferred name of a concept. Shape (n,)."""
    indptr, _, is_preferred = kb.concepts_of_names(rows)
    name = np.repeat(np.arange(len(rows)), np.diff(indptr))
    return np.bincount(name, is_preferred, minlength=len(rows)) > 0


def _singular_words(name: str) -> list[str]:
    return list(map(singular_of, words_of(normalize_name(name))))


def _most_similar_name(kb: KnowledgeBase, bags: BagsOfWords, string: str, bag: int) -> NameMatch:
    words = string.split()
    rows = bags.rows[bags.offsets[bag - 1] : bags.offsets[bag]].tolist()
    names = kb.names.take(rows)
    differences = [_difference(words, name) for name in names]
    difference, row, name = min(zip(differences, rows, names, strict=True))
    if difference == EQUAL and SPELLED in differences:
        # "Lungs" means the concept "lung", although "pair of lungs" has the synonym "lungs".
        singular = _singular_words(name)
        preferred = _are_preferred(kb, np.array(rows)).tolist()
        columns = zip(preferred, differences, rows, names, strict=True)
        _, _, row, name = min(
            (not (is_preferred and _singular_words(other) == singular), kind, row, other)
            for is_preferred, kind, row, other in columns
        )
    if difference == _OTHER_MEANING:
        return NameMatch(-1, _OTHER_MEANING)
    content_words = [word for word in words if word not in LINKING_WORDS] or words
    has_sign = bool(_SIGN.search(name))
    return NameMatch(row, difference, len(content_words) == 1, "," in name, has_sign)


def _difference(words: list[str], name: str) -> int:
    """Classify how words differ from a name, from EQUAL to _OTHER_MEANING."""
    name_words = words_of(normalize_name(name))
    if words == name_words:
        return EQUAL
    if list(map(singular_of, words)) == list(map(singular_of, name_words)):
        return SPELLED
    if len(words) == len(name_words) == 1 and _may_be_adjective(words[0], name_words[0]):
        return ADJECTIVE if stem_of(words[0]) == stem_of(name_words[0]) else _OTHER_MEANING
    if is_amount(name_words) and amount_of(words) == amount_of(name_words):
        return FAMILY
    # "Seizures were absent" does not mean absence seizures.
    if "absent" in words and "absence" in name_words and "of" not in name_words:
        return _OTHER_MEANING
    linking = linking_words_of(name)
    content = [word for word in words if word not in linking]
    name_content = [word for word in name_words if word not in linking]
    if words[0] in linking or words[-1] in linking:
        return _OTHER_MEANING
    # Words may be reordered around "of" and "is", in names with a comma, and before the head noun.
    has_linking_words = len(content) < len(words) or len(name_content) < len(name_words)
    may_reorder = has_linking_words or "," in name
    same_head = singular_of(content[-1]) == singular_of(name_content[-1])
    if sorted(map(singular_of, content)) == sorted(map(singular_of, name_content)):
        return ORDERED if may_reorder or same_head else _OTHER_MEANING
    pairs = zip(sorted(content, key=stem_of), sorted(name_content, key=stem_of), strict=False)
    if not all(are_forms_of_one_word(a, b) for a, b in pairs):
        return _OTHER_MEANING
    if list(map(stem_of, content)) == list(map(stem_of, name_content)):
        return FAMILY
    return FAMILY_ORDERED if may_reorder else _OTHER_MEANING


def _may_be_adjective(word: str, noun: str) -> bool:
    """Return whether a word can be the adjective for a noun, judging by both words' endings."""
    if word.endswith(("al", "ar", "oid")) and len(word) >= _MIN_ADJECTIVE_LENGTH:  # not "oral"
        return word != noun + "eal"  # "corneal" is the adjective for "cornea", not "corn"
    is_noun = noun.endswith(("o", "ome", "ele", "ia", "sis", "sion", "tion", "epsy", "oma", "ema"))
    is_adjective = word.endswith(("ic", "sive", "matous"))
    return (is_adjective and is_noun) or (word.endswith("y") and noun.endswith("iness"))


def _concepts_above_most(kb: KnowledgeBase) -> BoolArray:
    """Return a mask of the concepts that are ancestors of most concepts. Shape (n_concepts,).

    Mentions of very general concepts, like "cell" in the Cell Ontology, are not informative. The
    mask is estimated from a sample of concepts.
    """
    n, step = len(kb), max(1, len(kb) // _SAMPLE_SIZE)
    concept = np.arange(0, n, step)
    descendant = concept  # the sampled concept below each entry of `concept`
    pairs = np.zeros(0, dtype=np.int64)  # (descendant, ancestor) pairs, each encoded as one number
    while len(concept):
        indptr, positions = positions_of(kb.parent_offsets, concept)
        parent_pairs = np.repeat(descendant, np.diff(indptr)) * n + kb.parents[positions]
        new = np.setdiff1d(parent_pairs, pairs)
        pairs = np.union1d(pairs, new)
        descendant, concept = np.divmod(new, n)
    n_below = np.bincount(pairs % max(n, 1), minlength=n) * step
    return n_below > max(n / 2, _MIN_BELOW_TOO_GENERAL)


def _needs_case(name: str) -> bool:
    return len(name) < MIN_NAME_LENGTH or is_acronym(name) or name.lower() in STOP_WORDS
