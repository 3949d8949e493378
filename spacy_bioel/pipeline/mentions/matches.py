"""Matches of a lexicon in documents: features of tokens for networks that find mentions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH
from spacy.tokens import Doc

from spacy_bioel.kb.columns.ragged import name_keys
from spacy_bioel.kb.words.lexicon import Lexicon, unpack_bits
from spacy_bioel.models.detector import SHORT_FORM
from spacy_bioel.models.torch_io import MentionBatch
from spacy_bioel.pipeline.short_forms import long_forms
from spacy_bioel.text.abbreviations import find_short_forms
from spacy_bioel.text.normalize import normalize_name, normalize_token


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
