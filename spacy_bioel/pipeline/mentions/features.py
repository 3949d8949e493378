"""What a network that finds mentions reads: tokens without line breaks, and lexicon matches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IS_SPACE, ORTH
from spacy.tokens import Doc

from spacy_bioel.kb.columns.keys import name_keys
from spacy_bioel.kb.words.lexicon import Lexicon, unpack_bits
from spacy_bioel.models.detector import SHORT_FORM, MentionBatch
from spacy_bioel.pipeline.short_forms import long_forms
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import BLANK_LINE, normalize_names


def without_breaks(doc: Doc) -> tuple[Doc, NDArray[np.int64]]:
    """Drop the tokens of white space, except blank lines.

    RETURNS (tuple): The document, itself if it has no such token, and the tokens that are left.
    """
    breaks = np.flatnonzero(doc.to_array([IS_SPACE]).ravel())
    dropped = [i for i in breaks.tolist() if not BLANK_LINE.search(doc[i].text)]
    kept = np.delete(np.arange(len(doc)), dropped)
    if not dropped:
        return doc, kept
    tokens = [doc[i] for i in kept.tolist()]
    before_break = set(dropped)
    spaces = [bool(token.whitespace_) or token.i + 1 in before_break for token in tokens]
    return Doc(doc.vocab, [token.text for token in tokens], spaces), kept


def match_lexicon(lexicon: Lexicon, docs: list[Doc], *, max_width: int) -> MentionBatch:
    """Match documents with names, and with words of names.

    max_width (int): The longest match in tokens.
    """
    lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
    tokens = _normalized_tokens(docs)
    spans = [np.stack(lexicon.match_spans(tokens, max_width, lengths=lengths), axis=1)]
    for doc, offset in zip(docs, np.cumsum(lengths) - lengths, strict=True):
        spans.append(_short_forms(lexicon, doc, max_width=max_width) + [offset, 0, 0])
    words = np.stack(lexicon.match_words(tokens), axis=1)
    return MentionBatch(docs, np.concatenate(spans), words)


def _short_forms(lexicon: Lexicon, doc: Doc, *, max_width: int) -> NDArray[np.int64]:
    """Match the abbreviations that the document defines by their long forms. Shape (n, 3)."""
    found = []
    long_of = long_forms(doc)
    places = find_short_forms(doc.text, long_of) if long_of else {}
    keys = name_keys(normalize_names(list(long_of.values())))
    for short, key in zip(long_of, keys, strict=True):
        bits = [SHORT_FORM, *unpack_bits(lexicon.names.find(key[None]))[1].tolist()]
        for start_char, end_char in places[short]:
            span = doc.char_span(start_char, end_char)
            if span is not None and len(span) <= max_width:
                found += [(span.start, len(span) - 1, bit) for bit in bits]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def _normalized_tokens(docs: Iterable[Doc]) -> list[str]:
    """Normalise the tokens of all documents, each different one of a document once."""
    found: list[str] = []
    for doc in docs:
        ids = doc.to_array(ORTH).tolist()
        different = list(dict.fromkeys(ids))
        words = normalize_names([doc.vocab.strings[id_] for id_ in different])
        found += map(dict(zip(different, words, strict=True)).__getitem__, ids)
    return found
