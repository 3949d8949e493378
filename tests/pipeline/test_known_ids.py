"""Gold ids that a knowledge base has, and the prefix that forgotten ones lack."""

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.validation import KnownIds, check_gold_ids
from spacy_bioel.types import Concept


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    concepts = [Concept(f"MESH:D{i}", (f"name {i}",)) for i in range(9)]
    concepts += [Concept("OMIM:1", ("other",)), Concept("MESH:D99", (), replaced_by="MESH:D1")]
    folder = tmp_path_factory.mktemp("kb") / "mine"
    build_kb(concepts, folder)
    return KnowledgeBase.open(folder)


def test_counts_with_and_without_repetitions(kb):
    counts = {"MESH:D1": 5, "MESH:D99": 1, "MESH:D77": 2, "D8": 3, "dbSNP:rs1": 4}
    assert KnownIds.of(kb, counts) == KnownIds(15, 10, ("D8", "MESH:D77"))
    assert KnownIds.of(kb, {}) == KnownIds(0, 0, ())


def test_half_is_enough(kb):
    check_gold_ids(kb, {"MESH:D1": 1, "MESH:D77": 1}, "dev")
    check_gold_ids(kb, {}, "dev")
    check_gold_ids(kb, {"dbSNP:rs1": 3}, "dev")


@pytest.mark.parametrize(
    "counts, hint",
    [
        ({"D1": 2, "D2": 1, "MESH:D3": 1}, "try --prefix MESH"),
        ({"1": 2, "MESH:D3": 1}, "try --prefix OMIM"),
        ({"X1": 2, "X2": 1, "MESH:D3": 1}, "--prefix adds a prefix"),  # no prefix helps
        ({"UMLS:1": 2, "mesh:D2": 1, "MESH:D3": 1}, "--prefix adds a prefix"),  # has one already
    ],
)
def test_less_than_half_is_a_warning_with_the_likely_prefix(kb, caplog, counts, hint):
    check_gold_ids(kb, counts, "dev")
    (message,) = caplog.messages
    assert message.startswith("[W340] Only 1 of ") and "gold ids in dev" in message
    assert hint in message and "look like MESH:D0" in message and next(iter(counts)) in message


def test_none_is_an_error_with_the_likely_prefix(kb):
    with pytest.raises(BioelError, match=r"\[B077\] 0 of 3 gold ids .* try --prefix MESH"):
        check_gold_ids(kb, {"D1": 2, "D2": 1}, "dev")


def test_at_most_forty_characters_of_an_id_are_shown(kb):
    with pytest.raises(BioelError) as error:
        check_gold_ids(kb, {"D" * 300: 1}, "dev")
    assert "D" * 40 in str(error.value) and "D" * 41 not in str(error.value)
