"""Pairs are read from the rows of tables, by header, by option or by contents."""

from pathlib import Path

import pytest
from tables import cases

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import Place
from spacy_bioel.io.table import UNQUOTED, split_rows
from spacy_bioel.plugins.curation.ids import id_pattern
from spacy_bioel.plugins.curation.name_places import no_values
from spacy_bioel.plugins.curation.pairs import Pair
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


@pytest.mark.parametrize("text, options, expected", cases(__file__, "chosen_columns"))
def test_columns_and_prefix(text, options, expected):
    assert pairs_of(text, **options) == [*expected]


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


@pytest.mark.parametrize("line, place", cases(__file__, "columns_of_pipe_tables"))
def test_columns_of_pipe_tables(line, place):
    [pair] = text_pairs(lines_of(line), IDS, no_values)
    assert pair.id.name == place and pair.names[0].text == "Seizure"


def test_an_open_quote_and_missing_columns_are_errors():
    with pytest.raises(BioelError, match="B126"):
        pairs_of('id,name\nX:1,"Gout\n')
    with pytest.raises(BioelError, match="B128"):
        pairs_of("id,name\nX:1,Gout\n", columns={"id": "code"})


def test_many_columns():
    row = ",".join(["x"] * 20_000)
    assert pairs_of(f"{row},id,name\n{row},X:1,Gout\n") == [("Gout", "X:1")]


def workbook_pairs(path: Path, sheets: dict[str, tuple[tuple[str, ...], ...]]) -> list[Pair]:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return list(read_pairs(path, IDS))


def test_workbooks(tmp_path):
    pairs = workbook_pairs(tmp_path / "a.xlsx", cases(__file__, "workbook"))
    assert pairs[0].has_name and not pairs[1].names
    # An id that Excel may have changed is not passed over in silence.
    assert pairs.pop().id.text == "'=2+2' is a formula"
    assert [(pair.id.name, pair.id.at, pair.id.text) for pair in pairs] == [
        ("A2", -1, "HP:0001250"),
        ("A3", -1, "HP:0001251"),
    ]


def test_all_sheets_of_a_workbook(tmp_path):
    pairs = workbook_pairs(tmp_path / "a.xlsx", cases(__file__, "sheets"))
    assert [(pair.id.name, pair.id.text, pair.names[0].text) for pair in pairs] == [
        ("Findings!A2", "HP:0001250", "Seizure"),
        ("Diseases!B3", "X:1", "Gout"),
    ]
    assert str(pairs[1].id).endswith("a.xlsx, row 3, Diseases!B3")
