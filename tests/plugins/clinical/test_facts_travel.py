"""Facts stay with their mention, whatever users of spaCy do with its Doc and its span groups."""

import pickle
import warnings
from typing import Any

import pytest
import spacy
from kb_files import made_kb
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import filter_spans
from tiny import linking_nlp

from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.report import explain
from spacy_bioel.types import Concept

TEXT = "No fever. Her father had migraine. Possible asthma; seizures in 2010."
NAMES = {"Fever": "Sign", "Migraine": "Disease", "Asthma": "Disease", "Seizures": "Disease"}
CONCEPTS = [
    Concept(f"X:{n}", names=(name,), types=(type,))
    for n, (name, type) in enumerate(NAMES.items(), 1)
]
FLAGS = ("negated", "uncertain", "historical", "hypothetical", "experiencer")


@pytest.fixture(scope="module")
def nlp(tmp_path_factory) -> Language:
    kb = made_kb(tmp_path_factory.mktemp("facts"), CONCEPTS)
    nlp = linking_nlp(kb.path, mentions="dictionary")
    nlp.add_pipe("bioel_context")
    return nlp


@pytest.fixture
def doc(nlp) -> Doc:
    doc = nlp(TEXT)
    assert [span.text for span in doc.spans["bioel"]] == ["fever", "migraine", "asthma", "seizures"]
    assert [span._.negated for span in doc.spans["bioel"]] == [True, False, False, False]
    assert [span._.experiencer for span in doc.spans["bioel"]][1] == "family"
    return doc


def facts(span: Span) -> tuple[Any, ...]:
    about = span._
    return about.cui, about.candidates, *(about.get(name) for name in FLAGS)


def facts_by_text(spans: Any) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {(span.text, span.label_): facts(span) for span in spans}


def through_docbin(doc: Doc, *, store_user_data: bool = True) -> Doc:
    data = DocBin(docs=[doc], store_user_data=store_user_data).to_bytes()
    return next(DocBin().from_bytes(data).get_docs(doc.vocab))


def joined_behind_another(doc: Doc) -> Doc:
    return Doc.from_docs([Doc(doc.vocab, words=["Another", "text", "before"]), doc])


def through_bytes(doc: Doc) -> Doc:
    return Doc(doc.vocab).from_bytes(doc.to_bytes())


def through_json(doc: Doc) -> Doc:
    return Doc(doc.vocab).from_json(doc.to_json(underscore=["bioel_records"]))


WAYS = [Doc.copy, lambda doc: pickle.loads(pickle.dumps(doc)), through_bytes, through_docbin]


@pytest.mark.parametrize("way", [*WAYS, joined_behind_another, through_json])
def test_a_doc_that_is_copied_stored_or_joined(doc, way):
    after = way(doc)  # a span group does not keep its Doc alive
    assert facts_by_text(after.spans["bioel"]) == facts_by_text(doc.spans["bioel"])


def test_a_docbin_without_user_data_keeps_the_facts(doc):
    after = through_docbin(doc, store_user_data=False)
    for found, span in zip(after.spans["bioel"], doc.spans["bioel"], strict=True):
        for name in ("cui", *FLAGS):
            assert found._.get(name) == span._.get(name)


def filtered(doc: Doc) -> list[Span]:
    return [span for span in doc.spans["bioel"] if span.text != "asthma"]


def made_again(doc: Doc) -> list[Span]:
    """Spans that a user makes of the same tokens, with the ids of the links."""
    return [
        Span(doc, span.start, span.end, span.label_, kb_id=span.kb_id_)
        for span in doc.spans["bioel"]
    ]


@pytest.mark.parametrize("change", [filtered, lambda doc: [*doc.spans["bioel"]][::-1], made_again])
@pytest.mark.parametrize("key", ["bioel", "mine"])
@pytest.mark.parametrize("way", [lambda doc: doc, Doc.copy, through_bytes])
def test_a_group_that_is_assigned(doc, change, key, way):
    expected = facts_by_text(doc.spans["bioel"])
    doc.spans[key] = change(doc)
    after = way(doc)
    assert len(after.spans[key]) >= 3
    for span in after.spans[key]:
        assert facts(span) == expected[span.text, span.label_]


def test_an_explanation_has_the_context(nlp):
    said = {m.text: m.said for m in explain(nlp, TEXT).mentions}
    assert said["fever"].startswith("negated") and "family" in said["migraine"]


def test_links_and_entities_have_the_facts(doc):
    expected = [link for link in get_links(doc) if link.ids != ("X:3",)]
    doc.ents = filter_spans(doc.spans["bioel"])
    assert [ent._.negated for ent in doc.ents] == [True, False, False, False]
    assert [ent._.experiencer for ent in doc.ents][1] == "family"
    doc.spans["bioel"] = filtered(doc)
    assert get_links(doc) == expected
    assert expected[0].facts["context"]["negated"]


def test_json_without_the_facts_is_never_read_as_not_negated(doc):
    again = Doc(doc.vocab).from_json(doc.to_json())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fever = next(span for span in again.spans["bioel"] if span.text == "fever")
        assert fever._.negated is None
    with pytest.warns(UserWarning, match=r"\[W324\]"):
        assert fever._.negated is None


def run(nlp: Language, doc: Doc) -> Doc:
    for _, pipe in nlp.pipeline:
        doc = pipe(doc)
    return doc


def linker_of(nlp: Language, mentions: Any) -> Language:
    """Return a pipeline that links other mentions with the same knowledge base."""
    return linking_nlp(nlp.get_pipe("bioel_linker").cfg["kb"], mentions=mentions)


def merge(doc: Doc, first: int, last: int) -> None:
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[first:last])


def test_a_stale_span_is_realigned_or_refused(nlp):
    doc = nlp.make_doc("The high fever and migraine.")
    doc.spans["bioel"] = [doc.char_span(19, 27, "Disease")]
    merge(doc, 0, 2)
    linker = linker_of(nlp, "spans")
    try:
        (link,) = get_links(run(linker, doc))
    except BioelError as error:
        assert "[B" in str(error)
    else:
        assert doc.text[link.start : link.end] == "migraine"
        assert link.ids == ("X:2",)


def test_a_stale_span_that_is_read_is_warned_of(nlp):
    doc = nlp(TEXT)
    assert any(span._.cui for span in doc.spans["bioel"])
    merge(doc, 0, 2)
    last = list(doc.spans["bioel"])[-1]
    with pytest.warns(UserWarning, match=r"\[W326\]"):
        assert last._.cui == last._.concept_id
    again = nlp(TEXT)
    assert any(span._.cui for span in again.spans["bioel"])  # without a warning


def test_user_data_with_keys_of_any_form(nlp):
    doc = nlp.make_doc(TEXT)
    doc.user_data |= {("mine",): 1, (): 2, "name": 3}
    assert len(get_links(run(nlp, doc))) == 4
    assert doc.user_data["mine",] == 1


def test_linking_a_linked_doc_again(nlp, tmp_path):
    kb = made_kb(tmp_path, [Concept("Y:1", names=("Fever",))]).path
    first = linking_nlp(nlp.get_pipe("bioel_linker").cfg["kb"], ["fever", "migraine"])
    second = linking_nlp(kb, ["fever", "migraine"])
    doc = second.get_pipe("bioel_linker")(run(first, first.make_doc(TEXT)))
    expected = run(second, second.make_doc(TEXT))
    assert get_links(doc) == get_links(expected)
    assert [(e.text, e.kb_id_) for e in doc.ents] == [(e.text, e.kb_id_) for e in expected.ents]
    assert not any(ent.kb_id_.startswith("X:") for ent in doc.ents)


def test_new_entities_on_a_linked_doc(nlp):
    linker = linking_nlp(nlp.get_pipe("bioel_linker").cfg["kb"], ["fever"])
    doc = linker(TEXT)
    doc.ents = [doc.char_span(TEXT.index("migraine"), TEXT.index("migraine") + 8, "Thing")]
    doc = linker.get_pipe("bioel_linker")(doc)
    assert [(e.text, e._.cui) for e in doc.ents] == [("migraine", "X:2")]
    assert [link.ids for link in get_links(doc)] == [("X:2",)]


def test_context_covers_each_group_of_each_linker(nlp):
    two = spacy.blank("en")
    config = {"kb": nlp.get_pipe("bioel_linker").cfg["kb"], "mentions": "dictionary"}
    for key in ("signs", "diseases"):
        two.add_pipe("bioel_linker", name=key, config=config | {"spans_key": key})
    two.add_pipe("bioel_context")
    doc = two(TEXT)
    for key in ("signs", "diseases"):
        assert [span._.negated for span in doc.spans[key]] == [True, False, False, False]
        assert get_links(doc, key)[0].facts["context"]["negated"]


def test_span_ids_of_users_stay(nlp):
    linker = linker_of(nlp, "spans")
    doc = linker.make_doc(TEXT)
    span = doc.char_span(3, 8, "Sign", span_id="mine-7")
    doc.spans["bioel"] = [span]
    (linked,) = linker.get_pipe("bioel_linker")(doc).spans["bioel"]
    assert linked.id_ == "mine-7" and linked._.cui == "X:1"


def test_abbreviations_of_another_package_in_another_form(nlp):
    had = Doc.has_extension("abbreviations")
    Doc.set_extension("abbreviations", default=[], force=True)
    try:
        doc = nlp.make_doc(TEXT)
        doc._.abbreviations = ["TLA", 3]
        with pytest.warns(UserWarning, match=r"\[W325\]"):
            doc = run(nlp, doc)
        assert len(get_links(doc)) == 4
    finally:
        if not had:
            Doc.remove_extension("abbreviations")


def test_a_batch_keeps_the_knowledge_base_that_ranked_it(nlp, tmp_path):
    kb = made_kb(tmp_path, [Concept("Y:1", names=("Fever",))]).path
    linker = linker_of(nlp, "dictionary")
    pipe, doc = linker.get_pipe("bioel_linker"), linker.make_doc(TEXT)
    before, scores = pipe.kb.fingerprint, pipe.predict([doc])
    pipe.set_kb(str(kb))
    pipe.set_annotations([doc], scores)
    assert pipe.kb.fingerprint != before
    assert {c.kb for span in doc.spans["bioel"] for c in span._.candidates} == {before}
