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
