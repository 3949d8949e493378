"""`bioel convert` and `bioel link --mentions given`: annotated data of other tools."""

import json
from pathlib import Path

import pytest
import spacy
from spacy.tokens import DocBin

TEXT = "Narcan or clonidine"
GOOD = {"text": TEXT, "spans": [{"start": 0, "end": 6, "label": "Drug"}], "answer": "accept"}
BAD = {"text": TEXT, "spans": [{"start": 0, "end": 60, "label": "Drug"}]}
REJECTED = GOOD | {"answer": "reject"}
NONE = {"text": TEXT, "spans": []}


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture()
def docbin(tmp_path) -> Path:
    """One document with different entities and spans."""
    doc = spacy.blank("en")(TEXT)
    doc.ents = [doc.char_span(0, 6, label="Drug", kb_id="D009270")]
    doc.spans["sc"] = [doc.char_span(10, 19, label="Drug"), doc.char_span(0, 6, label="Other")]
    DocBin(docs=[doc]).to_disk(tmp_path / "gold.spacy")
    return tmp_path / "gold.spacy"


def test_convert_asks_where_the_gold_mentions_are(bioel, docbin, tmp_path):
    out = tmp_path / "out.jsonl"
    refused = bioel("convert", docbin, out, status=2).err
    assert "[B520]" in refused and "2 in doc.spans['sc']; 1 in doc.ents" in refused
    assert not out.exists()
    assert "1 mention." in bioel("convert", docbin, out, "--ents", "--prefix", "MESH").err
    (mention,) = json.loads(out.read_text())["mentions"]
    assert (mention["start"], mention["ids"]) == (0, ["MESH:D009270"])
    assert "2 mentions." in bioel("convert", docbin, out, "--spans-key", "sc").err
    assert "[B521]" in bioel("convert", docbin, out, "--spans-key", "SC", status=2).err
    both = bioel("convert", docbin, out, "--spans-key", "sc", "--ents", status=2).err
    assert "[B522]" in both and "Leave one of them out" in both
    assert len(json.loads(out.read_text())["mentions"]) == 2  # refused commands write nothing


def test_given_mentions_from_entities_or_a_group(bioel, model, docbin):
    given = ("link", model, docbin, "--mentions", "given")
    assert "[B520]" in bioel(*given, status=2).err
    assert [x["text"] for x in bioel(*given, "--ents").json["links"]] == ["Narcan"]
    links = bioel(*given, "--spans-key", "sc").json["links"]
    assert [(x["text"], x["label"]) for x in links] == [("clonidine", "Drug"), ("Narcan", "Other")]
    refused = bioel("link", model, docbin, "--ents", status=2).err
    assert "[B522]" in refused and "--mentions given" in refused


def test_annotated_files_are_read_as_bare_texts(bioel, model, docbin, tmp_path):
    """Whatever their annotations are, and even if they are ambiguous, rejected or wrong."""
    rows = bioel("link", model, docbin).rows
    assert [(row["id"], len(row["links"])) for row in rows] == [("1", 2)]
    doccano = {"data": TEXT, "label": [[0, 6, "Drug"]], "id": 8}
    path = lines(tmp_path / "in.jsonl", GOOD, REJECTED, BAD, doccano, {"text": TEXT, "x": [SPAN]})
    rows = bioel("link", model, path).rows
    assert [row["id"] for row in rows] == ["1", "2", "3", "8", "5"]
    assert [len(row["links"]) for row in rows] == [2] * 5


SPAN = {"start": 0, "end": 6}


@pytest.mark.parametrize("suffix", [".spacy", ".jsonl"])
@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([NONE, NONE], "[B076]"),
        ([REJECTED], "[B076]"),
        ([NONE, {"text": TEXT, "annotations": [SPAN]}], "[B523]"),
        ([GOOD, {"text": TEXT, "annotations": [SPAN]}], "[B523]"),
    ],
)
def test_no_mention_is_an_error(bioel, tmp_path, suffix, records, code):
    out = tmp_path / f"out{suffix}"
    assert code in bioel("convert", lines(tmp_path / "in.jsonl", *records), out, status=2).err
    assert not out.exists()


def test_bad_documents_are_left_out_counted_and_listed(bioel, tmp_path):
    source, out = lines(tmp_path / "in.jsonl", GOOD, BAD, REJECTED, [1], NONE), tmp_path / "o.jsonl"
    assert "[B105]" in bioel("convert", source, out, status=2).err and not out.exists()
    report = tmp_path / "bad.tsv"
    done = bioel("convert", source, out, "--skip-bad", report)
    assert f"2 bad records skipped, see {report}" in done.err
    assert f"2 documents written to {out}" in done.err
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["1", "4"]
    _, *rows = (line.split("\t") for line in report.read_text().splitlines())
    assert [row[1:3] for row in rows] == [["2", "B105"], ["4", "B131"]]


@pytest.mark.parametrize("suffix", [".txt", ".ann", ".xml"])
def test_bad_documents_of_other_formats_are_left_out(bioel, tmp_path, suffix):
    folder = tmp_path / "in"
    folder.mkdir()
    if suffix == ".ann":
        for name, end in (("a", 6), ("b", 60)):
            (folder / f"{name}.txt").write_text(TEXT)
            (folder / f"{name}.ann").write_text(f"T1\tDrug 0 {end}\tNarcan\n")
        source = folder
    elif suffix == ".txt":
        document = f"1|t|{TEXT}\n1|a|x\n1\t0\t%d\tNarcan\tDrug\tD1\n\n"
        source = folder / "in.txt"
        source.write_text(document % 60 + document % 6)
    else:
        document = (
            f"<document><id>1</id><passage><offset>0</offset><text>{TEXT}</text><annotation "
            'id="1"><location offset="0" length="%d"/><text>Narcan</text></annotation></passage>'
            "</document>"
        )
        source = folder / "in.xml"
        source.write_text(f"<collection>{document % 6}{document % 60}</collection>")
    done = bioel("convert", source, tmp_path / "out.jsonl", "--skip-bad", tmp_path / "bad.tsv")
    assert "1 bad record skipped" in done.err and "1 document written" in done.err
    assert "\tB105\t" in (tmp_path / "bad.tsv").read_text()


def test_only_bad_documents(bioel, tmp_path):
    source, out, report = lines(tmp_path / "in.jsonl", BAD), tmp_path / "o.spacy", tmp_path / "bad"
    assert "[B400]" in bioel("convert", source, out, "--skip-bad", report, status=2).err
    assert "B105" in report.read_text() and not out.exists()


def test_the_output_of_link_is_read_as_gold(bioel, model, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT)
    bioel("link", model, tmp_path / "in.txt", "-o", tmp_path / "links.jsonl")
    bioel("convert", tmp_path / "links.jsonl", tmp_path / "gold.jsonl")
    mentions = json.loads((tmp_path / "gold.jsonl").read_text())["mentions"]
    assert [mention["ids"] for mention in mentions] == [["MESH:D009270"], ["MESH:D003000"]]
