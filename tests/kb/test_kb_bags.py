"""Names as bags of stems, the words that stand for each other, and misspelled words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.bags import NameBags, stem_key
from spacy_bioel.kb.words.lexicon import Misspellings
from spacy_bioel.types import Concept

PARTS = ("eye", "ear", "nose", "hand")


@pytest.fixture
def bags(tmp_path: Path) -> NameBags:
    concepts = [
        Concept(f"X:{i}", (f"Abnormality of the {part}", f"{part} anomaly"))
        for i, part in enumerate(PARTS)
    ]
    build_kb([*concepts, Concept("X:9", ("Failure, Heart",))], tmp_path / "kb")
    return NameBags.from_kb(KnowledgeBase.open(tmp_path / "kb"))


def _bag(bags: NameBags, text: str) -> int:
    key = sum(map(stem_key, text.split())) % (1 << 64)
    return int(bags.found.find(np.array([key], dtype=np.uint64))[0])


def test_names_are_found_in_any_order(bags: NameBags) -> None:
    assert _bag(bags, "eye abnormalities") == _bag(bags, "abnormality of the eye") > 0
    assert _bag(bags, "heart failure") > 0
    assert _bag(bags, "heart") == _bag(bags, "abnormality of the foot") == 0


def test_words_stand_for_each_other_if_several_names_say_so(bags: NameBags) -> None:
    table = bags.substitutes
    assert dict(zip(table.stem, table.share.tolist(), strict=True)) == {"abnorm": 1.0, "anom": 1.0}
    assert stem_key("abnormality") in table.word.tolist()


def test_heads(bags: NameBags) -> None:
    assert (bags.heads["anom"], bags.heads["abnorm"], bags.heads["eye"]) == (1.0, 1.0, 0.0)
    assert (bags.heads["failur"], bags.heads["heart"]) == (1.0, 0.0)


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
def test_misspelled_words(word: str, expected: str | None) -> None:
    names = "hypertension pneumonia seizure diarrhea patients pain colics colica".split()
    misspellings = Misspellings(dict.fromkeys(names, 1))
    assert misspellings.meant(word, known={"patience": 9.0}) == expected


def test_no_words() -> None:
    assert Misspellings({}).meant("pnuemonia", known={}) is None


def test_of_two_words_that_may_be_meant_the_far_more_frequent_one_is() -> None:
    misspellings = Misspellings({"arthritis": 2, "arteritis": 5})
    assert (
        misspellings.meant("artritis", known={"arthritis": 30.0, "arteritis": 2.0}) == "arthritis"
    )
    assert misspellings.meant("artritis", known={"arthritis": 30.0, "arteritis": 4.0}) is None
    assert misspellings.meant("artritis", known={"arthritis": 4.0}) == "arthritis"
    assert misspellings.meant("artritis", known={}) is None
