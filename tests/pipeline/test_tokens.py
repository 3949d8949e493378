"""Token vectors of documents: their source, and the refusal of documents without them."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Linear, Model, chain

from spacy_bioel.errors import BioelError
from spacy_bioel.pipeline.stored_pipe import require_token_vectors, with_token_vectors


def listening() -> Model:
    return chain(Tok2VecListener("tok2vec", 4), Linear(2, 4))


def document(*words: str, read: bool = False) -> Doc:
    doc = Doc(Vocab(), words=list(words))
    if read:
        doc.tensor = np.zeros((len(words), 4), dtype="float32")
    return doc


def test_a_listener_demands_vectors_of_all_documents_with_tokens() -> None:
    require_token_vectors(listening(), [document("a", read=True), document()])
    with pytest.raises(BioelError, match=r"\[B174\] The model tok2vec-listener>>linear "):
        require_token_vectors(listening(), [document("a", read=True), document("b")])


def test_who_does_not_listen_demands_nothing() -> None:
    require_token_vectors(chain(Linear(4, 4), Linear(2, 4)), [document("a")])


def test_vectors_by_the_pipes_that_give_them_alone() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec").model.initialize()
    nlp.add_pipe("bioel_mentions")  # untrained: it would refuse
    docs = [nlp.make_doc("heart attack"), nlp.make_doc("")]
    assert [doc.tensor.shape for doc in with_token_vectors(nlp, docs)] == [(2, 96), (0, 96)]
