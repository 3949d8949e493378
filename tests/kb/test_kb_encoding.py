"""Encoding after changes, after an interruption and on a full disk."""

import errno
from pathlib import Path

import numpy as np
import pytest
from kb_files import all_files

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import vector_files as vectors_module
from spacy_bioel.kb.edit import add_concepts, compact_kb, retire_ids
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import Encoded, open_vectors, write_vectors
from spacy_bioel.types import Concept

ALL = slice(None)


class Encoder:
    """Encoder by length and number of "c"; records the names, and fails from the n-th name on."""

    def __init__(self, *, fails_after: int = 99) -> None:
        self.asked: list[str] = []
        self.fails_after = fails_after

    def __call__(self, names):
        if len(self.asked) + len(names) > self.fails_after:
            raise KeyboardInterrupt
        self.asked += names
        return np.array([[len(name), name.count("c") + 0.25] for name in names], np.float32)


def write(kb: KnowledgeBase, encode, fingerprint: str = "9f3a", **options) -> Encoded:
    return write_vectors(kb, encode, fingerprint=fingerprint, dim=2, **options)


def stored(kb: KnowledgeBase) -> np.ndarray:
    return open_vectors(kb, fingerprint=None).take(ALL)


def with_other_names(folder: Path) -> KnowledgeBase:
    """Replace "illness" by "grippe" in the knowledge base; its vectors stay."""
    retire_ids(folder, {"X:1": ""})
    add_concepts(folder, [Concept("X:1", ("Disease",)), Concept("X:2", ("grippe",))])
    return KnowledgeBase.open(folder)


def test_only_new_names_are_encoded(kb, folder):
    write(kb, Encoder())
    changed, again = with_other_names(folder), Encoder()
    with pytest.raises(BioelError, match=r"\[B034\]"):
        open_vectors(changed, fingerprint="9f3a")
    done: list[int] = []
    assert write(changed, again, progress=done.append) == Encoded(1, 5, None)
    assert (again.asked, done) == (["grippe"], [5, 1])
    whole = Encoder()
    assert write(changed, whole, fingerprint="4c1e") == Encoded(6, 0, None)
    assert len(whole.asked) == 6
    found = [open_vectors(changed, fingerprint=f).take(ALL) for f in ("9f3a", "4c1e")]
    assert np.array_equal(*found)
    assert write(changed, Encoder(), fingerprint="9f3a").encoded == 0
    changed.verify(homes=True)


def test_names_whose_digests_begin_alike_are_encoded_again(kb, folder, monkeypatch):
    write(kb, Encoder())
    make = vectors_module.name_digests
    half = np.array([0, 1], np.uint64)
    monkeypatch.setattr(vectors_module, "name_digests", lambda names: make(names) + half)
    assert write(with_other_names(folder), Encoder()) == Encoded(6, 0, None)


def test_a_stopped_process_leaves_the_earlier_vectors(kb, folder, monkeypatch):
    monkeypatch.setattr(vectors_module, "_NAMES_PER_BLOCK", 2)
    monkeypatch.setattr(vectors_module, "_NAMES_PER_CALL", 1)
    write(kb, Encoder(), fingerprint="old")
    before, files = stored(kb), all_files(folder)
    with pytest.raises(KeyboardInterrupt):
        write(kb, Encoder(fails_after=5))
    assert all_files(folder) == files
    again, done = Encoder(), []
    assert write(kb, again, progress=done.append) == Encoded(6, 0, None)
    assert (len(again.asked), done) == (6, [1] * 6)
    assert np.array_equal(stored(kb), before)  # of the same encoder, whatever it is called
    assert open_vectors(kb, fingerprint="old").shape == (6, 2)
    kb.verify(homes=True)


def test_a_full_disk(kb, folder, monkeypatch):
    write(kb, Encoder())
    compact_kb(folder)
    before = all_files(folder)

    def no_room(*args, **about) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for module, name in ((vectors_module, "serialized"), (Path, "write_bytes")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, no_room)
            with pytest.raises(BioelError, match=r"\[B182\].*No space left.* Free disk space"):
                write(kb, Encoder(), fingerprint="4c1e")
        assert all_files(folder) == before
    assert open_vectors(kb, fingerprint="9f3a").shape == (6, 2)
