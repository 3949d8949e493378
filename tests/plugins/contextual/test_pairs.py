"""Word pieces of pairs of a mention and a candidate."""

import pytest
from tables import cases
from tokenizers import Tokenizer, models, pre_tokenizers

from spacy_bioel.plugins.contextual.reranker import PairPieces, RerankerPair

WORDS = ["[UNK]", "[CLS]", "[SEP]", "[Ms]", "[Me]", *"abcdefghijklmnopqrstuvwxyz"]


def make_pieces(max_pieces: int) -> PairPieces:
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PairPieces(tokenizer, [1], [2], (3, 4), max_pieces)


def encoded(pieces: PairPieces, *pair: str) -> str:
    ids, _, lengths = pieces([RerankerPair(*pair)])
    assert lengths.tolist() == [len(ids)]
    return " ".join(WORDS[i] for i in ids)


def test_all_pairs_one_after_another():
    pairs = [
        RerankerPair("a b", "m n", "c", "x y"),
        RerankerPair("", "m", "", ""),
        RerankerPair("a b", "m n", "c", "z"),
    ]
    ids, segments, lengths = make_pieces(32)(pairs)
    first = "[CLS] a b [Ms] m n [Me] c [SEP] x y [SEP]"
    last = "[CLS] a b [Ms] m n [Me] c [SEP] z [SEP]"
    text = f"{first} [CLS] [Ms] m [Me] [SEP] [SEP] {last}"
    assert " ".join(WORDS[i] for i in ids) == text
    assert lengths.tolist() == [12, 6, 11]
    assert segments.tolist() == [0] * 9 + [1] * 3 + [0] * 5 + [1] + [0] * 9 + [1] * 2
    assert (ids.dtype, segments.dtype, lengths.dtype) == ("int64", "int64", "int64")
    assert [array.tolist() for array in make_pieces(32)([])] == [[], [], []]


@pytest.mark.parametrize(("left", "right", "expected"), cases(__file__, "balanced"))
def test_the_window_is_balanced(left, right, expected):
    assert encoded(make_pieces(11), left, "m", right, "x") == expected


@pytest.mark.parametrize(("mention", "candidate", "expected"), cases(__file__, "cut_last"))
def test_mention_and_candidate_are_cut_last(mention, candidate, expected):
    assert encoded(make_pieces(11), "a b c", mention, "d e f", candidate) == expected
