"""Rows in Parquet files come back as they were, and a file is whole or not there."""

from pathlib import Path

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.export.formats import read_parquet, row_schema, writing_parquet
from spacy_bioel.export.rows import Failure, LinkedText
from spacy_bioel.types import Candidate, Link

CANDIDATE = Candidate("X:1", 0.125, "mi", "exact")
LINKED = LinkedText("1", "MI", (Link(0, 2, "Disease", candidates=(CANDIDATE,)),))
UNLINKED = LinkedText("2", None, error=Failure("B190", "no text"))

ROW = {
    "id": "1",
    "text": "MI",
    "links": [
        {
            "start": 0,
            "end": 2,
            "text": "MI",
            "label": "Disease",
            "id": None,
            "ids": [],
            "candidates": [{"id": "X:1", "score": 0.125, "name": "mi", "evidence": "exact"}],
            "hgvs": None,
            "component": None,
            "gene": None,
            "facts": None,
        }
    ],
    "error": None,
}
FAILED = {"id": "2", "text": None, "links": [], "error": {"code": "B190", "message": "no text"}}


@pytest.fixture(autouse=True)
def _needs_pyarrow() -> None:
    pytest.importorskip("pyarrow")


def write(path: Path, columns: dict[str, list[object]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet

    path.parent.mkdir(exist_ok=True)
    pa.parquet.write_table(pa.table(columns), path)
    return path


def test_rows_come_back_as_they_were(tmp_path):
    import pyarrow.parquet

    path = tmp_path / "new" / "out.parquet"
    with writing_parquet(path) as put:
        for one in [LINKED, UNLINKED] * 501:  # more than a group of rows
            put(one)
    table = pyarrow.parquet.read_table(path)
    assert table.schema == row_schema()
    assert table.to_pylist() == [ROW, FAILED] * 501
    assert [file.name for file in path.parent.iterdir()] == ["out.parquet"]


def test_a_file_that_was_not_finished_does_not_appear(tmp_path):
    with pytest.raises(KeyboardInterrupt), writing_parquet(tmp_path / "out.parquet") as put:
        put(LINKED)
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_documents_of_a_file_and_of_a_folder(tmp_path):
    write(
        tmp_path / "in.parquet" / "1.parquet", {"text": ["a", None], "id": [1, 2], "year": [3, 4]}
    )
    write(tmp_path / "in.parquet" / "2.parquet", {"text": ["c"], "id": [None], "year": [5]})
    first = [("a", "1"), (None, "2")]
    assert list(read_parquet(tmp_path / "in.parquet" / "1.parquet")) == first
    assert list(read_parquet(tmp_path / "in.parquet")) == [*first, ("c", None)]


def test_what_cannot_be_read_is_said_at_once(tmp_path):
    with pytest.raises(BioelError, match=r"\[B101\]"):
        read_parquet(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(BioelError, match=r"\[B195\] .*text.parquet is not a readable Parquet"):
        read_parquet(tmp_path / "text.parquet")
    path = write(tmp_path / "in.parquet", {"abstract": ["a"], "id": ["1"]})
    with pytest.raises(BioelError, match=r"\[B191\] There is no column 'text'; .* abstract, id\."):
        read_parquet(path)


def test_facts_of_own_rules(tmp_path):
    import json

    import pyarrow.parquet

    facts = {"vendor": "Möller", "dose": {"mg": 5}, "hgvs": "p.Val600Glu", "none": None}
    with writing_parquet(tmp_path / "out.parquet") as put:
        put(LinkedText("1", "MI", (Link(0, 2, "D", facts=facts), Link(0, 2, "E"))))
    (row,) = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    first, second = row["links"]
    assert first["hgvs"] == facts.pop("hgvs") and json.loads(first["facts"]) == facts
    assert "ö" in first["facts"] and second["facts"] is None
