"""A knowledge base answers alike however it is opened, and its folder holds only its own files."""

import multiprocessing
import pickle
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kb_files import all_files, columns_of, forge, made_kb, replace
from safetensors.numpy import load_file, save

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import folder as layout
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import (
    KB_COLUMNS,
    KbColumn,
    RawFile,
    TensorFile,
    give_back,
    map_file,
    serialized,
)
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase, SortedKeys
from spacy_bioel.types import Concept

# Answers.


def test_concepts(kb):
    assert (len(kb), kb.n_names) == (4, 6)
    assert kb.ids[2] == "X:3"
    assert kb.ids_of([3, 0, 3]) == ["X:4", "X:1", "X:4"]
    assert kb.ids_of([]) == []
    assert [kb.find(id) for id in ("X:1", "X:4", "X:8", "X:9", "")] == [0, 3, 2, -1, -1]
    assert kb.find_all(["X:8", "nothing", "X:2"]).tolist() == [2, -1, 1]
    assert [kb.canonical(id) for id in ("X:8", "X:2", "nothing")] == ["X:3", "X:2", "nothing"]
    assert (kb.definition(2), kb.definition(0)) == ("An infarct.", "")
    assert [kb.parents_of(row).tolist() for row in (1, 0)] == [[0], []]
    assert kb.type_names == ("Chemical", "Disease", "Infection")
    assert kb.types_of(1) == ("Disease", "Infection")
    assert kb.type_mask(["Infection", "Chemical"]).tolist() == [False, True, False, True]
    assert kb.type_mask([]).tolist() == kb.type_mask(["Gene"]).tolist() == [False] * 4
    for row in (-1, 4):
        for call in (kb.ids.__getitem__, kb.names_of, kb.types_of, kb.parents_of, kb.definition):
            with pytest.raises(IndexError):
                call(row)
        with pytest.raises(IndexError):
            kb.ids_of([row])


def test_lookup(kb):
    names = ["beta estradiol", "Cold", "cold", "", "heart"]
    assert kb.lookup_names(names).tolist() == [5, -1, 2, -1, -1]
    assert kb.lookup_names([]).tolist() == []


def test_names_with_equal_hashes_are_distinguished():
    keys = SortedKeys(
        KbColumn(np.array([3, 7, 7, 9], dtype=np.uint64)), KbColumn(np.array([5, 0, 2, 1])), below=6
    )
    strings = {5: "a", 0: "b", 2: "c", 1: "d"}
    found = keys.find(
        np.array([7, 7, 7, 9, 3], dtype=np.uint64),
        ["c", "b", "x", "d", "a"],
        lambda rows: [strings[row] for row in rows.tolist()],
    )
    assert found.tolist() == [2, 0, -1, 1, 5]


def test_concepts_of_names(kb):
    indptr, concepts, is_preferred = kb.concepts_of_names(np.array([2, -1, 0, 2]))
    assert indptr.tolist() == [0, 2, 2, 3, 5]
    assert concepts.tolist() == [1, 2, 0, 1, 2]
    assert is_preferred.tolist() == [True, False, True, True, False]
    indptr, concepts, _ = kb.concepts_of_names(np.array([], dtype=np.int64))
    assert (indptr.tolist(), concepts.tolist()) == ([0], [])


def test_without_types_parents_or_retired(tmp_path):
    kb = made_kb(tmp_path / "kb", [Concept("X:1", ("a",))])
    assert kb.type_names == kb.types_of(0) == ()
    assert kb.type_mask(["T"]).tolist() == [False]
    assert kb.find_all(["X:1", "X:2"]).tolist() == [0, -1]
    assert KnowledgeBase.from_bytes(kb.to_bytes()).types_of(0) == ()


def test_copies_give_the_same_answers(kb, folder, tmp_path):
    kb.save_to(tmp_path / "copy")
    kb.save_to(folder)
    in_memory = KnowledgeBase.from_bytes(kb.to_bytes())
    in_memory.save_to(tmp_path / "deep" / "copy")
    copies = [
        in_memory,
        KnowledgeBase.open(str(tmp_path / "copy")),
        KnowledgeBase.open(tmp_path / "deep" / "copy"),
        pickle.loads(pickle.dumps(in_memory)),
        pickle.loads(pickle.dumps(kb)),
    ]
    for copy in copies:
        copy.verify()
        assert copy.fingerprint == kb.fingerprint
        assert copy.lookup_names(["cold"]).tolist() == [2]
        assert copy.find("X:8") == 2
        assert list(copy.names) == list(kb.names)
    assert in_memory.path is None
    assert copies[-1].path == folder
    assert len(pickle.dumps(kb)) < 1000
    assert columns_of(tmp_path / "copy").read_bytes() == columns_of(folder).read_bytes()
    assert all_files(tmp_path / "copy") == all_files(folder)


def test_spawned_workers_reopen_it_and_refuse_another(kb, folder):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (kb,)) == 4
    pickled = pickle.dumps(kb)
    build_kb([Concept("Y:1", ("a",))], folder)
    with pytest.raises(BioelError, match=r"\[B037\]"):
        pickle.loads(pickled)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_given_back(tmp_path):
    numbers = np.ones(1 << 23, np.float32)  # 33.6 MB
    (tmp_path / "file").write_bytes(b"".join(serialized({"numbers": numbers})))
    mapped = TensorFile(map_file(tmp_path / "file")).arrays["numbers"]
    assert mapped.sum() == 1 << 23

    def megabytes_of_files() -> float:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) / 1000

    before = megabytes_of_files()
    give_back(mapped)
    assert before - megabytes_of_files() > 30


# Folders.


def test_columns_are_known_though_they_are_damaged(folder, tmp_path):
    assert layout.has_columns(folder) and not layout.has_columns(tmp_path)
    replace(columns_of(folder), b"")
    assert layout.has_columns(folder) and not layout.has_columns(tmp_path / "nowhere")
    with pytest.raises(BioelError, match=r"\[B020\].*nowhere"):
        KnowledgeBase.open(tmp_path / "nowhere")


def test_a_knowledge_base_that_is_cut_or_of_another_schema_may_be_replaced(folder):
    for kept in (-1, 5000, 40):
        replace(columns_of(folder), columns_of(folder).read_bytes()[:kept])
        assert len(made_kb(folder, [Concept("X:1", ("a",))])) == 1
    forge(columns_of(folder), lambda arrays, about: about.update(schema=99))
    assert len(made_kb(folder, [Concept("X:1", ("a",))])) == 1


def test_columns_are_read_by_the_library_safetensors(folder, kb):
    arrays = load_file(columns_of(folder))
    assert {name: str(array.dtype) for name, array in arrays.items()} == {
        name: spec.split()[0] for name, spec in KB_COLUMNS.items()
    }
    assert arrays["names"].tobytes().decode().splitlines() == list(kb.names)
    assert np.array_equal(arrays["name_keys"], kb.name_keys)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("thesis.txt", b"years of work"),
        ("meta.json", b'{"schema": 4}'),  # also of a knowledge base before its first release
        ("model.safetensors", save({"ids": np.ones(3)})),
        ("kb.0001.safetensors", save({"ids": np.ones(3)})),
        ("kb.0001.safetensors", b"mine"),
        ("kb.0001.safetensors", b""),
        ("vectors/mine.safetensors", b""),
        ("tries/f.0123456789abcdef.safetensors.bak", b""),
        (".new", b""),
    ],
)
def test_a_folder_with_other_files_is_not_overwritten(tmp_path, kb, name, content):
    path = tmp_path / "model" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    for write in (partial(build_kb, [Concept("X:1", ("a",))]), kb.save_to):
        for out in (tmp_path / "model", path):
            with pytest.raises(BioelError, match=r"\[B029\]"):
                write(out)
    assert all_files(tmp_path / "model") == [name]
    (tmp_path / "empty").mkdir()
    kb.save_to(tmp_path / "empty")


def test_the_highest_number_is_current(folder, kb):
    """A file that a system refused to remove stays until the next change."""
    content = columns_of(folder).read_bytes()
    for number in ("0002", "9999", "10000"):
        columns_of(folder).rename(folder / f"kb.{number}.safetensors")
        add_concepts(folder, [Concept(f"Y:{number}", (number,))])
        old = folder / f"kb.{number}.safetensors"
        assert not old.exists()
        old.write_bytes(content)
        assert len(KnowledgeBase.open(folder)) == len(kb) + 1
        old.unlink()
        replace(columns_of(folder), content)
    assert columns_of(folder).name == "kb.10001.safetensors"


@pytest.mark.parametrize("removed", [1, 3])
def test_columns_that_are_removed_while_they_are_opened(folder, monkeypatch, removed):
    map_file = layout.map_file
    pending = [Concept(f"X:{i}", (f"name {i}",)) for i in range(5, 5 + removed)]

    def removed_before(path: Path) -> RawFile:
        if pending and path.parent == folder:
            add = pending.pop()
            monkeypatch.setattr(layout, "map_file", map_file)
            add_concepts(folder, [add])
            monkeypatch.setattr(layout, "map_file", removed_before)
        return map_file(path)

    monkeypatch.setattr(layout, "map_file", removed_before)
    kb = KnowledgeBase.open(folder)
    assert list(kb.ids) == [f"X:{i}" for i in range(1, 5 + removed)]
    kb.verify()


def test_a_listing_that_misses_the_new_file_and_the_old_one(folder, monkeypatch):
    """A folder is not listed in one step: a new file may be behind the place already read."""
    listings = [[".lock"], [".lock"], None]
    listdir = layout.os.listdir

    def list_names(path: Path) -> list[str]:
        return (listings.pop(0) if path == folder and listings else None) or listdir(path)

    monkeypatch.setattr(layout.os, "listdir", list_names)
    assert len(KnowledgeBase.open(folder)) == 4
    assert listings == []
