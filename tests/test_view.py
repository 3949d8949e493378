"""HTML of linked texts: as a page, and as a part for notebooks; nothing in either is live."""

import json
import re

from browser import check_keyboard, check_page, chromium
from kb_files import made_kb

from spacy_bioel.export.html import END_OF_PAGE, page_part, render_document, start_page
from spacy_bioel.export.pages import style_of, ticks_of
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.types import Candidate, Concept, Link

# In a text, in an id (which has no white space), in an attribute, and out of one.
SCRIPT = "<script>document.title='run'</script>"
IMAGE = "<img src=x onerror=document.title='run'>"
QUOTED = "\"'><svg/onload=document.title='run'>"


def text_of(section: str) -> str:
    text = section.partition('<p class="text" dir="auto">')[2].partition("</p>")[0]
    return re.sub(r' style="[^"]*"', "", text)


def test_mentions_are_marked_with_label_and_ids_which_lead_to_the_pages_of_concepts():
    links = [Link(0, 7, "Chemical", ("X:1", "X:2")), Link(8, 13, "", ("HP:0001945",))]
    assert text_of(render_document("aspirin fever rash.", [*links, Link(14, 18, "")])) == (
        "<mark>aspirin</mark><sup>Chemical X:1 | X:2</sup> <mark>fever</mark><sup>"
        '<a href="http://purl.obolibrary.org/obo/HP_0001945">HP:0001945</a></sup> '
        "<mark>rash</mark><sup>NIL</sup>."
    )


def test_mentions_may_overlap():
    links = [Link(0, 11, "D", ("X:1",)), Link(4, 11, "D", ("X:2",)), Link(8, 16, "D", ("X:3",))]
    assert text_of(render_document("non a b c d e f. ", links)) == (
        "<mark>non </mark><mark>a b </mark><mark>c d</mark><sup>D X:1</sup><sup>D X:2</sup>"
        "<mark> e f.</mark><sup>D X:3</sup> "
    )


def test_the_table_has_preferred_and_matched_names_and_hgvs(tmp_path):
    concepts = [
        Concept("X:1", ("B-Raf kinase", "BRAF"), ("Gene", "Y:1")),
        Concept("Y:1", ("<person>",)),
    ]
    kb = made_kb(tmp_path / "kb", concepts, source="<genes>", release="2026")
    found = (Candidate("X:1", 0.5, "BRAF", "exact", kb.fingerprint), Candidate("X:2", 0.25, "b"))
    links = [
        Link(0, 4, "Gene", ("X:1",), found),
        Link(5, 10, "Variant", facts={"hgvs": "p.Val600Glu"}),
    ]
    section = render_document("BRAF V600E", links, title="7")
    page = page_part(LinkedText("7", "BRAF V600E", tuple(links)))
    assert '"preferred": "B-Raf kinase", "kind": "<person>"' in page.replace("\\u003c", "<")
    rows = section.partition("<tbody>")[2].partition("</tbody>")[0]
    assert rows == (
        '<tr><th scope="row">BRAF</th><td>Gene</td><td>X:1<details><summary>Why</summary>'
        "Linked: BRAF (X:1) scored highest (0.50), above nil_threshold."
        '</details></td><td><ol class="candidates">'
        "<li>X:1 B-Raf kinase (&lt;person&gt;) (matched: BRAF) <small>0.50, exact</small></li>"
        "<li>X:2 b <small>0.25, </small></li></ol></td></tr>"
        '<tr><th scope="row">V600E</th><td>Variant</td><td>NIL <small>hgvs p.Val600Glu</small>'
        "<details><summary>Why</summary>NIL: the knowledge base has no similar name for this "
        "mention.</details></td><td></td></tr>"
    )
    assert f"<li>&lt;genes&gt;, release 2026, 2 concepts, fingerprint {kb.fingerprint}" in section


def test_all_that_is_shown_is_escaped():
    candidate = Candidate(SCRIPT, 0.5, IMAGE, QUOTED)
    link = Link(0, len(SCRIPT), IMAGE, (SCRIPT, QUOTED, f"MESH:{QUOTED}"), (candidate,))
    section = render_document(SCRIPT, [link], title=QUOTED)
    for live in ("<script", "<img", "<svg", "\"'>"):
        assert live not in section
    assert section.count("&lt;script&gt;") == 6  # text, twice; id, twice; candidate; reason
    part = page_part(LinkedText(QUOTED, SCRIPT, (link,)))
    assert part.count("<") == 2  # the element of the document
    [row] = [json.loads(part.partition(">")[2].rpartition("</")[0])]
    assert (row["id"], row["text"], row["links"][0]["label"]) == (QUOTED, SCRIPT, IMAGE)
    assert "&lt;img src=x onerror=document.title=&#39;run&#39;&gt;</title>" in start_page(IMAGE)


def page_of(folder, *linked):
    path = folder / "links.html"
    page = f"{start_page()}{''.join(map(page_part, linked))}{END_OF_PAGE}"
    path.write_text(page, encoding="utf8")
    return path.as_uri()


def link_of(text, words, label, *ids, **about):
    start = text.index(words)
    found = tuple(Candidate(id, 0.9 - i / 4, words, "exact") for i, id in enumerate(ids))
    return Link(start, start + len(words), label, ids[:1], found, **about)


ODD = f"{SCRIPT} مرض السكري \U0001f600 e\u0301 {'long ' * 400}end {IMAGE} "
ODD += "of non-small cell lung cancer"


def test_a_page_in_a_browser(tmp_path):
    odd = [
        link_of(ODD, "مرض السكري", "Disease", "MESH:D003920", "X:2"),
        link_of(ODD, SCRIPT, QUOTED),
    ]
    odd += [link_of(ODD, "long " * 400 + "end", IMAGE, SCRIPT)]
    odd += [link_of(ODD, "non-small cell lung cancer", "Disease", "MESH:D002289")]
    odd += [link_of(ODD, "lung", "Organ", "UBERON:0002048")]
    labels = [Link(i, i + 1, f"L{i}") for i in range(200)]
    linked = [LinkedText("odd", ODD, tuple(odd)), LinkedText("labels", "x" * 200, tuple(labels))]
    address = page_of(tmp_path, *linked)
    with chromium() as browser:
        check_page(browser, address, use=lambda page: page.locator("mark").first.press("Enter"))
        page = browser.new_page()
        page.goto(address)
        assert page.title() == "Linked texts"
        marks = page.locator("section").first.locator("mark")
        assert marks.first.evaluate("e => e.firstChild.textContent") == SCRIPT
        inner = page.locator("mark.overlapping")
        assert inner.inner_text().startswith("lung")
        inner.click()
        panel = page.locator("#panel").inner_text()
        assert "non-small cell lung cancer Disease" in panel and "UBERON:0002048" in panel
        assert "absent" in panel
        address = inner.page.locator("#panel a").first.get_attribute("href")
        assert address == "https://meshb.nlm.nih.gov/record/ui?ui=D002289"
        # Colours repeat with other edges.
        styles = {page.evaluate(f"styleOf('L{i}').join()") for i in range(200)}
        assert len(styles) > 40
        drawn = "`--hue: ${styleOf('L7')[0]}; --edge-style: ${styleOf('L7')[1]}`"
        assert page.evaluate(drawn) == style_of("L7")


def test_the_filters_and_the_pages(tmp_path):
    texts = [f"fever and naloxone {i}" for i in range(45)]
    linked = [
        LinkedText(
            f"doc{i}",
            text,
            (
                link_of(text, "fever", "Disease", "MESH:D005334"),
                link_of(text, "naloxone", "Chemical", *(["MESH:D009270"] if i % 2 else [])),
            ),
        )
        for i, text in enumerate(texts)
    ]
    with chromium() as browser:
        page = browser.new_page()
        page.goto(page_of(tmp_path, *linked))

        def summary():
            return page.locator("#summary").inner_text()

        assert summary() == "90 mentions in 45 of 45 documents"
        assert page.locator("#documents section").count() == 20
        page.get_by_role("button", name="Next").first.click()
        assert page.locator("#documents h2").first.inner_text() == "doc20"
        page.locator("#status").select_option("NIL")
        assert summary() == "23 mentions in 23 of 45 documents"
        page.locator("#status").select_option("any")
        page.get_by_role("button", name="Chemical", exact=True).click()
        assert summary() == "45 mentions in 45 of 45 documents"
        page.locator("mark").nth(19).click()  # of doc19
        page.locator("#query").fill("doc1")
        page.wait_for_function("shown.length === 11")
        assert "MESH:D005334" in page.locator("#panel").inner_text()
        assert page.locator("mark.selected").count() == 1
        page.locator("#query").fill("doc44")
        page.wait_for_function("shown.length === 1")
        assert page.locator("#panel").inner_text().startswith("Select a mention")
        assert page.locator("#documents h2").all_inner_texts() == ["doc44"]
        page.locator("#query").fill("d009270")
        page.wait_for_function("shown.length === 0")
        check_keyboard(page)


def test_ticks_enclose_the_values():
    assert ticks_of([0, 1]) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks_of([3, 47]) == [0, 10, 20, 30, 40, 50]
    assert ticks_of([0, 1200.0]) == [0, 500, 1000, 1500]
    assert ticks_of([100.0]) == [0, 20, 40, 60, 80, 100]
    assert ticks_of([-3, -3]) == [-3, -2, -1, 0]
    assert ticks_of([]) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks_of([0.93, 0.95, float("nan")]) == [0.93, 0.935, 0.94, 0.945, 0.95]


def test_on_a_phone_the_panel_leaves_the_selected_mention_in_view_and_closes(tmp_path):
    text = "words " * 60 + "fever and " + "x" * 2000
    links = [link_of(text, "fever", "Disease"), link_of(text, "x" * 2000, "Gene", "X:1")]
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 320, "height": 700})
        page.goto(page_of(tmp_path, LinkedText("", text, tuple(links))))
        assert page.locator("#marks").inner_text() == "No background: no concept fits (NIL)."
        mark, panel = page.locator("mark").first, page.locator("#panel")
        mark.click()
        box = mark.bounding_box()
        assert box["y"] + box["height"] < panel.bounding_box()["y"]
        panel.get_by_role("button", name="Close").click()
        assert panel.inner_text().startswith("Select a mention")
        assert panel.get_by_role("button").count() == 0
        page.locator("mark").last.press("Enter")
        assert page.locator("#panel h2").bounding_box()["height"] < 120
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.textContent").startswith("x")
        page.emulate_media(media="print")
        assert not panel.get_by_text("Select a mention").is_visible()


def test_a_concept_is_a_table_in_which_all_is_escaped():
    concept = Concept("X:1", ("<b>heart</b>", "cor"), parents=("X:0",))
    assert concept._repr_html_() == (
        "<table><tr><th>id</th><td>X:1</td></tr>"
        "<tr><th>names</th><td>&lt;b&gt;heart&lt;/b&gt;; cor</td></tr>"
        "<tr><th>parents</th><td>X:0</td></tr></table>"
    )
