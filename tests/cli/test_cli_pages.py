"""Pages of commands: their charts draw the numbers, and they work in a browser."""

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import check_page, chromium
from tiny import needs

from spacy_bioel.export.pages import bins_of
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

SCRIPT = "<script>document.title='run'</script>"
HEBREW = "סחרחורת"
# Two roots; "both" is below two branches of the first one.
CONCEPTS = [
    Concept("HP:01", ("all",), ("T",)),
    Concept("HP:02", (f"head {SCRIPT}", "caput"), ("T",), ("HP:01",)),
    Concept("HP:03", ("limb",), ("T",), ("HP:01",)),
    Concept("HP:04", ("both", "a", "b", "c"), ("T", "U"), ("HP:02", "HP:03")),
    Concept("HP:05", (HEBREW, "caput"), ("T",), ("HP:02",)),
    Concept("HP:06", ("scoliosis",), (), ("HP:01",)),
    Concept("MONDO:1", ("alone", "caput"), ("U",)),
    Concept("HP:0", (), replaced_by="HP:01"),
]


class Charts(HTMLParser):
    """The charts of a page: by their caption, the attributes of all elements in them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.found: dict[str, list[dict[str, str]]] = {}
        self.elements: list[dict[str, str]] = []
        self.in_caption = False
        self.feed(path.read_text("utf8"))

    def handle_starttag(self, tag, attrs):
        self.in_caption = tag == "figcaption"
        if tag == "figure":
            self.elements = []
        self.elements.append({"tag": tag, **dict(attrs)})

    def handle_data(self, data):
        if self.in_caption:
            self.found[data] = self.elements
        self.in_caption = False


def bars_of(path: Path, caption: str) -> dict[str, float]:
    """Return the numbers that bars draw, after comparing them with the lengths of the bars."""
    elements = Charts(path).found[caption]
    drawn, name = {}, ""
    for one in elements:
        if "data-name" in one:
            name = one["data-name"]
        if one["tag"] == "rect" and one.get("width", "").endswith("%"):
            value = next(e for e in elements if e.get("data-name") == name).get("data-value")
            key = (name, one["data-series"]) if "data-series" in one else name
            drawn[key] = (float(one.get("data-value") or value), float(one["width"].rstrip("%")))
    most = max(value for value, _ in drawn.values())
    for value, width in drawn.values():
        assert width == pytest.approx(80 * value / most, abs=0.01)
    return {key: value for key, (value, _) in drawn.items()}


@pytest.fixture(scope="module")
def kb(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "kb"
    build_kb(CONCEPTS, folder, source="made <b>", release="2026", licence="CC0")
    return folder


@pytest.mark.parametrize(
    ("numbers", "bins"),
    [
        ([], {}),
        ([7], {"7": 1}),
        (range(24), {"0–1": 2, "22–23": 2} | {f"{n}–{n + 1}": 2 for n in range(2, 22, 2)}),
        ([1, 1, 2, 4], {"1": 2, "2": 1, "3": 0, "4": 1}),
        (range(31, 61), {"31–35": 5, "36–40": 5, "41–45": 5, "46–50": 5, "51–55": 5, "56–60": 5}),
        ([1] * 99 + [1000], {"1": 99, "2 or more": 1}),
        ([1500, 2600], {"1,401–1,500": 1, "2,501–2,600": 1}),
    ],
)
def test_bins_of_a_histogram(numbers, bins):
    [found] = bins_of(Counter(numbers))
    assert found.total() == len(numbers)
    assert {name: n for name, n in found.items() if n} == {k: n for k, n in bins.items() if n}
    assert bins.keys() <= found.keys() and len(found) <= 13


def test_several_histograms_have_the_same_bins_and_lose_nothing():
    rng = np.random.default_rng(0)
    columns = [Counter(rng.geometric(p, 1000).tolist()) for p in (0.5, 0.01)]
    bins = bins_of(*columns, Counter())
    assert [of.total() for of in bins] == [1000, 1000, 0]
    assert list(bins[0]) == list(bins[1]) == list(bins[2])


def text_of(id: str, label: str, *strings: tuple[str, str]) -> str:
    mentions, words = [], "x"
    for string, concept in strings:
        start = len(words) + 1
        words += f" {string}"
        mentions.append({"start": start, "end": len(words), "label": label, "ids": [concept]})
    return json.dumps({"id": id, "text": words, "mentions": mentions}) + "\n"


@pytest.fixture()
def corpus(tmp_path) -> tuple[Path, Path]:
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    both = ("both", "HP:04")
    train.write_text(text_of("1", SCRIPT, both, ("limb", "HP:03")) + text_of("2", "B", both))
    dev.write_text(text_of("3", "B", both, ("caput", "HP:05"), ("big caput", "HP:05")))
    return train, dev


def test_a_corpus_in_charts(bioel, kb, corpus, tmp_path):
    page = tmp_path / "check.html"
    bioel("corpus", "check", *corpus, "--kb", kb, "--html", page)
    labels = bars_of(page, "Mentions by label.")
    assert labels[SCRIPT, "train"] == pytest.approx(200 / 3) and labels["B", "dev"] == 100
    unseen = bars_of(page, "% of dev's ids and strings that train lacks.")
    assert unseen == {("B", "ids"): 50, ("B", "strings"): pytest.approx(66.7)}
    lengths = bars_of(page, "Mentions by number of tokens.")
    assert lengths == {
        ("1", "train"): 100, ("1", "dev"): pytest.approx(200 / 3),
        ("2", "train"): 0, ("2", "dev"): pytest.approx(100 / 3),
    }  # fmt: skip
    lengths = bars_of(page, "Documents by number of tokens.")
    assert (lengths["3", "train"], lengths["5", "dev"], lengths["4", "dev"]) == (50, 100, 0)
    text = page.read_text("utf8")
    assert '<tr><th scope="row">mentions</th><td>3</td><td>3</td></tr>' in text
    assert SCRIPT not in text


def test_the_page_lists_faults_of_a_corpus(bioel, kb, corpus, tmp_path):
    page = tmp_path / "check.html"
    bioel("corpus", "check", corpus[0], corpus[0], "--kb", kb, "--html", page, status=1)
    assert '<p class="bad">[B530]' in page.read_text("utf8")


@pytest.fixture(scope="module")
def patients(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    notes = {
        "Ann": {
            "2024-01-01": "Limb. Her father had scoliosis.",
            "2024-01-31": "No limb.",
            "2024-01-11": f"Possible limb and {HEBREW}.",
            "phone": "Scoliosis.",
        },
        "B<b>": {"first": "Limb.", "second": "No limb."},
        "Eve": {"a": "nothing"},
    }
    for patient, texts in notes.items():
        (folder / patient).mkdir()
        for name, text in texts.items():
            (folder / patient / f"{name}.txt").write_text(text, encoding="utf8")
    return folder


@needs("clinical")
def test_findings_of_patients_on_timelines(bioel, kb, patients, tmp_path):
    page = tmp_path / "patients.html"
    bioel("patient", kb, patients, "-o", page)
    text, found = page.read_text("utf8"), {}
    assert "<ul><li>made &lt;b&gt;, release 2026, 7 concepts, fingerprint " in text
    for part in text.split("<section>")[1:]:
        (tmp_path / "part.html").write_text(part, encoding="utf8")
        for elements in Charts(tmp_path / "part.html").found.values():
            for one in elements:
                if "data-person" in one:
                    track = (one["data-person"], one["data-id"])
                if "data-status" in one:
                    when = one["data-date"] or one["data-note"]
                    place = float(one["cx"].rstrip("%"))
                    found[*track, one["data-status"], when] = place
    assert found == {
        ("patient", "HP:03", "present", "2024-01-01"): 2,
        ("patient", "HP:03", "possible", "2024-01-11"): 34,
        ("patient", "HP:05", "possible", "2024-01-11"): 34,
        ("patient", "HP:03", "absent", "2024-01-31"): 98,
        ("father", "HP:06", "family", "2024-01-01"): 2,
        ("patient", "HP:03", "present", "first"): 2,
        ("patient", "HP:03", "absent", "second"): 98,
    }
    assert "Mentions in notes without a date, which only the table has: 1." in text
    assert "B&lt;b&gt;" in text and "<b>" not in text and "<p>No findings.</p>" in text
    assert text.count("<section>") == 3 and text.endswith("</html>\n")


@pytest.fixture()
def reports(bioel, kb, tmp_path) -> tuple[Path, Path]:
    """Pages of `bioel check` and `bioel kb diff`."""
    lines = ["limb (HP:03)", "both (HP:03)", "caputt (HP:05)", f"{SCRIPT} (HP:99)", "all (HP:0)"]
    (tmp_path / "ids.md").write_text("\n\n".join(lines), encoding="utf8")
    build_kb([*CONCEPTS[:3], Concept("HP:07", ("new",))], tmp_path / "new")
    check, diff = tmp_path / "check.html", tmp_path / "diff.html"
    bioel("check", tmp_path / "ids.md", "--kb", kb, "--all", "-o", check, status=1)
    bioel("kb", "diff", kb, tmp_path / "new", "-o", diff)
    return check, diff


@needs("curation")
def test_reports_begin_with_a_chart_of_all_verdicts(bioel, kb, reports, tmp_path):
    for page, caption in zip(
        reports, ("Number of each verdict.", "Number of each change."), strict=True
    ):
        rows = [e["data-kind"] for e in Charts(page).elements if "data-kind" in e]
        assert bars_of(page, caption) == Counter(rows) and len(set(rows)) > 1
    text = reports[0].read_text("utf8")
    assert '<td class="bad">other concept</td>' in text and '<td class="good">agrees</td>' in text
    assert SCRIPT not in text
    (tmp_path / "none.md").write_text("limb (HP:03)")
    bioel("check", tmp_path / "none.md", "--kb", kb, "-o", tmp_path / "none.html")
    assert "<p>Nothing to list.</p>" in (tmp_path / "none.html").read_text("utf8")
    assert bars_of(tmp_path / "none.html", "Number of each verdict.") == {"agrees": 1}


@needs("curation")
@needs("clinical")
def test_the_pages_in_a_browser(bioel, kb, corpus, patients, reports, tmp_path):
    corpus_page, patient_page = tmp_path / "corpus.html", tmp_path / "patients.html"
    bioel("corpus", "check", *corpus, "--kb", kb, "--html", corpus_page)
    bioel("patient", kb, patients, "-o", patient_page)
    open_all = 'document.querySelectorAll("details").forEach(e => e.open = true)'
    with chromium() as browser:
        for page in (corpus_page, patient_page, *reports):
            check_page(browser, page.as_uri(), use=lambda page: page.evaluate(open_all))
        page = browser.new_page()
        page.goto(reports[0].as_uri())
        page.get_by_label("Show").select_option("other concept")
        assert page.locator("tr[data-kind]:visible").count() == 1
        page.get_by_label("Show").select_option("all")
        assert page.locator("tr[data-kind]:visible").count() == 5
