"""Read the words in a batch of documents into arrays, and find all spans that may be names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IDX, LENGTH, ORTH, SPACY
from spacy.lang.en.stop_words import STOP_WORDS
from spacy.tokens import Doc

from spacy_bioel.doc import text_of
from spacy_bioel.kb.columns import entries_of, offsets_of
from spacy_bioel.kb.gazetteer import MAX_WORDS, BagsOfWords
from spacy_bioel.kb.knowledge_base import KeyArray
from spacy_bioel.text.normalize import (
    BLANK_LINE,
    normalize_name,
    normalize_names,
    singular_of,
    words_of,
)
from spacy_bioel.text.sentences import LongForms, find_forms
from spacy_bioel.types import BoolArray, IntArray

# Separators between words, from weakest to strongest. A name may continue on the next LINE. A DASH
# (with spaces, or a slash) separates a whole from its part: "Heart - Left Ventricle".
NOTHING, LINE, DASH, COMMA, STOP = range(5)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_PUNCTUATION, _SIGNS = frozenset(".;:!?"), frozenset("=<>%≥≤±|")
_DASHES = frozenset("-–—")
_BULLETS = _DASHES | frozenset("*•·▪◦‣")  # at the start of a line
_MAX_WORDS_WITH_SUBSTITUTE = 6  # max. words in a span with one word replaced
_MAX_WORDS_AT_CONJUNCTION = 4  # max. words on each side of "and"
_CONJUNCTIONS = ("and", "or", "nor")


@dataclass
class WordTable:
    """The words in a batch of documents, concatenated.

    docs (Sequence[Doc]): The documents.
    forms (tuple[str, ...]): The distinct words, normalised.
    form (IntArray): Each word's index in `forms`. Shape (n_words,), like all columns up to
        `separator`.
    doc, token (IntArray): For each word, the index of its document, and of its token in the batch.
    can_begin, can_end (BoolArray): Whether a span may begin, or end, with a word.
    keys (KeyArray): Key of each word in a bag (see `kb.gazetteer`); 0 if the word is ignored.
    is_short_form (BoolArray): Whether a word is part of an expanded short form.
    separator (NDArray[int8]): Separator before a word: NOTHING, LINE, DASH, COMMA or STOP.
    token_offset, token_length (IntArray): For each token, its first character in the document, and
        its length. Shape (n_tokens,).
    first_token (IntArray): First token of each document. Shape (n_docs,).
    expanded (dict[int, list[str]]): For the first word of each expanded short form, the words of
        the long form; for its other words, an empty list.
    corrected (tuple[str, ...]): Each form after spelling correction; set by the caller.
    """

    docs: Sequence[Doc]
    forms: tuple[str, ...]
    form: IntArray
    doc: IntArray
    token: IntArray
    can_begin: BoolArray
    can_end: BoolArray
    keys: KeyArray
    is_short_form: BoolArray
    separator: NDArray[np.int8]
    token_offset: IntArray
    token_length: IntArray
    first_token: IntArray
    expanded: dict[int, list[str]] = field(default_factory=dict)
    corrected: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.form)

    def are(self, test: Callable[[str], bool]) -> BoolArray:
        """Return a mask of the words whose normalised form passes a test. Shape (n_words,)."""
        return np.array(list(map(test, self.forms)), dtype=bool)[self.form]

    def may_end_before(self) -> BoolArray:
        """Return whether a phrase may end before each word, and at the end of the table. "Mild
        hearing loss" cannot end before "loss". Shape (n_words + 1,)."""
        is_number = self.are(lambda word: any(map(str.isdigit, singular_of(word))))
        may_end = (self.separator > NOTHING) | self.are(STOP_WORDS.__contains__)
        may_end[1:] |= is_number[:-1]
        return np.append(may_end, True)

    def char_spans(self, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
        """Convert word spans to character offsets: start and end (exclusive). Shape (n,) each."""
        first, last = self.token[start], self.token[end - 1]
        return self.token_offset[first], self.token_offset[last] + self.token_length[last]


def read_words(
    docs: Sequence[Doc],
    key_of: Callable[[str], int],
    forms_of: Callable[[Doc], LongForms],
) -> WordTable:
    """Read the words in documents. The documents must share a vocabulary.

    key_of (Callable): Returns the key of a normalised word in a bag.
    forms_of (Callable): Returns the short forms in a document with their long forms. Short forms
        get the keys of their long forms.
    """
    tables = [doc.to_array([ORTH, SPACY, IDX, LENGTH]).reshape(-1, 4) for doc in docs]
    table = np.concatenate([np.zeros((0, 4), np.uint64), *tables])
    n_tokens = np.array([len(doc_table) for doc_table in tables], dtype=np.int64)
    first_token = np.cumsum(n_tokens) - n_tokens
    # Normalise each distinct token, and split it into words, only once.
    orths, orth_of_token = np.unique(table[:, 0], return_inverse=True)
    texts = [docs[0].vocab.strings[orth] for orth in orths.tolist()]
    orth_words = list(map(words_of, normalize_names(texts)))
    form_of: dict[str, int] = {}
    flat = [form_of.setdefault(word, len(form_of)) for words in orth_words for word in words]
    n_words = np.fromiter(map(len, orth_words), dtype=np.int64, count=len(orth_words))
    first_word = offsets_of(n_words)[orth_of_token]
    token = np.repeat(np.arange(len(orth_of_token)), n_words[orth_of_token])
    flat_index = entries_of(first_word, n_words[orth_of_token])[1]
    form = np.array(flat, dtype=np.int64)[flat_index]
    keys = np.fromiter(map(key_of, form_of), dtype=np.uint64, count=len(form_of))[form]
    # A name may end with "S", as in "protein S", but not with "of".
    is_upper = np.array([text.isupper() for text in texts], dtype=bool)[orth_of_token[token]]
    is_border = (keys != 0) | is_upper
    words = WordTable(
        docs,
        tuple(form_of),
        form,
        np.repeat(np.arange(len(docs)), n_tokens)[token],
        token,
        can_begin=np.append(True, token[1:] != token[:-1])[: len(token)] & is_border,
        can_end=np.append(token[1:] != token[:-1], True)[: len(token)] & is_border,
        keys=keys,
        is_short_form=np.zeros(len(token), dtype=bool),
        separator=_separators(texts, orth_of_token, table[:, 1] != 0, token, first_token),
        token_offset=table[:, 2].astype(np.int64),
        token_length=table[:, 3].astype(np.int64),
        first_token=first_token,
    )
    for doc, first, n in zip(docs, first_token.tolist(), n_tokens.tolist(), strict=True):
        if forms := forms_of(doc):
            _expand_short_forms(words, text_of(doc), slice(first, first + n), forms, key_of)
    return words


def _separators(
    texts: Sequence[str],
    orth_of_token: IntArray,
    spaced: BoolArray,
    token: IntArray,
    first_token: IntArray,
) -> NDArray[np.int8]:
    """Return the strongest separator before each word. `texts` are distinct. Shape (n_words,)."""

    def is_among(characters: frozenset[str]) -> BoolArray:
        return np.array([text in characters for text in texts], dtype=bool)[orth_of_token]

    n = len(orth_of_token)
    white = [text for text in texts if text.isspace()]
    is_blank = is_among(frozenset(white))
    is_line = is_among(frozenset(text for text in white if "\n" in text or "\r" in text))
    spaced = spaced | is_blank | np.append(is_blank[1:], False)[:n]
    after_space = np.append(True, spaced)[:n]
    # "1,2-dimethyl", "2.5" and "C(=O)" have no space next to these characters.
    is_punctuation, is_comma = is_among(_PUNCTUATION), is_among(frozenset(","))
    before_punctuation = np.append((is_punctuation | is_comma)[1:], True)[:n]
    is_stop = (is_punctuation | is_among(_CLOSING)) & (spaced | before_punctuation)
    is_stop |= is_among(_OPENING) & after_space
    is_stop |= is_line & np.append(is_among(_BULLETS)[1:], False)[:n]
    is_stop |= is_among(_SIGNS) | is_among(frozenset(filter(BLANK_LINE.search, white)))
    is_dash = (is_among(_DASHES) & spaced & after_space) | is_among(frozenset("/"))

    def is_before_word(is_separator: BoolArray) -> BoolArray:
        n_before = offsets_of(is_separator)[token]
        return np.diff(n_before, prepend=n_before[:1]) > 0

    kinds = (is_stop, is_comma & spaced, is_dash, is_line)
    conditions = list(map(is_before_word, kinds))
    separators = np.select(conditions, [STOP, COMMA, DASH, LINE], NOTHING).astype(np.int8)
    first = np.searchsorted(token, first_token)  # names never continue into the next document
    separators[first[first < len(token)]] = STOP
    return separators


def _expand_short_forms(
    words: WordTable,
    text: str,
    tokens: slice,
    forms: LongForms,
    key_of: Callable[[str], int],
) -> None:
    """Replace the keys of a document's short forms with those of their long forms."""
    starts = words.token_offset[tokens]
    ends = starts + words.token_length[tokens]
    # The longest short form comes last, so that "CKD stage 3" replaces "CKD".
    for short, char_spans in find_forms(text, sorted(forms, key=len)).items():
        for start, end in char_spans:
            long_form = words_of(normalize_name(forms.at(start, short) or ""))
            if not (key := sum(map(key_of, long_form)) % (1 << 64)):
                continue
            first, last = np.searchsorted(starts, start), np.searchsorted(ends, end)
            if last >= len(ends) or starts[first] != start or ends[last] != end:
                continue
            token_span = [tokens.start + first, tokens.start + last + 1]
            begin, stop = np.searchsorted(words.token, token_span).tolist()
            if begin < stop:
                words.keys[begin:stop] = 0
                words.keys[begin] = key
                words.can_begin[begin:stop] = words.can_end[begin:stop] = False
                words.can_begin[begin] = words.can_end[stop - 1] = True
                words.is_short_form[begin:stop] = True
                words.token[stop - 1] = tokens.start + last  # the last bracket of "H(2)CO(3)"
                words.separator[begin + 1 : stop] = NOTHING  # such as the colon in "Na: 124"
                words.expanded |= dict.fromkeys(range(begin, stop), []) | {begin: long_form}


@dataclass(frozen=True)
class SpanMatches:
    """Word spans that match a name's bag of words. Shape (n,) each.

    start, end (IntArray): First word, and the word after the last word.
    gap, resume (IntArray): First word skipped, and first word after the gap, such as
        "lip" and "palate" in "cleft lip and palate". Both are `end` if nothing is skipped.
    bag (IntArray): Number of the bag, counted from 1.
    replaced, substitute (IntArray): Word that is replaced, and the row of its substitute in
        `Substitutes`; -1 if no word is replaced.
    """

    start: IntArray
    end: IntArray
    gap: IntArray
    resume: IntArray
    bag: IntArray
    replaced: IntArray
    substitute: IntArray

    def take(self, rows: NDArray) -> SpanMatches:
        return SpanMatches(*(column[rows] for column in vars(self).values()))


def find_span_matches(
    words: WordTable, bags: BagsOfWords, known: BoolArray, *, inexact: bool
) -> SpanMatches:
    """Find all spans with the same words as a name, in any order.

    known (BoolArray): Whether each form is a word in the knowledge base, or a linking word.
    inexact (bool): Also replace words with substitutes that synonyms contain, replace adjectives
        with nouns, and complete the names on both sides of "and".
    """
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(words.keys, dtype=np.uint64))
    spans = [_spans_of_known_words(words, known), _spans_of_long_names(words, bags, sums)]
    start, end = np.concatenate(spans, axis=1)
    keys = sums[end] - sums[start]
    bag = bags.found.find(keys).astype(np.int64)
    whole = _make_matches(start[bag > 0], end[bag > 0], bag[bag > 0])
    if not inexact:
        return whole
    rows = np.flatnonzero((bag == 0) | (end - start == 1))
    substituted = _substituted_matches(words, bags, start[rows], end[rows], keys[rows])
    parts = whole, substituted, _coordinated_matches(words, bags, sums, whole)
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return SpanMatches(*map(np.concatenate, columns))


def _make_matches(start: IntArray, end: IntArray, bag: IntArray, **others: IntArray) -> SpanMatches:
    none = np.full(len(start), -1)
    columns = {"gap": end, "resume": end, "replaced": none, "substitute": none} | others
    return SpanMatches(start=start, end=end, bag=bag, **columns)


def _spans_of_known_words(words: WordTable, known: BoolArray) -> IntArray:
    """Return the spans of known words with no STOP separator inside. Shape (2, n)."""
    n = len(words)
    n_unknown = offsets_of(~known[words.form] & ~words.is_short_form)
    n_stops = offsets_of(words.separator == STOP)
    spans = [np.zeros((2, 0), np.int64)]
    for width in range(1, min(MAX_WORDS, n) + 1):
        start = np.flatnonzero(words.can_begin[: n - width + 1] & words.can_end[width - 1 :])
        end = start + width
        kept = (n_unknown[end] == n_unknown[start]) & (n_stops[end] == n_stops[start + 1])
        spans.append(np.stack([start, end])[:, kept])
    return np.concatenate(spans, axis=1)


def _spans_of_long_names(words: WordTable, bags: BagsOfWords, sums: KeyArray) -> IntArray:
    """Return the spans of more than MAX_WORDS words that start like a name. Shape (2, n)."""
    max_width = bags.long.find(sums[MAX_WORDS:] - sums[:-MAX_WORDS]).astype(np.int64)
    first = np.flatnonzero(max_width)
    n_longer = np.minimum(max_width[first], len(words) - first) - MAX_WORDS
    start = np.repeat(first, n_longer)
    end = entries_of(first + MAX_WORDS + 1, n_longer)[1]
    kept = words.can_begin[start] & words.can_end[end - 1]
    return np.stack([start, end])[:, kept & (words.doc[start] == words.doc[end - 1])]


def _substituted_matches(
    words: WordTable, bags: BagsOfWords, start: IntArray, end: IntArray, keys: KeyArray
) -> SpanMatches:
    """Match spans in which a substitute replaces one word, or a noun replaces its adjective."""
    is_enough = count_in(words.keys != 0, start, end) >= np.where(end - start == 1, 1, 2)
    kept = is_enough & (end - start <= _MAX_WORDS_WITH_SUBSTITUTE)
    start, end, keys = start[kept], end[kept], keys[kept]
    span, word = np.repeat(np.arange(len(start)), end - start), entries_of(start, end - start)[1]
    table = bags.substitutes
    low = np.searchsorted(table.word, words.keys[word])
    high = np.searchsorted(table.word, words.keys[word], side="right")
    word, span = np.repeat(word, high - low), np.repeat(span, high - low)
    substitute = entries_of(low, high - low)[1]
    replaced_keys = keys[span] - table.word[substitute] + table.by[substitute]
    bag = bags.found.find(replaced_keys).astype(np.int64)
    form = words.form[word]
    # Replace a single word only if it is an adjective whose noun is a name.
    has_more_words = (end - start > 1)[span]
    rows = [
        i
        for i in np.flatnonzero(bag).tolist()
        if (adjective := table.adjective[substitute[i]]) == words.corrected[form[i]]
        or (has_more_words[i] and not adjective)
    ]
    span = span[rows]
    return _make_matches(
        start[span], end[span], bag[rows], replaced=word[rows], substitute=substitute[rows]
    )


def _coordinated_matches(
    words: WordTable, bags: BagsOfWords, sums: KeyArray, whole: SpanMatches
) -> SpanMatches:
    """Match names that share words with another name across a conjunction.

    "Cleft lip and palate" contains the names "cleft lip" and "cleft palate"; "pontine and
    cerebellar hypoplasia" contains "cerebellar hypoplasia" and "pontine hypoplasia".
    """
    keys = words.keys.tolist()

    def has_repeated(start: int, end: int) -> bool:  # as in "severe and severe hearing loss"
        of_words = list(filter(None, keys[start:end]))
        return len(set(of_words)) < len(of_words)

    is_and = np.append(words.are(_CONJUNCTIONS.__contains__), False)
    has_more_words = whole.end - whole.start > 1
    widths = range(1, _MAX_WORDS_AT_CONJUNCTION + 1)
    n_leading, n_other = np.array(list(product(widths, widths))).T[:, :, None]
    # If a whole name precedes "and", the second name shares its first words.
    rows = np.flatnonzero(is_and[whole.end] & has_more_words)
    first, end = whole.start[rows], whole.end[rows]
    after = np.broadcast_arrays(first, first + n_leading, end + 1, end + 1 + n_other)
    # If a whole name follows "and", the first name shares its last words.
    rows = np.flatnonzero((whole.start > 0) & is_and[whole.start - 1] & has_more_words)
    first, end = whole.start[rows], whole.end[rows]
    before = np.broadcast_arrays(first - 1 - n_other, first - 1, first + n_leading, end)
    spans = np.concatenate([np.stack(part).reshape(4, -1) for part in (after, before)], axis=1)
    start, gap, resume, end = spans
    fits = (start >= 0) & (gap < resume - 1) & (resume < end) & (end <= len(words))
    spans = spans[:, fits]
    start, gap, resume, end = spans
    fits = words.can_begin[start] & words.can_end[end - 1]
    fits &= count_in(words.separator == STOP, start + 1, end) == 0
    # Never split an expanded short form.
    fits &= (words.can_end | ~words.is_short_form)[gap - 1]
    fits &= (words.can_begin | ~words.is_short_form)[resume]
    start, gap, resume, end = spans[:, fits]
    bag = bags.found.find(sums[gap] - sums[start] + sums[end] - sums[resume]).astype(np.int64)
    different = [i for i in np.flatnonzero(bag).tolist() if not has_repeated(start[i], end[i])]
    rows = np.array(different, dtype=np.int64)
    return _make_matches(start[rows], end[rows], bag[rows], gap=gap[rows], resume=resume[rows])


def count_in(mask: BoolArray, start: IntArray, end: IntArray) -> IntArray:
    """Count the selected words in each span. Shape (n_spans,)."""
    n_before = offsets_of(mask)
    return n_before[end] - n_before[start]
