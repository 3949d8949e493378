"""Documents with the token vectors that our pipes listen to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spacy.language import Language
from spacy.pipeline import Tok2Vec
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model

from spacy_bioel.errors import BioelError, Errors


def with_token_vectors(
    nlp: Language, docs: Iterable[Doc], *, batch_size: int = 32
) -> Iterator[Doc]:
    """Documents after the pipes whose token vectors ours may listen to, and no others."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, Tok2Vec):
            docs = pipe.pipe(docs, batch_size=batch_size)
    yield from docs


def listens(model: Model) -> bool:
    """Whether a part of the model reads the token vectors of another pipe."""
    return any(isinstance(layer, Tok2VecListener) for layer in model.walk())


def require_token_vectors(model: Model, docs: Iterable[Doc]) -> None:
    """Refuse documents of which a listener in the model would get zeros, in silence.

    RAISES BioelError: [B174] when the pipe that it listens to has not been there.
    """
    if listens(model) and any(len(doc) and not doc.tensor.size for doc in docs):
        raise BioelError(Errors.B174.format(model=model.name))
