"""The annotated texts in benchmarks/ are well formed: offsets, ids, labels and statuses.

The lines of JSON have `text`, and `mentions`: [start, end, text, label, ids], and the HGVS form of
a variant, or start, end, id and status (`is`) of a finding. `never` are [start, end, text, labels]
that no mention with one of the labels (if the list is empty, with any label) may overlap; `expect`
and `ids` are the statuses and ids of words that occur once.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
LISTS = ("organism_abstracts", "own_names", "no_false_friends", "definitions", "mixed_papers")
NOTES = ("notes", "notes_layout", "note_lines", "clinical")
LINES = ("assertion_lines", "finding_lines")
IDS = {
    "Chemical": r"MESH:[DC]\d+",
    "Disease": r"MESH:[DC]\d+|OMIM:\d{6}|MONDO:\d{7}",
    "Gene": r"NCBIGene:\d+",
    "Species": r"NCBITaxon:\d+",
    "Variant": r"dbSNP:rs\d+",
    "CellLine": r"CVCL_\w{4}",
    "own_names": r"OWN:\d\d",
}
PHENOTYPE = re.compile(r"HP:\d{7}")
STATUSES = {"absent", "family", "other", "conditional", "possible", "historical", "present"}
STATUSES |= {"affirmed", "negated", "uncertain", "hypothetical"}  # of the older notes


def records(name: str) -> list[dict[str, Any]]:
    lines = (FOLDER / f"{name}.jsonl").read_text("utf8").splitlines()
    found = [json.loads(line) for line in lines]
    assert len({record["text"] for record in found}) == len(found) >= 20
    return found


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / name).read_text("utf8").splitlines()][1:]


def test_expected_names():
    rows = table("expected_more.tsv")
    names = [name.lower() for _, name, *_ in (*rows, *table("expected.tsv"))]
    assert len(set(names)) == len(names)
    for label, name, id, sentence in rows:
        assert sentence.count("{}") == 1 and name not in sentence, sentence
        assert re.fullmatch(IDS[label], id) or (label == "Variant" and not id), (name, id)


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_names(name):
    for doc in records(name):
        for start, end, text, *_ in [*doc["mentions"], *doc.get("never", [])]:
            assert text and doc["text"][start:end] == text, (doc["id"], text)
        assert all(a[1] <= b[0] for a, b in pairwise(doc["mentions"])), doc["id"]
        for _, _, _, label, ids, *form in doc["mentions"]:
            assert all(re.fullmatch(IDS[label], id) for id in ids), (doc["id"], ids)
            assert not form or label == "Variant", doc["id"]
        for start, end, _, labels in doc.get("never", []):
            over = {m[3] for m in doc["mentions"] if m[0] < end and start < m[1]}
            assert not over or (labels and not over & set(labels)), doc["id"]


@pytest.mark.parametrize("name", NOTES)
def test_notes(name):
    for doc in records(name):
        for mention in doc["mentions"]:
            words = doc["text"][mention["start"] : mention["end"]]
            assert words == words.strip() != "", doc["text"][:80]
            assert PHENOTYPE.fullmatch(mention["id"])
            assert mention.get("is", "present") in STATUSES


@pytest.mark.parametrize("name", LINES)
def test_lines_of_notes(name):
    for row in records(name):
        stretches = row.get("expect", {}).keys() | row.get("ids", {}).keys()
        assert stretches or row.get("never"), row["text"]
        assert all(row["text"].count(words) == 1 for words in stretches), row["text"]
        assert STATUSES >= set(row.get("expect", {}).values())
        for ids in (*row.get("ids", {}).values(), row.get("never", ())):
            assert all(map(PHENOTYPE.fullmatch, [ids] if isinstance(ids, str) else ids))
