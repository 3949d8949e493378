"""Mentions without a trained detector: the longest names of a knowledge base in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span

from spacy_bioel.kb.knowledge_base import KnowledgeBase, name_keys, span_keys
from spacy_bioel.text.normalize import (
    BLANK_LINE,
    has_whole_brackets,
    normalize_name,
    normalize_names,
)

# Spans of so many words are looked up at all places, longer ones where such a name begins.
MAX_WORDS = 12
_MIN_CHARS = 3
_BREAK = "¶"  # a word that no name has
_BLOCK = 1 << 16  # names that are looked through at once
_IN_WORD = np.array([chr(code).isalnum() and code < 128 for code in range(256)])
_LONG_NAMES: WeakKeyDictionary[KnowledgeBase, dict[int, int]] = WeakKeyDictionary()


def longest_names(doc: Doc, kb: KnowledgeBase) -> list[Span]:
    """Find the spans that are names of concepts, none inside another, left to right.

    Spans with half a pair of brackets or a blank line are left out. So are very short names ("p",
    "at"), except two capitals ("MI") and names that were added to the knowledge base.
    """
    tokens = [token.text for token in doc]
    ends = _longest_ends(tokens, range(len(doc) + 1), kb)
    # "10mg" is two tokens and, in a name, one word.
    borders = _word_borders(doc, tokens)
    if len(borders) <= len(doc):
        for first, last in _longest_ends(tokens, borders, kb).items():
            ends[first] = max(last, ends.get(first, last))
    spans: list[Span] = []
    for start in sorted(ends):
        span = _with_brackets(doc[start : ends[start] + 1])
        if span is None or (spans and span.start < spans[-1].end):
            continue
        if len(span.text) >= _MIN_CHARS or _is_name(span.text, kb):
            spans.append(span)
    return spans


def _is_name(text: str, kb: KnowledgeBase) -> bool:
    """Tell whether a short string is a name, with the same capitals."""
    (row,) = kb.lookup_names([normalize_name(text)]).tolist()
    is_meant = len(text) > 1 and text.isalpha() and text.isupper()
    return row >= 0 and bool(is_meant or kb.is_added[row]) and kb.name(row) == text


def _with_brackets(span: Span) -> Span | None:
    """Add the adjacent other half of a bracket in the span; None if a half remains.

    Names are found by their words, without brackets.
    """
    doc, start, end = span.doc, span.start, span.end
    for first, last in ((start, end), (start, end + 1), (start - 1, end)):
        if first >= 0 and last <= len(doc) and has_whole_brackets(doc[first:last].text):
            return doc[first:last]
    return None


def _word_borders(doc: Doc, tokens: Sequence[str]) -> list[int]:
    """List the first tokens of stretches between separators, of the separators, and the end."""
    ends = [token.whitespace_ != "" or not _in_word(token.text[-1]) for token in doc]
    begins = [not _in_word(token[0]) for token in tokens]
    inner = [i for i in range(1, len(doc)) if ends[i - 1] or begins[i]]
    return [0, *inner, len(doc)]


def _in_word(char: str) -> bool:
    return char.isalnum() or unicodedata.combining(char) > 0


def _longest_ends(
    tokens: Sequence[str], borders: Sequence[int], kb: KnowledgeBase
) -> dict[int, int]:
    """Map each token where a name begins to the last token of the longest such name.

    borders (Sequence[int]): Of stretches of tokens that are normalised as a whole.
    """
    texts: list[str] = []
    firsts: list[int] = []  # token that a word begins; -1 inside a stretch
    lasts: list[int] = []  # token that it ends
    for first, end in pairwise(borders):
        text = "".join(tokens[first:end])
        words = [_BREAK] if BLANK_LINE.search(text) else normalize_name(text).split()
        inner = [-1] * (len(words) - 1)
        texts += words
        firsts += [first, *inner] if words else []
        lasts += [*inner, end - 1] if words else []
    keys = span_keys(texts, MAX_WORDS)
    rows = kb.lookup(keys)
    ends: dict[int, int] = {}

    def add(start: int, end: int) -> None:
        """Add a name of whole tokens; longer names come later."""
        if firsts[start] >= 0 and lasts[end] >= 0:
            ends[firsts[start]] = lasts[end]

    for start, width in np.argwhere(rows >= 0).tolist():
        add(start, start + width)
    longest = _long_names(kb)
    for start, key in enumerate(keys[:, MAX_WORDS - 1].tolist()) if longest else ():
        if key in longest:
            found = kb.lookup(span_keys(texts[start : start + longest[key]], longest[key])[0])
            for width in np.flatnonzero(found >= 0).tolist():
                add(start, start + width)
    return ends


def _long_names(kb: KnowledgeBase) -> dict[int, int]:
    """Map the key of the first MAX_WORDS words to the word count of the longest name with them."""
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
    """List the few rows of names with at least MAX_WORDS bytes that may separate words."""
    raw, offsets = kb.names.raw()
    found = [np.zeros(0, dtype=np.int64)]
    for first in range(0, kb.n_names, _BLOCK):
        borders = offsets[first : first + _BLOCK + 1].astype(np.int64)
        may_separate = ~_IN_WORD[raw[borders[0] : borders[-1]]]
        counts = np.add.reduceat(may_separate, borders[:-1] - borders[0], dtype=np.int64)
        found.append(first + np.flatnonzero(counts > MAX_WORDS))  # a line end is one of them
    return np.concatenate(found)
