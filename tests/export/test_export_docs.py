"""Linked Docs as a data frame, as HTML and as data for displaCy."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import spacy
from kb_files import made_kb
from spacy import displacy
from spacy.language import Language
from spacy.tokens import Doc
from tiny import needs

import spacy_bioel
from spacy_bioel.doc import set_links
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Candidate, Concept, Link

TEXT = "Narcan for V600E & <b>"


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> KnowledgeBase:
    return made_kb(tmp_path_factory.mktemp("kb"), [Concept("MESH:D009270", ("Naloxone", "Narcan"))])


@pytest.fixture(scope="module")
def nlp() -> Language:
    return spacy.blank("en")


@pytest.fixture
def doc(nlp, kb) -> Doc:
    doc = nlp(TEXT)
    candidate = Candidate("MESH:D009270", 0.9, "Narcan", "exact")
    links = [
        Link(0, 6, "Chemical", ("MESH:D009270",), (candidate,)),
        Link(0, 16, "<i>", ()),
        Link(11, 16, "Variant", ("MINE:1", "X:2"), facts={"hgvs": "p.Val600Glu"}),
    ]
    set_links(doc, links, kb=kb.fingerprint)
    return doc


@needs("clinical")
def test_a_frame_has_a_row_a_link(doc, nlp):
    pd = pytest.importorskip("pandas")

    def stream() -> Iterator[Any]:
        yield nlp("nothing")
        yield doc, "a"
        yield doc

    frame = spacy_bioel.links_frame(stream())
    assert frame["document"].tolist() == ["a", "a", "a", 2, 2, 2]
    found = frame[frame["document"] == 2].drop(columns="document").to_dict("records")
    assert list(found[0].values()) == [
        *(0, 6, "Narcan", "Chemical", "MESH:D009270", "Naloxone", "Narcan", 0.9, "exact"),
        *[None] * 6,
    ]
    assert (found[1]["id"], found[2]["id"]) == (None, "MINE:1|X:2")
    assert pd.isna(found[1]["score"]) and found[2]["hgvs"] == "p.Val600Glu"


def test_a_frame_without_links_has_its_columns_and_types(nlp):
    pytest.importorskip("pandas")
    frame = spacy_bioel.links_frame(nlp("nothing"))
    assert len(frame) == 0 and list(frame.columns)[:3] == ["document", "start", "end"]
    assert [str(frame[name].dtype) for name in ("start", "score", "id")] == [
        *("int64", "float64", "object")
    ]


def test_a_frame_without_pandas(doc, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BioelError, match=r"\[B192\].*pip install 'spacy-bioel\[pandas\]'"):
        spacy_bioel.links_frame(doc)


def test_render(doc):
    part = spacy_bioel.render(doc, jupyter=False)
    assert part is not None and part.startswith("<style>") and part.endswith("</section></div>")
    assert '<a href="https://meshb.nlm.nih.gov/record/ui?ui=D009270">MESH:D009270</a>' in part
    assert "Naloxone (matched: Narcan)" in part and "&lt;b&gt;" in part and "<b>" not in part
    page = spacy_bioel.render([(doc, "first"), doc], page=True, title="Two")
    assert page is not None and page.startswith("<!DOCTYPE html>")
    assert page.count('<script type="application/json"') == 2 and "<title>Two</title>" in page
    assert '"id": "first"' in page and '"id": "1"' in page


def test_render_shows_it_in_a_notebook(doc, monkeypatch):
    shown: list[Any] = []

    class Display:
        HTML = str
        display = shown.append

    monkeypatch.setitem(sys.modules, "IPython", Display)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", Display)  # type: ignore[arg-type]
    assert spacy_bioel.render(doc, jupyter=True) is None
    assert len(shown) == 1 and ">Narcan</mark>" in shown[0]


@pytest.mark.parametrize("style", ["span", "ent"])
def test_displacy_has_links_to_pages(doc, style):
    data = spacy_bioel.displacy_data(doc)
    html = displacy.render(data, style=style, manual=True, jupyter=False)
    assert "<i>" not in html and "&lt;i&gt;" in html and "NIL" not in html
    # Of entities that overlap, there is the longest.
    assert ("ui?ui=D009270" in html, "MINE:1|X:2" in html) == ((style == "span"),) * 2


def test_the_names_of_a_knowledge_base_that_is_not_open_are_left_out(nlp):
    pytest.importorskip("pandas")
    doc = nlp("Narcan")
    candidate = Candidate("X:1", 0.5, "Narcan", "exact")
    set_links(doc, [Link(0, 6, "D", ("X:1",), (candidate,))], kb="none is open")
    frame = spacy_bioel.links_frame(doc)
    assert frame[["id", "preferred_name", "name"]].values.tolist() == [["X:1", None, "Narcan"]]


def test_the_package_knows_its_functions_before_they_are_imported():
    assert {"links_frame", "render", "displacy_data", "load"} <= set(dir(spacy_bioel))
    with pytest.raises(AttributeError, match="has no attribute 'rendered'"):
        _ = spacy_bioel.rendered
