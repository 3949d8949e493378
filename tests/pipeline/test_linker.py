"""`bioel_linker` after an entity ruler, without training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import spacy
from cases import table
from spacy.tokens import Span
from tiny import ents, linking_nlp, links, with_entity

from spacy_bioel.kb.joined import SearchResult


def test_three_lines_link_entities(kb_folder):
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "DISEASE", "pattern": "heart attack"}])
    nlp.add_pipe("bioel_linker", config={"kb": str(kb_folder)})
    (entity,) = nlp("He had a heart attack.").ents
    assert (entity.text, entity.label_, entity.kb_id_) == (
        "heart attack",
        "DISEASE",
        "MESH:D009203",
    )
    assert (entity._.cui, entity._.cuis) == ("MESH:D009203", ("MESH:D009203",))
    (best,) = entity._.candidates
    assert (best.id, best.name, best.evidence) == ("MESH:D009203", "heart attack", "exact")
    assert best.score > 0.5


@table("mentions and what is none")
def test_mentions_and_what_is_none(kb_folder, mention, cui):
    nlp = linking_nlp(kb_folder)
    (entity,) = nlp(with_entity(nlp, f"With {mention} now", mention)).ents
    assert (entity.text, entity._.cui, entity.kb_id_) == (mention, cui, cui or "NIL")


def test_a_homonym_keeps_both_candidates_unless_types_of_its_label_decide(kb_folder):
    (cold,) = linking_nlp(kb_folder, ["cold"])("a cold").ents
    first, second, *_ = cold._.candidates
    # Their order depends on tiny differences of the encoder, which this test ignores.
    assert {first.id, second.id} == {"MESH:D003080", "MESH:D003139"}
    assert first.score == pytest.approx(second.score, abs=0.001)
    assert sum(c.score for c in cold._.candidates) <= 1.0
    (cold,) = linking_nlp(kb_folder, ["cold"], label_types={"Thing": ["Disease"]})("a cold").ents
    assert cold.kb_id_ == cold._.candidates[0].id == "MESH:D003139"
    assert "MESH:D003080" not in {c.id for c in cold._.candidates}


@table("kinds of evidence")
def test_evidence_can_be_switched_off(kb_folder, evidence, expected):
    nlp = linking_nlp(kb_folder, ["aspirin"], evidence=evidence)
    assert {c.evidence for c in nlp("aspirin").ents[0]._.candidates} == {*expected}


@spacy.registry.misc("same_first_letter")
def create_search_by_first_letter():
    """Make a search for the first names with the first letter of a query."""

    class Search:
        def __init__(self, kb: Any) -> None:
            self.names = list(kb.names)

        def search(self, queries: Sequence[str], k: int) -> SearchResult:
            rows = np.full((len(queries), k), -1)
            for row, query in zip(rows, queries, strict=True):
                found = [i for i, name in enumerate(self.names) if name[:1] == query[:1]][:k]
                row[: len(found)] = found
            return rows, (rows >= 0).astype(np.float32)

    return Search


def test_another_ngram_search(kb_folder):
    settings = {"evidence": {"dense": False}, "nil_threshold": 0.0}
    ngram_search = {"@misc": "same_first_letter"}
    nlp = linking_nlp(kb_folder, ["axyz"], ngram_search=ngram_search, **settings)
    ((_, found),) = ents(nlp("axyz"))
    assert any(name[0] == "a" for name in nlp.get_pipe("bioel_linker").kb[found].names)


def test_composites(kb_folder):
    text = "Breast and ovarian cancer"
    (entity,) = linking_nlp(kb_folder, [text])(text).ents
    assert entity._.cuis == ("MESH:D001943", "MESH:D010051")
    assert entity.kb_id_ == "MESH:D001943|MESH:D010051"
    (entity,) = linking_nlp(kb_folder, [text], entities={"composites": None}, nil_threshold=0.0)(
        text
    ).ents
    assert len(entity._.cuis) == 1


def test_abbreviations_of_the_document(kb_folder):
    nlp = linking_nlp(kb_folder, ["AKI"], entities={"notes": None})
    for text, ids in {
        "Acute kidney injury (AKI). AKI again.": ["MESH:D058186"] * 2,
        "AKI (acute kidney injury).": ["MESH:D058186"],
        "AKI without a definition.": ["NIL"],
    }.items():
        assert ents(nlp(text)) == [("AKI", id) for id in ids]


def test_entities_keep_the_ids_of_the_ruler(kb_folder):
    nlp = linking_nlp(kb_folder)
    ruler = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "Drug", "pattern": "aspirin", "id": "ASA"}])
    doc = nlp("aspirin or placebo")
    assert [(e.label_, e.ent_id_, e.kb_id_) for e in doc.ents] == [("Drug", "ASA", "MESH:D001241")]
    assert [t.ent_iob_ for t in doc] == ["B", "O", "O"]


@pytest.mark.parametrize("mentions", ["auto", "spans"])
def test_overlapping_spans_are_all_linked(kb_folder, mentions):
    nlp = linking_nlp(kb_folder, mentions=mentions)
    doc = nlp.make_doc("acute kidney failure")
    doc.spans["bioel"] = [
        Span(doc, 0, 3, label="Disease"),
        Span(doc, 1, 3, label="Disease"),
        Span(doc, 1, 3, label="Sign"),
    ]
    nlp(doc)
    assert links(doc) == [
        ("acute kidney failure", "MESH:D058186"),
        ("kidney failure", "MESH:D051437"),
        ("kidney failure", "MESH:D051437"),
    ]
    assert doc.ents == ()


def test_other_span_groups_and_entities(kb_folder):
    nlp = linking_nlp(kb_folder, mentions="spans", spans_key="mine")
    doc = nlp.make_doc("an aspirin")
    doc.spans["mine"] = [Span(doc, 1, 2, label="Drug")]
    assert links(nlp(doc), "mine") == [("aspirin", "MESH:D001241")] and "bioel" not in doc.spans
    # Entities next to spans of a detector, which are left out.
    nlp = linking_nlp(kb_folder, ["aspirin"], mentions="ents")
    doc = nlp.make_doc("aspirin or morphine")
    doc.spans["bioel"] = [Span(doc, 2, 3, label="Drug")]
    assert ents(nlp(doc)) == links(doc) == [("aspirin", "MESH:D001241")]


def test_batches_do_not_change_links(kb_folder):
    nlp = linking_nlp(kb_folder, ["aspirin", "AKI", "anaemia"], entities={"notes": None})
    texts = ["aspirin", "", "anaemia and AKI", "Acute kidney injury (AKI)", "aspirin aspirin"]
    assert [ents(doc) for doc in nlp.pipe(texts)] == [
        [("aspirin", "MESH:D001241")],
        [],
        [("anaemia", "MESH:D000740"), ("AKI", "NIL")],
        [("AKI", "MESH:D058186")],
        [("aspirin", "MESH:D001241"), ("aspirin", "MESH:D001241")],
    ]
    assert [ents(nlp(text)) for text in texts] == [ents(doc) for doc in nlp.pipe(texts)]


def test_links_become_entities(kb_folder):
    text = "Naloxone and clonidine."
    nlp = linking_nlp(kb_folder, mentions="dictionary", set_ents="links")
    for doc in (nlp(text), *nlp.pipe([text], n_process=2)):
        found = [(ent.text, ent.label_, ent.kb_id_) for ent in doc.ents]
        assert found == [(s.text, s.label_, s.kb_id_) for s in doc.spans["bioel"]]
        assert [(words, id) for words, _, id in found] == [
            ("Naloxone", "MESH:D009270"),
            ("clonidine", "MESH:D003000"),
        ]
        assert all(ent.label_ and ent._.candidates for ent in doc.ents)
    assert not linking_nlp(kb_folder, mentions="dictionary")(text).ents
