"""Cache of candidates: kept under the present settings, and within a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spacy.training import Example
from tiny import blank, linking_nlp

from spacy_bioel.pipeline.gold import add_gold
from spacy_bioel.pipeline.linker import candidates as module
from spacy_bioel.types import AnnotatedText, Mention

COLD, ATTACK, NOTHING = ("cold", ""), ("heart attack", ""), ("", "")


@pytest.fixture
def ranker(kb_folder: Path) -> Any:
    return linking_nlp(kb_folder).get_pipe("bioel_linker").ranker


@pytest.fixture
def asked(ranker: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Strings for which evidence was gathered, by batch."""
    batches: list[list[str]] = []
    gather = ranker.gather
    monkeypatch.setattr(ranker, "gather", lambda qs: batches.append(list(qs)) or gather(qs))
    return batches


def test_a_string_is_looked_up_once(ranker: Any, asked: list[list[str]]) -> None:
    first = ranker.rank([COLD, NOTHING])
    second = ranker.rank([ATTACK, COLD, NOTHING])
    assert asked == [["cold"], ["heart attack"]]
    assert second[COLD] == first[COLD] and second[NOTHING] == ()
    assert second[ATTACK][0].id == "MESH:D009203"


@pytest.mark.parametrize("name", ["exact", "sparse"])
def test_other_settings_ask_again(ranker: Any, asked: list[list[str]], name: str) -> None:
    before = ranker.rank([COLD])
    ranker.cfg["evidence"][name] = False
    after = ranker.rank([COLD])
    assert asked == [["cold"], ["cold"]]
    assert (before == after) == (name == "sparse")
    ranker.cfg["max_candidates"] = 1
    assert [len(found) for found in ranker.rank([COLD]).values()] == [1]
    ranker.cfg["label_types"][""] = ["T_NO_SUCH"]
    assert ranker.rank([COLD]) == {COLD: ()}


def test_what_was_not_asked_for_longest_is_forgotten(
    ranker: Any, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    for pair in (COLD, ATTACK, COLD, ("chill", ""), COLD, ATTACK):
        ranker.rank([pair])
    assert asked == [["cold"], ["heart attack"], ["chill"], ["heart attack"]]
    assert len(ranker.rank([COLD, ATTACK, ("chill", "")])) == 3


def test_what_is_remembered_later_counts(kb_folder: Path) -> None:
    linker: Any = linking_nlp(kb_folder).get_pipe("bioel_linker")
    assert "memory" not in linker.ranker.rank([ATTACK])[ATTACK][0].evidence
    doc = blank().make_doc("A heart attack.")
    add_gold(doc, AnnotatedText("1", doc.text, (Mention(2, 14, "Thing", ("MESH:D003139",)),)))
    linker.remember([Example(doc, doc)])
    found = {c.id: c.evidence for c in linker.ranker.rank([ATTACK])[ATTACK]}
    assert "memory" in found["MESH:D003139"]
