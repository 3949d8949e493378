"""The pages of the service, in a browser: link, read files, compare thresholds, download."""

import csv
import io
import json
import socket
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import uvicorn
from browser import check_page, chromium, watch
from tables import cases, concepts_of
from tiny import linking_nlp

from spacy_bioel.export.formats import format_of
from spacy_bioel.export.html import FACTS
from spacy_bioel.export.rows import link_texts
from spacy_bioel.kb.build import build_kb
from spacy_bioel.loading import set_preset
from spacy_bioel.plugins.service import Limits
from spacy_bioel.plugins.service.app import create_app

SCRIPT = "<img src=x onerror=document.title='run'>"
CONCEPTS = concepts_of(cases(__file__, "concepts_of_the_page"))


@pytest.fixture(scope="module")
def nlp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "kb"
    build_kb(CONCEPTS, folder, source=f"Small {SCRIPT}", release="2026")
    nlp = linking_nlp(folder, mentions="dictionary", model={"dim": 16})
    set_preset(nlp, "clinical")
    return nlp


@pytest.fixture(scope="module")
def address(nlp, new_service) -> Iterator[str]:
    limits = Limits()
    service = new_service(lambda: nlp, max_characters=limits.characters)
    service.start()
    service.wait()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(create_app(service, limits), lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture()
def bare(browser) -> Iterator[Any]:
    """A page of the browser that has not gone anywhere."""
    page = browser.new_page()
    page.errors, page.requests = watch(page)
    yield page
    assert page.errors == []
    page.close()


@pytest.fixture()
def page(bare, address) -> Iterator[Any]:
    bare.goto(address)
    bare.locator("#limit").get_by_text("characters").wait_for()
    yield bare
    assert bare.title() == "Biomedical entity linking"


def link(page, text: str) -> str:
    """Link a text with the keyboard, and return what the page says of it."""
    page.fill("#text", text)
    page.press("#text", "Control+Enter")
    return said(page, "mention")


def said(page, words: str) -> str:
    page.locator("#status").get_by_text(words).wait_for()
    return page.locator("#status").text_content()


def test_it_works_at_every_width_with_the_keyboard_and_a_screen_reader(browser, address):
    def use(page) -> None:
        page.locator("#limit").get_by_text("characters").wait_for()
        page.get_by_role("button", name="Abstract").click()
        page.locator("#text-linked mark").first.press("Enter")
        page.locator("#concept h3").wait_for()
        page.click("#table summary")
        page.click("#compare summary")
        page.locator("#table table").wait_for()  # drawn after the click
        page.locator("#compare mark").first.wait_for()

    check_page(browser, f"{address}/", use=use)


def test_a_selected_mention_is_explained(page):
    assert link(page, "Denies Narcan.") == "1 mention"
    page.locator("#text-linked mark").click()
    page.locator("#concept h3").wait_for()
    mention = page.locator("#mention").text_content()
    for words in ("Narcan Drug", "Linked: Narcan (X:1) scored highest", "Naloxone matched: Narcan",
                  "absent", "negated (“Denies”)"):  # fmt: skip
        assert words in mention
    concept = page.locator("#concept").text_content()
    assert "X:1 Naloxone" in concept and SCRIPT in concept  # as text
    assert page.locator("#legend").text_content() == "Drug 1"
    assert page.locator("#marks").text_content() == "Struck through: negated."
    page.keyboard.press("Escape")
    assert page.locator("#mention").text_content().startswith("Select a mention")
    assert page.locator("mark.selected, #concept h3").count() == 0


def test_a_concept_leads_to_its_parents_and_its_vocabulary(page):
    link(page, "Clonidine and blood pressure")
    page.locator("mark").nth(0).click()
    page.locator("#concept").get_by_role("button", name="X:1").click()
    page.get_by_text("X:1 Naloxone").wait_for()
    page.locator("mark").nth(1).click()
    vocabulary = page.locator("#concept a")
    assert vocabulary.get_attribute("href") == "http://purl.obolibrary.org/obo/HP_0000822"
    page.fill("#words", "narcan")
    page.press("#words", "Enter")
    page.locator("#mention li").get_by_text("matched: Narcan").wait_for()


@pytest.mark.parametrize(("name", "n"), [("Abstract", 5), ("Note", 1), ("Table", 0)])
def test_examples_need_one_click(page, name, n):
    page.get_by_role("button", name=name).click()
    assert int(said(page, "mention").split()[0]) >= n
    assert page.locator("#text").input_value()


TEXT = "Naloxone, then clonidine."
BIG = 10_000_000
TOO_LONG = "is too long: the service reads texts of up to 100,000 characters."
FILES = [
    ("note.txt", TEXT.encode(), "2 mentions"),
    ("bom.txt", b"\xef\xbb\xbfNarcan", "1 mention"),
    ("big.txt", b"Narcan " * (BIG // 7), f"“big.txt” {TOO_LONG}"),
    ("long.txt", b"x" * 100_001, f"“long.txt” {TOO_LONG}"),
    ("long emoji.txt", "💊".encode() * 100_001, f"“long emoji.txt” {TOO_LONG}"),
    ("binary.txt", bytes(range(256)) * 10, "“binary.txt” is not plain text in UTF-8."),
    ("zeros.txt", b"\0" * 100, "“zeros.txt” is not plain text in UTF-8."),
    ("latin.txt", "Ménière".encode("latin1"), "“latin.txt” is not plain text in UTF-8."),
    ("empty.txt", b" \n", "“empty.txt” is empty."),
    (f"{SCRIPT.replace('/', '')}.txt", b"", "“<img"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), FILES, ids=[name for name, *_ in FILES])
def test_a_text_file_is_read_in_the_browser_or_refused(page, name, content, message):
    page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content})
    assert said(page, message).startswith(message)
    is_sent = any(url.endswith("/link") for url in page.requests)
    assert is_sent == ("mention" in message)


DROP = """texts => {
  const data = new DataTransfer();
  for (const text of texts) data.items.add(new File([text], "a.txt"));
  const options = {dataTransfer: data, bubbles: true, cancelable: true};
  for (const name of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(name, options));
  }
}"""


def test_a_file_can_be_dropped(page):
    page.evaluate(DROP, [TEXT])
    assert said(page, "mention") == "2 mentions"
    page.evaluate(DROP, [TEXT, TEXT])
    assert said(page, "file") == "Choose one file."


def test_downloads_are_as_from_bioel_link(page, nlp):
    text = 'Mother: fever. No "Narcan", =SUM(A1) and Naloxone.\nBlood pressure'
    link(page, text)
    found = {}
    for name in ("json", "csv"):
        with page.expect_download() as download:
            page.click(f"#{name}")
        assert download.value.suggested_filename == f"links.{name}"
        found[name] = download.value.path().read_text("utf8")
    (linked,) = link_texts(nlp, [(text, None)])
    for suffix in (".json", ".csv"):
        form = format_of(suffix, facts=FACTS)
        expected = form.start + form.document(linked)
        if suffix == ".csv":
            cells = [list(csv.reader(io.StringIO(table))) for table in (expected, found["csv"])]
            for rows in cells:
                column = rows[0].index("score")
                for row in rows[1:]:
                    row[column] = float(row[column] or -1)
            assert cells[0] == cells[1]
            assert "'=SUM(A1)" in found["csv"]
        else:
            document = json.loads(found["json"])
            for one in document["links"]:
                assert one.pop("why")
                for candidate in one["candidates"]:
                    assert candidate.pop("preferred")
            assert document == json.loads(expected.strip("[\n"))


def test_two_thresholds_are_applied_to_scores(page):
    # Scores and ids of a link; threshold; the ids that it gives. That of the service is 0.25.
    for scores, ids, threshold, expected in cases(__file__, "thresholds"):
        candidates = [{"id": id, "score": score, "name": id} for id, score in scores]
        answer = {"ids": ids, "candidates": candidates}
        decided = page.evaluate("([link, t]) => decideAgain(link, t)", [answer, threshold])
        assert decided["ids"] == [*expected], (scores, ids, threshold)


def test_the_thresholds_are_side_by_side(page):
    link(page, "Narcan and clonidine")
    page.click("#compare summary")
    assert page.locator("#used").text_content() == "0.25"
    sliders, texts = page.locator("#compare input"), page.locator("#compare .text")
    assert page.locator("#differences").text_content() == "No mention differs."
    page.evaluate("result.links[1].candidates[0].score = 0.6")
    sliders.nth(1).fill("0.8")
    assert page.locator("#differences").text_content().startswith("1 mention differs")
    assert [texts.nth(i).locator("mark.nil").count() for i in (0, 1)] == [0, 1]
    assert page.locator("mark.different").count() == 2
    texts.nth(1).locator("mark.nil").click()
    page.locator("#mention").get_by_text("NIL with the threshold 0.8").wait_for()


def test_markup_other_scripts_and_emoji_are_text(page):
    text = f"💊💊 {SCRIPT} Narcan הרואין, é =SUM(A1) </script>"
    assert link(page, text) == "3 mentions"
    marks = page.locator("#text-linked mark")
    pieces = marks.evaluate_all("all => all.map(mark => mark.firstChild.data)")
    assert pieces == ["Narcan", "הרואין", "SUM(A1"]
    shown = page.evaluate("""() => {
      const copy = byId("text-linked").cloneNode(true);
      for (const e of copy.querySelectorAll("sup")) e.remove();
      return copy.textContent;
    }""")
    assert shown == text
    page.click("#table summary")
    for mark in marks.all():
        mark.click()
    assert page.locator("#text-linked img, #panel img, #table img").count() == 0


def test_ten_thousand_mentions(page):
    assert link(page, "Narcan " * 10_000) == "10,000 mentions"
    assert page.locator("#text-linked mark").count() == 10_000
    page.click("#table summary")
    assert page.locator("#table tbody tr").count() == 1000
    assert page.locator("#table p").text_content() == "And 9,000 more, which are in the downloads."
    page.click("#compare summary")
    assert page.locator("#compare mark").count() == 20_000


def test_a_text_is_linked_before_the_page_knows_the_service(bare, address):
    answers = []
    bare.route("**/info", lambda route: answers.append(route))  # without an answer
    bare.goto(address)
    assert link(bare, "Narcan") == "1 mention"
    bare.click("#compare summary")
    (route,) = answers
    route.continue_()
    bare.locator("#compare mark").nth(1).wait_for()


def test_errors_of_the_service_are_shown(page):
    page.fill("#text", "x" * 100_001)
    page.click("button[type=submit]")
    assert said(page, "B386").startswith("B386: The text has 100,001 characters")
    page.errors.clear()
    assert link(page, "   ") == "0 mentions"


def test_the_documentation_of_the_api_works_without_other_servers(bare, address):
    bare.goto(f"{address}/docs")
    bare.locator(".opblock-summary-control").first.click()
    bare.get_by_text("Find and link the mentions in texts").wait_for()
    bare.get_by_role("button", name="Try it out").click()
    bare.get_by_role("button", name="Execute").click()
    bare.locator(".live-responses-table").get_by_text("Naloxone").first.wait_for()
    files = ["swagger/swagger-ui-bundle.js", "swagger/swagger-ui.css"]
    own = sorted(url for url in bare.requests if not url.startswith("data:"))
    assert own == [f"{address}/{path}" for path in ("docs", "link", "openapi.json", *files)]
