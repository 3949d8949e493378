"""Tokens, links, gold mentions and mentions to link, on a Doc."""

from dataclasses import replace

import pytest
import spacy
from cases import table
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from tiny import blank, examples

from spacy_bioel.corpus import read_texts, text_to_doc
from spacy_bioel.doc import (
    Alignment,
    GoldSpan,
    add_gold,
    get_links,
    gold_spans,
    mention_spans,
    set_links,
    set_links_as_ents,
    with_gold_mentions,
)
from spacy_bioel.errors import BioelError
from spacy_bioel.explanation import register_extensions
from spacy_bioel.types import AnnotatedText, Candidate, Link, Mention

NEPHRITIS = Candidate("X:1", 0.9, "Nephritis", "exact+dense")
KIDNEY = Candidate("X:2", 0.25, "Kidney", "dense")
# Two labels on the same characters, a composite, and a mention without candidates.
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


def test_ids_and_candidates_of_spans(doc):
    assert get_links(doc) == LINKS
    assert [(s.text, s.label_, s.kb_id_, s._.cui, s._.cuis) for s in doc.spans["bioel"]] == [
        ("nephritis", "Disease", "X:1", "X:1", ("X:1",)),
        ("Lupus nephritis", "Disease", "X:1|X:2", "X:1", ("X:1", "X:2")),
        ("nephritis", "Sign", "NIL", None, ()),
        ("rash", "Sign", "NIL", None, ()),
    ]
    assert [s._.concept_id for s in doc.spans["bioel"]] == ["X:1", "X:1", None, None]
    # Two labels on the same characters do not share.
    disease, _, sign, _ = doc.spans["bioel"]
    assert (disease.start_char, disease.end_char) == (sign.start_char, sign.end_char)
    assert disease._.candidates == (NEPHRITIS, KIDNEY)
    assert sign._.candidates == (KIDNEY,)
    assert Span(doc, 0, 1, label="Other")._.candidates == ()


def test_links_as_entities(doc):
    set_links(doc, [*LINKS, Link(16, 19, "")])
    doc.ents = [Span(doc, 2, 4, label="Other")]
    set_links_as_ents(doc, spans_key="bioel")
    found = [(e.text, e.label_, e.kb_id_, e._.cuis, e._.candidates, e.ent_id_) for e in doc.ents]
    assert found == [
        ("Lupus nephritis", "Disease", "X:1|X:2", ("X:1", "X:2"), (NEPHRITIS,), ""),
        ("rash", "Sign", "NIL", (), (), ""),
    ]
    assert get_links(doc)[:4] == LINKS


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [2]])
def test_a_group_that_was_sorted_or_filtered(doc, order):
    group = doc.spans["bioel"]
    attrs, spans = dict(group.attrs), list(group)
    doc.spans["bioel"] = [spans[i] for i in order]
    doc.spans["bioel"].attrs = attrs
    assert get_links(doc) == [LINKS[i] for i in order]
    assert [s._.candidates for s in doc.spans["bioel"]] == [LINKS[i].candidates for i in order]


def test_a_span_without_a_record_and_a_link_off_the_tokens(doc):
    with pytest.raises(BioelError, match=r"\[B057\]"):
        set_links(doc, [Link(1, 5, "Disease")])
    assert get_links(doc) == LINKS
    doc.spans["bioel"].append(Span(doc, 0, 1, label="Disease"))
    with pytest.raises(BioelError, match=r"\[B052\].*'bioel'.*'Lupus' at \(0, 5\)"):
        get_links(doc)


def through_docbin(doc: Doc) -> Doc:
    data = DocBin(docs=[doc], store_user_data=True).to_bytes()
    return next(DocBin().from_bytes(data).get_docs(blank().vocab))


@pytest.mark.parametrize("way", [through_docbin, Doc.copy])
def test_links_travel_with_the_doc(doc, way):
    copy = way(doc)
    assert get_links(copy) == LINKS
    assert copy.spans["bioel"][0]._.candidates == (NEPHRITIS, KIDNEY)


def test_a_docbin_without_user_data_keeps_links_without_candidates(doc):
    copy = next(DocBin().from_bytes(DocBin(docs=[doc]).to_bytes()).get_docs(blank().vocab))
    assert get_links(copy) == [replace(link, candidates=()) for link in LINKS]
    span = copy.spans["bioel"][0]
    with pytest.warns(UserWarning, match=r"\[W324\].*store its user data"):
        assert span._.candidates == ()
    assert span._.explanation is None


def test_scores_of_the_detector_stay_with_its_spans(doc):
    spans = [doc.char_span(link.start, link.end, label=link.label) for link in LINKS]
    doc.spans["bioel"] = spans
    doc.spans["bioel"].attrs = {"scores": [0.9, 0.8, 0.7, 0.6]}
    set_links(doc, LINKS)
    assert doc.spans["bioel"].attrs["scores"] == [0.9, 0.8, 0.7, 0.6]
    set_links(doc, LINKS[:1])
    assert "scores" not in doc.spans["bioel"].attrs


def test_only_detected_spans_are_not_linked():
    doc = blank().make_doc("nephritis")
    assert get_links(doc) == []
    doc.spans["bioel"] = [Span(doc, 0, 1, label="Disease")]
    assert get_links(doc) == [Link(0, 9, "Disease")]


# "adenoma" begins inside a token; "lung and breast cancer" is a composite with one nested in it.
TEXT = AnnotatedText(
    "7",
    "cystadenoma, lung and breast cancer, odd",
    (
        Mention(4, 11, "Disease", ("X:1",)),
        Mention(13, 35, "Disease", ("X:2", "X:3")),
        Mention(22, 35, "Disease", ("X:3",)),
        Mention(37, 40, "Sign"),
    ),
)


@table("alignment counts")
def test_alignment_counts(widen, widened, lost, spans):
    doc, alignment = text_to_doc(blank(), TEXT, widen=widen)
    assert (alignment.n, alignment.widened, alignment.lost) == (4, widened, lost)
    assert [[span.text, span.kb_id_] for span in doc.spans["bioel_gold"]] == spans


def test_gold_spans_go_by_characters_not_by_tokens():
    (example,) = examples(blank(), [TEXT])
    merged = blank().make_doc(TEXT.text)
    with merged.retokenize() as retokenizer:
        retokenizer.merge(merged[2:4])  # "lung and"
    moved = Example(merged, example.reference)
    assert list(gold_spans(moved)) == [
        GoldSpan(2, 5, "Disease", ("X:2", "X:3")),
        GoldSpan(3, 5, "Disease", ("X:3",)),
        GoldSpan(6, 7, "Sign", ()),
    ]


def test_no_gold():
    doc = blank().make_doc("x")
    assert list(gold_spans(Example(doc, doc.copy()))) == []
    assert add_gold(doc, AnnotatedText("1", "x")).n == len(doc.spans["bioel_gold"]) == 0


def test_gold_mentions_for_the_linker_have_no_ids():
    doc = with_gold_mentions(blank().make_doc(TEXT.text), TEXT)
    assert [(span.text, span.label_, span.kb_id_) for span in doc.spans["bioel"]] == [
        ("cystadenoma", "Disease", ""),
        ("lung and breast cancer", "Disease", ""),
        ("breast cancer", "Disease", ""),
        ("odd", "Sign", ""),
    ]


@table("mentions to link")
def test_mentions_to_link(mentions, with_group, expected):
    doc = blank().make_doc("a b c")
    doc.ents = [Span(doc, 0, 1, label="X")]
    if with_group:
        doc.spans["bioel"] = [Span(doc, 1, 3, label="Y")]
    assert [span.text for span in mention_spans(doc, mentions)] == expected


def test_it_comes_back_with_the_pipeline(tmp_path):
    nlp = blank()
    text = "a naloxone-induced [3H] 100mg"
    expected = ["a", "naloxone", "-", "induced", "[", "3H", "]", "100", "mg"]
    from_bytes = spacy.blank("en").from_bytes(nlp.to_bytes())
    nlp.to_disk(tmp_path / "nlp")
    for copy in (from_bytes, spacy.load(tmp_path / "nlp")):
        assert [token.text for token in copy.make_doc(text)] == expected


@pytest.mark.realdata
def test_bc5cdr_loses_less_than_one_mention_in_a_thousand(data_folder):
    nlp, total = blank(), Alignment()
    for name in ("CDR_TrainingSet.PubTator.txt", "CDR_DevelopmentSet.PubTator.txt"):
        (path,) = data_folder.rglob(name)
        for text in read_texts(path, prefix="MESH"):
            doc, alignment = text_to_doc(nlp, text)
            assert doc.text == text.text
            total.add(alignment)
    assert total.n == 18976
    assert len(total.lost) / total.n < 0.001
