from __future__ import annotations

import io

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io import json_text
from spacy_bioel.io.json_text import iter_json_object

PROBLEM = "{path}: found {found}"


@pytest.fixture(params=[1, 7, 1 << 20])
def chunk(request, monkeypatch):
    """However few characters are read at a time."""
    monkeypatch.setattr(json_text, "_CHUNK", request.param)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{}", []),
        (' {"a" : 12345, "b": [1, {"c": "}"}]}\n', [("a", 12345), ("b", [1, {"c": "}"}])]),
        ('{"é": "ü\\u00e9", "a\\"b": null}', [("é", "üé"), ('a"b', None)]),
    ],
)
def test_entries(tmp_path, chunk, content, expected):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf8")
    assert list(iter_json_object(path, problem=PROBLEM)) == expected


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("[1]", r"'\[' where \{ was expected"),
        ('{"a": 1} x', "'x' where nothing more was expected, after 'a'"),
        ('{"a": 1', "the end of the file where , or } was expected, after 'a'"),
        ('{"a": 1, "b": {"c"', "Expecting ':' delimiter, after 'a'"),
        ('{"a": 1, 2: 3}', "'2' where a key in quotes was expected, after 'a'"),
        ('{"a" 1}', "'1' where : was expected"),
        ('{"a": 1, "b": "\\ud800"}', r"\\ud800, which is half of a character, after 'a'"),
        ('{"a": ' + "[" * 101 + "]" * 101 + "}", "lists and objects more than 100 deep"),
        ('{"a": 1,}', "'}' where a key in quotes was expected, after 'a'"),
    ],
)
def test_what_is_no_object_is_named_by_the_entry_before(tmp_path, chunk, content, found):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(BioelError, match=f"x.json: found {found}$"):
        list(iter_json_object(path, problem=PROBLEM))


def test_one_entry_is_in_memory_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(json_text, "_CHUNK", 10)
    path = tmp_path / "x.json"
    path.write_text('{"a": 1, "b": 2, "c": 3, "d": 4}')
    file = io.StringIO(path.read_text())
    entries = json_text._entries(json_text._Reader(file))
    assert next(entries) == ("a", 1)
    assert file.tell() == 10
