"""The fast CNN of inference against the one that is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spacy
from spacy.ml.models.tok2vec import (
    MaxoutWindowEncoder,
    MishWindowEncoder,
    MultiHashEmbed,
    build_Tok2Vec_model,
)
from spacy.tokens import Doc
from thinc.api import Model, fix_random_seed, with_array

from spacy_bioel.models import tok2vec as module
from spacy_bioel.models.tok2vec import token_vectors

NLP = spacy.blank("en")
WORDS = "Aspirin caused acute kidney injury ( AKI ) in 2 of 7 patients . AKI was severe .".split()
TEXTS = (WORDS, [], ["fever"], WORDS * 200, WORDS[::-1])
DOCS = [Doc(NLP.vocab, words=words) for words in TEXTS]


def make_tok2vec(encode: Any = MaxoutWindowEncoder, **settings: int) -> Model:
    fix_random_seed(0)
    attrs = ["NORM", "PREFIX", "SHAPE"]
    embed = MultiHashEmbed(16, attrs, rows=[200, 100, 50], include_static_vectors=False)
    tok2vec = build_Tok2Vec_model(embed, encode(16, **({"window_size": 2, "depth": 3} | settings)))
    tok2vec.initialize(X=DOCS)
    for layer in tok2vec.walk():
        # What starts at 0 or 1 is random.
        for name in ("b", "G"):
            if layer.has_param(name):
                shape = layer.get_param(name).shape
                layer.set_param(name, np.random.normal(0.5, 0.3, shape).astype("float32"))
    return tok2vec


def reference(tok2vec: Model, docs: list[Doc]) -> np.ndarray:
    vectors = tok2vec.predict(docs)
    return np.concatenate([v[: len(doc)] for v, doc in zip(vectors, docs, strict=True)])


@pytest.mark.parametrize("pieces", [1, 3])
def test_vectors_are_those_of_thinc(pieces: int) -> None:
    tok2vec = make_tok2vec(maxout_pieces=pieces)
    found = token_vectors(tok2vec, DOCS)
    assert found.shape == (len(WORDS) * 202 + 1, 16)
    assert module._is_known(tok2vec)
    assert np.abs(found - reference(tok2vec, DOCS)).max() < 1e-5


def test_each_document_as_if_it_were_alone() -> None:
    tok2vec = make_tok2vec(maxout_pieces=3)
    alone = np.concatenate([token_vectors(tok2vec, [doc]) for doc in DOCS])
    assert np.abs(token_vectors(tok2vec, DOCS) - alone).max() < 1e-5


def test_weights_that_changed_count() -> None:
    tok2vec = make_tok2vec(maxout_pieces=3)
    before = token_vectors(tok2vec, DOCS)
    maxout = next(layer for layer in tok2vec.get_ref("encode").walk() if layer.name == "maxout")
    maxout.set_param("W", -maxout.get_param("W"))
    assert np.abs(token_vectors(tok2vec, DOCS) - before).max() > 0.01
    assert np.abs(token_vectors(tok2vec, DOCS) - reference(tok2vec, DOCS)).max() < 1e-5


def test_documents_without_tokens() -> None:
    assert token_vectors(make_tok2vec(maxout_pieces=3), DOCS[1:2]).shape == (0, 16)


def test_other_architectures_run_as_they_are() -> None:
    tok2vec = make_tok2vec(MishWindowEncoder)
    assert not module._is_known(tok2vec)
    assert np.array_equal(token_vectors(tok2vec, DOCS), reference(tok2vec, DOCS))


def doubled(layer: Model, inputs: Any, is_train: bool) -> Any:
    return 2 * inputs, lambda gradient: 2 * gradient


def replace(tok2vec: Model, name: str, new: Model) -> None:
    """Put a layer in the place of the first of this name in the encoder."""
    for parent in tok2vec.get_ref("encode").walk():
        for place, layer in enumerate(parent.layers):
            if layer.name == name:
                parent.layers[place] = new
                return


def test_a_layer_that_has_the_name_of_another_runs_as_it_is() -> None:
    tok2vec = make_tok2vec(maxout_pieces=3)
    expected = token_vectors(tok2vec, DOCS)
    replace(tok2vec, "dropout", Model("dropout", doubled))
    found = token_vectors(tok2vec, DOCS)
    assert np.array_equal(found, reference(tok2vec, DOCS))
    assert np.abs(found - expected).max() > 0.1


def test_a_known_layer_with_more_parameters_runs_as_it_is() -> None:
    tok2vec = make_tok2vec(maxout_pieces=3)
    maxout = next(layer for layer in tok2vec.get_ref("encode").walk() if layer.name == "maxout")
    maxout.set_param("scale", np.ones(16, dtype="float32"))
    assert np.array_equal(token_vectors(tok2vec, DOCS), reference(tok2vec, DOCS))


def test_what_comes_after_the_encoder_is_not_left_out() -> None:
    tok2vec = make_tok2vec(maxout_pieces=3)
    tok2vec.layers.append(with_array(Model("double", doubled)))
    assert np.array_equal(token_vectors(tok2vec, DOCS), reference(tok2vec, DOCS))


def test_rows_of_small_numbers_are_told_apart() -> None:
    rows = np.array([[7, 5, 0], [7, 0, 3], [7, 5, 0]], dtype=np.uint64)
    different, number = module._unique_rows(rows)
    assert different[number].tolist() == [[7, 5, 0], [7, 0, 3], [7, 5, 0]]
    assert len(different) == 2
