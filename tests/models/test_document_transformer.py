"""`spacy-bioel.Transformer.v1`: vectors of tokens, whatever the batch, the length or the pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from tiny_models import LETTERS, make_transformer
from tokenizers import Regex, Tokenizer, pre_tokenizers

from spacy_bioel.models.document_transformer import _borders, align

pytest.importorskip("transformers")


def tokens_and_pieces(doc: Doc, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    encoding = tokenizer.encode(doc.text, add_special_tokens=False)
    piece, token = align(doc, encoding.offsets)
    return [(doc[int(t)].text, encoding.tokens[p]) for p, t in zip(piece, token, strict=True)]


def states(checkpoint: Path, ids: list[int]) -> NDArray[np.float32]:
    """Hidden states of the checkpoint itself for one window."""
    import torch
    from transformers import AutoModel

    with torch.no_grad():
        return AutoModel.from_pretrained(checkpoint)(torch.tensor([ids]))[0][0].numpy()


# Vectors.


def test_a_token_is_the_mean_of_its_pieces(
    transformer: Any, nlp: Language, checkpoint: Path
) -> None:
    vectors = transformer.predict([nlp("heart attacks")])[0]
    # [CLS] heart attack ##s [SEP]
    expected = states(checkpoint, [2, 42, 43, 46, 3])
    assert vectors.shape == (2, 32) and vectors.dtype == np.float32
    assert np.abs(vectors[0] - expected[1]).max() < 1e-5
    assert np.abs(vectors[1] - (expected[2] + expected[3]) / 2).max() < 1e-5


def test_vectors_do_not_depend_on_the_batch(transformer: Any, nlp: Language) -> None:
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


def test_nothing_but_empty_documents(transformer: Any, nlp: Language) -> None:
    vectors = transformer.predict([nlp(""), nlp("  "), nlp("")])
    assert [part.shape for part in vectors] == [(0, 32), (1, 32), (0, 32)]
    assert not vectors[1].any()
    _, backprop = transformer.begin_update([nlp(""), nlp("  ")])
    assert backprop([np.zeros((0, 32), "f"), np.ones((1, 32), "f")]) == []


def test_a_long_document_is_what_its_windows_are(checkpoint: Path, nlp: Language) -> None:
    model = make_transformer(checkpoint, max_pieces=10, overlap=2)
    model.initialize()
    words = [*"abcdefghijklmnopqrst"]
    vectors = model.predict([Doc(nlp.vocab, words=words)])[0]
    ids = [5 + i for i in range(20)]  # a is piece 5
    # Eight pieces a window beside [CLS] and [SEP]; of two that both have, one is used of each.
    windows = [(0, 8, 0, 7), (6, 14, 7, 13), (12, 20, 13, 20)]
    for start, end, first, last in windows:
        expected = states(checkpoint, [2, *ids[start:end], 3])[1:-1][first - start : last - start]
        assert np.abs(vectors[first:last] - expected).max() < 1e-5


def test_cuts_do_not_change_what_lies_beyond_the_overlap(transformer: Any, nlp: Language) -> None:
    words = [*("abcdefgh" * 40)]
    whole = transformer.predict([Doc(nlp.vocab, words=words)])[0]
    # The first window has 30 pieces, and the next begins at 22 and is used from 26.
    first = transformer.predict([Doc(nlp.vocab, words=words[:30])])[0]
    assert np.abs(whole[:26] - first[:26]).max() < 1e-5
    assert np.abs(whole[26:30] - first[26:30]).max() > 1e-3
    # A change of the last word does not reach further than its own window.
    changed = transformer.predict([Doc(nlp.vocab, words=[*words[:-1], "z"])])[0]
    assert np.abs(whole[:-30] - changed[:-30]).max() < 1e-5
    assert np.abs(whole[-1] - changed[-1]).max() > 1e-3


@pytest.mark.parametrize("n", [2_500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_very_long_documents_are_read_to_their_end(transformer: Any, nlp: Language, n: int) -> None:
    words = ["heart", "renal", "failure", "of", "x"] * (n // 5)
    (vectors,) = transformer.predict([Doc(nlp.vocab, words=words)])
    assert vectors.shape == (n, 32)
    assert vectors.any(axis=1).all()
    other = transformer.predict([Doc(nlp.vocab, words=[*words[:-1], "heart"])])[0]
    changed = np.abs(other - vectors).max(axis=1) > 1e-3
    assert changed[-1] and not changed[: n - 30].any()


def test_limits_stored_with_the_word_pieces_do_not_count(copy: Path, nlp: Language) -> None:
    words = [*"abcdefghij"]
    expected_model = make_transformer(copy)
    expected_model.initialize()
    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=20)
    tokenizer.save(str(copy / "tokenizer.json"))
    model = make_transformer(copy)
    model.initialize()
    docs = [Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=["a"])]
    for found, expected in zip(model.predict(docs), expected_model.predict(docs), strict=True):
        assert np.array_equal(found, expected)
        assert found.any(axis=1).all()


# Word pieces and tokens.


@pytest.mark.parametrize(
    ("words", "spaces", "expected"),
    [
        (["renals", "heart"], [True, False], ["renals renal", "renals ##s", "heart heart"]),
        # One piece over several tokens, and over part of one.
        (["hea", "r", "t"], [False] * 3, ["hea heart", "r heart", "t heart"]),
        (["hear", "ts"], [False] * 2, ["hear heart", "ts heart", "ts ##s"]),
        # White space and control characters have none.
        (["a", "\n\n", "b", "\x07", "c"], [False] * 5, ["a a", "b b", "c ##c"]),
        (["ζ", "é"], [True, False], ["ζ [UNK]", "é e"]),
        (["e\u0301", "x"], [True, False], ["e\u0301 e", "x x"]),
        # Its lower-case form has two characters, of which the dot is an accent.
        (["İ", "a"], [False, False], ["İ i", "a ##a"]),
        (["🙂", "a"], [True, False], ["🙂 [UNK]", "a a"]),
        ([], [], []),
    ],
)
def test_pairs_of_pieces_and_tokens(
    checkpoint: Path, nlp: Language, words: list[str], spaces: list[bool], expected: list[str]
) -> None:
    doc = Doc(nlp.vocab, words=words, spaces=spaces)
    pairs = tokens_and_pieces(doc, Tokenizer.from_file(str(checkpoint / "tokenizer.json")))
    assert [f"{token} {piece}" for token, piece in pairs] == expected


def test_pieces_across_words(copy: Path, nlp: Language) -> None:
    """Pieces of another pre-tokenizer: a hyphen stays, and so do words around an underscore."""
    path = copy / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens(["heart attack"])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s*;\s*"), "removed")
    tokenizer.save(str(path))
    config = json.loads((copy / "config.json").read_text())
    doc = nlp.make_doc("heart attack; renal")
    assert [token.text for token in doc] == ["heart", "attack", ";", "renal"]
    assert tokens_and_pieces(doc, tokenizer) == [
        ("heart", "heart attack"),
        ("attack", "heart attack"),
        ("renal", "renal"),
    ]
    grow_embeddings(copy, config["vocab_size"] + 1)
    model = make_transformer(copy)
    model.initialize()
    vectors = model.predict([doc])[0]
    assert np.array_equal(vectors[0], vectors[1]) and vectors[0].any()
    assert not vectors[2].any() and vectors[3].any()


def grow_embeddings(folder: Path, n: int) -> None:
    from transformers import AutoModel

    backbone = AutoModel.from_pretrained(folder)
    backbone.resize_token_embeddings(n)
    backbone.save_pretrained(folder)


def test_tokens_without_pieces_are_zero(transformer: Any, nlp: Language) -> None:
    doc = Doc(nlp.vocab, words=["a", "\n", "b", "\x07", " ", "\u200b", "ζ"], spaces=[False] * 7)
    vectors = transformer.predict([doc])[0]
    assert vectors.any(axis=1).tolist() == [True, False, True, False, False, False, True]


@pytest.mark.parametrize(
    ("words", "offsets", "expected"),
    [
        # Tokens a | bc | . | D: an inner piece of bc, then a sentence.
        (["a", "bc", ".", "D"], [(0, 1), (2, 3), (3, 4), (5, 6), (7, 8)], [1, 1, 0, 1, 2]),
        (["a", ".", "d"], [(0, 1), (2, 3), (4, 5)], [1, 1, 1]),  # no capital
        (["a", ".", " ", "D"], [(0, 1), (2, 3), (6, 7)], [1, 1, 2]),
        (["a", "\n", "D"], [(0, 1), (4, 5)], [1, 2]),
        (["a", "\n", "d"], [(0, 1), (4, 5)], [1, 1]),
        # A piece that begins in one token and ends in the next cuts the first.
        (["ab", "cd"], [(0, 1), (1, 4), (4, 5)], [1, 0, 0]),
        (["a"], [], []),
        ([], [], []),
    ],
)
def test_what_a_cut_would_cut(
    nlp: Language, words: list[str], offsets: list[tuple[int, int]], expected: list[int]
) -> None:
    doc = Doc(nlp.vocab, words=words)
    assert _borders(doc, *align(doc, offsets), len(offsets)) == expected


def test_windows_begin_at_sentences(checkpoint: Path, nlp: Language) -> None:
    model = make_transformer(checkpoint, max_pieces=10, overlap=0)
    model.initialize()
    one, other = ["A", "b", "c", "d", "e", "."], ["F", "g", "h", "."]
    vectors = model.predict([Doc(nlp.vocab, words=one + other)])[0]
    alone = model.predict([Doc(nlp.vocab, words=words) for words in (one, other)])
    assert np.abs(vectors - np.concatenate(alone)).max() < 1e-5


def test_no_weight_of_attention_is_dropped(transformer: Any, checkpoint: Path) -> None:
    # A checkpoint drops some, which would keep PyTorch from its fused kernels.
    assert (
        json.loads((checkpoint / "config.json").read_text())["attention_probs_dropout_prob"] == 0.1
    )
    assert transformer.shims[0]._model.backbone.config.attention_probs_dropout_prob == 0.0
