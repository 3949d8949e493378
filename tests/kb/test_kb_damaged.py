"""Knowledge bases with changed bytes, and with files that were edited or forged."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kb_files import (
    columns_of,
    edit_about,
    forge,
    forge_array,
    replace,
    vectors_of,
    with_header,
)

from spacy_bioel.cli.kb_show import describe_kb
from spacy_bioel.errors import BioelError
from spacy_bioel.kb import columns as files_module
from spacy_bioel.kb import spelling as ngrams
from spacy_bioel.kb.columns import TensorFile, serialized
from spacy_bioel.kb.edit import drafts_of
from spacy_bioel.kb.gazetteer import Gazetteer
from spacy_bioel.kb.knowledge_base import KnowledgeBase, span_keys
from spacy_bioel.kb.vector_files import open_vectors, write_vectors
from spacy_bioel.kb.vectors import ExactIndex

QUERIES = ["cold", "heart attack", "hart attack", "disease", "illnes", "beta estradiol", "x"]
CODED = re.compile(r"\[B\d{3}\] ")
PER_FILE = 150  # positions of each file in a run that is not --slow


def encode(names: Any) -> np.ndarray:
    """Encode names as the counts of four letters."""
    return np.array([[n.count(c) + 0.1 for c in "acde"] for n in names], dtype=np.float32)


@pytest.fixture
def files(kb) -> dict[str, Any]:
    """Files of the small knowledge base with vectors, by name."""
    write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    return {name: raw.copy() for name, raw in kb.files().items()}


def answers(kb: KnowledgeBase) -> list[Any]:
    """Return the answers of a knowledge base to all kinds of queries."""
    rows = np.arange(kb.n_names)
    concepts = np.arange(len(kb))
    vectors = open_vectors(kb, fingerprint="9f3a")
    gazetteer = Gazetteer.from_kb(kb)
    found: list[Any] = [
        *(len(kb), list(kb.ids), list(kb.names), kb.names.take(rows), kb.ids_of(concepts)),
        *([kb.definition(i) for i in concepts], [kb.types_of(i) for i in concepts]),
        *([kb.parents_of(i) for i in concepts], [kb.names_of(i) for i in concepts]),
        *([kb.preferred_name(i) for i in concepts], kb.preferred_rows(concepts)),
        *(kb.names_of_all(concepts), kb.concepts_of_names(np.append(rows, -1))),
        *(kb.find_all(["X:1", "X:2", "X:8", "X:9"]), kb.canonical("X:8")),
        *(kb.lookup_names(QUERIES), kb.lookup(span_keys(["common", "cold", "attack"], 2))),
        *(kb.type_mask(["Disease"]), kb.ngrams.search(QUERIES, 3), describe_kb(kb)),
        *(gazetteer.arrays(), drafts_of(kb), ExactIndex(vectors).search(encode(QUERIES), 3)),
        vectors.take(rows),
    ]
    return found


def proposed(kb: KnowledgeBase) -> Any:
    """Return results of the n-gram search as in a large knowledge base, which scores few names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_MAX_SCORED_NAMES", 0)
        return kb.ngrams.search(QUERIES, 3)


def changed(files: dict[str, Any], *, every: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Change one bit of one byte, in each file in turn.

    every (int): 1: each byte of each file; 2: every second byte, ...; 0: `PER_FILE` bytes.
    YIELDS (tuple): Name of the changed file, position of the byte, and all files.
    """
    for number, (name, raw) in enumerate(sorted(files.items())):
        step = every or max(1, len(raw) // PER_FILE)
        for position in range(number % step, len(raw), step):
            damaged = raw.copy()
            damaged[position] ^= 1 << (position // step + number) % 8
            yield name, position, files | {name: damaged}


def outcome(call: Callable[[], Any]) -> str:
    """Return the result of a call or the code of its error; any other error fails the test."""
    try:
        return repr(call())
    except BioelError as error:
        assert CODED.match(str(error)), error
        return str(error)[:6]


def verify(files: dict[str, Any]) -> None:
    kb = KnowledgeBase(files)
    kb.verify(homes=True)


def check_small(files: dict[str, Any], *, every: int) -> int:
    """Check that opening finds each changed byte. Return the number of changed bytes."""
    n, whole = 0, repr(answers(KnowledgeBase(files)))
    for name, position, damaged in changed(files, every=every):
        n += 1
        found = outcome(lambda damaged=damaged: answers(KnowledgeBase(damaged)))
        assert found.startswith("[B"), (name, position)
    assert not whole.startswith("[B")
    return n


def check_large(files: dict[str, Any], *, every: int) -> None:
    """Check that files that are not read at opening fail only with coded errors, and that `verify`
    finds each changed byte. The n-gram search runs both ways: all names scored, and few."""
    for name, position, damaged in changed(files, every=every):
        outcome(lambda damaged=damaged: answers(KnowledgeBase(damaged)))
        outcome(lambda damaged=damaged: proposed(KnowledgeBase(damaged)))
        verified = outcome(lambda damaged=damaged: verify(damaged))
        assert verified.startswith("[B"), (name, position)


@pytest.mark.parametrize(("every", "n"), [(0, 290), pytest.param(1, 5000, marks=pytest.mark.slow)])
def test_a_changed_byte_is_found_when_opened(files, every, n):
    assert check_small(files, every=every) > n


@pytest.mark.parametrize("every", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_changed_byte_of_large_files(files, monkeypatch, every):
    monkeypatch.setattr(files_module, "SMALL", -1)
    check_large(files, every=every)


def test_file_names_in_a_block_cannot_lead_out_of_the_folder(kb, tmp_path):
    outside = tmp_path / "outside"
    names = ["../outside", str(outside), "a/b", "vectors/../x", "vectors/../../x"]
    names += ["vectors/9f3a.0000000000000001/../x", "a\\b", "C:x", "..", ".", "", ".hidden"]
    names += ["vectors/../../outside.0123456789abcdef.safetensors", "kb.0001.safetensors/../../x"]
    for name in [*names, "a\0b", "é"]:
        block = b"".join(serialized(kb.files() | {name: np.zeros(3, np.uint8)}))
        KnowledgeBase.from_bytes(block).save_to(tmp_path / "kb" / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kb"]
    assert len(list((tmp_path / "kb" / "copy").rglob("*.safetensors"))) == 1


def header(**changes: Any) -> bytes:
    """Return a header of one array, with a change to its entry."""
    entry = {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]} | changes
    metadata = {"bioel": '{"seal": "x"}'}
    return json.dumps({"__metadata__": metadata, "numbers": entry}).encode()


@pytest.mark.parametrize(
    "text",
    [
        header(dtype="F64"), header(dtype="O8"), header(dtype=3), header(dtype=[]),
        header(shape=[30000000000000000]), header(shape=[10**30]), header(shape=[3, 9]),
        header(shape=["3"]), header(shape=[3.5]), header(shape=None), header(shape={"a": 1}),
        header(data_offsets=[0, 16]), header(data_offsets=[0, 32]), header(data_offsets=[8, 24]),
        header(data_offsets=[0, 10**30]), header(data_offsets=[-8, 24]), header(data_offsets=[24]),
        header(data_offsets=[0, True]), header(data_offsets=["0", "24"]), header(data_offsets=3),
        header(data_offsets=[0, float("inf")]), header(data_offsets=[0, float("nan")]),
        header()[:-1], header() + b"x", header().replace(b"__", b"--", 1),
        header().replace(b'"{', b'"['), header().replace(b'{"dtype"', b'3, "b": {"dtype"'),
        b"", b"[" * 100_000, b"[]", b"3", b"{}", b"1" * 5000, b'"\xff"', b'{"__metadata__": 3}',
        b'{"__metadata__": {"bioel": ' + b"9" * 5000 + b"}}", header().replace(b"x", b"\\ud800"),
    ],
)  # fmt: skip
def test_invalid_headers(text):
    raw = len(text).to_bytes(8, "little") + text + bytes(24)
    with pytest.raises(BioelError, match=r"\[B030\]|\[B210\]"):
        TensorFile(np.frombuffer(raw, np.uint8))
    with pytest.raises(BioelError, match=r"\[B025\]"):
        KnowledgeBase.from_bytes(raw)


def test_a_valid_header_but_for_its_seal():
    raw = len(header()).to_bytes(8, "little") + header() + bytes(24)
    with pytest.raises(BioelError, match=r"\[B210\]"):
        TensorFile(np.frombuffer(raw, np.uint8))


@pytest.mark.parametrize("n", [2**64 - 1, 2**40, 100_000_001, 33])
def test_lengths_of_headers_that_are_too_large(n):
    raw = n.to_bytes(8, "little") + bytes(32)
    with pytest.raises(BioelError, match=r"\[B030\]"):
        TensorFile(np.frombuffer(raw, np.uint8))


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.update(licence="CC-BY"),
        lambda about: about.update(seal=None),
        lambda about: about.pop("seal"),
        lambda about: about["checksums"].pop("ids"),
    ],
)
def test_a_header_that_was_edited(folder, change):
    edit_about(columns_of(folder), change)
    with pytest.raises(BioelError, match=r"\[B210\] kb.0001.* was changed.*bioel kb build"):
        KnowledgeBase.open(folder)


def test_white_space_in_a_header_is_an_edit(folder):
    edit_about(columns_of(folder), lambda about: None)
    with pytest.raises(BioelError, match=r"\[B210\]"):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda about: about["checksums"].update(ids="0" * 32), "B024"),
        (lambda about: about["checksums"].update(ids=3), "B024"),
        (lambda about: about["checksums"].pop("ids"), "B024"),
        (lambda about: about.update(checksums=[1]), "B030"),
        (lambda about: about.update(counts={"names": "six"}), "B210"),
        (lambda about: about.update(counts=None), "B210"),
    ],
)
def test_a_description_that_was_forged(folder, change, code):
    forge(columns_of(folder), lambda arrays, about: change(about))
    with pytest.raises(BioelError, match=rf"\[{code}\]"):
        KnowledgeBase.open(folder)


def test_json_that_parsers_reject(folder, kb):
    write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    for text in ("[" * 100_000, "1" * 5000, "\ud800", '{"schema": 1, "normalizer": NaN}'):
        raw = text.encode("utf8", "surrogatepass")
        about = json.dumps({"__metadata__": {"bioel": text}}).encode()
        for path in (vectors_of(folder), columns_of(folder)):
            whole = path.read_bytes()
            for header in (raw, about):
                with_header(path, header)
                found = outcome(lambda: answers(KnowledgeBase.open(folder)))
                assert found in ("[B030]", "[B022]", "[B210]")
            replace(path, whole)


@pytest.mark.parametrize(
    "name", ["name_keys", "ngram_norms", "id_keys", "name_sources", "retired_targets"]
)
def test_columns_that_do_not_fit_each_other(folder, kb, name):
    array = kb._columns.arrays[name]
    forge_array(
        columns_of(folder),
        name,
        np.append(array, array[:1]),
    )
    with pytest.raises(
        BioelError, match=rf"\[B023\] Column {name} in .* shape \({len(array)},\); found"
    ):
        KnowledgeBase.open(folder)
