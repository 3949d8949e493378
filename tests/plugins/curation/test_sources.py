"""Pairs are read from JSON, YAML and OBO, and from bad files with a coded error."""

import json
import time
from pathlib import Path

import pytest
from tables import cases

from spacy_bioel.errors import BioelError
from spacy_bioel.plugins.curation.ids import id_pattern
from spacy_bioel.plugins.curation.sources import files_in, read_pairs

IDS = id_pattern(frozenset({"HP", "X"}))


def pairs_in(tmp_path: Path, name: str, text: str | bytes, **options):
    path = tmp_path / name
    path.write_bytes(text.encode("utf8") if isinstance(text, str) else text)
    return list(read_pairs(path, IDS, **options))


def assert_in_place(pair, text: str):
    lines = text.splitlines()
    assert lines[pair.id.place.line - 1][pair.id.at :].startswith(pair.id.text)
    for name in pair.names:
        assert lines[name.place.line - 1][name.at :].startswith(name.text)


def shown(pairs):
    return [
        ("/".join(name.text for name in pair.names[:1]), pair.id.text, pair.id.name)
        for pair in pairs
    ]


PHENOPACKET, EXPECTED = cases(__file__, "phenopacket")


@pytest.mark.parametrize("indent", [None, 2])
def test_json(tmp_path, indent):
    text = json.dumps(PHENOPACKET, indent=indent)
    pairs = pairs_in(tmp_path, "a.json", text)
    assert shown(pairs) == [*EXPECTED]
    for pair in pairs:
        assert_in_place(pair, text)


@pytest.mark.parametrize(("name", "text", "expected"), cases(__file__, "trees"))
def test_names_of_ids_in_json_and_yaml(tmp_path, name, text, expected):
    pairs = pairs_in(tmp_path, name, text)
    assert shown(pairs) == [*expected]
    if "\\u" in text:
        assert pairs[0].names[0].at == -1  # escaped: cannot be replaced


@pytest.mark.parametrize("suffix", ["yaml", "obo"])
def test_pairs_lie_where_they_say(tmp_path, suffix):
    text, expected = cases(__file__, "placed_pairs")[suffix]
    pairs = pairs_in(tmp_path, f"a.{suffix}", text)
    assert {pair[:2] for pair in shown(pairs)} == {*expected} and len(pairs) == len(expected)
    for pair in pairs:
        assert_in_place(pair, text)


def test_aliases_are_read_once(tmp_path):
    text = "a: &a {id: X:1, name: Gout}\n" + "".join(f"b{i}: [*a, *a]\n" for i in range(9))
    assert len(pairs_in(tmp_path, "a.yaml", text)) == 1
    bomb = "a0: &a0 [X:1]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
    )
    assert len(pairs_in(tmp_path, "a.yaml", bomb)) == 1


@pytest.mark.parametrize(
    "name, text, code",
    [
        ("a.txt", b"\x00\x01", "B600"),
        ("a.md", "Caf\xe9".encode("latin1"), "B103"),
        ("a.json", "[" * 5000, "B601"),
        ("a.yaml", "[" * 3000, "B601"),
        *cases(__file__, "bad_files"),
    ],
)
def test_bad_files(tmp_path, name, text, code):
    with pytest.raises(BioelError, match=code):
        pairs_in(tmp_path, name, text)


@pytest.mark.parametrize(
    "name, piece",
    [*(("a.json", n) for n in (1, 2, 3, 7, 30)), ("a.yaml", 1), ("a.txt", 15), ("a.txt", 40)],
)
def test_long_lines_are_read_in_pieces(tmp_path, monkeypatch, name, piece):
    text = '[{"id": "X:1", "name": "Gout"}, {"n": 12, "id": "X:2", "name": "Mumps, \\"old\\""}, 1]'
    if name == "a.txt":
        text = "Gout (X:1), mumps (X:2) and X:123456 and a last word, " + text
    whole = pairs_in(tmp_path, name, text)
    monkeypatch.setattr("spacy_bioel.plugins.curation.sources._PIECE_LENGTH", piece)
    pieces = pairs_in(tmp_path, name, text)
    assert [pair.id.text for pair in pieces] == [pair.id.text for pair in whole]
    if name != "a.txt":
        assert shown(pieces) == shown(whole)


def test_a_long_string_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("spacy_bioel.plugins.curation.sources._PIECE_LENGTH", 100)
    monkeypatch.setattr("spacy_bioel.plugins.curation.trees._MAX_STRING", 1000)
    with pytest.raises(BioelError, match="B601"):
        pairs_in(tmp_path, "a.json", '"' + "x" * 2000 + '"')


def test_long_names_and_spaces(tmp_path):
    pairs = pairs_in(tmp_path, "a.csv", f"id,name\nX:1,{'gout ' * 2000}\n")
    assert len(pairs[0].names[0].text) == 9999


def test_folders(tmp_path):
    for name in ("b.txt", "a/c.md", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [path.relative_to(tmp_path).as_posix() for path in files_in([tmp_path])]
    assert names == ["a/c.md", "b.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, text",
    [
        ("a.txt", "; " * 200_000 + "X:1"),
        ("a.txt", "X:1 " * 10_000),
        ("a.txt", "(" * 200_000 + "X:1)"),
        ("a.csv", "X:1," * 20_000 + "X:1"),
        ("a.csv", 'id,name\n"' + "a\n" * 900 + '"\n'),
        ("a.json", "[" + '"X:1", ' * 20_000 + '"X:1"]'),
        ("a.json", '{"a": "' + "\\\\" * 100_000 + '"}'),
        ("a.md", "|" * 100_000 + "X:1"),
    ],
)
def test_time_is_linear(tmp_path, name, text):
    start = time.process_time()
    pairs_in(tmp_path, name, text)
    assert time.process_time() - start < 60  # with quadratic time, minutes
