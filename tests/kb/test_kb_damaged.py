"""A changed byte, an edit or a forgery in a file of a knowledge base is an error with a code."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kb_files import (
    all_files,
    columns_of,
    edit_about,
    forge,
    forge_array,
    place_of,
    replace,
    vectors_of,
    with_header,
)

from spacy_bioel.cli.kb_show import describe_kb
from spacy_bioel.errors import BioelError
from spacy_bioel.kb import columns as files_module
from spacy_bioel.kb import knowledge_base, vector_files
from spacy_bioel.kb import spelling as ngrams
from spacy_bioel.kb.columns import TensorFile, serialized
from spacy_bioel.kb.edit import drafts_of
from spacy_bioel.kb.gazetteer import Gazetteer
from spacy_bioel.kb.knowledge_base import KnowledgeBase
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
        *(kb.lookup_names(QUERIES), kb.type_mask(["Disease"])),
        *(kb.ngrams.search(QUERIES, 3), describe_kb(kb)),
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

    every (int): 1: each byte of each file; 0: `PER_FILE` bytes.
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
    KnowledgeBase(files).verify(homes=True)


every_byte = pytest.mark.parametrize("every", [0, pytest.param(1, marks=pytest.mark.slow)])


@every_byte
@pytest.mark.parametrize("small", [files_module.SMALL, -1], ids=["when opened", "when used"])
def test_a_changed_byte_is_found(files, monkeypatch, small, every):
    monkeypatch.setattr(files_module, "SMALL", small)
    assert not repr(answers(KnowledgeBase(files))).startswith("[B")
    places = []
    for name, position, damaged in changed(files, every=every):
        places.append(position)
        found = outcome(lambda damaged=damaged: answers(KnowledgeBase(damaged)))
        assert found.startswith("[B"), (name, position)
    assert len(places) > (5000 if every else 290)


@every_byte
def test_a_changed_byte_of_large_files(files, monkeypatch, every):
    """Files too large to be verified fail only with coded errors, and `verify` finds each byte.

    The n-gram search runs both ways: all names scored, and few.
    """
    monkeypatch.setattr(files_module, "SMALL", -1)
    for module in (files_module, knowledge_base, vector_files):
        monkeypatch.setattr(module, "MEDIUM", -1)
    for name, position, damaged in changed(files, every=every):
        outcome(lambda damaged=damaged: answers(KnowledgeBase(damaged)))
        outcome(lambda damaged=damaged: proposed(KnowledgeBase(damaged)))
        verified = outcome(lambda damaged=damaged: verify(damaged))
        assert verified.startswith("[B"), (name, position)


def test_file_names_in_a_block_cannot_lead_out_of_the_folder(kb, tmp_path):
    outside = tmp_path / "outside"
    names = ["../outside", str(outside), "a/b", "vectors/../x", "vectors/../../x", "mine.txt"]
    names += ["vectors/9f3a.0000000000000001/../x", "a\\b", "C:x", "..", ".", "", ".hidden"]
    names += ["vectors/../../outside.0123456789abcdef.safetensors", "kb.0001.safetensors/../../x"]
    names += ["vectors/9f3a/about.json", "vectors/9f3a.0000000000000001/mine.txt", "a\0b", "é"]
    for name in names:
        block = b"".join(serialized(kb.files() | {name: np.zeros(3, np.uint8)}))
        KnowledgeBase.from_bytes(block).save_to(tmp_path / "kb" / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kb"]
    assert all_files(tmp_path / "kb" / "copy") == [f"kb.{len(names):04}.safetensors"]


def header(**changes: Any) -> bytes:
    """Return a header of one array, with a change to its entry."""
    entry = {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]} | changes
    metadata = {"bioel": '{"seal": "x"}'}
    return json.dumps({"__metadata__": metadata, "numbers": entry}).encode()


@pytest.mark.parametrize(
    "text",
    [
        header(),  # valid but for its seal
        header(dtype="F64"), header(dtype="O8"), header(dtype=3), header(dtype=[]),
        header(shape=[30000000000000000]), header(shape=[10**30]), header(shape=[3, 9]),
        header(shape=["3"]), header(shape=[3.5]), header(shape=None), header(shape={"a": 1}),
        header(data_offsets=[0, 16]), header(data_offsets=[0, 32]), header(data_offsets=[8, 24]),
        header(data_offsets=[0, 10**30]), header(data_offsets=[-8, 24]), header(data_offsets=[24]),
        header(data_offsets=[0, True]), header(data_offsets=["0", "24"]), header(data_offsets=3),
        header(data_offsets=[0, float("inf")]), header(data_offsets=[0, float("nan")]),
        header()[:-1], header() + b"x", header().replace(b"__", b"--", 1),
        header().replace(b'"{', b'"['), header().replace(b'{"dtype"', b'3, "b": {"dtype"'),
        b"", b"{", b"[" * 100_000, b"[]", b"3", b"{}", b"1" * 5000, b'"\xff"',
        b'{"__metadata__": 3}', b'{"__metadata__": {"bioel": "[]"}}',
        b'{"__metadata__": {"bioel": ' + b"9" * 5000 + b"}}", header().replace(b"x", b"\\ud800"),
    ],
)  # fmt: skip
def test_invalid_headers(folder, text):
    raw = len(text).to_bytes(8, "little") + text + bytes(24)
    with pytest.raises(BioelError, match=r"\[B030\]|\[B210\]"):
        TensorFile(np.frombuffer(raw, np.uint8))
    with pytest.raises(BioelError, match=r"\[B025\]"):
        KnowledgeBase.from_bytes(raw)
    with_header(columns_of(folder), text)
    with pytest.raises(BioelError, match=r"\[(B030|B210)\] kb\.0001\.safetensors"):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize("n", [2**64 - 1, 2**40, 100_000_001, 33])
def test_lengths_of_headers_that_are_too_large(n):
    raw = n.to_bytes(8, "little") + bytes(32)
    with pytest.raises(BioelError, match=r"\[B030\]"):
        TensorFile(np.frombuffer(raw, np.uint8))


def update(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda about: about.update(changes)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (update(schema=99), r"\[B021\].*99.*expects 5"),
        *((update(schema=other), r"\[B021\]") for other in (4, 6, 0, True, "5", None)),
        (update(normalizer=0), r"\[B022\].*version 0"),
        (update(checksums={}), r"\[B024\]"),
        (lambda about: about["checksums"].update(ids="0" * 32), r"\[B024\]"),
        (lambda about: about["checksums"].update(ids=3), r"\[B024\]"),
        (lambda about: about["checksums"].pop("ids"), r"\[B024\]"),
        (update(checksums=3), r"\[B030\]"),
        (update(checksums=[1]), r"\[B030\]"),
        (update(counts={"names": "six"}), r"\[B210\]"),
        (update(counts=None), r"\[B210\]"),
    ],
)
def test_a_description_that_was_edited_or_forged(folder, change, code):
    path = columns_of(folder)
    whole = path.read_bytes()
    edit_about(path, change)
    with pytest.raises(BioelError, match=r"\[(B210|B030)\] kb.0001"):
        KnowledgeBase.open(folder)
    replace(path, whole)
    forge(path, lambda arrays, about: change(about))
    with pytest.raises(BioelError, match=code):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize(
    "change",
    [
        update(licence="CC-BY"),
        update(seal=None),
        lambda about: about.pop("seal"),
        lambda about: None,  # white space in the header
    ],
)
def test_a_header_that_was_edited(folder, change):
    edit_about(columns_of(folder), change)
    with pytest.raises(BioelError, match=r"\[B210\] kb.0001.* was changed.*bioel kb build"):
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
    "name", ["names", "ids.offsets", "name_keys", "retired", "ngram_norms", "id_keys",
             "name_sources", "retired_targets"],
)  # fmt: skip
def test_columns_that_are_missing_or_do_not_fit(folder, kb, name):
    path, array = columns_of(folder), kb._columns.arrays[name]
    # Strings have offsets of their own length.
    if name not in ("names", "ids.offsets", "retired"):
        forge_array(path, name, np.append(array, array[:1]))
        message = rf"\[B023\] Column {name} in .* shape \({len(array)},\); found"
        with pytest.raises(BioelError, match=message):
            KnowledgeBase.open(folder)
    forge_array(path, name, array.astype(np.uint16))
    with pytest.raises(BioelError, match=rf"\[B023\] .*{array.dtype} of .*; found uint16"):
        KnowledgeBase.open(folder)
    forge_array(path, name, None)
    with pytest.raises(BioelError, match=rf"\[B023\] Column {name} in .* found nothing"):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize("name", ["names", "ids.offsets", "name_keys", "retired"])
def test_a_file_that_is_cut(folder, name):
    path = columns_of(folder)
    whole, place = path.read_bytes(), place_of(path, name)
    for kept in (place.stop - 1, place.start, -1, 100, 7, 0):
        replace(path, whole[:kept])
        with pytest.raises(BioelError, match=r"\[B030\] kb\.0001\.safetensors in .* \("):
            KnowledgeBase.open(folder)
    replace(path, whole[:-1])
    message = rf"{len(whole) - 1} bytes, but {len(whole)} according to its header.*bioel kb build"
    with pytest.raises(BioelError, match=message):
        KnowledgeBase.open(folder)


def test_bytes_that_are_not_a_knowledge_base(kb):
    whole = kb.to_bytes()
    cut = [b"", whole[:12], whole[:20], whole[:-200], whole[:-20], whole[:-1]]
    for block in (*cut, b"PK\3\4", whole[:8] + b"\xff" * 99, whole + b"xxxx"):
        with pytest.raises(BioelError, match=r"\[B025\]"):
            KnowledgeBase.from_bytes(block)
