"""Vectors are those of their encoder and their names, and damaged ones are never used."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kb_files import (
    all_files,
    edit_about,
    flip,
    forge_array,
    place_of,
    replace,
    vectors_of,
    with_header,
)
from safetensors.numpy import load_file

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vector_files as vectors_module
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import add_concepts, compact_kb, retire_ids
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import (
    Encoded,
    are_outdated,
    describe_vectors,
    has_vectors,
    is_encoded,
    open_vectors,
    write_vectors,
)
from spacy_bioel.types import Concept

# "disease", "illness", "cold", "common cold", "heart attack", "beta estradiol": length and
# number of "c"; "common cold" is [11, 2], divided by its length 11.18: [0.9839, 0.1789].
UNIT = [[1, 0], [1, 0], [0.9701, 0.2425], [0.9839, 0.1789], [0.9965, 0.083], [1, 0]]
ALL = slice(None)
PARTS = ["codes", "fine", "scales", "digests"]


def encode(names):
    return np.array([[len(name), name.count("c")] for name in names], dtype=np.float32)


class Recorded:
    """The encoder, which records the names of each call, and is stopped after some names."""

    def __init__(self, *, stop_after: int = 99) -> None:
        self.batches: list[list[str]] = []
        self.stop_after = stop_after

    def __call__(self, names):
        if sum(map(len, self.batches)) + len(names) > self.stop_after:
            raise KeyboardInterrupt
        self.batches.append(list(names))
        return encode(names)


def write(kb: KnowledgeBase, encoder=encode, fingerprint: str = "9f3a", **options) -> Encoded:
    return write_vectors(kb, encoder, fingerprint=fingerprint, **{"dim": 2} | options)


def assert_unit(kb, fingerprint="9f3a"):
    vectors = open_vectors(kb, fingerprint=fingerprint).take(ALL)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, UNIT, atol=3e-4)


@pytest.fixture
def encoded(kb, folder) -> Path:
    """The file with the vectors of the knowledge base."""
    write(kb)
    return vectors_of(folder)


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(vectors_module, "_NAMES_PER_BLOCK", 4)
    monkeypatch.setattr(vectors_module, "_NAMES_PER_CALL", 3)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_and_batches(kb):
    encoder, done = Recorded(), []
    write(kb, encoder, progress=done.append)
    assert encoder.batches == [
        ["cold", "disease", "illness"], ["common cold"], ["heart attack", "beta estradiol"],
    ]  # fmt: skip
    assert done == [3, 1, 2]
    assert_unit(kb, None)


def test_folder_holds_vectors_and_what_made_them(kb, folder):
    before = set(folder.rglob("*"))
    write(kb)
    path = vectors_of(folder, "9f3a")
    about = {"fingerprint": "9f3a", "kb": kb.fingerprint, "n": 6, "dim": 2}
    about |= {"ann": None}
    assert describe_vectors(kb) == [about | {"current": True}]
    assert set(folder.rglob("*")) - before == {path, path.parent}
    vectors = open_vectors(kb, fingerprint="9f3a")
    read = load_file(path)
    for name in ("codes", "fine", "scales"):
        assert np.array_equal(read.pop(name), getattr(vectors, name))
    assert list(read) == ["digests"]
    assert open_vectors(str(folder), fingerprint="9f3a").shape == (6, 2)
    kb.verify(homes=True)


def test_encoding_in_memory(kb):
    in_memory = KnowledgeBase.from_bytes(kb.to_bytes())
    with pytest.raises(BioelError, match=r"\[B032\].* in memory"):
        open_vectors(in_memory, fingerprint=None)
    write(in_memory)
    again = KnowledgeBase.from_bytes(in_memory.to_bytes())
    again.verify(homes=True)
    assert_unit(again)
    write(in_memory, lambda names: np.zeros((len(names), 2)), "zero")
    assert not open_vectors(in_memory, fingerprint="zero").take(ALL).any()


def test_encoders_side_by_side(kb, folder):
    assert describe_vectors(kb) == [] and not is_encoded(kb, fingerprint="9f3a")
    with pytest.raises(BioelError, match=r"\[B032\]"):
        open_vectors(kb, fingerprint=None)
    write(kb)
    assert is_encoded(kb, fingerprint="9f3a") and not is_encoded(kb, fingerprint="4c1e")
    assert has_vectors(kb, "9f3a") and has_vectors(kb) and not has_vectors(kb, "4c1e")
    with pytest.raises(BioelError, match=r"\[B031\].*encoder 9f3a, .*4c1e. Run bioel kb encode /"):
        open_vectors(kb, fingerprint="4c1e")
    write(kb, lambda names: np.ones((len(names), 3)), "4c1e", dim=3)
    # Mapped files stay mapped after they are renamed or removed.
    for opened in (kb, KnowledgeBase.open(folder), KnowledgeBase.from_bytes(kb.to_bytes())):
        assert_unit(opened)
        assert open_vectors(opened, fingerprint="4c1e").shape == (6, 3)
        assert {about["fingerprint"] for about in describe_vectors(opened)} == {"9f3a", "4c1e"}
        opened.verify(homes=True)
    build_kb([Concept("X:1", ("Disease", "grippe"))], folder)
    assert not has_vectors(KnowledgeBase.open(folder))


def test_an_open_knowledge_base_keeps_its_vectors(folder, encoded):
    reader = KnowledgeBase.open(folder)
    add_concepts(folder, [Concept("X:9", ("grippe",))])
    assert write(reader) == Encoded(1, 6, None)  # of the names that are there now
    assert_unit(reader)
    assert is_encoded(reader, fingerprint="9f3a") and not are_outdated(reader, "9f3a")
    assert open_vectors(folder, fingerprint="9f3a").shape == (7, 2)


def test_vectors_that_are_current_are_not_written_again(folder, kb, encoded):
    done: list[int] = []
    assert write(kb, None, progress=done.append).copied == 6
    assert (vectors_of(folder), done) == (encoded, [6])
    encoded.unlink()
    with pytest.raises(BioelError, match=r"\[B032\]"):
        open_vectors(kb, fingerprint=None)


def test_a_fingerprint_that_is_a_path_is_refused(kb):
    with pytest.raises(ValueError, match="not the fingerprint"):
        write(kb, fingerprint="../x")


def with_other_names(folder: Path) -> KnowledgeBase:
    """Replace "illness" by "grippe" in the knowledge base; its vectors stay."""
    retire_ids(folder, {"X:1": ""})
    add_concepts(folder, [Concept("X:1", ("Disease",)), Concept("X:2", ("grippe",))])
    return KnowledgeBase.open(folder)


def test_only_new_names_are_encoded(folder, encoded):
    changed, again = with_other_names(folder), Recorded()
    with pytest.raises(BioelError, match=r"\[B034\]"):
        open_vectors(changed, fingerprint="9f3a")
    done: list[int] = []
    assert write(changed, again, progress=done.append) == Encoded(1, 5, None)
    assert (again.batches, done) == ([["grippe"]], [5, 1])
    assert write(changed, fingerprint="4c1e") == Encoded(6, 0, None)
    found = [open_vectors(changed, fingerprint=f).take(ALL) for f in ("9f3a", "4c1e")]
    assert np.array_equal(*found)
    changed.verify(homes=True)


def test_names_whose_digests_begin_alike_are_encoded_again(folder, encoded, monkeypatch):
    make = vectors_module.name_digests
    half = np.array([0, 1], np.uint64)
    monkeypatch.setattr(vectors_module, "name_digests", lambda names: make(names) + half)
    assert write(with_other_names(folder)) == Encoded(6, 0, None)


# What interrupts or prevents encoding leaves the earlier vectors, and no other file.


@pytest.mark.parametrize(
    "encode_badly",
    [
        lambda names: np.full((len(names), 2), np.nan),
        lambda names: np.full((len(names), 2), np.inf),
        lambda names: np.ones((len(names), 3)),
        lambda names: np.ones((1, 2)),
    ],
)
def test_a_bad_encoder(kb, folder, encoded, encode_badly):
    before = all_files(folder)
    with pytest.raises(BioelError, match=r"\[B035\].*'cold' ... 'beta estradiol'"):
        write(kb, encode_badly, "4c1e")
    assert all_files(folder) == before
    assert_unit(kb)


@pytest.mark.usefixtures("small_blocks")
def test_a_process_that_is_stopped(kb, folder, encoded):
    files = all_files(folder)
    with pytest.raises(KeyboardInterrupt):
        write(kb, Recorded(stop_after=5), "4c1e")
    assert all_files(folder) == files
    assert write(kb, fingerprint="4c1e") == Encoded(6, 0, None)
    assert_unit(kb)
    assert_unit(kb, "4c1e")


def test_a_full_disk(kb, folder, encoded, monkeypatch):
    compact_kb(folder)
    before = all_files(folder)

    def no_room(*args, **about) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for module, name in ((vectors_module, "serialized"), (Path, "write_bytes")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, no_room)
            with pytest.raises(BioelError, match=r"\[B182\].*No space left.* Free disk space"):
                write(kb, fingerprint="4c1e")
        assert all_files(folder) == before
    assert_unit(kb)


# Damage.


def cut(path: Path, kept: int) -> None:
    replace(path, path.read_bytes()[:kept])


def flip_last(path: Path, part: str) -> None:
    flip(path, place_of(path, part).stop - 1)


def change_array(path: Path, part: str, change: Callable[[np.ndarray], np.ndarray | None]) -> None:
    forge_array(path, part, change(load_file(path)[part]))


FILE = r"vectors/9f3a\.\w+\.safe"
DAMAGES = [
    *((partial(cut, kept=kept), rf"\[B030\] {FILE}") for kept in (-1, -90, 50, 7, 0)),
    *(
        (partial(with_header, text=text), rf"\[B030\] {FILE}")
        for text in (b"{}", b"[1]", b'{"kb": "x"', b'{"__metadata__": {}}')
    ),
    (partial(edit_about, change=lambda about: about.update(kb="x")), rf"\[B210\] {FILE}"),
    *((partial(flip_last, part=part), rf"\[B024\] {part} in {FILE}") for part in PARTS),
    *(
        (partial(change_array, part=part, change=change), rf"\[B033\] {part} in {FILE}.*{found}")
        for part in PARTS
        for change, found in (
            (lambda array: array[:5], r"shape \(6,"),
            (lambda array: array.astype(np.uint16), r"shape \(6,"),
            (lambda array: array[:, None], r"shape \(6,"),
            (lambda array: None, "found nothing"),
        )
    ),
    (
        partial(change_array, part="scales", change=lambda array: np.full_like(array, np.nan)),
        r"\[B033\].*numbers from 0",
    ),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damaged_vectors_are_refused_and_encoded_again(kb, encoded, damage, message):
    damage(encoded)
    with pytest.raises(BioelError, match=message):
        open_vectors(kb, fingerprint="9f3a")
    if "B033" in message:  # checksums are right, so that only opening finds it
        return
    with pytest.raises(BioelError, match=message):
        kb.verify(homes=True)
    assert write(kb) == Encoded(6, 0, None)
    assert_unit(kb)
    kb.verify(homes=True)
