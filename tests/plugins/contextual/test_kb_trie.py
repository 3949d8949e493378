"""The trie of names: its columns against those written by hand, and its files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kb_files import flip, forge_array, place_of

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import TensorFile
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.contextual.constrained_decoding import (
    TRIE_COLUMNS,
    NameTrie,
    build_trie,
    open_trie,
    trie_of,
    write_trie,
)
from spacy_bioel.types import Concept

END = 9
PIECES = "0123456789abcdef"  # a fingerprint of word pieces


def small() -> NameTrie:
    """Make a trie of the names 3 1, 3, 3 2 1, 3 (again), and one that cannot be generated."""
    rows = [[3, 1, END], [3, END], [3, 2, 1, END], [3, END], []]
    flat = np.array([piece for row in rows for piece in row])
    return trie_of(flat, np.array([len(row) for row in rows]), np.arange(10, 15))


def test_columns():
    trie = small()
    # Root, 3; after 3: 1, 2, end; then the end of 3 1, 1 of 3 2; then the end of 3 2 1.
    assert trie.pieces.tolist() == [0, 3, 1, 2, 9, 9, 1, 9]
    assert trie.first_child.tolist() == [1, 2, 5, 6, 7, 7, 7, 8, 8]
    assert trie.leaves.tolist() == [4, 5, 7]
    assert trie.name_offsets.tolist() == [0, 2, 3, 4]
    assert trie.names.tolist() == [11, 13, 10, 12]
    dtypes = [np.uint32, np.uint16, np.uint32, np.uint32, np.int32]
    assert [getattr(trie, name).dtype for name in TRIE_COLUMNS] == dtypes


def test_a_trie_of_nothing():
    trie = trie_of(np.zeros(0, np.int32), np.zeros(2, np.int64), np.arange(2))
    assert trie.pieces.tolist() == [0]
    assert trie.children(np.zeros(1, np.int64))[1].tolist() == []


def english(names: Sequence[str]) -> list[list[int] | None]:
    """Return a piece for each letter, and the end; None for names with other letters."""
    return [[*map(ord, name), 0] if name.isascii() else None for name in names]


@pytest.fixture
def folder(tmp_path) -> Path:
    concepts = [
        Concept("X:1", ("renal failure", "腎不全"), ()),
        Concept("X:2", ("腎臓",), ()),
        Concept("X:3", ("renal", "failure"), ()),
    ]
    build_kb(concepts, tmp_path / "kb")
    return tmp_path / "kb"


def test_every_name_leads_to_itself(folder):
    kb = KnowledgeBase.open(folder)
    trie = build_trie(kb, english)
    for row, pieces in enumerate(english(list(kb.names))):
        node = np.zeros(1, np.int64)
        for piece in pieces or []:
            _, children = trie.children(node)
            node = children[trie.pieces_at(children) == piece]
        if pieces:
            assert trie.are_leaves(node).tolist() == [True]
            assert trie.names_of(node)[1].tolist() == [row]


def test_what_cannot_be_written_is_counted_and_some_names_may_be_left_out(folder):
    kb = KnowledgeBase.open(folder)
    trie = build_trie(kb, english)
    assert (trie.left_out, trie.nameless) == (2, 1)
    assert len(trie.names) == 3
    row = int(kb.lookup_names(["renal"])[0])
    assert build_trie(kb, english, rows=np.array([row])).names.tolist() == [row]


# Files.


def test_written_once_and_mapped(folder):
    kb = KnowledgeBase.open(folder)
    made = write_trie(kb, english, fingerprint=PIECES)

    def never(names: Sequence[str]) -> list[list[int] | None]:
        raise AssertionError

    again = write_trie(kb, never, fingerprint=PIECES)
    mapped = open_trie(KnowledgeBase.open(folder), fingerprint=PIECES)
    for trie in (again, mapped):
        assert (trie.left_out, trie.nameless) == (2, 1)
        for name in TRIE_COLUMNS:
            assert getattr(trie, name).tolist() == getattr(made, name).tolist()
    assert len(list((folder / "tries").glob(f"{PIECES}.*.safetensors"))) == 1


def test_other_pieces_and_other_names_have_none(folder):
    write_trie(KnowledgeBase.open(folder), english, fingerprint=PIECES)
    with pytest.raises(BioelError, match=r"\[B281\].*bioel kb encode"):
        open_trie(KnowledgeBase.open(folder), fingerprint="f" * 16)
    build_kb([Concept("X:9", ("renal",), ())], folder)
    with pytest.raises(BioelError, match=r"\[B281\]"):
        open_trie(KnowledgeBase.open(folder), fingerprint=PIECES)
    assert list((folder / "tries").iterdir()) == []


def test_it_is_copied_with_the_knowledge_base(folder, tmp_path):
    write_trie(KnowledgeBase.open(folder), english, fingerprint=PIECES)
    kb = KnowledgeBase.open(folder)
    kb.save_to(tmp_path / "copy")
    copy = KnowledgeBase.open(tmp_path / "copy")
    assert sorted(open_trie(copy, fingerprint=PIECES).names.tolist()) == [0, 3, 4]
    in_memory = KnowledgeBase.from_bytes(kb.to_bytes())
    assert len(open_trie(in_memory, fingerprint=PIECES).names) == 3


@pytest.fixture
def path(folder) -> Path:
    """A file with the trie of the folder."""
    write_trie(KnowledgeBase.open(folder), english, fingerprint=PIECES)
    (path,) = folder.glob("tries/*")
    return path


@pytest.mark.parametrize("part", ["first_child", "names"])
def test_a_damaged_file_is_named_and_written_again(folder, path, part):
    flip(path, place_of(path, part).start)
    with pytest.raises(BioelError, match=rf"\[B024\] {part} in tries/{PIECES}\.\w+\.safe"):
        open_trie(KnowledgeBase.open(folder), fingerprint=PIECES)
    assert len(write_trie(KnowledgeBase.open(folder), english, fingerprint=PIECES).names) == 3


@pytest.mark.parametrize("part", ["first_child", "names"])
@pytest.mark.parametrize("change", ["missing", "other type", "other length"])
def test_an_array_that_does_not_fit(folder, path, part, change):
    array = TensorFile(np.frombuffer(path.read_bytes(), np.uint8)).arrays[part]
    others = {"missing": None, "other type": array.astype(np.float32), "other length": array[None]}
    forge_array(path, part, others[change])
    with pytest.raises(BioelError, match=rf"\[B033\] {part} in tries/"):
        open_trie(KnowledgeBase.open(folder), fingerprint=PIECES)


@pytest.mark.parametrize("cut", [1, 3000, 99999])
def test_a_file_that_was_cut_is_no_trie_and_is_written_again(folder, path, cut):
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(BioelError, match=r"\[B030\] tries/"):
        KnowledgeBase.open(folder).verify(homes=True)
    with pytest.raises(BioelError, match=r"\[B281\]"):
        open_trie(KnowledgeBase.open(folder), fingerprint=PIECES)
    write_trie(KnowledgeBase.open(folder), english, fingerprint=PIECES)
    KnowledgeBase.open(folder).verify(homes=True)
