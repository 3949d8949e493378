"""The table of candidates and their evidence, compared with one computed by hand (evidence.yml)."""

from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import srsly
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
CASES: Any = srsly.read_yaml(Path(__file__).with_name("evidence.yml"))
NAMES = ["Heart attack", "MI", "Cold", "common cold", "Cold temperature", "Anemia"]
FLU = {"flu": {"X:2": 3, "X:9": 1, "GONE:1": 4}}


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    kb = made_kb(tmp_path_factory.mktemp("kb"), CONCEPTS)
    assert [kb.name(row) for row in range(kb.n_names)] == NAMES
    return kb


def found(*rows: tuple[list[int], list[float]]) -> SearchResult:
    return np.array([r for r, _ in rows]), np.array([c for _, c in rows], dtype=np.float32)


def table(
    queries: list[str],
    kb: KnowledgeBase,
    aliases: Any = FLU,
    *,
    dense: SearchResult | None = None,
    dense_aliases: SearchResult | None = None,
    ngram_search: NgramSearch | None = None,
    evidence: Collection[str] = EVIDENCE,
) -> dict[tuple[str, str], dict[str, float]]:
    """(query, concept id) -> features that are not zero, the sources, and the name."""

    def searched(strings: Sequence[str]) -> tuple[SearchResult, SearchResult | None]:
        rows = [queries.index(string) for string in strings]
        names, aliases = ((r and (r[0][rows], r[1][rows])) for r in (dense, dense_aliases))
        return names, aliases if "alias_table" in evidence else None

    candidates = candidate_table(
        queries,
        kb,
        alias_table=AliasTable(aliases),
        dense_search=searched if dense else None,
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


def fixed(rows: list[int], cosines: list[float]) -> Any:
    """An n-gram search with the same result for every query."""
    return SimpleNamespace(search=lambda queries, k: found(*[(rows, cosines)] * len(queries)))


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["about"][:40])
def test_features_sources_and_names(kb, case):
    """By "query id". Alias table, searches and kinds of evidence are as in linking if not given.

    partly: "rows" if other candidates do not matter, "features" if other features do not either.
    """
    searches: dict[str, Any] = {
        name: found(*case[name]) for name in ("dense", "dense_aliases") if name in case
    }
    if "ngrams" in case:
        searches["ngram_search"] = fixed(*case["ngrams"])
    evidence = case.get("evidence", EVIDENCE)
    rows = table(case["queries"], kb, case.get("aliases", FLU), evidence=evidence, **searches)
    result = {f"{query} {id}": row for (query, id), row in rows.items()}
    expected, partly = case["expected"], case.get("partly")
    if partly:
        result = {key: result[key] for key in expected}
    if partly == "features":
        result = {key: {name: result[key][name] for name in expected[key]} for key in expected}
    assert result == expected


def test_strings_near_training_strings(kb):
    """ "flus" is similar to the training string "flu", which was X:2 more often than X:3."""
    rows = table(["flus"], kb)
    near = rows["flus", "X:2"]["alias_ngram"].expected  # type: ignore[attr-defined]
    assert 0.3 * 3 / 8 <= near < 3 / 8
    assert rows["flus", "X:3"]["alias_ngram"] == near / 3


def switched(kb: KnowledgeBase, off: str) -> dict[str, set[str]]:
    """Features of "cold" as X:2 by all sources, and of "flus", with one kind of evidence off."""
    dense = found(([5, 2], [0.9, 0.5]), ([5, 2], [0.9, 0.5]))
    dense_aliases = found(([0], [0.5]), ([0], [0.6]))
    rows = table(
        ["cold", "flus"],
        kb,
        dense=dense,
        dense_aliases=dense_aliases,
        ngram_search=fixed([2, 3], [0.6, 0.4]),
        evidence=[name for name in EVIDENCE if name != off],
    )
    return {query: set(rows[query, "X:2"]) - {"name", "sources"} for query in ("cold", "flus")}


@pytest.mark.parametrize("off", CASES["switches"])
def test_switches(kb, off):
    every, without = CASES["all"], CASES["switches"][off]
    expected = {query: {*every[query]} - {*without.get(query, ())} for query in every}
    assert switched(kb, off) == expected


def test_single_letters_are_not_searched(kb):
    dense = found(([0, 1, 2], [0.9, 0.8, 0.7]), ([0, 1, 2], [0.9, 0.8, 0.7]))
    assert {query for query, _ in table(["c", "mi"], kb, dense=dense)} == {"mi"}
    assert [id for _, id in table(["c"], kb, {"c": {"X:4": 3}})] == ["X:4"]
