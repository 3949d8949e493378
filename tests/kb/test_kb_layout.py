"""Files in the folder of a knowledge base, and folders of other things."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kb_files import all_files, columns_of, forge, made_kb, replace
from safetensors.numpy import load_file, save

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import folder as layout
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import KB_COLUMNS, RawFile, TensorFile, serialized
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import write_vectors
from spacy_bioel.types import Concept


def test_columns_are_known_though_they_are_damaged(folder, tmp_path):
    assert layout.has_columns(folder) and not layout.has_columns(tmp_path)
    replace(columns_of(folder), b"")
    assert layout.has_columns(folder) and not layout.has_columns(tmp_path / "nowhere")


def test_columns_are_read_by_the_library_safetensors(folder, kb):
    arrays = load_file(columns_of(folder))
    assert {name: str(array.dtype) for name, array in arrays.items()} == {
        name: spec.split()[0] for name, spec in KB_COLUMNS.items()
    }
    assert arrays["names"].tobytes().decode().splitlines() == list(kb.names)
    assert np.array_equal(arrays["name_keys"], kb.name_keys)


def test_all_arrays_are_aligned_in_a_folder_and_in_memory(kb, folder):
    write_vectors(kb, lambda names: np.ones((len(names), 3)), fingerprint="9f3a", dim=3)
    for files in (kb.files(), KnowledgeBase.from_bytes(kb.to_bytes()).files()):
        for raw in files.values():
            assert all(array.flags.aligned for array in TensorFile(raw).arrays.values())


def test_equal_contents_have_equal_files(folder, tmp_path, kb):
    kb.save_to(tmp_path / "copy")
    assert columns_of(tmp_path / "copy").read_bytes() == columns_of(folder).read_bytes()
    assert all_files(tmp_path / "copy") == all_files(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("meta.json", b'{"schema": 4}'),  # also of a knowledge base before its first release
        ("model.safetensors", None),
        ("kb.0001.safetensors", None),
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
    path.write_bytes(save({"ids": np.ones(3)}) if content is None else content)
    for write in (partial(build_kb, [Concept("X:1", ("a",))]), kb.save_to):
        with pytest.raises(BioelError, match=r"\[B029\]"):
            write(tmp_path / "model")
    assert all_files(tmp_path / "model") == [name]


def test_a_knowledge_base_of_another_schema_may_be_replaced(folder):
    forge(columns_of(folder), lambda arrays, about: about.update(schema=99))
    assert len(made_kb(folder, [Concept("X:1", ("a",))])) == 1


@pytest.mark.parametrize("kept", [-1, 5000, 40])
def test_a_truncated_knowledge_base_may_be_replaced(folder, kept):
    replace(columns_of(folder), columns_of(folder).read_bytes()[:kept])
    with pytest.raises(BioelError, match=r"\[B030\] kb\.0001\.safetensors.*bioel kb build"):
        KnowledgeBase.open(folder)
    assert len(made_kb(folder, [Concept("X:1", ("a",))])) == 1


def test_only_known_files_are_written(kb, tmp_path):
    names = ("mine.txt", "vectors/9f3a/about.json", "vectors/9f3a.0000000000000001/mine.txt")
    files = kb.files() | {name: np.zeros(3, np.uint8) for name in names}
    KnowledgeBase.from_bytes(b"".join(serialized(files))).save_to(tmp_path / "a" / "copy")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["copy"]
    assert all_files(tmp_path / "a" / "copy") == ["kb.0001.safetensors"]


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


def test_a_fingerprint_that_is_a_path_is_refused(kb):
    with pytest.raises(ValueError, match="not the fingerprint"):
        write_vectors(kb, lambda names: np.ones((len(names), 2)), fingerprint="../x", dim=2)


def test_unknown_schema_versions_are_refused(tmp_path):
    build_kb([Concept("X:1", ("one",))], tmp_path / "kb")
    for version in (4, 6, 0, True, "5", None):
        forge(
            columns_of(tmp_path / "kb"), lambda arrays, about, new=version: about.update(schema=new)
        )
        with pytest.raises(BioelError, match=r"\[B021\]"):
            KnowledgeBase.open(tmp_path / "kb")
