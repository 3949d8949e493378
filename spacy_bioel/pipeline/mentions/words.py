"""Words of a batch of documents as arrays, for looking up all spans of all documents at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IDX, LENGTH, ORTH, SPACY
from spacy.tokens import Doc

from spacy_bioel.kb.columns.ragged import KeyArray
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import BLANK_LINE, normalize_name, normalize_token
from spacy_bioel.text.stems import words_of

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Kinds of what stands between words, the strongest last. A name may go on in the next line.
NOTHING, LINE, COMMA, STOP = 0, 1, 2, 3
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_ENDING, _SIGNS = frozenset(".;:!?"), frozenset("=<>%≥≤±")
_HYPHENS = frozenset("-‐‑–")
_MASK = (1 << 64) - 1


@dataclass
class Words:
    """Words of a batch of documents, one document after the other.

    docs (Sequence[Doc]): The documents.
    forms (tuple[str, ...]): The different words, normalised.
    form (IntArray): Number of the form of each word. Shape (n,), as of all up to `hyphened`.
    doc, token (IntArray): Of each word; tokens are counted over all documents.
    begins, ends (BoolArray): Whether a span may begin with a word, and end with it.
    keys (KeyArray): In a bag, see `kb.words.bags`; 0: it counts for nothing.
    is_short (BoolArray): Whether it is a short form that was written out.
    before (NDArray): Kind of what stands before a word.
    hyphened (BoolArray): Whether a hyphen binds it to the word before.
    chars, lengths (IntArray): Offset in its document, and length, of each token. Shape (n_tokens,).
    token_starts (IntArray): First token of each document. Shape (n_docs,).
    long (dict[int, list[str]]): Words that a short form stands for, by each word of it.
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
    hyphened: BoolArray
    chars: IntArray
    lengths: IntArray
    token_starts: IntArray
    long: dict[int, list[str]] = field(default_factory=dict)

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
    """Words of documents, which share a vocabulary.

    key_of (Callable): Key of a normalised word in a bag.
    forms_of (Callable): Short forms of a document, which get the key of their long form.
    """
    tables = [doc.to_array([ORTH, SPACY, IDX, LENGTH]).reshape(-1, 4) for doc in docs]
    table = np.concatenate([np.zeros((0, 4), np.uint64), *tables])
    n_tokens = np.array([len(part) for part in tables], dtype=np.int64)
    token_starts = np.cumsum(n_tokens) - n_tokens
    orths, of_token = np.unique(table[:, 0], return_inverse=True)
    texts = [docs[0].vocab.strings[orth] for orth in orths.tolist()]
    split = [words_of(normalize_token(text)) for text in texts]
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
    before, hyphened = _between(texts, of_token, table[:, 1] != 0, token, token_starts)
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
        hyphened=hyphened,
        chars=table[:, 2].astype(np.int64),
        lengths=table[:, 3].astype(np.int64),
        token_starts=token_starts,
    )
    for doc, first, n in zip(docs, token_starts.tolist(), n_tokens.tolist(), strict=True):
        if forms := forms_of(doc):
            _write_out(words, doc.text, slice(first, first + n), forms, key_of)
    return words


def _between(
    texts: Sequence[str], of_token: IntArray, spaced: BoolArray, token: IntArray, starts: IntArray
) -> tuple[NDArray[np.int8], BoolArray]:
    """Kind of what stands before each word, and whether that is a hyphen without spaces."""

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
    between = (lines, is_comma & spaced, stops, spaced, among(_HYPHENS))
    gaps = [np.append(0, np.cumsum(of))[token] for of in between]
    line, comma, stop, space, hyphen = (np.diff(of, prepend=of[:1]) > 0 for of in gaps)
    kind = np.select([stop, comma, line], [STOP, COMMA, LINE], NOTHING).astype(np.int8)
    first = np.searchsorted(token, starts)  # nothing goes over the border of a document
    kind[first[first < len(token)]] = STOP
    return kind, hyphen & ~space


def _write_out(
    words: Words, text: str, tokens: slice, forms: Mapping[str, str], key_of: Callable[[str], int]
) -> None:
    """Give short forms the keys of what they stand for."""
    starts = words.chars[tokens]
    ends = starts + words.lengths[tokens]
    for short, places in find_short_forms(text, forms).items():
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
                words.long |= dict.fromkeys(range(begin, stop), []) | {begin: long}
