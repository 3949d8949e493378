"""Opening, querying and copying a knowledge base, and missing or foreign files."""

import multiprocessing
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from kb_files import (
    columns_of,
    edit_about,
    forge,
    forge_array,
    made_kb,
    place_of,
    replace,
    with_header,
)

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import TensorFile, give_back, map_file, serialized
from spacy_bioel.kb.knowledge_base import KnowledgeBase, SortedKeys, name_keys, span_keys
from spacy_bioel.types import Concept


def test_concepts(kb):
    assert (len(kb), kb.n_names) == (4, 6)
    assert kb.ids[2] == "X:3"
    assert kb.ids_of([3, 0, 3]) == ["X:4", "X:1", "X:4"]
    assert kb.ids_of([]) == []
    assert [kb.find(id) for id in ("X:1", "X:4", "X:8", "X:9", "")] == [0, 3, 2, -1, -1]
    assert kb.find_all(["X:8", "nothing", "X:2"]).tolist() == [2, -1, 1]
    assert kb.canonical("X:8") == "X:3"
    assert kb.canonical("X:2") == "X:2"
    assert kb.canonical("nothing") == "nothing"
    assert (kb.definition(2), kb.definition(0)) == ("An infarct.", "")
    assert kb.parents_of(1).tolist() == [0]
    assert kb.parents_of(0).tolist() == []


def test_types(kb):
    assert kb.type_names == ("Chemical", "Disease", "Infection")
    assert kb.types_of(1) == ("Disease", "Infection")
    assert kb.type_mask(["Infection", "Chemical"]).tolist() == [False, True, False, True]
    assert kb.type_mask([]).tolist() == [False] * 4
    assert kb.type_mask(["Gene"]).tolist() == [False] * 4


@pytest.mark.parametrize("row", [-1, 4])
def test_negative_and_missing_rows_are_refused(kb, row):
    for call in (kb.ids.__getitem__, kb.names_of, kb.types_of, kb.parents_of, kb.definition):
        with pytest.raises(IndexError):
            call(row)
    with pytest.raises(IndexError):
        kb.ids_of([row])


def test_lookup_of_spans(kb):
    keys = span_keys(["common", "cold", "", "heart", "attack"], 2)
    rows = kb.lookup(keys)
    assert rows.tolist() == [[-1, 3], [2, 2], [-1, -1], [-1, 4], [-1, -1]]
    assert kb.lookup(np.zeros(2, dtype=np.uint64)).tolist() == [-1, -1]
    assert kb.lookup(np.zeros((0, 3), dtype=np.uint64)).shape == (0, 3)
    assert kb.lookup(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [-1]


def test_lookup_of_names(kb):
    names = ["beta estradiol", "Cold", "cold", "", "heart"]
    assert kb.lookup_names(names).tolist() == [5, -1, 2, -1, -1]
    assert kb.lookup_names([]).tolist() == []


def test_names_with_equal_hashes_are_distinguished():
    keys = SortedKeys(np.array([3, 7, 7, 9], dtype=np.uint64), np.array([5, 0, 2, 1]), below=6)
    strings = {5: "a", 0: "b", 2: "c", 1: "d"}
    wanted = ["c", "b", "x", "d", "a"]
    found = keys.find(
        np.array([7, 7, 7, 9, 3], dtype=np.uint64),
        wanted,
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
    assert kb.type_names == ()
    assert kb.types_of(0) == ()
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
        assert copy.lookup(name_keys(["cold"])).tolist() == [2]
        assert copy.find("X:8") == 2
        assert list(copy.names) == list(kb.names)
    assert in_memory.path is None
    assert copies[-1].path == folder
    assert len(pickle.dumps(kb)) < 1000


def test_spawned_workers_reopen_it(kb):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (kb,)) == 4


def test_a_worker_refuses_another_knowledge_base(kb, folder):
    pickled = pickle.dumps(kb)
    build_kb([Concept("Y:1", ("a",))], folder)
    with pytest.raises(BioelError, match=r"\[B037\]"):
        pickle.loads(pickled)


def test_no_knowledge_base(tmp_path):
    with pytest.raises(BioelError, match=r"\[B020\].*nowhere"):
        KnowledgeBase.open(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["names", "ids.offsets", "name_keys", "retired"])
def test_a_missing_or_cut_column(folder, name):
    path = columns_of(folder)
    for kept in (place_of(path, name).stop - 1, place_of(path, name).start, -1, 100, 7, 0):
        whole = path.read_bytes()
        replace(path, whole[:kept])
        with pytest.raises(BioelError, match=r"\[B030\] kb\.0001\.safetensors in .* \("):
            KnowledgeBase.open(folder)
        replace(path, whole)
    forge_array(path, name, None)
    with pytest.raises(BioelError, match=rf"\[B023\] Column {name} in .* found nothing"):
        KnowledgeBase.open(folder)


def test_a_cut_file_says_how_long_it_was(folder):
    path = columns_of(folder)
    n = path.stat().st_size
    replace(path, path.read_bytes()[:-1])
    with pytest.raises(BioelError, match=rf"{n - 1} bytes, but {n} according to its header"):
        KnowledgeBase.open(folder)


def test_a_foreign_column(folder, kb):
    forge_array(columns_of(folder), "name_keys", kb.name_keys.astype(np.int64))
    with pytest.raises(BioelError, match=r"\[B023\] .*uint64 of shape \(6,\); found int64"):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema": 99}, "B021.*99.*expects 5"),
        ({"normalizer": 0}, "B022.*version 0"),
        ({"checksums": {}}, "B024"),
        ({"checksums": 3}, "B030"),
    ],
)
def test_a_changed_description(folder, change, code):
    path = columns_of(folder)
    whole = path.read_bytes()
    edit_about(path, lambda about: about.update(change))
    with pytest.raises(BioelError, match=r"\[(B210|B030)\]"):
        KnowledgeBase.open(folder)
    replace(path, whole)
    forge(path, lambda arrays, about: about.update(change))
    with pytest.raises(BioelError, match=rf"\[{code[:4]}\]{code[4:]}"):
        KnowledgeBase.open(folder)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"__metadata__": {"bioel": "[]"}}'])
def test_an_unreadable_header(folder, text):
    with_header(columns_of(folder), text)
    with pytest.raises(BioelError, match=r"\[B030\] kb\.0001\.safetensors"):
        KnowledgeBase.open(folder)


def test_bytes_that_are_not_a_knowledge_base(kb):
    whole = kb.to_bytes()
    cut = [b"", whole[:12], whole[:20], whole[:-200], whole[:-20], whole[:-1]]
    for block in (*cut, b"PK\3\4", whole[:8] + b"\xff" * 99, whole + b"xxxx"):
        with pytest.raises(BioelError, match=r"\[B025\]"):
            KnowledgeBase.from_bytes(block)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_given_back(tmp_path):
    (tmp_path / "file").write_bytes(
        b"".join(serialized({"numbers": np.ones(1 << 23, np.float32)}))
    )  # 33.6 MB
    mapped = TensorFile(map_file(tmp_path / "file")).arrays["numbers"]
    assert mapped.sum() == 1 << 23

    def megabytes_of_files() -> float:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) / 1000

    before = megabytes_of_files()
    give_back(mapped)
    assert before - megabytes_of_files() > 30
