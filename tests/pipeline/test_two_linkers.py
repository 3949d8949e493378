"""Several pipes in one pipeline: two linkers, pipes of others, their order, and extensions."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from cases import table
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from tiny import blank, linking_nlp, links

from spacy_bioel.doc import get_links, long_forms
from spacy_bioel.errors import BioelError
from spacy_bioel.explanation import register_extensions
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept


@pytest.fixture
def nlp(kb_folder, tmp_path) -> Language:
    """Entities linked to MeSH, then to another knowledge base."""
    build_kb([Concept("MINE:1", ("aspirin", "ASS")), Concept("MINE:2", ("fever",))], tmp_path / "m")
    nlp = linking_nlp(kb_folder, ["aspirin", "fever"], spans_key="mesh")
    nlp.add_pipe("bioel_linker", name="mine", config={"kb": str(tmp_path / "m"), "spans_key": "my"})
    return nlp


def first_ids(spans: Any) -> list[str]:
    return [span._.candidates[0].id for span in spans]


@pytest.mark.parametrize("nil_threshold", [0.25, 1.0])  # with 1.0, both are NIL
def test_each_span_has_the_candidates_of_its_linker(nlp, nil_threshold):
    for name in ("bioel_linker", "mine"):
        nlp.get_pipe(name).cfg["nil_threshold"] = nil_threshold
    doc = nlp("aspirin")
    stored = DocBin(docs=[doc], store_user_data=True).to_bytes()
    (again,) = DocBin().from_bytes(stored).get_docs(nlp.vocab)
    for found in (doc, again):
        for key, id in (("mesh", "MESH:D001241"), ("my", "MINE:1")):
            assert first_ids(found.spans[key]) == [id]
            assert [link.candidates[0].id for link in get_links(found, key)] == [id]
            linked = id if nil_threshold < 1 else "NIL"
            assert [span.kb_id_ for span in found.spans[key]] == [linked]
        assert first_ids(found.ents) == ["MINE:1"]  # linked last


@pytest.mark.parametrize("is_sourced", [False, True])
def test_two_linkers_of_one_group_are_refused(trained, kb_folder, is_sourced):
    nlp = linking_nlp(kb_folder, ["aspirin"])
    made: Any = {"source": trained} if is_sourced else {"config": {"kb": str(kb_folder)}}
    nlp.add_pipe("bioel_linker", name="second", **made)
    for _ in range(2):  # not only the first time
        with pytest.raises(BioelError, match=r"\[B271\] .*'bioel_linker' and 'second'.*'bioel'"):
            nlp("aspirin")


def test_a_linker_before_its_ruler(kb_folder):
    nlp = linking_nlp(kb_folder)
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "T", "pattern": "aspirin"}])
    with pytest.warns(UserWarning, match=r"\[W271\] .*'bioel_linker' comes before 'entity_ruler'"):
        nlp("aspirin")
    with warnings.catch_warnings(action="error"):
        nlp("aspirin")  # warned once


@table("settings that do not fit the pipes before")
def test_settings_that_do_not_fit_the_pipes_before(kb_folder, settings, labels, expected):
    nlp = linking_nlp(kb_folder, ["aspirin"], **settings)
    if labels:
        nlp.get_pipe("bioel_linker").set_kb(dict.fromkeys(labels, str(kb_folder)))
    with pytest.warns(UserWarning, match=expected):
        nlp("aspirin")


def test_knowledge_bases_for_labels_that_the_pipes_before_lack(kb_folder):
    """They are no mistake beside one for a label, or for names in the text."""
    nlp = linking_nlp(kb_folder, ["aspirin"])
    nlp.get_pipe("bioel_linker").set_kb(dict.fromkeys(("Thing", "Gene"), str(kb_folder)))
    names = linking_nlp(kb_folder, mentions="spans+dictionary")
    ruler = names.add_pipe("span_ruler", config={"spans_key": "bioel"}, first=True)
    ruler.add_patterns([{"label": "Thing", "pattern": "aspirin"}])
    names.get_pipe("bioel_linker").set_kb({"Own": str(kb_folder), "Other": str(kb_folder)})
    with warnings.catch_warnings(action="error"):
        assert [ent.text for ent in nlp("aspirin").ents] == ["aspirin"]
        names("aspirin")


def test_settings_that_may_fit(kb_folder):
    """Functions do not declare their labels; and one location with mentions is enough."""

    @Language.component("finds_something")
    def finds_something(doc: Doc) -> Doc:
        doc.ents = [Span(doc, 0, 1, label="Drug")]
        return doc

    nlp = linking_nlp(kb_folder, label_types={"Drug": []})
    nlp.add_pipe("finds_something", first=True)
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "bioel"}, first=True)
    ruler.add_patterns([{"label": "Thing", "pattern": "aspirin"}])
    with warnings.catch_warnings(action="error"):
        doc = nlp("aspirin")
        elsewhere = linking_nlp(kb_folder, ["aspirin"], mentions="spans")
        elsewhere.add_pipe("finds_something", before="bioel_linker")
        elsewhere("aspirin")
    assert [span.kb_id_ for span in doc.spans["bioel"]] == ["MESH:D001241"]


def test_a_relative_path_after_a_change_of_folder(kb_folder, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    linking_nlp(kb_folder, ["aspirin"]).to_disk(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    loaded = spacy.load("saved")
    made = linking_nlp(Path(os.path.relpath(kb_folder)), ["aspirin"])
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [nlp("aspirin").ents[0]._.cui for nlp in (loaded, made)] == ["MESH:D001241"] * 2


@pytest.fixture
def foreign_cui() -> Iterator[None]:
    """Another package has registered `span._.cui`."""
    register_extensions()
    before = Span.get_extension("cui")
    Span.set_extension("cui", default="theirs", force=True)
    yield
    Span.set_extension("cui", getter=before[2], force=True)


def test_extensions_of_other_packages_are_kept_with_a_warning(kb_folder, foreign_cui):
    with pytest.warns(UserWarning, match=r"\[W270\] .*span\._\.cui.*get_links"):
        nlp = linking_nlp(kb_folder, ["aspirin"])
    ent = nlp("aspirin").ents[0]
    assert (ent._.cui, ent._.cuis, ent.kb_id_) == ("theirs", ("MESH:D001241",), "MESH:D001241")


def test_abbreviations_of_scispacy_in_both_forms():
    """As spans with an extension, and as dicts with make_serializable = True."""
    Doc.set_extension("abbreviations", default=[], force=True)
    Span.set_extension("long_form", default=None, force=True)
    try:
        doc = blank().make_doc("Myocardial infarction (MI).")
        doc._.abbreviations = [
            {"short_text": "MI", "short_start": 3, "long_text": "Myocardial infarction"}
        ]
        assert long_forms(doc) == {"MI": "Myocardial infarction"}
        short = doc[3:4]
        short._.long_form = doc[0:2]
        doc._.abbreviations = [short]
        assert long_forms(doc) == {"MI": "Myocardial infarction"}
    finally:
        Doc.remove_extension("abbreviations")
        Span.remove_extension("long_form")


ASPIRIN = "Aspirin can cause a cold."


def other(trained: Language, *pipes: str) -> Language:
    nlp = spacy.blank("en", config={"nlp": trained.config["nlp"] | {"pipeline": []}})
    for name in pipes:
        nlp.add_pipe(name, source=trained)
    return nlp


def test_in_order_before_the_detector_and_without_it(trained):
    nlp = other(trained, "bioel_mentions", "bioel_linker")
    assert links(nlp(ASPIRIN)) == links(trained(ASPIRIN))  # which checks the order there
    assert nlp.get_pipe("bioel_linker").name == "bioel_linker"
    for pipes, warning in (
        (("bioel_linker", "bioel_mentions"), r"\[W271\].*bioel_linker.*bioel_mentions"),
        (("bioel_linker",), r"\[W323\].*bioel_linker"),
    ):
        with pytest.warns(UserWarning, match=warning):
            other(trained, *pipes)(ASPIRIN)


def test_without_the_vectors_it_listens_to(dual_folder):
    trained = spacy.load(dual_folder)
    assert trained.pipe_names[0] == "tok2vec"
    nlp = other(trained, *trained.pipe_names[1:])
    with pytest.raises(BioelError, match=r"\[B174\]"):
        nlp(ASPIRIN)
