"""The table of candidates and their evidence, compared with one computed by hand."""

from collections.abc import Collection, Sequence
from math import e, log

import numpy as np
import pytest
from kb_files import made_kb

from spacy_bioel.kb.joined import SearchResult
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import EVIDENCE, FEATURES, SOURCES, AliasTable, candidate_table
from spacy_bioel.linking.searches import NgramSearch
from spacy_bioel.types import Concept

CONCEPTS = (
    Concept("X:1", ("Heart attack", "MI")),
    Concept("X:2", ("Cold", "common cold")),
    Concept("X:3", ("Cold temperature", "cold")),
    Concept("X:4", ("Anemia",)),
    Concept("X:9", (), replaced_by="X:3"),
)
NAMES = ["Heart attack", "MI", "Cold", "common cold", "Cold temperature", "Anemia"]
# In every row, if the alias table of these tests is used.
TRAINED = {"has_alias_table": 1.0}
SAME = ("exact", "dense", "dense_best", "ngram", "ngram_best", "words", "covered")
ITSELF = dict.fromkeys(SAME, 1.0) | TRAINED
VOTES = ("dense_vote", "ngram_vote")
ALIAS_FEATURES = ("alias_ngram", "alias_dense", "alias_ngram_vote", "alias_dense_vote")
PRIOR_2, PRIOR_3 = log(1 + 3), log(1 + 1)


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    kb = made_kb(folder, CONCEPTS)
    assert [kb.name(row) for row in range(kb.n_names)] == NAMES
    return kb


@pytest.fixture
def alias_table() -> AliasTable:
    """ "Flu": three times X:2, once X:3 (by its retired id), four times an unknown id."""
    return AliasTable({"flu": {"X:2": 3, "X:9": 1, "GONE:1": 4}})


def found(*rows: tuple[list[int], list[float]]) -> SearchResult:
    return np.array([r for r, _ in rows]), np.array([c for _, c in rows], dtype=np.float32)


def table(
    queries: list[str],
    kb: KnowledgeBase,
    alias_table: AliasTable,
    *,
    dense: SearchResult | None = None,
    dense_aliases: SearchResult | None = None,
    ngram_search: NgramSearch | None = None,
    evidence: Collection[str] = EVIDENCE,
) -> dict[tuple[str, str], dict[str, float]]:
    """(query, concept id) -> features that are not zero, the sources, and the name."""
    candidates = candidate_table(
        queries,
        kb,
        alias_table=alias_table,
        dense_names=dense,
        dense_aliases=dense_aliases,
        ngram_search=ngram_search or kb.ngrams,
        k=3,
        evidence=evidence,
    )
    result = {}
    for row in range(len(candidates.query)):
        features = {
            name: pytest.approx(float(value), abs=1e-4)
            for name, value in zip(FEATURES, candidates.features[row], strict=True)
            if value
        }
        sources = "+".join(s for bit, s in SOURCES.items() if candidates.sources[row] & bit)
        name = candidates.name[row]
        about = {"sources": sources, "name": kb.name(name) if name >= 0 else None}
        key = queries[candidates.query[row]], kb.ids[candidates.concept[row]]
        result[key] = features | about
    return result


def test_an_exact_name_of_two_concepts(kb, alias_table):
    # Each concept gets half of the vote of the name.
    about = {"sources": "exact", "name": "Cold"} | dict.fromkeys(VOTES, 0.5)
    assert table(["cold"], kb, alias_table) == {
        ("cold", "X:2"): ITSELF | {"preferred": 1.0, "unique": 0.5, "prior": PRIOR_2} | about,
        ("cold", "X:3"): ITSELF | {"unique": 0.5, "prior": PRIOR_3} | about,
    }


def test_spelling_variants_are_looked_up_if_the_name_is_absent(kb, alias_table):
    found = table(["anaemia", "heart attacks"], kb, alias_table)
    # "ngram_best" is 1: the name is the nearest by 3-grams; its cosine is below 0.8.
    variant = dict.fromkeys((*SAME, *VOTES, "unique", "preferred"), 0.8) | TRAINED
    assert found["anaemia", "X:4"] == variant | {
        "ngram_best": 1.0, "sources": "exact+ngram", "name": "Anemia",
    }  # fmt: skip
    assert found["heart attacks", "X:1"]["exact"] == 0.8


def test_alias_shares_of_several_concepts(kb, alias_table):
    assert table(["flu"], kb, alias_table) == {
        ("flu", "X:2"): {
            "alias_share": 3 / 8, "alias_count": log(1 + 3), "prior": PRIOR_2,
            "sources": "alias_table", "name": None,
        } | dict.fromkeys(ALIAS_FEATURES, 3 / 8) | TRAINED,
        ("flu", "X:3"): {
            "alias_share": 1 / 8, "alias_count": log(1 + 1), "prior": PRIOR_3,
            "sources": "alias_table", "name": None,
        } | dict.fromkeys(ALIAS_FEATURES, 1 / 8) | TRAINED,
    }  # fmt: skip


def test_dense_search(kb, alias_table):
    # Names 5 (X:4), 2 (X:2 and X:3), 3 (X:2 again, worse); two are equally near.
    dense = found(([5, 2, 3], [0.9, 0.9, 0.4]), ([-1, -1, -1], [0.0, 0.0, 0.0]))
    dense_aliases = found(([0], [0.5]), ([-1], [0.0]))
    # Three concepts share the vote of the nearest names; the name at 0.4 has almost none.
    near = {"dense": 0.9, "dense_best": 1.0, "dense_vote": 0.9 / 3, "has_encoder": 1.0} | TRAINED
    from_flu = {
        "alias_dense": 0.5 * 3 / 8,
        "alias_dense_vote": 0.5 * 3 / 4,
        "prior": PRIOR_2,
        "sources": "alias_table+dense",
    }
    assert table(["zzz", "qqq"], kb, alias_table, dense=dense, dense_aliases=dense_aliases) == {
        ("zzz", "X:2"): near | from_flu | {"name": "Cold"},
        ("zzz", "X:3"): near
        | {
            "alias_dense": 0.5 * 1 / 8,
            "alias_dense_vote": 0.5 * 1 / 4,
            "prior": PRIOR_3,
            "sources": "alias_table+dense",
            "name": "Cold",
        },
        ("zzz", "X:4"): near | {"sources": "dense", "name": "Anemia"},
    }


def test_negative_cosines_are_no_evidence(kb, alias_table):
    dense = found(([5], [-0.3]))
    assert table(["zzz"], kb, alias_table, dense=dense) == {
        ("zzz", "X:4"): TRAINED
        | {"dense_best": 1.0, "has_encoder": 1.0, "sources": "dense", "name": "Anemia"}
    }


def test_words_in_common_with_the_best_name(kb):
    # "heart" has 5 letters, the query 5 + 5 and "heart attack" 5 + 6 of them.
    dense = found(([0, 1], [0.6, 0.5]))
    assert table(["renal hearts"], kb, AliasTable(), dense=dense, evidence=("dense",)) == {
        ("renal hearts", "X:1"): {
            "dense": 0.6, "dense_best": 1.0, "words": 10 / 21, "covered": 5 / 10,
            "has_encoder": 1.0, "dense_vote": 0.6, "sources": "dense", "name": "Heart attack",
        }
    }  # fmt: skip


def test_ngram_search_is_for_unknown_strings(kb, alias_table):
    found = table(["cold temperatur", "flus"], kb, alias_table)
    assert found["cold temperatur", "X:3"]["sources"] == "ngram"
    assert found["cold temperatur", "X:3"]["ngram_best"] == 1.0
    # "flus" is similar to the training string "flu", which was X:2 more often than X:3.
    near = found["flus", "X:2"]["alias_ngram"].expected
    assert 0.3 * 3 / 8 <= near < 3 / 8
    assert found["flus", "X:3"]["alias_ngram"] == near / 3


def test_strings_without_candidates(kb):
    assert table(["zzz", "qqq"], kb, AliasTable()) == {}
    assert table([], kb, AliasTable()) == {}
    assert table(["cold"], kb, AliasTable({"cold": {"X:2": 1}}), evidence=()) == {}


class Fixed:
    """An n-gram search with the same result for every query."""

    def __init__(self, *rows: tuple[list[int], list[float]]) -> None:
        self.rows = rows

    def search(self, queries: Sequence[str], k: int) -> SearchResult:
        return found(*[self.rows[0]] * len(queries))


def test_another_ngram_search(kb):
    ngram_search = Fixed(([5, 1], [0.7, 0.2]))
    assert table(["zzz"], kb, AliasTable(), ngram_search=ngram_search) == {
        ("zzz", "X:4"): {
            "ngram": 0.7, "ngram_best": 1.0, "ngram_vote": 0.7,
            "sources": "ngram", "name": "Anemia",
        },
        ("zzz", "X:1"): {"ngram": 0.2, "ngram_vote": 0.0, "sources": "ngram", "name": "MI"},
    }  # fmt: skip


def test_nearer_names_have_a_greater_vote(kb):
    # "Anemia" is X:4; "Cold" is lower by 0.05 and has 1/e of the vote, for X:2 and for X:3.
    rows = table(["zzz"], kb, AliasTable(), dense=found(([5, 2], [0.5, 0.45])), evidence=("dense",))
    assert rows["zzz", "X:4"]["dense_vote"] == 0.5 / (1 + 2 / e)
    assert rows["zzz", "X:2"]["dense_vote"] == 0.5 / e / (1 + 2 / e)


def switched(kb: KnowledgeBase, alias_table: AliasTable, off: str) -> dict[str, set[str]]:
    """Features of "cold" as X:2 by all sources, and of "flus", with one kind of evidence off."""
    dense = found(([5, 2], [0.9, 0.5]), ([5, 2], [0.9, 0.5]))
    dense_aliases = found(([0], [0.5]), ([0], [0.6]))
    rows = table(
        ["cold", "flus"],
        kb,
        alias_table,
        dense=dense,
        dense_aliases=dense_aliases,
        ngram_search=Fixed(([2, 3], [0.6, 0.4])),
        evidence=[name for name in EVIDENCE if name != off],
    )
    return {query: set(rows[query, "X:2"]) - {"name", "sources"} for query in ("cold", "flus")}


COLD = {
    *{"dense", "dense_best", "ngram", "ngram_best", "exact", "preferred", "unique", "words"},
    *{"covered", "alias_dense", "alias_dense_vote", "prior", "has_encoder", "has_alias_table"},
    *VOTES,
}
FLUS = {
    *{"dense", "ngram", "ngram_best", "prior", "has_encoder", "has_alias_table"},
    *(*VOTES, *ALIAS_FEATURES),
}


@pytest.mark.parametrize(
    ("off", "cold", "flus"),
    [
        ("", set(), set()),
        # "cold" then gets n-gram search, and is not the nearest of these results.
        ("exact", {"exact", "preferred", "unique", "dense_best"}, set()),
        ("alias_table", {"alias_dense", "alias_dense_vote", "prior", "has_alias_table"},
         {"prior", "has_alias_table", *ALIAS_FEATURES}),
        ("ngram", set(), {"ngram", "ngram_best", "ngram_vote", "alias_ngram", "alias_ngram_vote"}),
        ("dense", {"alias_dense", "alias_dense_vote", "has_encoder"},
         {"dense", "dense_vote", "alias_dense", "alias_dense_vote", "has_encoder"}),
        ("prior", {"prior"}, {"prior"}),
    ],
)  # fmt: skip
def test_switches(kb, alias_table, off, cold, flus):
    assert switched(kb, alias_table, off) == {"cold": COLD - cold, "flus": FLUS - flus}


def test_single_letters_are_not_searched(kb, alias_table):
    dense = found(([0, 1, 2], [0.9, 0.8, 0.7]), ([0, 1, 2], [0.9, 0.8, 0.7]))
    assert {id for _, id in table(["c", "mi"], kb, alias_table, dense=dense)} != set()
    assert {query for query, _ in table(["c", "mi"], kb, alias_table, dense=dense)} == {"mi"}
    counted = AliasTable({"c": {"X:4": 3}})
    assert [id for _, id in table(["c"], kb, counted)] == ["X:4"]
