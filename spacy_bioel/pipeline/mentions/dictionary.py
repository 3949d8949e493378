"""Mentions without a trained detector: the longest names of a knowledge base in a text.

Matches of a lexicon, as features of tokens, are here too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IS_SPACE, ORTH
from spacy.tokens import Doc, Span

from spacy_bioel.kb.columns.ragged import name_keys, span_keys
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.lexicon import Lexicon, unpack_bits
from spacy_bioel.models.detector import SHORT_FORM
from spacy_bioel.models.torch_io import MentionBatch
from spacy_bioel.pipeline.mentions.choosing import has_whole_brackets
from spacy_bioel.pipeline.short_forms import long_forms
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import BLANK_LINE, normalize_name, normalize_names, normalize_token


def match_lexicon(lexicon: Lexicon, docs: list[Doc], *, max_width: int) -> MentionBatch:
    """Documents with the names, and words of names, that they have.

    max_width (int): The longest match in tokens.
    """
    lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
    tokens = _normalized_tokens(docs)
    spans = [np.stack(lexicon.match_spans(tokens, max_width, lengths=lengths), axis=1)]
    for doc, offset in zip(docs, np.cumsum(lengths) - lengths, strict=True):
        start, width, bit = _short_forms(lexicon, doc, max_width=max_width)
        spans.append(np.stack([start + offset, width, bit], axis=1))
    words = np.stack(lexicon.match_words(tokens), axis=1)
    return MentionBatch(docs, np.concatenate(spans), words)


def _short_forms(lexicon: Lexicon, doc: Doc, *, max_width: int) -> tuple[NDArray, NDArray, NDArray]:
    """Matches of abbreviations that the document defines: those of their long forms."""
    found = []
    long_of = long_forms(doc)
    places = find_short_forms(doc.text, long_of) if long_of else {}
    for short, long in long_of.items():
        key = name_keys([normalize_name(long)])
        bits = [SHORT_FORM, *unpack_bits(lexicon.names.find(key))[1].tolist()]
        for start_char, end_char in places[short]:
            span = doc.char_span(start_char, end_char)
            if span is not None and len(span) <= max_width:
                found += [(span.start, len(span) - 1, bit) for bit in bits]
    start, width, bit = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return start, width, bit


def _normalized_tokens(docs: Iterable[Doc]) -> list[str]:
    """Of one document after the other; each different token of them is normalised once."""
    found: list[str] = []
    for doc in docs:
        ids = doc.to_array(ORTH).tolist()
        words = {id_: normalize_token(doc.vocab.strings[id_]) for id_ in set(ids)}
        found += map(words.__getitem__, ids)
    return found


def without_breaks(docs: Sequence[Doc]) -> tuple[list[Doc], list[NDArray[np.int64]]]:
    """Documents without tokens of white space, but for blank lines.

    RETURNS (tuple): The documents, and of each the tokens that it has left. One without such tokens
        is the document itself.
    """
    pairs = [_without_breaks(doc) for doc in docs]
    return [doc for doc, _ in pairs], [kept for _, kept in pairs]


def _without_breaks(doc: Doc) -> tuple[Doc, NDArray[np.int64]]:
    breaks = np.flatnonzero(doc.to_array([IS_SPACE]).ravel())
    dropped = [i for i in breaks.tolist() if not BLANK_LINE.search(doc[i].text)]
    kept = np.delete(np.arange(len(doc)), dropped)
    if not dropped:
        return doc, kept
    tokens = [doc[i] for i in kept.tolist()]
    before_break = set(dropped)
    spaces = [bool(token.whitespace_) or token.i + 1 in before_break for token in tokens]
    return Doc(doc.vocab, [token.text for token in tokens], spaces), kept


# Spans of so many words are looked up at all places, longer ones where such a name begins.
MAX_WORDS = 12
_MIN_CHARS = 3
_BREAK = "¶"  # a word that no name has
_BLOCK = 1 << 16  # names that are looked through at once
_IN_WORD = np.array([chr(code).isalnum() and code < 128 for code in range(256)])
_LONG_NAMES: WeakKeyDictionary[KnowledgeBase, dict[int, int]] = WeakKeyDictionary()


class _Word(NamedTuple):
    """A normalised word, and the token that it begins and that it ends; -1 inside a token."""

    text: str
    first: int
    last: int


def longest_names(doc: Doc, kb: KnowledgeBase) -> list[Span]:
    """Spans that are names of concepts, none inside another, left to right.

    None has half a pair of brackets, or a blank line in it. Very short names ("p", "at") are mostly
    something else in running text and are left out, but for those of two capitals ("MI") and those
    that were added to the knowledge base.
    """
    tokens = [token.text for token in doc]
    ends = _longest_ends(_words(tokens, range(len(doc) + 1)), kb)
    # "10mg" is two tokens and, in a name, one word.
    borders = _word_borders(doc, tokens)
    if len(borders) <= len(doc):
        for first, last in _longest_ends(_words(tokens, borders), kb).items():
            ends[first] = max(last, ends.get(first, last))
    spans: list[Span] = []
    for start in sorted(ends):
        span = _with_brackets(doc[start : ends[start] + 1])
        free = span is not None and (not spans or span.start >= spans[-1].end)
        if span is not None and free and (len(span.text) >= _MIN_CHARS or _is_name(span.text, kb)):
            spans.append(span)
    return spans


def _is_name(text: str, kb: KnowledgeBase) -> bool:
    """Whether a short string is a name, with the same capitals."""
    (row,) = kb.lookup_names([normalize_token(text)]).tolist()
    is_meant = len(text) > 1 and text.isalpha() and text.isupper()
    return row >= 0 and bool(is_meant or kb.is_added[row]) and kb.name(row) == text


def _with_brackets(span: Span) -> Span | None:
    """The span, with a bracket beside it whose other half it has; None if that leaves a half.

    Brackets are no part of the words by which names are found.
    """
    doc, start, end = span.doc, span.start, span.end
    for first, last in ((start, end), (start, end + 1), (start - 1, end)):
        if first >= 0 and last <= len(doc) and has_whole_brackets(doc[first:last].text):
            return doc[first:last]
    return None


def _word_borders(doc: Doc, tokens: Sequence[str]) -> list[int]:
    """First tokens of what stands between separators, each of which is by itself; and the end."""
    ends = [token.whitespace_ != "" or not _in_word(token.text[-1]) for token in doc]
    begins = [not _in_word(token[0]) for token in tokens]
    inner = [i for i in range(1, len(doc)) if ends[i - 1] or begins[i]]
    return [0, *inner, len(doc)]


def _in_word(char: str) -> bool:
    return char.isalnum() or unicodedata.combining(char) > 0


def _words(tokens: Sequence[str], borders: Sequence[int]) -> list[_Word]:
    """Words of the stretches of tokens between borders, each normalised as a whole."""
    words = []
    for first, end in pairwise(borders):
        text = "".join(tokens[first:end])
        texts = [_BREAK] if BLANK_LINE.search(text) else normalize_token(text).split()
        for number, text in enumerate(texts, start=1):
            begins, ends = number == 1, number == len(texts)
            words.append(_Word(text, first if begins else -1, end - 1 if ends else -1))
    return words


def _longest_ends(words: list[_Word], kb: KnowledgeBase) -> dict[int, int]:
    """Last token of the longest name that begins at a token, for each token where one begins."""
    texts = [word.text for word in words]
    keys = span_keys(texts, MAX_WORDS)
    rows = kb.lookup(keys)
    ends: dict[int, int] = {}
    for start, width in zip(*(found.tolist() for found in np.nonzero(rows >= 0)), strict=True):
        _add(ends, words, start, start + width)
    longest = _long_names(kb)
    for start, key in enumerate(keys[:, MAX_WORDS - 1].tolist()) if longest else ():
        if key in longest:
            found = kb.lookup(span_keys(texts[start : start + longest[key]], longest[key])[0])
            for width in np.flatnonzero(found >= 0).tolist():
                _add(ends, words, start, start + width)
    return ends


def _add(ends: dict[int, int], words: list[_Word], start: int, end: int) -> None:
    """Add a name of whole tokens; longer names come later."""
    if words[start].first >= 0 and words[end].last >= 0:
        ends[words[start].first] = words[end].last


def _long_names(kb: KnowledgeBase) -> dict[int, int]:
    """Names of more than MAX_WORDS words: the key of these, to the words of the longest name."""
    if kb not in _LONG_NAMES:
        longest: dict[int, int] = {}
        names = (name.split() for name in normalize_names(kb.names.take(_broken_often(kb))))
        long = [words for words in names if len(words) > MAX_WORDS]
        keys = name_keys(" ".join(words[:MAX_WORDS]) for words in long)
        for key, words in zip(keys.tolist(), long, strict=True):
            longest[key] = max(len(words), longest.get(key, 0))
        _LONG_NAMES[kb] = longest
    return _LONG_NAMES[kb]


def _broken_often(kb: KnowledgeBase) -> NDArray[np.int64]:
    """Rows of names with MAX_WORDS bytes or more that may separate words: few, and soon found."""
    raw, offsets = kb.names.raw()
    found = [np.zeros(0, dtype=np.int64)]
    for first in range(0, kb.n_names, _BLOCK):
        borders = offsets[first : first + _BLOCK + 1].astype(np.int64)
        may_separate = ~_IN_WORD[raw[borders[0] : borders[-1]]]
        counts = np.add.reduceat(may_separate, borders[:-1] - borders[0], dtype=np.int64)
        found.append(first + np.flatnonzero(counts > MAX_WORDS))  # a line end is one of them
    return np.concatenate(found)
