"""Check the lists of names in benchmarks/ that were written before any rule: form and counts.

All texts are our own, in the style of abstracts. Ids were looked up in the tables of NCBI Gene,
RGD, MeSH, MONDO, NCBI Taxonomy, DepMap and the training corpora.

expected_more.tsv
    A name (`{}`) in a sentence of its own, and its id. Diseases have MeSH ids, OMIM ids where MeSH
    lacks the disease, and MONDO ids where both lack it. Of the variants, only rs numbers have ids.
organism_abstracts.jsonl
    Genes of the `organism`, unless they have a general name ("histone H4"). An allele ("cdc28-13")
    is annotated as a whole, or without its brackets. Any overlap with the right id is right.
own_names.jsonl
    Written forms of the names in own_names.csv, by `group`: the 14 forms that were asked for
    (issue), exact forms, other forms of our own names, common words, and text that is not a name.
no_false_friends.jsonl, definitions.jsonl
    Texts that look like names, genomic coordinates, and short forms with their definitions.

The lines of JSON have `id`, `text` and `mentions` [start, end, text, label, ids]. `ids` is empty
for genes that no table contains: no other gene's id is right. Variants have their HGVS form as a
sixth entry. `never` is [start, end, text, labels]: no mention with one of the labels (if the list
is empty, with any label) may overlap this text.
"""

import csv
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
IDS = {
    "Chemical": r"MESH:[DC]\d+",
    "Disease": r"MESH:[DC]\d+|OMIM:\d{6}|MONDO:\d{7}",
    "Gene": r"NCBIGene:\d+",
    "Species": r"NCBITaxon:\d+",
    "Variant": r"dbSNP:rs\d+",
    "CellLine": r"CVCL_\w{4}",
    "own_names": r"OWN:\d\d",
}
COUNTS = {
    "Gene": 110,
    "Disease": 60,
    "Chemical": 60,
    "Species": 30,
    "CellLine": 30,
    "Variant": 10,
}
FILES = {
    "organism_abstracts.jsonl": 50,
    "own_names.jsonl": 81,
    "no_false_friends.jsonl": 80,
    "definitions.jsonl": 40,
}


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf8").splitlines()]


def table(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / name).read_text("utf8").splitlines()][1:]


def test_expected_names() -> None:
    rows = table("expected_more.tsv")
    assert Counter(label for label, *_ in rows) == COUNTS
    names = [name.lower() for _, name, *_ in rows]
    assert len(set(names)) == len(rows)
    assert not {name.lower() for _, name, _ in table("expected.tsv")} & set(names)
    for label, name, id, sentence in rows:
        assert sentence.count("{}") == 1 and name not in sentence, sentence
        assert re.fullmatch(IDS[label], id) or (label == "Variant" and not id), (name, id)


@pytest.mark.parametrize("name", FILES)
def test_mentions(name: str) -> None:
    docs = records(name)
    assert len(docs) == FILES[name]
    assert len({doc["id"] for doc in docs}) == len({doc["text"] for doc in docs}) == len(docs)
    for doc in docs:
        for start, end, text, *_ in [*doc["mentions"], *doc.get("never", [])]:
            assert text and doc["text"][start:end] == text, (doc["id"], text)
        assert all(a[1] <= b[0] for a, b in pairwise(doc["mentions"])), doc["id"]
        for *_, label, ids in [mention[:5] for mention in doc["mentions"]]:
            assert all(re.fullmatch(IDS[label], id) for id in ids), (doc["id"], ids)
        for start, end, _, labels in doc.get("never", []):
            assert set(labels) <= set(IDS), doc["id"]
            over = {m[3] for m in doc["mentions"] if m[0] < end and start < m[1]}
            assert not over or (labels and not over & set(labels)), doc["id"]


def test_abstracts_of_organisms() -> None:
    docs = records("organism_abstracts.jsonl")
    kinds = Counter(doc["id"].split("-")[0] for doc in docs)
    assert kinds == dict.fromkeys(("fly", "worm", "yeast", "rat", "contrast"), 10)
    for doc in docs:
        if doc["id"].startswith("contrast"):
            assert doc["never"], doc["id"]
        else:
            assert 6 <= sum(bool(ids) for *_, ids in doc["mentions"]) <= 12, doc["id"]
            assert 4 <= len(re.findall(r"\.(?: |$)", doc["text"])) <= 8, doc["id"]


def test_written_forms_of_own_names() -> None:
    with (FOLDER / "own_names.csv").open(encoding="utf8") as file:
        labels = {f"OWN:{row['Code']}": row["Label"] for row in csv.DictReader(file)}
    docs = records("own_names.jsonl")
    forms: dict[str, set[str]] = {id: set() for id in labels}
    for doc in docs:
        for _, _, text, _, [id] in doc["mentions"]:
            forms[id].add(text)
    issue = [text for doc in docs if doc["group"] == "issue" for _, _, text, *_ in doc["mentions"]]
    assert len(set(issue)) == len(issue) == 14
    assert len(labels) == 47
    words = {id for id, label in labels.items() if label.isalpha() and label.istitle()}
    assert len(words) == 6
    assert all(len(forms[id]) >= 2 for id in labels if id not in words)
    for id in words:
        name = labels[id]
        never = [text.lower() for doc in docs for _, _, text, _ in doc.get("never", [])]
        assert name in forms[id] and never.count(name.lower()) >= 2, name


def test_no_false_friends() -> None:
    docs = records("no_false_friends.jsonl")
    assert Counter(doc["group"] for doc in docs) == {"never": 60, "genomic": 20}
    assert all(doc["never"] for doc in docs if doc["group"] == "never")
    for doc in docs:
        for mention in doc["mentions"]:
            assert (mention[3] == "Variant") == (len(mention) == 6), doc["id"]
            assert mention[3] != "Variant" or mention[5].startswith("g."), doc["id"]


def test_definitions_have_a_bracket() -> None:
    docs = records("definitions.jsonl")
    assert all(re.search(r"\([^)]+\)", doc["text"]) and doc["mentions"] for doc in docs)
    assert {"plain", "reverse", "list", "semicolon", "contrary", "twice", "far", "plural"} == {
        doc["group"] for doc in docs
    }
