"""The page of linked texts, and that nothing in it is live."""

from kb_files import made_kb

from spacy_bioel.export.html import render_document, render_page
from spacy_bioel.types import Candidate, Concept, Context, Link

# In a text, in an id (which has no white space), in an attribute, and out of one.
SCRIPT = "<script>document.title='run'</script>"
IMAGE = "<img src=x onerror=document.title='run'>"
QUOTED = "\"'><svg/onload=document.title='run'>"


def text_of(section: str) -> str:
    return section.partition("<p>")[2].partition("</p>")[0]


def test_mentions_are_marked_with_label_and_ids():
    links = [Link(0, 7, "Chemical", ("X:1", "X:2")), Link(8, 13, "")]
    assert text_of(render_document("aspirin fever.", links)) == (
        "<mark>aspirin</mark><sup>Chemical X:1 | X:2</sup> <mark>fever</mark><sup>NIL</sup>."
    )


def test_ids_are_links_to_the_pages_of_their_concepts():
    links = [Link(0, 5, "", ("HP:0001945", "MINE:1"))]
    assert text_of(render_document("fever", links)) == (
        '<mark>fever</mark><sup><a href="http://purl.obolibrary.org/obo/HP_0001945">HP:0001945</a>'
        " | MINE:1</sup>"
    )


def test_mentions_may_overlap():
    links = [Link(0, 11, "D", ("X:1",)), Link(4, 11, "D", ("X:2",)), Link(8, 16, "D", ("X:3",))]
    assert text_of(render_document("non a b c d e f. ", links)) == (
        "<mark>non </mark><mark>a b </mark><mark>c d</mark><sup>D X:1</sup><sup>D X:2</sup>"
        "<mark> e f.</mark><sup>D X:3</sup> "
    )


def test_what_is_negated_is_struck_out_to_its_end():
    no, father = Context(negated=True), Context(experiencer="family")
    links = [Link(3, 12, "D", ("X:1",), context=no), Link(3, 7, "D", ("X:2",), context=father)]
    section = render_document("no cleft lip.", links)
    assert text_of(section) == (
        'no <mark class="negated">clef</mark><sup>D X:2</sup><mark class="negated">t lip</mark>'
        "<sup>D X:1</sup>."
    )
    assert "<small>Struck through: negated." in section


def test_the_table_has_the_status_with_its_cues_and_the_layout():
    text = "Father: fever\n\ncough"
    contexts = [
        Context(experiencer="family", relative="father", layout="pair", cues=((0, 6, "family"),)),
        Context(layout="<list>"),
        None,
    ]
    links = [Link(8, 13, "", context=contexts[0]), Link(15, 20, "", context=contexts[1])]
    section = render_document(text, [*links, Link(15, 20, "", context=contexts[2])])
    assert "<small>family; father; family (&#34;Father&#34;); pair</small>" in section
    assert "<small>present; &lt;list&gt;</small>" in section
    assert section.count("<small>") == 3  # with the line about the marks


def test_the_table_has_preferred_and_matched_names_and_hgvs(tmp_path):
    concepts = [Concept("X:1", ("B-Raf kinase", "BRAF"))]
    kb = made_kb(tmp_path / "kb", concepts, source="<genes>", release="2026")
    found = (Candidate("X:1", 0.5, "BRAF", "exact", kb.fingerprint), Candidate("X:2", 0.25, "b"))
    links = [
        Link(0, 4, "Gene", ("X:1",), found),
        Link(5, 10, "Variant", facts={"hgvs": "p.Val600Glu"}),
    ]
    section = render_document("BRAF V600E", links, title="7")
    rows = section.partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows == (
        '<tr><th scope="row">BRAF</th><td>Gene</td><td>X:1<details><summary>Why</summary>'
        "Linked: BRAF (X:1) scored highest (0.50), above nil_threshold."
        "</details></td><td><ol>"
        "<li>X:1 B-Raf kinase (matched: BRAF) <small>0.50, exact</small></li>"
        "<li>X:2 b <small>0.25, </small></li></ol></td></tr>"
        '<tr><th scope="row">V600E</th><td>Variant</td><td>NIL <small>hgvs p.Val600Glu</small>'
        "<details><summary>Why</summary>NIL: the knowledge base has no similar name for this "
        "mention.</details></td><td></td></tr>"
    )
    assert f"<li>&lt;genes&gt;, release 2026, 1 concepts, fingerprint {kb.fingerprint}" in section


def test_all_that_is_shown_is_escaped():
    candidate = Candidate(SCRIPT, 0.5, IMAGE, QUOTED)
    link = Link(0, len(SCRIPT), IMAGE, (SCRIPT, QUOTED, f"MESH:{QUOTED}"), (candidate,))
    page = render_page([render_document(SCRIPT, [link], title=QUOTED)], title=IMAGE)
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert "http" not in render_page([])  # nothing is loaded
    for live in ("<script", "<img", "<svg", "\"'>"):
        assert live not in page
    assert page.count("&lt;script&gt;") == 6  # text, twice; id, twice; candidate; reason
    assert page.count("<title>&lt;img src=x onerror=document.title=&#39;run&#39;&gt;<") == 1
