"""Docs of spaCy as they come from a pipeline, with or without ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spacy.tokens import Doc

Docs = Doc | Iterable[Doc | tuple[Doc, Any]]
_ID = "bioel_id"  # of corpora, see `corpus.text_to_doc`


def with_ids(docs: Docs) -> Iterator[tuple[Doc, str | int]]:
    """Yield each Doc with its id.

    docs (Doc | Iterable): A Doc, or a stream of them, or of pairs of a Doc and its id, as
        `nlp.pipe(..., as_tuples=True)` makes them.
    YIELDS (tuple): Doc, and its id: given, or from a corpus, or else its number, from 0.
    """
    for number, item in enumerate([docs] if isinstance(docs, Doc) else docs):
        if isinstance(item, Doc):
            yield item, item.user_data.get(_ID) or number
        else:
            yield item
