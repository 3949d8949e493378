"""Gazetteer features: matches of spans and words that the detector gets from a knowledge base."""

import numpy as np
import pytest
from kb_files import made_kb

from spacy_bioel.kb.gazetteer import MAX_TYPES, Gazetteer
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:1", ("Disease", "Illness"), ("Disease",)),
    Concept("X:2", ("Cold", "common cold"), ("Disease", "Infection")),
    Concept("X:3", ("Heart Attack", "cold"), ("Disease",)),
    Concept("X:4", ("β-Estradiol",), ("Chemical",)),
)
# Types by frequency: Disease (bit 0), then Chemical and Infection by name; bit 63: preferred.
DISEASE, CHEMICAL, INFECTION, PREFERRED = 0, 1, 2, 63


@pytest.fixture(scope="module")
def gazetteer(tmp_path_factory) -> Gazetteer:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    return Gazetteer.from_kb(made_kb(folder, CONCEPTS))


def spans(
    gazetteer: Gazetteer, tokens: list[str], max_width: int = 4
) -> list[tuple[int, int, int]]:
    return list(
        zip(*(column.tolist() for column in gazetteer.match_spans(tokens, max_width)), strict=True)
    )


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["heart", "attack"], [(0, 1, DISEASE), (0, 1, PREFERRED)]),
        (["illness"], [(0, 0, DISEASE)]),
        (["beta", "estradiol"], [(0, 1, CHEMICAL), (0, 1, PREFERRED)]),
        (["beta", "", "estradiol"], [(0, 2, CHEMICAL), (0, 2, PREFERRED)]),
        (["beta estradiol"], [(0, 0, CHEMICAL), (0, 0, PREFERRED)]),
        (["", "illness", "", ""], [(1, 0, DISEASE)]),  # no match reaches over its own borders
        (["heart"], []),
        ([], []),
    ],
)
def test_matched_names(gazetteer, tokens, expected):
    assert spans(gazetteer, tokens) == expected


def test_no_name_reaches_from_one_document_into_the_next(gazetteer):
    tokens, lengths = ["heart", "heart", "attack", "attack"], np.array([1, 0, 2, 1])
    starts, widths, _ = gazetteer.match_spans(tokens, 4, lengths=lengths)
    assert set(zip(starts.tolist(), widths.tolist(), strict=True)) == {(1, 1)}
    assert spans(gazetteer, ["heart", "attack"]) == spans(gazetteer, ["heart", "attack", "attack"])


def test_a_homonym_has_the_types_of_all_its_concepts(gazetteer):
    # "cold" is a name of a disease and the preferred one of a disease that is an infection.
    assert spans(gazetteer, ["cold"]) == [(0, 0, b) for b in (DISEASE, INFECTION, PREFERRED)]


def test_words_of_several_names(gazetteer):
    tokens, bits = gazetteer.match_words(["a", "cold", "heart"])
    # "cold" is in "cold" and "common cold", in both the last word; "heart" is in one name only.
    assert set(tokens.tolist()) == {1}
    assert bits.tolist() == [DISEASE, INFECTION, MAX_TYPES]
