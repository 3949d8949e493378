"""Workbooks: what Excel shows is read, and what it may have changed is refused."""

import datetime
import zipfile
from itertools import count

import pytest

from spacy_bioel.cli.inputs import stream_documents
from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.open import read_workbook, skipping_bad
from spacy_bioel.io.table import read_table

openpyxl = pytest.importorskip("openpyxl")
DAY = datetime.date(2024, 3, 1)


@pytest.fixture()
def workbook(tmp_path):
    """Write a workbook of sheets, each a list of rows; cells may be (value, number format)."""

    def write(*sheets, name="terms.xlsx"):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for number, rows in enumerate(sheets, start=1):
            sheet = book.create_sheet(f"Sheet{number}")
            for y, row in enumerate(rows, start=1):
                for x, value in enumerate(row, start=1):
                    shown = value if isinstance(value, tuple) else (value, "General")
                    cell = sheet.cell(y, x, shown[0])
                    cell.number_format = (
                        shown[1] if isinstance(value, tuple) else cell.number_format
                    )
        book.save(tmp_path / name)
        return tmp_path / name

    return write


def test_concepts(workbook):
    path = workbook(
        [
            ["id", "name", "synonyms", "date"],
            [1, "Fever", "pyrexia|hot", DAY],
            [],
            [2.0, "Cough, dry", None, None],
            [(7, "0000000"), 5.5, "", None],
            ["HP:3", "TRUE", "a\tb"],
        ]
    )
    assert [(c.id, c.names) for c in read_ontology(path, prefix="X")] == [
        ("X:1", ("Fever", "pyrexia", "hot")),
        ("X:2", ("Cough, dry",)),
        ("X:0000007", ("5.5",)),
        ("HP:3", ("TRUE", "a\tb")),
    ]
    assert [c.id for c in read_table(path, columns={"id": "id", "name": "name"})][0] == "1"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (["X:1", DAY, ""], r"column 2.*'2024-03-01'.*date.*MARCH1"),
        (["X:1", datetime.datetime(2024, 9, 2), ""], "column 2.*'2024-09-02'.*date"),
        ([DAY, "Fever", ""], "column 1.*date"),
        (["X:1", "Fever", datetime.time(3)], "column 3.*date"),
        (["X:1", True, ""], "column 2.*'True'.*truth"),
        (["X:1", "=B1", ""], "column 2.*'=B1'.*formula"),
        (["X:1", "#NAME?", ""], "column 2.*'#NAME.'.*error"),
        ([9.00000000000207e17, "Fever", ""], "column 1.*15 digits"),
    ],
)
def test_cells_that_excel_has_changed(workbook, row, said):
    path = workbook([["id", "name", "synonyms"], ["X:9", "Gout", ""], [], row])
    with pytest.raises(BioelError, match=rf"(?s)\[B514\] .*terms.xlsx, row 4, {said}"):
        list(read_ontology(path))
    noted = []
    with skipping_bad(noted.append):
        assert [c.id for c in read_ontology(path)] == ["X:9"]
    assert [record.line for record in noted] == [4]


def test_texts(workbook):
    path = workbook([["id", "text", "seen"], [10, "Fever, cough", DAY], ["b", None, DAY], ["c", 7]])
    assert list(stream_documents(str(path), None)) == [
        ("Fever, cough", "10"), ("", "b"), ("7", "c"),
    ]  # fmt: skip
    for rows, said in [
        ([["id", "text"], ["a", DAY]], r"\[B514\].*row 2, column 2"),
        ([["id", "text"], ["a", "x"], ["a", "y"]], r"\[B511\].*row 3"),
        ([["id", "text"], ["a", "x", "y"]], r"\[B510\].*row 2"),
        ([["id", "note"], ["a", "x"]], r"\[B444\]"),
    ]:
        with pytest.raises(BioelError, match=said):
            list(stream_documents(str(workbook(rows)), None))


def test_sheets(workbook):
    rows = [["id", "name"], ["X:1", "Fever"]]
    assert [c.id for c in read_ontology(workbook([], rows, [[None]]))] == ["X:1"]
    with pytest.raises(BioelError, match=r"\[B515\].*Sheet1, Sheet2"):
        list(read_ontology(workbook(rows, rows)))
    with pytest.raises(BioelError, match=r"\[B515\].*none"):
        list(read_ontology(workbook([], [])))


def test_a_sheet_that_states_a_wrong_size(workbook, tmp_path):
    path, out = workbook([["id", "name"], ["X:1", "Fever"], ["X:2", "Gout"]]), tmp_path / "b.xlsx"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.startswith("xl/worksheets/"):
                assert b'<dimension ref="A1:B3"' in content
                content = content.replace(b'ref="A1:B3"', b'ref="A1"')
            new.writestr(name, content)
    assert [c.id for c in read_ontology(out)] == ["X:1", "X:2"]


LAST_ROW, LAST_COLUMN = 3_000, "XFD"


def cells_of(number, *values):
    """Return the XML of a row; None is a cell that has a format, and no contents."""
    cells = "".join(
        f"<c r='{column}{number}' s='0'/>"
        if value is None
        else f"<c r='{column}{number}' t='str'><v>{value}</v></c>"
        for column, value in values
    )
    return f"<row r='{number}'>{cells}</row>"


def row_of(number, name, *more):
    return cells_of(number, ("A", f"X:{number}"), ("B", name), *more)


@pytest.fixture()
def sparse(workbook, tmp_path):
    """Write a workbook whose only sheet has these rows of XML."""

    def write(*rows):
        path, out = workbook([["id"]]), tmp_path / "sparse.xlsx"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                content = old.read(name).decode()
                if name.startswith("xl/worksheets/"):
                    before, _, _ = content.partition("<sheetData>")
                    content = f"{before}<sheetData>{''.join(rows)}</sheetData></worksheet>"
                new.writestr(name, content)
        assert out.stat().st_size < 10_000
        return out

    return write


@pytest.fixture()
def made(monkeypatch):
    """Count the rows that openpyxl reads or makes up."""
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    monkeypatch.setattr("spacy_bioel.io.open._MAX_ROWS", LAST_ROW)  # a million takes seconds
    numbers, iter_rows = count(), ReadOnlyWorksheet.iter_rows
    monkeypatch.setattr(
        ReadOnlyWorksheet,
        "iter_rows",
        lambda *args, **options: (row for row, _ in zip(iter_rows(*args, **options), numbers)),  # noqa: B905
    )
    return numbers


FAR = {
    "in the header": {1: [(LAST_COLUMN, None)]},
    "nothing as a string": {1: [(LAST_COLUMN, "")], 3: [("ZZ", None), ("AAA", "")]},
    "in each row": {n: [(LAST_COLUMN, None)] for n in range(1, 41)},
    "in the last row": {LAST_ROW: [("A", None)]},
    "in the last cell": {9: [("C", None)], 2_900: [], LAST_ROW: [(LAST_COLUMN, None)]},
    "below": {n: [("A", None), ("D", "")] for n in range(41, 300)},
}


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_formats_without_contents(sparse, made, far):
    def rows(head):
        yield cells_of(1, ("A", "id"), ("B", head), *far.get(1, ()))
        yield from (row_of(n, f"w{n}", *far.get(n, ())) for n in range(2, 41))
        yield from (cells_of(n, *far[n]) for n in far if n > 40)

    path, expected = sparse(*rows("name")), [(f"X:{n}", f"w{n}") for n in range(2, 41)]
    assert [(c.id, *c.names) for c in read_ontology(path)] == expected
    assert next(made) < LAST_ROW + 10  # the first row is read twice
    path = sparse(*rows("text"))
    assert [(id, text) for text, id in stream_documents(str(path), None)] == expected
    assert [(place.line, len(row)) for place, row in read_workbook(path)] == [
        (n, 2) for n in range(1, 41)
    ]


@pytest.mark.parametrize(
    ("number", "cells"),
    [(LAST_ROW + 1, [("A", "X:9"), ("B", "Gout")]), (2**31, []), (10**30, [("A", None)])],
)
def test_a_row_beyond_the_last(sparse, made, number, cells):
    for first in ([("A", "id"), ("B", "name")], []):
        path = sparse(cells_of(1, *first), cells_of(number, *cells))
        with pytest.raises(BioelError, match=r"\[B517\] .*sparse.xlsx .* 3,000"):
            list(read_workbook(path))
    assert next(made) < 2 * (LAST_ROW + 10)


def test_contents_far_from_the_others(sparse):
    head = cells_of(1, ("A", "id"), ("B", "text"))
    path = sparse(head, row_of(2, "Gout"), row_of(5, "Flu"))
    assert [place.line for place, _ in read_workbook(path)] == [1, 2, 3, 4, 5]
    path = sparse(head, row_of(2, "Gout", (LAST_COLUMN, "x")))
    with pytest.raises(BioelError, match=r"\[B510\].*row 2.*16384"):
        list(stream_documents(str(path), None))


def test_the_last_row_of_excel_is_read(sparse):
    head, last = cells_of(1, ("A", "id"), ("B", "name")), 1_048_576
    path = sparse(head, row_of(last, "Gout"))
    assert [c.id for c in read_ontology(path)] == [f"X:{last}"]
    with pytest.raises(BioelError, match=r"\[B517\] .*sparse.xlsx .* 1,048,576"):
        list(read_workbook(sparse(head, row_of(last + 1, "Gout"))))


def test_damaged_workbooks(workbook, tmp_path):
    path = workbook([["id", "name"], ["X:1", "Fever"]])
    (tmp_path / "cut.xlsx").write_bytes(path.read_bytes()[:-200])
    (tmp_path / "old.xlsx").write_bytes(b"\xd0\xcf\x11\xe0" * 200)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "xml.xlsx", "w") as new:
        for name in old.namelist():
            cut = -40 if name.startswith("xl/worksheets/") else None
            new.writestr(name, old.read(name)[:cut])
    for name, code in {"cut": "B104", "old": "B104", "xml": "B104", "no": "B101"}.items():
        with pytest.raises(BioelError, match=rf"\[{code}\].*{name}.xlsx"):
            list(read_ontology(tmp_path / f"{name}.xlsx"))


def test_without_openpyxl(workbook, monkeypatch):
    path = workbook([["id", "name"], ["X:1", "Fever"]])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(BioelError, match=r"\[B192\].*pip install 'spacy-bioel\[xlsx\]'"):
        list(read_ontology(path))
