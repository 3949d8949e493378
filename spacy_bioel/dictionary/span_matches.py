"""The words of a batch of documents as arrays, and all of their spans that may be names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IDX, LENGTH, ORTH, SPACY
from spacy.tokens import Doc

from spacy_bioel.doc import text_of
from spacy_bioel.kb.gazetteer import MAX_WORDS, BagsOfWords
from spacy_bioel.kb.knowledge_base import KeyArray
from spacy_bioel.text.normalize import BLANK_LINE, normalize_name, normalize_tokens, words_of
from spacy_bioel.text.sentences import find_forms
from spacy_bioel.types import BoolArray, IntArray

# Kinds of what stands between words, the strongest last. A name may go on in the next line.
NOTHING, LINE, COMMA, STOP = 0, 1, 2, 3
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_ENDING, _SIGNS = frozenset(".;:!?"), frozenset("=<>%≥≤±")
_MASK = (1 << 64) - 1
_MOST_REPLACED = 6  # words of a span in which one is replaced
_MOST_SHARED = 4  # words on a side of "and"
_CONJUNCTIONS = ("and", "or", "nor")


@dataclass
class Words:
    """Words of a batch of documents, one document after the other.

    docs (Sequence[Doc]): The documents.
    forms (tuple[str, ...]): The different words, normalised.
    form (IntArray): Number of the form of each word. Shape (n,), as of all up to `before`.
    doc, token (IntArray): Of each word; tokens are counted over all documents.
    begins, ends (BoolArray): Whether a span may begin with a word, and end with it.
    keys (KeyArray): In a bag, see `kb.gazetteer`; 0: it counts for nothing.
    is_short (BoolArray): Whether it is a short form that was written out.
    before (NDArray): Kind of what stands before a word.
    chars, lengths (IntArray): Offset in its document, and length, of each token. Shape (n_tokens,).
    token_starts (IntArray): First token of each document. Shape (n_docs,).
    long (dict[int, list[str]]): Words that a short form stands for, by each word of it.
    meant (tuple[str, ...]): What each form means: another word where it is misspelled.
    """

    docs: Sequence[Doc]
    forms: tuple[str, ...]
    form: IntArray
    doc: IntArray
    token: IntArray
    begins: BoolArray
    ends: BoolArray
    keys: KeyArray
    is_short: BoolArray
    before: NDArray[np.int8]
    chars: IntArray
    lengths: IntArray
    token_starts: IntArray
    long: dict[int, list[str]] = field(default_factory=dict)
    meant: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.meant = self.forms

    def __len__(self) -> int:
        return len(self.form)

    def places(self, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
        """First and last character of spans of words, each in its document. Shape (n,) each."""
        last = self.token[end - 1]
        return self.chars[self.token[start]], self.chars[last] + self.lengths[last]


def read_words(
    docs: Sequence[Doc],
    key_of: Callable[[str], int],
    forms_of: Callable[[Doc], Mapping[str, str]],
) -> Words:
    """Read the words of documents that share a vocabulary.

    key_of (Callable): Key of a normalised word in a bag.
    forms_of (Callable): Short forms of a document, which get the key of their long form.
    """
    tables = [doc.to_array([ORTH, SPACY, IDX, LENGTH]).reshape(-1, 4) for doc in docs]
    table = np.concatenate([np.zeros((0, 4), np.uint64), *tables])
    n_tokens = np.array([len(part) for part in tables], dtype=np.int64)
    token_starts = np.cumsum(n_tokens) - n_tokens
    orths, of_token = np.unique(table[:, 0], return_inverse=True)
    texts = [docs[0].vocab.strings[orth] for orth in orths.tolist()]
    split = list(map(words_of, normalize_tokens(texts)))
    numbers: dict[str, int] = {}
    flat = [numbers.setdefault(word, len(numbers)) for words in split for word in words]
    sizes = np.fromiter(map(len, split), dtype=np.int64, count=len(split))
    counts = sizes[of_token]
    token = np.repeat(np.arange(len(of_token)), counts)
    nth = np.arange(len(token)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = (np.cumsum(sizes) - sizes)[of_token[token]] + nth
    form = np.array(flat, dtype=np.int64)[at]
    keys = np.fromiter(map(key_of, numbers), dtype=np.uint64, count=len(numbers))[form]
    # "S" ends "protein S"; no name ends with "of".
    is_upper = np.array([text.isupper() for text in texts], dtype=bool)[of_token[token]]
    may_border = (keys != 0) | is_upper
    before = _between(texts, of_token, table[:, 1] != 0, token, token_starts)
    words = Words(
        docs,
        tuple(numbers),
        form,
        np.repeat(np.arange(len(docs)), n_tokens)[token],
        token,
        begins=(nth == 0) & may_border,
        ends=(nth == counts[token] - 1) & may_border,
        keys=keys,
        is_short=np.zeros(len(token), dtype=bool),
        before=before,
        chars=table[:, 2].astype(np.int64),
        lengths=table[:, 3].astype(np.int64),
        token_starts=token_starts,
    )
    for doc, first, n in zip(docs, token_starts.tolist(), n_tokens.tolist(), strict=True):
        if forms := forms_of(doc):
            _write_out(words, text_of(doc), slice(first, first + n), forms, key_of)
    return words


def _between(
    texts: Sequence[str], of_token: IntArray, spaced: BoolArray, token: IntArray, starts: IntArray
) -> NDArray[np.int8]:
    """Kind of what stands before each word."""

    def among(kinds: frozenset[str]) -> BoolArray:
        return np.array([text in kinds for text in texts], dtype=bool)[of_token]

    n = len(of_token)
    white = [text for text in texts if text.isspace()]
    blanks = among(frozenset(white))
    lines = among(frozenset(text for text in white if "\n" in text or "\r" in text))
    spaced = spaced | blanks | np.append(blanks[1:], False)[:n]
    after_space = np.append(True, spaced)[:n]
    # "1,2-dimethyl", "2.5" and "C(=O)" have no space beside these characters.
    is_ending, is_comma = among(_ENDING), among(frozenset(","))
    before_ending = np.append((is_ending | is_comma)[1:], True)[:n]
    stops = (is_ending | among(_CLOSING)) & (spaced | before_ending) | among(_OPENING) & after_space
    stops |= among(_SIGNS) | among(frozenset(filter(BLANK_LINE.search, white)))
    between = (lines, is_comma & spaced, stops)
    gaps = [np.append(0, np.cumsum(of))[token] for of in between]
    line, comma, stop = (np.diff(of, prepend=of[:1]) > 0 for of in gaps)
    kind = np.select([stop, comma, line], [STOP, COMMA, LINE], NOTHING).astype(np.int8)
    first = np.searchsorted(token, starts)  # nothing goes over the border of a document
    kind[first[first < len(token)]] = STOP
    return kind


def _write_out(
    words: Words, text: str, tokens: slice, forms: Mapping[str, str], key_of: Callable[[str], int]
) -> None:
    """Give short forms the keys of what they stand for."""
    starts = words.chars[tokens]
    ends = starts + words.lengths[tokens]
    # The longest last: "CKD stage 3" replaces "CKD".
    for short, places in find_forms(text, sorted(forms, key=len)).items():
        long = words_of(normalize_name(forms[short]))
        key = sum(map(key_of, long)) & _MASK
        for start, end in places if key else ():
            first, last = np.searchsorted(starts, start), np.searchsorted(ends, end)
            if last >= len(ends) or starts[first] != start or ends[last] != end:
                continue
            wanted = [tokens.start + first, tokens.start + last + 1]
            begin, stop = np.searchsorted(words.token, wanted).tolist()
            if begin < stop:
                words.keys[begin:stop] = 0
                words.keys[begin] = key
                words.begins[begin:stop] = words.ends[begin:stop] = False
                words.begins[begin] = words.ends[stop - 1] = True
                words.is_short[begin:stop] = True
                words.before[begin + 1 : stop] = NOTHING  # "Na: 124"
                words.long |= dict.fromkeys(range(begin, stop), []) | {begin: long}


@dataclass(frozen=True)
class SpanMatches:
    """Spans and the bags of names that they may be. Shape (n,) each.

    start, end (IntArray): First word, and the one after the last.
    gap, resume (IntArray): Words from gap to before resume are left out: "and" with what stands on
        one side of it, in "cleft lip and palate". Both are `end` where nothing is left out.
    bag (IntArray): Number of the bag, from 1.
    place, by (IntArray): Word that another stands for, and the row of `Substitutes`; -1: none.
    """

    start: IntArray
    end: IntArray
    gap: IntArray
    resume: IntArray
    bag: IntArray
    place: IntArray
    by: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: NDArray) -> SpanMatches:
        return SpanMatches(*(column[rows] for column in vars(self).values()))

    @classmethod
    def join(cls, parts: Sequence[SpanMatches]) -> SpanMatches:
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def find_span_matches(
    words: Words,
    bags: BagsOfWords,
    known: BoolArray,
    *,
    loosely: bool,
) -> SpanMatches:
    """Look up all spans that are bags of names.

    known (BoolArray): Whether a form is a word of the knowledge base, or a linking word.
    loosely (bool): Also replace words by others that names have in their place, adjectives by
        nouns, and look at both sides of "and".
    """
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(words.keys, dtype=np.uint64))
    spans = [_spans(words, known), _long_spans(words, bags, sums)]
    start, end = np.concatenate(spans, axis=1)
    keys = sums[end] - sums[start]
    bag = bags.found.find(keys).astype(np.int64)
    plain = _hits(start[bag > 0], end[bag > 0], bag[bag > 0])
    if not loosely:
        return plain
    free = (bag == 0) | (end - start == 1)
    replaced = _replaced(words, bags, start[free], end[free], keys[free])
    return SpanMatches.join([plain, replaced, _coordinated(words, bags, sums, plain)])


def _hits(start: IntArray, end: IntArray, bag: IntArray, **others: IntArray) -> SpanMatches:
    none = np.full(len(start), -1)
    columns = {"gap": end, "resume": end, "place": none, "by": none} | others
    return SpanMatches(start=start, end=end, bag=bag, **columns)


def _spans(words: Words, known: BoolArray) -> IntArray:
    """List spans of known words, none across a stop. Shape (2, n)."""
    n = len(words)
    is_bar = (~known[words.form] & ~words.is_short) if n else np.zeros(0, dtype=bool)
    bars = np.append(0, np.cumsum(is_bar))
    stops = np.append(0, np.cumsum(words.before == STOP))
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for width in range(1, min(MAX_WORDS, n) + 1):
        start = np.flatnonzero(words.begins[: n - width + 1] & words.ends[width - 1 :])
        end = start + width
        kept = (bars[end] == bars[start]) & (stops[end] == stops[start + 1])
        starts.append(start[kept])
        ends.append(end[kept])
    return np.stack([np.concatenate(starts), np.concatenate(ends)])


def _long_spans(words: Words, bags: BagsOfWords, sums: KeyArray) -> IntArray:
    """Spans of more words, where such a name begins. Shape (2, n)."""
    most = bags.long.find(sums[MAX_WORDS:] - sums[:-MAX_WORDS]).astype(np.int64)
    spans = [
        (start, end)
        for start in np.flatnonzero(most).tolist()
        for end in range(start + MAX_WORDS + 1, min(start + int(most[start]), len(words)) + 1)
        if words.doc[start] == words.doc[end - 1] and words.begins[start] and words.ends[end - 1]
    ]
    return np.array(spans, dtype=np.int64).reshape(-1, 2).T


def _replaced(
    words: Words, bags: BagsOfWords, start: IntArray, end: IntArray, keys: KeyArray
) -> SpanMatches:
    """Spans with a word that stands for another, or of an adjective that stands for a noun."""
    counted = np.append(0, np.cumsum(words.keys != 0))
    n = counted[end] - counted[start]
    wanted = (n >= np.where(end - start == 1, 1, 2)) & (end - start <= _MOST_REPLACED)
    start, end, keys = start[wanted], end[wanted], keys[wanted]
    span, nth = _expand(end - start)
    place = start[span] + nth
    low = np.searchsorted(bags.substitutes.word, words.keys[place])
    high = np.searchsorted(bags.substitutes.word, words.keys[place], side="right")
    entry, nth = _expand(high - low)
    by = low[entry] + nth
    table = bags.substitutes
    bag = bags.found.find(keys[span[entry]] - table.word[by] + table.by[by]).astype(np.int64)
    form = words.form[place[entry]]
    is_more = (end - start > 1)[span[entry]]
    found = [
        i
        for i in np.flatnonzero(bag).tolist()
        if is_more[i] or words.meant[form[i]] == table.adjective[by[i]]
    ]
    span = span[entry[found]]
    return _hits(start[span], end[span], bag[found], place=place[entry[found]], by=by[found])


def _coordinated(
    words: Words, bags: BagsOfWords, sums: KeyArray, plain: SpanMatches
) -> SpanMatches:
    """Names that "and" cuts in two, beside a name that is whole.

    "Cleft lip and palate": "cleft lip" is a name, and so is "cleft palate", the words before "and"
    with fewer at their end and what follows it. Or "pontine and cerebellar hypoplasia".
    """
    is_and = np.array([form in _CONJUNCTIONS for form in words.forms], dtype=bool)
    is_and = np.append(is_and[words.form], False) if len(words) else np.zeros(1, dtype=bool)
    is_whole = plain.end - plain.start > 1
    widths = range(1, _MOST_SHARED + 1)
    kept, more = np.array(list(product(widths, widths))).T[:, :, None]
    # A whole name before "and": other ends.
    rows = np.flatnonzero(is_and[plain.end] & is_whole)
    first, end = plain.start[rows], plain.end[rows]
    ends = np.broadcast_arrays(first, first + kept, end + 1, end + 1 + more)
    # A whole name after "and": other beginnings.
    rows = np.flatnonzero((plain.start > 0) & is_and[plain.start - 1] & is_whole)
    first, end = plain.start[rows], plain.end[rows]
    beginnings = np.broadcast_arrays(first - 1 - more, first - 1, first + kept, end)
    spans = np.concatenate([np.stack(part).reshape(4, -1) for part in (ends, beginnings)], axis=1)
    start, gap, resume, end = spans
    fits = (start >= 0) & (gap < resume - 1) & (resume < end) & (end <= len(words))
    spans = spans[:, fits]
    stops = np.append(0, np.cumsum(words.before == STOP))
    start, gap, resume, end = spans
    fits = words.begins[start] & words.ends[end - 1] & (stops[end] == stops[start + 1])
    # A short form that was written out stays whole.
    fits &= (words.ends | ~words.is_short)[gap - 1] & (words.begins | ~words.is_short)[resume]
    start, gap, resume, end = spans[:, fits]
    bag = bags.found.find(sums[gap] - sums[start] + sums[end] - sums[resume]).astype(np.int64)
    found = bag > 0
    return _hits(start[found], end[found], bag[found], gap=gap[found], resume=resume[found])


def _expand(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Number the members of groups of these sizes: by group, and within the group."""
    group = np.repeat(np.arange(len(counts)), counts)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
