"""The cache of candidates: depends on the state, is bounded, and is shared by threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from spacy.tokens import Span
from spacy.training import Example
from tiny import blank, linking_nlp

from spacy_bioel.doc import add_gold
from spacy_bioel.kb.build import build_kb
from spacy_bioel.linking import candidates
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.types import AnnotatedText, Concept, Mention

COLD, ATTACK, NOTHING = ("cold", ""), ("heart attack", ""), ("", "")


@pytest.fixture
def linker(kb_folder) -> Linker:
    return linking_nlp(kb_folder).get_pipe("bioel_linker")  # type: ignore[return-value]


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """Strings whose evidence was collected, by batch."""
    batches: list[list[str]] = []
    candidate_table = CandidateGenerator.candidate_table
    monkeypatch.setattr(
        CandidateGenerator,
        "candidate_table",
        lambda self, qs, **how: batches.append(list(qs)) or candidate_table(self, qs, **how),
    )
    return batches


@pytest.mark.parametrize("name", ["exact", "ngram"])
def test_other_settings_need_another_generator(linker, asked, name):
    generator = linker.generator
    before = generator.rank([COLD])
    linker.cfg["evidence"][name] = False
    after = linker.generator.rank([COLD])
    assert asked == [["cold"], ["cold"]]
    assert (before == after) == (name == "ngram")
    linker.cfg["max_candidates"] = 1
    found = linker.generator.rank([COLD])[COLD]
    assert len(found) == (1 if name == "exact" else 2)  # all that share a name, for the rules
    linker.cfg["label_types"][""] = ["T_NO_SUCH"]
    assert linker.generator.rank([COLD]) == {COLD: ()}
    assert generator.rank([COLD]) == before  # the first one is as it was


def test_the_least_recently_used_strings_are_dropped(linker, asked, monkeypatch):
    monkeypatch.setattr(candidates, "CACHED_STRINGS", 2)
    for pair in (COLD, ATTACK, COLD, ("chill", ""), COLD, ATTACK):
        linker.generator.rank([pair])
    assert asked == [["cold"], ["heart attack"], ["chill"], ["heart attack"]]
    assert len(linker.generator.rank([COLD, ATTACK, ("chill", "")])) == 3


def test_mentions_that_are_counted_later_change_candidates(linker):
    assert "alias_table" not in linker.generator.rank([ATTACK])[ATTACK][0].evidence
    doc = blank().make_doc("A heart attack.")
    add_gold(doc, AnnotatedText("1", doc.text, (Mention(2, 14, "Thing", ("MESH:D003139",)),)))
    linker.count_mentions([Example(doc, doc)])
    found = {c.id: c.evidence for c in linker.generator.rank([ATTACK])[ATTACK]}
    assert "alias_table" in found["MESH:D003139"]


def test_threads_that_share_a_small_cache(linker, monkeypatch):
    # One thread drops strings that another has asked for.
    monkeypatch.setattr(candidates, "CACHED_STRINGS", 1)
    strings = [COLD, ATTACK, ("chill", ""), ("aspirin", ""), NOTHING]
    expected = {pair: linker.generator.rank([pair])[pair] for pair in strings}
    linker.cfg["max_candidates"] = 4  # a generator with an empty cache
    expected = {pair: found[:4] for pair, found in expected.items()}
    barrier = Barrier(8)

    def ask(number: int) -> list[bool]:
        barrier.wait()
        order = strings[number % 5 :] + strings[: number % 5]
        return [linker.generator.rank(order) == expected for _ in range(25)]

    with ThreadPoolExecutor(8) as pool:
        assert [all(found) for found in pool.map(ask, range(8))] == [True] * 8


def test_cold_threads_encode_the_names_once(linker, monkeypatch):
    calls: list[int] = []
    encoded = candidates.encoded_names
    monkeypatch.setattr(
        candidates, "encoded_names", lambda *args: calls.append(1) or encoded(*args)
    )
    barrier = Barrier(8)

    def ask(_: int) -> str:
        barrier.wait()
        return linker.generator.rank([ATTACK])[ATTACK][0].id

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {"MESH:D009203"}
    assert calls == [1]


def test_a_name_is_searched_only_if_its_label_excludes_all_its_concepts(tmp_path):
    concepts = [
        Concept("X:1", ("swine fever",), types=("Virus",)),
        Concept("X:2", ("swine fevers",), types=("Disease",)),
    ]
    build_kb(concepts, tmp_path / "kb")
    nlp = blank()
    types = {"Disease": ["Disease"], "Virus": ["Virus"]}
    cfg = {"kb": str(tmp_path / "kb"), "label_types": types, "evidence": {"dense": False}}
    generator: Any = nlp.add_pipe("bioel_linker", config=cfg).generator  # type: ignore[attr-defined]
    pairs = [("swine fever", label) for label in ("Virus", "Disease", "")]
    alone = [generator.rank([pair])[pair] for pair in pairs]
    assert [[c.id for c in found] for found in alone] == [["X:1"], ["X:2"], ["X:1"]]
    generator._ranked.clear()
    assert [generator.rank(pairs)[pair] for pair in pairs] == alone


@pytest.mark.parametrize(
    ("label", "linked"), [("ORG", False), ("PERSON", False), ("DATE", False), ("Disease", True)]
)
def test_labels_of_a_general_ner_link_to_nothing(tmp_path, label, linked):
    build_kb([Concept("X:1", ("March",)), Concept("X:2", ("Boston",))], tmp_path / "kb")
    kb = str(tmp_path / "kb")
    for setting, expected in ((kb, linked), ({label: kb}, True)):
        nlp = blank()
        nlp.add_pipe("bioel_linker", config={"kb": setting, "evidence": {"dense": False}})
        doc = nlp.make_doc("Boston in March")
        doc.spans["bioel"] = [Span(doc, 0, 1, label=label)]
        doc = nlp.get_pipe("bioel_linker")(doc)  # type: ignore[operator]
        assert (doc.spans["bioel"][0].kb_id_ == "X:2") == expected
