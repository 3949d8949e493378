"""Open files, stream lines, XML and large JSON objects, and parse ids."""

import gzip
import io
import zipfile

import pytest
import srsly
import zstandard
from io_cases import HERE, PACK

from spacy_bioel.errors import BioelError
from spacy_bioel.io.jsonl import read_json
from spacy_bioel.io.open import Place, curie, iter_xml, numbered_lines, parse_ids, unique_names

STRINGS = srsly.read_yaml(HERE / "strings.yml")
PROBLEM = "{path}: found {found}"


@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
def test_lines_of_compressed_files_are_numbered(write, pack):
    # Recognised by content, because the name has no suffix of an archive.
    path = write(pack("\ufeffSjögren\r\nsecond\u2028half\n\nlast".encode()))
    expected = ["Sjögren", "second\u2028half", "", "last"]
    assert list(numbered_lines(path)) == [(Place(path, n), x) for n, x in enumerate(expected, 1)]
    with pytest.raises(BioelError, match="B102"):
        list(numbered_lines(write(pack(b""))))


def test_zst_of_several_frames_is_read_to_the_end(write):
    path = write(zstandard.compress(b"one\n") + zstandard.compress(b"two\n"))
    assert [line for _, line in numbered_lines(path)] == ["one", "two"]


def test_decoding_error_names_the_line(write):
    path = write(b"fine\n" * 20_000 + "Sjögren\n".encode("latin-1"))
    with pytest.raises(BioelError, match=r"B103.*line 20001: byte 0xf6 at column 3"):
        list(numbered_lines(path))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_truncated_archive(write, pack):
    path = write(pack(bytes(range(32, 127)) * 5000)[:-12])
    with pytest.raises(BioelError, match="B104"):
        list(numbered_lines(path))


def test_iter_xml_streams_and_reports_the_line(write):
    path = write("<set>\n<r>1</r>\n<r>2</r>\n</sett>")
    seen = []
    with pytest.raises(BioelError, match="B111.*line 4"):
        for element in iter_xml(path, "r"):
            seen.append(element.text)
    assert seen == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{}", []),
        (' {"a" : 12345, "b": [1, {"c": "}"}]}\n', [("a", 12345), ("b", [1, {"c": "}"}])]),
        ('{"é": "ü\\u00e9", "a\\"b": null}', [("é", "üé"), ('a"b', None)]),
    ],
)
def test_entries(write, content, expected):
    assert list(read_json(write(content), dict, problem=PROBLEM).items()) == expected


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("[1]", r"'\[1\]'"),
        ('{"a": 1} x', r"Extra data: line 1 column 10 \(char 9\)"),
        ('{"a": 1', r"Expecting ',' delimiter: line 1 column 8 \(char 7\)"),
        ('{"a": 1,\n"b": {"c"', r"Expecting ':' delimiter: line 2 column 10 \(char 18\)"),
        ('{"a": 1, "b": "\\ud800"}', r"\\ud800, which is half of a character"),
        ('{"a": ' + "[" * 101 + "]" * 101 + "}", "lists and objects nested more than 100 deep"),
    ],
)
def test_errors_name_the_place(write, content, found):
    with pytest.raises(BioelError, match=f"x.txt: found {found}$"):
        list(read_json(write(content), dict, problem=PROBLEM).items())


def zipped(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"%PDF-1.4\n%\xe2\xe3\n", "a PDF document"),
        (b"{\\rtf1\\ansi Fever}", "an RTF document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document"),
        (zipped("[Content_Types].xml", "word/document.xml"), "an Office document"),
        (zipped("mimetype", "content.xml", "META-INF/manifest.xml"), "an Office document"),
        (b"A PDF is not %PDF-1.4", ""),
        (b"{}", ""),
        (zipped("a.txt"), ""),
    ],
)
@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.txt", "a"])
def test_documents_that_are_not_text(write, content, found, name):
    path = write(content, name)
    if not found:
        assert len(list(numbered_lines(path))) == 1
        return
    with pytest.raises(BioelError, match=rf"\[B117\] .*{name} is {found}, not text.*pdftotext"):
        list(numbered_lines(path))


@pytest.mark.parametrize(("raw", "prefix", "expected"), STRINGS["curies"])
def test_curie(raw, prefix, expected):
    assert curie(raw, prefix) == expected


@pytest.mark.parametrize(("raw", "expected"), STRINGS["ids"].items())
def test_parse_ids(raw, expected):
    assert parse_ids(raw, "MESH") == tuple(expected)


def test_unique_names_keep_their_order():
    assert unique_names(["b ", "", "a", "b", "B"]) == ("b", "a", "B")
