from __future__ import annotations

import gzip

import pytest
import zstandard

from spacy_bioel.errors import BioelError
from spacy_bioel.io.open import iter_xml, numbered_lines

PACKED = pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gz", "zst"]
)


@PACKED
def test_lines_are_numbered_whatever_the_packing(tmp_path, pack):
    path = tmp_path / "names.txt"  # recognised by content: the name does not say how it is packed
    path.write_bytes(pack("\ufeffSjögren\r\nsecond\u2028half\n\nlast".encode()))
    expected = ["Sjögren", "second\u2028half", "", "last"]
    assert list(numbered_lines(path)) == [((path, n + 1), x) for n, x in enumerate(expected)]


def test_zst_of_several_frames_is_read_to_the_end(tmp_path):
    path = tmp_path / "names.zst"
    path.write_bytes(zstandard.compress(b"one\n") + zstandard.compress(b"two\n"))
    assert [line for _, line in numbered_lines(path)] == ["one", "two"]


def test_missing_file(tmp_path):
    with pytest.raises(BioelError, match="B101.*nowhere.txt"):
        list(numbered_lines(tmp_path / "nowhere.txt"))


@PACKED
def test_empty_file(tmp_path, pack):
    path = tmp_path / "empty"
    path.write_bytes(pack(b""))
    with pytest.raises(BioelError, match="B102"):
        list(numbered_lines(path))


def test_decoding_error_names_the_line(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\n" * 20_000 + "Sjögren\n".encode("latin-1"))
    with pytest.raises(BioelError, match=r"B103.*line 20001: byte 0xf6 at column 3"):
        list(numbered_lines(path))
    assert list(numbered_lines(path, encoding="latin-1"))[-1] == ((path, 20001), "Sjögren")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_truncated_archive(tmp_path, pack):
    path = tmp_path / "cut"
    path.write_bytes(pack(bytes(range(32, 127)) * 5000)[:-12])
    with pytest.raises(BioelError, match="B104"):
        list(numbered_lines(path))


def test_iter_xml_streams_and_reports_the_line(tmp_path):
    path = tmp_path / "records.xml"
    path.write_text("<set>\n<r>1</r>\n<r>2</r>\n</sett>")
    seen = []
    with pytest.raises(BioelError, match="B111.*line 4"):
        for element in iter_xml(path, "r"):
            seen.append(element.text)
    assert seen == ["1", "2"]
