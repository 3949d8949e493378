"""Knowledge bases with changed bytes, and with files that were edited or forged."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kb_files import npy_bytes, vectors_of

from spacy_bioel.cli.kb_show import describe_kb
from spacy_bioel.errors import BioelError
from spacy_bioel.kb import columns as files_module
from spacy_bioel.kb import spelling as ngrams
from spacy_bioel.kb.columns import checksum, pack, read_array, sealed_meta, unpack
from spacy_bioel.kb.edit import drafts_of
from spacy_bioel.kb.gazetteer import Gazetteer
from spacy_bioel.kb.knowledge_base import KnowledgeBase, span_keys
from spacy_bioel.kb.vector_files import open_vectors, write_vectors
from spacy_bioel.kb.vectors import ExactIndex

QUERIES = ["cold", "heart attack", "hart attack", "disease", "illnes", "beta estradiol", "x"]
CODED = re.compile(r"\[B\d{3}\] ")
PER_FILE = 9  # positions of each file in a run that is not --slow


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
    kb.verify()
    kb.verify_homes()


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


@pytest.mark.parametrize(("every", "n"), [(0, 250), pytest.param(1, 5000, marks=pytest.mark.slow)])
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
    for name in [*names, "a\0b", "é"]:
        block = pack(kb.files() | {name: np.zeros(3, np.uint8)})
        with pytest.raises(BioelError, match=r"\[B025\]"):
            KnowledgeBase.from_bytes(block).save_to(tmp_path / "kb" / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kb"]


@pytest.mark.parametrize(
    "table",
    [
        '[["names.txt", 1e999]]', '[["names.txt", true]]', '[["names.txt", "3"]]', '[[1, 2]]',
        '[["names.txt", 0], ["names.txt", 0]]', '[["names.txt"]]', "[" * 100_000, "[[[], 1]]",
        '[["names.txt", ' + "9" * 5000 + "]]",
    ],
)  # fmt: skip
def test_invalid_tables_of_a_block(table):
    block = b"BIOELKB1" + len(table).to_bytes(8, "little") + table.encode()
    with pytest.raises(BioelError, match=r"\[B025\]"):
        unpack(block)


HEADER = npy_bytes(np.arange(3)).tobytes()


@pytest.mark.parametrize(
    "raw",
    [
        b"", HEADER[:8], HEADER[:-1], HEADER + b"\0",
        HEADER.replace(b"(3,)", b"(30000000000000000,)"), HEADER.replace(b"(3,)", b"(3, 9)"),
        HEADER.replace(b"{", b"("), HEADER.replace(b"'", b'"'), HEADER.replace(b"<i8", b"|O8"),
        HEADER.replace(b"<i8", b"<f1"), HEADER.replace(b"<i8", b">i8"),
        HEADER.replace(b"False", b"True "), HEADER.replace(b"\x01\x00", b"\x02\x00", 1),
        HEADER.replace(b"}", b"} + 1"),
    ],
)  # fmt: skip
def test_invalid_headers(raw):
    with pytest.raises(ValueError, match="."):
        read_array(np.frombuffer(raw, np.uint8))


def rewrite(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file."""
    about = json.loads((folder / name).read_text("utf8"))
    change(about)
    (folder / name).write_text(json.dumps(about, indent=1), encoding="utf8")


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change meta.json, with a correct checksum."""
    meta = json.loads((folder / "meta.json").read_text("utf8"))
    change(meta)
    (folder / "meta.json").write_bytes(sealed_meta(meta))


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.update(licence="CC-BY"),
        lambda meta: meta["columns"].update({"meta.json": None}),
        lambda meta: meta["columns"].pop("meta.json"),
    ],
)
def test_a_meta_file_that_was_edited(folder, change):
    rewrite(folder, "meta.json", change)
    with pytest.raises(BioelError, match=r"\[B210\] meta.json in .* was changed.*bioel kb build"):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda meta: meta.update(fingerprint="0" * 32), "B210"),
        (lambda meta: meta["columns"]["ids.txt"].update(checksum="0" * 32), "B024"),
        (lambda meta: meta["columns"].update({"ids.txt": 3}), "B023"),
        (lambda meta: meta["columns"].update({"ids.txt": {}}), "B023"),
        (lambda meta: meta["columns"]["ids.txt"].pop("checksum"), "B024"),
        (lambda meta: meta.update(counts={"names": "six"}), "B210"),
        (lambda meta: meta.update(counts=None), "B210"),
    ],
)
def test_a_meta_file_that_was_forged(folder, change, code):
    forge(folder, change)
    with pytest.raises(BioelError, match=rf"\[{code}\]"):
        KnowledgeBase.open(folder)


def test_json_that_parsers_reject(folder, kb):
    write_vectors(kb, encode, fingerprint="9f3a", dim=4)
    for text in ("[" * 100_000, "1" * 5000, "\ud800", '{"schema": 1, "normalizer": NaN}'):
        raw = text.encode("utf8", "surrogatepass")
        for path in (vectors_of(folder) / "about.json", folder / "meta.json"):
            whole = path.read_bytes()
            path.write_bytes(raw)
            assert outcome(lambda: answers(KnowledgeBase.open(folder))) in (
                "[B030]",
                "[B022]",
                "[B210]",
            )
            path.write_bytes(whole)


def test_columns_that_do_not_fit_each_other(kb):
    meta = json.loads(kb.files()["meta.json"].tobytes())
    one_more = npy_bytes(np.arange(7, dtype=np.uint64))
    meta["columns"]["name_keys.npy"] |= {"bytes": len(one_more)}
    meta["columns"]["name_keys.npy"] |= {"checksum": checksum(one_more)}
    about = np.frombuffer(sealed_meta(meta), np.uint8)
    with pytest.raises(BioelError, match=r"\[B023\] Column name_keys.npy .*6 rows; found 7 rows"):
        KnowledgeBase(kb.files() | {"name_keys.npy": one_more, "meta.json": about})
