"""Documents as a network reads them, whatever their lines: breaks within a paragraph are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import IS_SPACE
from spacy.tokens import Doc

from spacy_bioel.text.normalize import BLANK_LINE


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
