"""`bioel evaluate --errors` and `--html`, and gold labels that are not those of the pipeline."""

import csv
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from browser import check_page, chromium

from spacy_bioel.plugins.evaluation.error_files import COLUMNS, EXAMPLES_PER_KIND

# Hypertension under an id that the knowledge base does not know, "clonidine" without an id, a gold
# mention that goes on to the right, and a name of the knowledge base that nobody annotated. The
# text and a label look like markup.
PUBTATOR = """\
7|t|Hypertension after <b>clonidine & Narcan pills.
7|a|Naloxone\thelps.
7\t0\t12\tHypertension\tDisease\tD999999
7\t22\t31\tclonidine\tDrug<1>\t-1
7\t34\t46\tNarcan pills\tDrug<1>\tD009270
"""
KINDS_FOUND = ["wrong_id", "not_nil", "wrong_borders", "spurious"]


@pytest.fixture()
def gold(tmp_path) -> Path:
    path = tmp_path / "errors.txt"
    path.write_text(PUBTATOR.replace("Naloxone\thelps", "Naloxone helps"), encoding="utf8")
    return path


def read_table(path: Path, separator: str) -> list[dict[str, str]]:
    with path.open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file, delimiter=separator))


def test_every_error_is_a_row_of_each_format(bioel, model, gold, tmp_path):
    files = [tmp_path / "out" / f"errors.{suffix}" for suffix in ("tsv", "csv", "jsonl")]
    for out in files:
        done = bioel("evaluate", model, gold, "--prefix", "MESH", "--errors", out)
        assert f"4 errors -> {out}" in done.err
    rows = read_table(files[0], "\t")
    assert list(rows[0]) == list(COLUMNS)
    assert [row["kind"] for row in rows] == KINDS_FOUND
    first, _, third, last = rows
    said = ["document", "marks", "start", "end", "rank", "gold_ids", "gold_names"]
    assert [first[key] for key in said] == ["7", "missing", "0", "12", "", "MESH:D999999", ""]
    assert (first["predicted_ids"], first["predicted_names"]) == ("MESH:D006973", "Hypertension")
    assert first["candidates"].startswith("MESH:D006973 Hypertension (0.95, exact)")
    assert first["context"].startswith("[[Hypertension]] after <b>clonidine & Narcan pills.")
    said = ["string", "predicted_string", "rank"]
    assert [third[key] for key in said] == ["Narcan pills", "Narcan", "1"]
    said = ["start", "predicted_start", "predicted_string"]
    assert [last[key] for key in said] == ["", "48", "Naloxone"]
    assert read_table(files[1], ",") == rows
    first, *_, last = map(json.loads, files[2].read_text("utf8").splitlines())
    assert first["candidates"][0]["id"] == "MESH:D006973"
    said = [["missing"], None, ["MESH:D999999"]]
    assert [first[key] for key in ("marks", "rank", "gold_ids")] == said
    assert [last[key] for key in ("kind", "start", "gold_ids")] == ["spurious", None, []]


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_no_cell_is_a_formula(bioel, model, gold, tmp_path, suffix, separator):
    gold.write_text(gold.read_text("utf8").replace("7|", "=7|").replace("7\t", "=7\t"), "utf8")
    out = tmp_path / f"errors.{suffix}"
    bioel("evaluate", model, gold, "--prefix", "MESH", "--errors", out)
    assert {row["document"] for row in read_table(out, separator)} == {"'=7"}


SVG = "{http://www.w3.org/2000/svg}"


def charts_of(page: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """Return the charts by caption."""
    return {
        "".join(figure.find("figcaption").itertext()): figure.find(f".//{SVG}svg[@role='img']")
        for figure in page.iter("figure")
    }


def parse_page(path: Path) -> ElementTree.Element:
    text = path.read_text("utf8")
    not_xml = r"<(?:meta|link) [^>]*>|<!DOCTYPE html>|(?s:<style>.*?</style>)"
    return ElementTree.fromstring(re.sub(not_xml, "", text))


def test_the_page(bioel, model, gold, tmp_path):
    out = tmp_path / "errors.html"
    bioel("evaluate", model, gold, "--prefix", "MESH", "--html", out)
    text, page = out.read_text("utf8"), parse_page(out)
    # Escaped: neither the text nor a label of it is markup.
    assert re.search("after &lt;b&gt;<mark[^>]*>clonidine</mark> &amp; Narcan", text)
    assert "Drug&lt;1&gt;" in text and page.find(".//b") is None
    # Self-contained: ids are unique, and nothing is referred to but these.
    ids = [element.attrib["id"] for element in page.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert {"counts", "confusions", "reliability", "definitions", *KINDS_FOUND} <= set(ids)
    assert "threshold" not in ids  # no link is right
    assert {link.attrib["href"] for link in page.iter("a")} <= {f"#{id}" for id in ids}
    assert re.findall(r'(?:src|href)="(?!#|data:)', text) == []
    assert "prefers-color-scheme: dark" in text
    n = Counter(element.tag for element in page.iter())
    assert (n["article"], n["figcaption"]) == (4, n["figure"])
    assert n["table"] == n["caption"] > 5 and n["th"] == len(page.findall(".//th[@scope]"))
    assert "none, so no error is marked as unseen" in text


def test_the_charts_show_the_figures_of_the_evaluation(bioel, model, corpus, tmp_path):
    out, json_file = tmp_path / "errors.html", tmp_path / "scores.json"
    table = tmp_path / "errors.tsv"
    files = ("--html", out, "--json", json_file, "--errors", table)
    bioel("evaluate", model, corpus, "--prefix", "MESH", *files)
    figures = {
        (row["protocol"], row["metric"], row["label"]): row
        for row in json.loads(json_file.read_text("utf8"))
    }
    charts, rows = charts_of(parse_page(out)), read_table(table, "\t")
    for row in rows:
        row["kind"] = row["kind"].replace("_", " ")
    kinds = Counter(row["kind"] for row in rows)
    bars = charts["Errors by kind."].findall(f"{SVG}g")
    assert {bar.attrib["data-name"]: int(bar.attrib["data-value"]) for bar in bars} == kinds
    by_label = Counter((row["kind"], row["label"] or row["predicted_label"]) for row in rows)
    parts = {
        (bar.attrib["data-name"], part.attrib["data-part"]): int(part.attrib["data-value"])
        for bar in bars
        for part in bar.iter(f"{SVG}rect")
    }
    assert parts == by_label and len(by_label) > 1
    bars = charts["gold: accuracy@1 by label, with 95 % intervals."].findall(f"{SVG}g")
    assert len(bars) > 2
    for bar in bars:
        label = bar.attrib["data-name"].replace("all labels", "")
        figure, interval = figures["gold", "accuracy@1", label], bar.find(f"{SVG}line")
        drawn = (bar.attrib["data-value"], *(interval.attrib[f"data-{x}"] for x in ("low", "high")))
        assert tuple(map(float, drawn)) == (figure["value"], figure["low"], figure["high"])
    chart = charts["Scores without the links below a threshold."]
    for line in chart.findall(f"{SVG}g"):
        first = line.find(f"{SVG}circle").attrib
        figure = figures["end_to_end", line.attrib["data-name"], ""]
        assert (float(first["data-x"]), float(first["data-y"])) == (0, figure["value"])
    assert len(chart.findall(f"{SVG}g")) == 3
    assert chart.find(f"{SVG}line[@class='chosen']").attrib["data-x"] == "0.5"


def test_the_page_in_a_browser(bioel, model, gold, tmp_path):
    out = tmp_path / "errors.html"
    bioel("evaluate", model, gold, "--prefix", "MESH", "--html", out)
    with chromium() as browser:
        check_page(browser, out.as_uri(), use=lambda page: page.locator("summary").first.click())


def test_bars_of_many_labels_have_a_part_for_the_rare_ones(bioel, model, tmp_path):
    mentions = [{"start": i, "end": i + 1, "label": f"L{i % 150}"} for i in range(200)]
    text = {"id": "1", "text": "x" * 200, "mentions": mentions}
    (tmp_path / "gold.jsonl").write_text(json.dumps(text), encoding="utf8")
    out = tmp_path / "errors.html"
    bioel("evaluate", model, tmp_path / "gold.jsonl", "--html", out)
    (bar,) = charts_of(parse_page(out))["Errors by kind."].findall(f"{SVG}g")
    parts = [(r.attrib["data-part"], int(r.attrib["data-value"])) for r in bar.iter(f"{SVG}rect")]
    assert parts == [*((f"L{i}", 2) for i in range(6)), ("other labels", 188)]


def test_the_page_of_a_pipeline_without_errors(bioel, model, tmp_path):
    mention = {"start": 0, "end": 12, "label": "C", "ids": ["MESH:D006973"]}
    text = {"id": "1", "text": "Hypertension.", "mentions": [mention]}
    (tmp_path / "gold.jsonl").write_text(json.dumps(text), encoding="utf8")
    out = tmp_path / "errors.html"
    bioel("evaluate", model, tmp_path / "gold.jsonl", "--html", out)
    assert "None: all predictions are correct." in out.read_text("utf8")
    assert "Errors by kind." not in charts_of(parse_page(out))


def test_of_many_errors_the_page_shows_some_of_the_whole_corpus(bioel, model, tmp_path):
    lines = [
        json.dumps({"id": f"d{i}", "text": "no such", "mentions": [{"start": 3, "end": 7}]})
        for i in range(3 * EXAMPLES_PER_KIND)
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(lines), encoding="utf8")
    html, rows = tmp_path / "errors.html", tmp_path / "errors.tsv"
    files = ("--html", html, "--errors", rows)
    bioel("evaluate", model, tmp_path / "gold.jsonl", *files)
    text = html.read_text("utf8")
    assert len(read_table(rows, "\t")) == 3 * EXAMPLES_PER_KIND == 150
    assert text.count("<article>") == EXAMPLES_PER_KIND
    assert f"50 of 150 are shown, spread over the corpus; all are in {rows}." in text
    assert "document d147" in text and "document d1<" not in text


def test_labels_that_the_pipeline_does_not_have(bioel, model, corpus, monkeypatch):
    detector = SimpleNamespace(labels=("Disease", "Drug"))
    monkeypatch.setattr("spacy_bioel.plugins.evaluation.gold.find_detector", lambda nlp: detector)
    done = bioel("evaluate", model, corpus, "--label", "Chemical=Drugs", status=2)
    assert "[B369]" in done.err
