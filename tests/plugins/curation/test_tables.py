"""Pairs are read from the rows of tables, by header, by option or by contents."""

import pytest
from tables import cases

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import Place
from spacy_bioel.io.table import UNQUOTED, split_rows
from spacy_bioel.plugins.curation.ids import id_pattern
from spacy_bioel.plugins.curation.name_places import no_values
from spacy_bioel.plugins.curation.sources import read_pairs
from spacy_bioel.plugins.curation.tables import table_pairs, text_pairs

IDS = id_pattern(frozenset({"HP", "X"}))


def lines_of(text: str):
    return ((Place("a", n), line) for n, line in enumerate(text.splitlines(keepends=True), 1))


def pairs_of(text: str, separator: str = ",", **options):
    rows = split_rows(lines_of(text), separator, quoted=separator not in UNQUOTED)
    pairs = table_pairs("a", rows, IDS, options.get("columns", {}), options.get("prefix", ""))
    return [
        (" / ".join(name.text for name in pair.names[: 1 if pair.has_name else None]), pair.id.text)
        for pair in pairs
    ]


@pytest.mark.parametrize("text, expected", cases(__file__, "csv"))
def test_csv(text, expected):
    assert pairs_of(text) == [*expected]


def test_columns_and_prefix():
    assert pairs_of("a,b,c\n1,x,Gout\n", columns={"id": "a", "name": "c"}, prefix="X") == [
        ("Gout", "X:1")
    ]
    assert pairs_of("Lives alone,160903007\n", columns={"id": 2, "name": 1}, prefix="SNOMED") == [
        ("Lives alone", "SNOMED:160903007")
    ]
    assert pairs_of("id,name\n1,Gout\n", prefix="X") == [("Gout", "X:1")]
    assert pairs_of("id,name\n1,Gout\n") == []
    two = "hpo_id,id\n0001250,1\n"
    assert pairs_of(two, prefix="X") == [("", "hpo:0001250"), ("", "X:1")]
    assert pairs_of(two, columns={"id": "hpo_id"}) == [("", "hpo:0001250")]


def test_tabs_need_no_quotes():
    assert pairs_of('id\tname\nX:1\t"Gout\nX:2\tb\n', "\t") == [('"Gout', "X:1"), ("b", "X:2")]


def test_places_lead_to_the_id_and_the_name():
    text = 'id,name\n"HP:0001250", Seizure\n'
    [pair] = table_pairs("a", split_rows(lines_of(text), ",", quoted=True), IDS, {})
    line = text.splitlines()[1]
    assert line[pair.id.at :].startswith("HP:0001250") and line[pair.names[0].at :] == "Seizure"
    assert (pair.id.name, pair.id.place.line) == ("A2", 2)


@pytest.mark.parametrize("text, expected", cases(__file__, "pipe_tables"))
def test_pipe_tables(text, expected):
    pairs = list(text_pairs(lines_of(text), IDS, no_values))
    assert [(pair.names[0].text, pair.id.text) for pair in pairs] == [*expected]
    for pair, line in zip(pairs, [text.splitlines()[-1]], strict=True):
        assert line[pair.id.at :].startswith(pair.id.text)
        assert line[pair.names[0].at :].startswith(pair.names[0].text)


@pytest.mark.parametrize(
    "line, place",
    [
        ("| Seizure | HP:0001250 |", "B1"),
        ("  | HP:0001250 | Seizure |", "A1"),
        ("Seizure | HP:0001250", "B1"),
        ("HP:0001250 | Seizure |", "A1"),
    ],
)
def test_columns_of_pipe_tables(line, place):
    [pair] = text_pairs(lines_of(line), IDS, no_values)
    assert pair.id.name == place and pair.names[0].text == "Seizure"


def test_an_open_quote_is_an_error():
    with pytest.raises(BioelError, match="B126"):
        pairs_of('id,name\nX:1,"Gout\n')


def test_missing_columns_are_errors():
    with pytest.raises(BioelError, match="B128"):
        pairs_of("id,name\nX:1,Gout\n", columns={"id": "code"})


def test_many_columns():
    row = ",".join(["x"] * 20_000)
    assert pairs_of(f"{row},id,name\n{row},X:1,Gout\n") == [("Gout", "X:1")]


def test_workbooks(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        ["id", "name"],
        ["HP:0001250", "Seizure"],
        ["HP:0001251", "=1+1"],
        ["=2+2", "Gout"],
    ):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    pairs = list(read_pairs(tmp_path / "a.xlsx", IDS))
    assert pairs[0].has_name and not pairs[1].names
    # An id that Excel may have changed is not passed over in silence.
    assert pairs.pop().id.text == "'=2+2' is a formula"
    assert [(pair.id.name, pair.id.at, pair.id.text) for pair in pairs] == [
        ("A2", -1, "HP:0001250"),
        ("A3", -1, "HP:0001251"),
    ]


def test_all_sheets_of_a_workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    tables = {
        "Notes": [["Made by hand"]],
        "Findings": [["id", "name"], ["HP:0001250", "Seizure"]],
        "Empty": [],
        "Diseases": [["disease", "X id"], [], ["Gout", "X:1"]],
    }
    for title, rows in tables.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    pairs = list(read_pairs(tmp_path / "a.xlsx", IDS))
    assert [(pair.id.name, pair.id.text, pair.names[0].text) for pair in pairs] == [
        ("Findings!A2", "HP:0001250", "Seizure"),
        ("Diseases!B3", "X:1", "Gout"),
    ]
    assert str(pairs[1].id).endswith("a.xlsx, row 3, Diseases!B3")
