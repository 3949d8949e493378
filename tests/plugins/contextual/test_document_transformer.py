"""`spacy-bioel.Transformer.v1`: vectors of tokens, its files, and settings that are refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import srsly
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save
from spacy.language import Language
from spacy.tokens import Doc
from tables import cases
from thinc.api import SGD
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.contextual.document_transformer import align, build_transformer_v1

pytest.importorskip("transformers")
LETTERS = "the heart attack was not a renal failure"


def make_transformer(path: Path | str | None, **settings: Any) -> Any:
    """One that reads documents, in windows as long as the fixture `checkpoint` can read."""
    settings = {"width": 32, "max_pieces": 32, "overlap": 8} | settings
    return build_transformer_v1(path=None if path is None else str(path), **settings)


def read_transformer(path: Path | str, **settings: Any) -> Any:
    model = make_transformer(path, **settings)
    model.initialize()
    return model


@pytest.fixture(scope="module")
def nlp() -> Language:
    return spacy.blank("en")


@pytest.fixture(scope="module")
def transformer(checkpoint) -> Any:
    return read_transformer(checkpoint)


def states(checkpoint: Path, ids: list[int]) -> NDArray[np.float32]:
    """Hidden states of the checkpoint itself for one window."""
    from transformers import AutoModel

    with torch.no_grad():
        return AutoModel.from_pretrained(checkpoint)(torch.tensor([ids]))[0][0].numpy()


# Vectors.


def test_a_token_is_the_mean_of_its_pieces(transformer, nlp, checkpoint):
    vectors = transformer.predict([nlp("heart attacks")])[0]
    # [CLS] heart attack ##s [SEP]
    expected = states(checkpoint, [2, 42, 43, 46, 3])
    assert vectors.shape == (2, 32) and vectors.dtype == np.float32
    assert np.abs(vectors[0] - expected[1]).max() < 1e-5
    assert np.abs(vectors[1] - (expected[2] + expected[3]) / 2).max() < 1e-5


def test_vectors_do_not_depend_on_the_batch(transformer, nlp):
    texts = ["", LETTERS, " \n\t ", "heart", f"{LETTERS}. " * 9, "", "renal failure, acute", "\x07"]
    docs = [nlp.make_doc(text) for text in texts]
    together = transformer.predict(docs)
    assert [len(vectors) for vectors in together] == [len(doc) for doc in docs]
    for doc, vectors in zip(docs, together, strict=True):
        (alone,) = transformer.predict([doc])
        assert alone.shape == vectors.shape == (len(doc), 32)
        assert np.abs(alone - vectors).max(initial=0.0) < 1e-5
    assert not together[2].any()
    assert together[3].any()
    backwards = transformer.predict(docs[::-1])[::-1]
    for one, other in zip(together, backwards, strict=True):
        assert np.abs(one - other).max(initial=0.0) < 1e-5


def test_nothing_to_learn_from_empty_documents(transformer, nlp):
    _, backprop = transformer.begin_update([nlp(""), nlp("  ")])
    assert backprop([np.zeros((0, 32), "f"), np.ones((1, 32), "f")]) == []


def test_a_long_document_is_what_its_windows_are(checkpoint, nlp):
    model = read_transformer(checkpoint, max_pieces=10, overlap=2)
    words = [*"abcdefghijklmnopqrst"]
    vectors = model.predict([Doc(nlp.vocab, words=words)])[0]
    ids = [5 + i for i in range(20)]  # a is piece 5
    # Eight pieces a window beside [CLS] and [SEP]; of two that both have, one is used of each.
    windows = [(0, 8, 0, 7), (6, 14, 7, 13), (12, 20, 13, 20)]
    for start, end, first, last in windows:
        expected = states(checkpoint, [2, *ids[start:end], 3])[1:-1][first - start : last - start]
        assert np.abs(vectors[first:last] - expected).max() < 1e-5


def test_limits_stored_with_the_word_pieces_do_not_count(copy, nlp):
    words = [*"abcdefghij"]
    expected_model = read_transformer(copy)
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=20)
    tokenizer.save(str(copy / "tokenizer.json"))
    model = read_transformer(copy)
    docs = [Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=["a"])]
    for found, expected in zip(model.predict(docs), expected_model.predict(docs), strict=True):
        assert np.array_equal(found, expected)
        assert found.any(axis=1).all()


# Word pieces and tokens.


@pytest.mark.parametrize(("words", "spaces", "expected"), cases(__file__, "pieces_of_tokens"))
def test_pairs_of_pieces_and_tokens(checkpoint, nlp, words, spaces, expected):
    doc = Doc(nlp.vocab, words=words, spaces=spaces)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    encoding = tokenizer.encode(doc.text, add_special_tokens=False)
    pairs = zip(*align(doc, encoding.offsets), strict=True)
    assert [f"{doc[int(t)].text} {encoding.tokens[p]}" for p, t in pairs] == [*expected]


def test_windows_begin_at_sentences(checkpoint, nlp):
    model = read_transformer(checkpoint, max_pieces=10, overlap=0)
    one, other = ["A", "b", "c", "d", "e", "."], ["F", "g", "h", "."]
    vectors = model.predict([Doc(nlp.vocab, words=one + other)])[0]
    alone = model.predict([Doc(nlp.vocab, words=words) for words in (one, other)])
    assert np.abs(vectors - np.concatenate(alone)).max() < 1e-5


# Files, learning rate, and settings that are refused.


def test_stored_without_pickle_and_read_without_checkpoint(copy, nlp):
    model = read_transformer(copy, learn_rate_scale=0.5)
    docs = [nlp.make_doc(LETTERS), nlp.make_doc("heart " * 50)]
    before = model.predict(docs)
    data = model.to_bytes()
    shutil.rmtree(copy)
    again = make_transformer(copy, learn_rate_scale=0.5).from_bytes(data)
    for one, other in zip(before, again.predict(docs), strict=True):
        assert np.array_equal(one, other)
    assert again.to_bytes() == data
    assert again.shims[0]._model.learn_rate_scale == 0.5
    stored = model.shims[0].to_bytes()
    assert sorted(srsly.msgpack_loads(stored)) == ["cfg", "config", "tokenizer", "weights"]
    # Neither the zip file of torch.save nor the opcodes with which a pickle begins.
    assert b"PK\x03\x04" not in stored and not stored.startswith(b"\x80")
    again.initialize()  # what is there is kept
    assert np.array_equal(again.predict(docs)[0], before[0])
    empty = make_transformer(None)
    assert empty.shims[0].to_bytes() == b""
    assert make_transformer(None).from_bytes(empty.to_bytes()).shims[0]._model is None


def test_weights_that_do_not_fit(transformer):
    parts = srsly.msgpack_loads(transformer.shims[0].to_bytes())
    tensors = load(parts["weights"])
    del tensors["backbone.embeddings.word_embeddings.weight"]
    for weights, named in ((save(tensors), "word_embeddings"), (parts["weights"][:100], "")):
        data = srsly.msgpack_dumps(parts | {"weights": weights})
        with pytest.raises(BioelError, match=rf"(?s)\[B041\].*{named}"):
            make_transformer(None).shims[0].from_bytes(data)


def test_learning_moves_weights_at_their_own_rate(checkpoint, nlp):
    def step(scale: float) -> float:
        torch.manual_seed(0)
        model = read_transformer(checkpoint, learn_rate_scale=scale)
        weight = model.shims[0]._model.backbone.embeddings.word_embeddings.weight
        before = weight.detach().clone()
        _, backprop = model.begin_update([nlp.make_doc("heart"), nlp.make_doc("")])
        # Of one number: the sum of all is the same for any weights, as layers are normalised.
        d_heart = np.zeros((1, 32), "f")
        d_heart[0, 0] = 1.0
        backprop([d_heart, np.zeros((0, 32), "f")])
        model.finish_update(SGD(1e-3, L2=0.0, grad_clip=0.0))
        return float((weight.detach() - before).abs().sum())

    assert step(1.0) > 0
    assert step(0.1) == pytest.approx(0.1 * step(1.0), rel=1e-2)


@pytest.mark.parametrize(
    ("max_pieces", "overlap"), [(7, 0), (0, 0), (100, 26), (512, -1), (-5, -5), (512, 129)]
)
def test_windows_too_short_for_their_overlap(max_pieces, overlap):
    found = rf"\[B170\] max_pieces = {max_pieces} .*overlap = {overlap}:"
    with pytest.raises(BioelError, match=found):
        build_transformer_v1(max_pieces=max_pieces, overlap=overlap)


def test_no_network(checkpoint, nlp):
    for path, settings, error in (
        (None, {}, r"\[B171\].*components.tok2vec.model"),
        ("", {}, r"\[B171\]"),
        ("/no/such/folder", {}, r"\[B152\] /no/such/folder"),
        (checkpoint, {"width": 768}, r"\[B154\].*found vectors of 32 .*width setting, 768"),
    ):
        model = make_transformer(path, **settings)  # which reads nothing
        with pytest.raises(BioelError, match=error):
            model.initialize()
    with pytest.raises(BioelError, match=r"\[B172\].*spacy train"):
        make_transformer(checkpoint).predict([nlp("heart")])
