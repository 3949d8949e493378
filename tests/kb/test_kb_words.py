"""Names are found by keys, 3-grams and bags of their words, equal on every machine."""

import numpy as np
import pytest
from kb_files import made_kb

from spacy_bioel.kb import spelling as ngrams
from spacy_bioel.kb.gazetteer import BagsOfWords, stem_key
from spacy_bioel.kb.knowledge_base import name_key, name_keys, span_keys, word_key
from spacy_bioel.kb.spelling import Misspellings, word_overlap
from spacy_bioel.types import Concept


def test_keys_are_the_same_on_every_machine():
    # little-endian BLAKE2b of 8 bytes; the key of two words is first * base + second mod 2^64
    assert word_key("cold") == 0xEA1476E06061B475
    assert name_key("cold") == 0xEA1476E06061B475
    assert name_key("common cold") == 0x4D56A86978BD2CC5
    assert name_key("") == 0
    assert name_keys(["", "cold"]).tolist() == [0, 0xEA1476E06061B475]
    assert name_keys([]).shape == (0,)


@pytest.mark.parametrize(
    ("tokens", "max_width", "names"),
    [
        ([], 3, []),
        (["a", "b"], 1, [["a"], ["b"]]),
        (["a", "b", "c"], 2, [["a", "a b"], ["b", "b c"], ["c", ""]]),
        (["a", "", "b"], 3, [["a", "a", "a b"], ["", "b", ""], ["b", "", ""]]),
        (["", ""], 2, [["", ""], ["", ""]]),
        (["a b", "c"], 2, [["a b", "a b c"], ["c", ""]]),
        (["c", "a b", "d"], 3, [["c", "c a b", "c a b d"], ["a b", "a b d", ""], ["d", "", ""]]),
        (["a", "b"], 5, [["a", "a b", "", "", ""], ["b", "", "", "", ""]]),
    ],
)
def test_span_keys_are_the_keys_of_the_joined_words(tokens, max_width, names):
    keys = span_keys(tokens, max_width)
    assert keys.dtype == np.uint64
    assert keys.shape == (len(tokens), max_width)
    assert keys.tolist() == [[name_key(name) for name in row] for row in names]


SPELLED = ["ab", "", "abc", "b", "ab b"]


def code(gram: str) -> int:
    return int.from_bytes(gram.encode(), "big")


@pytest.mark.parametrize("block", [1, 2, 100])
def test_postings_do_not_depend_on_blocks(monkeypatch, block):
    monkeypatch.setattr(ngrams, "_NAMES_PER_PASS", block)
    codes, offsets, rows, norms = ngrams.build_postings(SPELLED)
    found = {
        int(codes[i]).to_bytes(3, "big").decode(): rows[offsets[i] : offsets[i + 1]].tolist()
        for i in range(len(codes))
    }
    assert found == {
        " ab": [0, 2, 4], " b ": [3, 4], "ab ": [0, 4], "abc": [2], "bc ": [2],
    }  # fmt: skip
    assert codes.tolist() == sorted(map(code, found))
    assert [a.dtype.name for a in (codes, offsets, rows, norms)] == [
        "uint32", "int64", "int32", "float32",
    ]  # fmt: skip
    # " ab" is in 3 of 5 names: ln(6 / 4) + 1; "ab " in 2: ln(6 / 3) + 1.
    assert norms[0] == pytest.approx(np.hypot(1.405465, 1.693147), rel=1e-5)
    assert norms[1] == 0
    assert [a.tolist() for a in ngrams.build_postings([])] == [[], [0], [], []]


PARTS = ("eye", "ear", "nose", "hand")


@pytest.fixture
def bags(tmp_path) -> BagsOfWords:
    concepts = [
        Concept(f"X:{i}", (f"Abnormality of the {part}", f"{part} anomaly"))
        for i, part in enumerate(PARTS)
    ]
    return BagsOfWords.from_kb(
        made_kb(tmp_path / "kb", [*concepts, Concept("X:9", ("Failure, Heart",))])
    )


def _bag(bags: BagsOfWords, text: str) -> int:
    key = sum(map(stem_key, text.split())) % (1 << 64)
    return int(bags.found.find(np.array([key], dtype=np.uint64))[0])


def test_names_are_found_in_any_order(bags):
    assert _bag(bags, "eye abnormalities") == _bag(bags, "abnormality of the eye") > 0
    assert _bag(bags, "heart failure") > 0
    assert _bag(bags, "heart") == _bag(bags, "abnormality of the foot") == 0


def test_words_that_several_names_exchange_are_substitutes(bags):
    table = bags.substitutes
    shares = dict(zip(table.replacement, table.share.tolist(), strict=True))
    assert shares == {"abnormality": 1.0, "anomaly": 1.0}
    assert stem_key("abnormality") in table.word.tolist()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("hypertenison", "hypertension"),
        ("pnuemonia", "pneumonia"),
        ("siezures", "seizure"),
        ("diarhea", "diarrhea"),
        ("pneumonias", None),  # in the plural
        ("patience", None),  # a common word
        ("neumonia", None),  # the first letter is rarely wrong
        ("pain", None),
        ("seixzurre", None),
        ("colicx", None),  # of two words
        ("pneumоnia", None),  # noqa: RUF001 a Cyrillic letter
    ],
)
def test_misspelled_words(word, expected):
    names = "hypertension pneumonia seizure diarrhea patients pain colics colica".split()
    misspellings = Misspellings(dict.fromkeys(names, 1))
    assert misspellings.correction(word, known={"patience": 9.0}) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"arthritis": 30.0, "arteritis": 2.0}, "arthritis"),
        ({"arthritis": 30.0, "arteritis": 4.0}, None),  # not far more frequent
        ({"arthritis": 4.0}, "arthritis"),
        ({}, None),
    ],
)
def test_a_correction_must_be_far_more_frequent_than_others(known, expected):
    misspellings = Misspellings({"arthritis": 2, "arteritis": 5})
    assert misspellings.correction("artritis", known=known) == expected
    assert Misspellings({}).correction("artritis", known=known) is None


QUERIES = ["kidney failures", "", "heart heart attack"]
NAMES = ["failure of kidney", "attack", "aspirin", "", "attacks heart"]
PAIRS = {
    # kidney + failure are 6 + 7 letters, "of" is 2 more.
    (0, 0): (2 * 13 / (13 + 15), 13 / 13),
    (0, 2): (0.0, 0.0),
    (0, 3): (0.0, 0.0),
    (1, 0): (0.0, 0.0),
    (1, 3): (0.0, 0.0),
    # A repeated word counts once: heart + attack are 5 + 6 letters.
    (2, 1): (2 * 6 / (11 + 6), 6 / 11),
    (2, 4): (1.0, 1.0),
}


def test_overlap_by_hand():
    query, name = (np.array(numbers) for numbers in zip(*PAIRS, strict=True))
    dice, covered = word_overlap(QUERIES, NAMES, query, name)
    assert dice.dtype == covered.dtype == np.float32
    assert dice.tolist() == pytest.approx([expected for expected, _ in PAIRS.values()])
    assert covered.tolist() == pytest.approx([expected for _, expected in PAIRS.values()])

    for strings, n in (([], 0), (["a"], 0), ([""], 1)):
        pairs = np.zeros(n, dtype=np.int64)
        dice, covered = word_overlap(strings, strings, pairs, pairs)
        assert dice.tolist() == covered.tolist() == [0.0] * n


@pytest.mark.parametrize("n_scored", [0, 1000], ids=["only those of rare 3-grams", "all"])
def test_queries_of_a_batch_do_not_change_each_other(tmp_path, monkeypatch, n_scored):
    monkeypatch.setattr(ngrams, "_MAX_SCORED_NAMES", n_scored)
    concepts = [Concept("A:1", ("fever", "yellow fever")), Concept("A:2", ("cough",))]
    index = made_kb(tmp_path, concepts).ngrams
    queries = ["fevers", "", "cough", "qqq", "yellow cough", "fevers"]
    rows, cosines = index.search(queries, 3)
    alone = [index.search([query], 3) for query in queries]
    assert rows.tolist() == [row.tolist() for (row,), _ in alone]
    assert cosines.tolist() == [values.tolist() for _, (values,) in alone]
    assert [row[0] >= 0 for row in rows.tolist()] == [True, False, True, False, True, True]
