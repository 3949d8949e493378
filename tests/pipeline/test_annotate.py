from __future__ import annotations

import pytest
from spacy.tokens import Doc, DocBin, Span
from tiny import blank

from spacy_bioel.errors import BioelError
from spacy_bioel.pipeline.annotate import get_links, set_links, set_links_as_ents
from spacy_bioel.pipeline.explanation import register_extensions
from spacy_bioel.types import Candidate, Link

NEPHRITIS = Candidate("X:1", 0.9, "Nephritis", "exact+dense")
KIDNEY = Candidate("X:2", 0.25, "Kidney", "dense")
# Two labels on the same characters, a composite, and one that is not known.
LINKS = [
    Link(6, 15, "Disease", ("X:1",), (NEPHRITIS, KIDNEY)),
    Link(0, 15, "Disease", ("X:1", "X:2"), (NEPHRITIS,)),
    Link(6, 15, "Sign", (), (KIDNEY,)),
    Link(20, 24, "Sign"),
]


@pytest.fixture
def doc() -> Doc:
    register_extensions()
    doc = blank().make_doc("Lupus nephritis and rash.")
    set_links(doc, LINKS)
    return doc


def test_links_come_back(doc: Doc) -> None:
    assert get_links(doc) == LINKS


def test_ids_of_spans(doc: Doc) -> None:
    assert [(s.text, s.label_, s.kb_id_, s._.cui, s._.cuis) for s in doc.spans["bioel"]] == [
        ("nephritis", "Disease", "X:1", "X:1", ("X:1",)),
        ("Lupus nephritis", "Disease", "X:1|X:2", "X:1", ("X:1", "X:2")),
        ("nephritis", "Sign", "NIL", None, ()),
        ("rash", "Sign", "NIL", None, ()),
    ]


def test_two_labels_on_the_same_characters_do_not_share(doc: Doc) -> None:
    disease, _, sign, _ = doc.spans["bioel"]
    assert (disease.start_char, disease.end_char) == (sign.start_char, sign.end_char)
    assert disease._.candidates == (NEPHRITIS, KIDNEY)
    assert sign._.candidates == (KIDNEY,)
    assert Span(doc, 0, 1, label="Other")._.candidates == ()


def test_links_as_entities(doc: Doc) -> None:
    set_links(doc, [*LINKS, Link(16, 19, "")])
    doc.ents = [Span(doc, 2, 4, label="Other")]
    set_links_as_ents(doc, spans_key="bioel")
    found = [(e.text, e.label_, e.kb_id_, e._.cuis, e._.candidates, e.ent_id_) for e in doc.ents]
    assert found == [
        ("Lupus nephritis", "Disease", "X:1|X:2", ("X:1", "X:2"), (NEPHRITIS,), ""),
        ("rash", "Sign", "NIL", (), (), ""),
    ]
    assert get_links(doc)[:4] == LINKS


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [2], [1, 0], []])
def test_a_group_that_was_sorted_or_filtered(doc: Doc, order: list[int]) -> None:
    group = doc.spans["bioel"]
    attrs, spans = dict(group.attrs), list(group)
    doc.spans["bioel"] = [spans[i] for i in order]
    doc.spans["bioel"].attrs = attrs
    assert get_links(doc) == [LINKS[i] for i in order]
    assert [s._.candidates for s in doc.spans["bioel"]] == [LINKS[i].candidates for i in order]


@pytest.mark.parametrize("links", [LINKS, []], ids=["links", "no links"])
def test_a_span_without_a_record(doc: Doc, links: list[Link]) -> None:
    set_links(doc, links)
    doc.spans["bioel"].append(Span(doc, 0, 1, label="Disease"))
    with pytest.raises(BioelError, match=r"\[B052\].*'bioel'.*'Lupus' at \(0, 5\)"):
        get_links(doc)


def test_a_link_off_the_tokens(doc: Doc) -> None:
    with pytest.raises(BioelError, match=r"\[B057\]"):
        set_links(doc, [Link(1, 5, "Disease")])
    assert get_links(doc) == LINKS


def through_bytes(doc: Doc) -> Doc:
    return Doc(doc.vocab).from_bytes(doc.to_bytes())


def through_docbin(doc: Doc) -> Doc:
    data = DocBin(docs=[doc]).to_bytes()
    return next(DocBin().from_bytes(data).get_docs(blank().vocab))


@pytest.mark.parametrize("way", [through_bytes, through_docbin, Doc.copy])
def test_links_travel_with_the_doc(doc: Doc, way) -> None:
    copy = way(doc)
    assert get_links(copy) == LINKS
    assert copy.spans["bioel"][0]._.candidates == (NEPHRITIS, KIDNEY)


def test_scores_of_the_detector_stay_with_its_spans(doc: Doc) -> None:
    spans = [doc.char_span(link.start, link.end, label=link.label) for link in LINKS]
    doc.spans["bioel"] = spans
    doc.spans["bioel"].attrs = {"scores": [0.9, 0.8, 0.7, 0.6]}
    set_links(doc, LINKS)
    assert doc.spans["bioel"].attrs["scores"] == [0.9, 0.8, 0.7, 0.6]
    set_links(doc, LINKS[:1])
    assert "scores" not in doc.spans["bioel"].attrs


@pytest.mark.parametrize("other", [Link(6, 24, "Disease"), Link(6, 15, "Sign")])
def test_a_span_that_starts_at_the_same_place_has_another_score(doc: Doc, other: Link) -> None:
    doc.spans["bioel"] = [Span(doc, 1, 2, label="Disease")]
    doc.spans["bioel"].attrs = {"scores": [0.9]}
    set_links(doc, [other])
    assert "scores" not in doc.spans["bioel"].attrs


def test_only_detected_spans_are_not_linked() -> None:
    doc = blank().make_doc("nephritis")
    assert get_links(doc) == []
    doc.spans["bioel"] = [Span(doc, 0, 1, label="Disease")]
    assert get_links(doc) == [Link(0, 9, "Disease")]


def test_other_keys_do_not_mix(doc: Doc) -> None:
    set_links(doc, [Link(0, 5, "Disease", ("X:9",))], spans_key="other")
    assert get_links(doc, "other") == [Link(0, 5, "Disease", ("X:9",))]
    assert get_links(doc) == LINKS
