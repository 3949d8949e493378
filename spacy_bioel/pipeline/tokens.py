"""Documents with the token vectors that our pipes listen to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spacy.language import Language
from spacy.pipeline import Tok2Vec
from spacy.tokens import Doc


def with_token_vectors(
    nlp: Language, docs: Iterable[Doc], *, batch_size: int = 32
) -> Iterator[Doc]:
    """Documents after the pipes whose token vectors ours may listen to, and no others."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, Tok2Vec):
            docs = pipe.pipe(docs, batch_size=batch_size)
    yield from docs
