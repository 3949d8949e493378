"""Files in the folder of a knowledge base, and folders of other things."""

import json
from pathlib import Path

import numpy as np
import pytest
from kb_files import all_files, made_kb

from spacy_bioel.errors import BioelError
from spacy_bioel.kb import folder as layout
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.columns import COLUMN_FILES, KB_FILES, pack, sealed_meta
from spacy_bioel.kb.edit import add_concepts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import write_vectors
from spacy_bioel.types import Concept


def test_columns_are_known_though_files_are_missing(folder, tmp_path):
    assert layout.has_columns(folder) and not layout.has_columns(tmp_path)
    (folder / "meta.json").unlink()
    assert layout.has_columns(folder) and not layout.has_columns(tmp_path / "nowhere")


def test_equal_contents_have_equal_files(folder, tmp_path, kb):
    kb.save_to(tmp_path / "copy")
    assert (tmp_path / "copy" / "meta.json").read_bytes() == (folder / "meta.json").read_bytes()
    assert all_files(tmp_path / "copy") == all_files(folder)


@pytest.mark.parametrize(
    "meta",
    [
        {"lang": "en", "name": "pipeline", "components": ["bioel_linker"], "version": "0"},
        {"schema": 1},
        {"schema": 1, "columns": {"mine.txt": {}}},
        {"schema": "1", "columns": {"ids.txt": {}}},
        [],
    ],
)
def test_a_folder_with_another_meta_file_is_not_overwritten(tmp_path, kb, meta):
    out = tmp_path / "model"
    out.mkdir()
    (out / "meta.json").write_text(json.dumps(meta))
    for write in (lambda: build_kb([Concept("X:1", ("a",))], out), lambda: kb.save_to(out)):
        with pytest.raises(BioelError, match=r"\[B029\]"):
            write()
    assert all_files(out) == ["meta.json"]


def test_a_knowledge_base_of_another_schema_may_be_replaced(folder):
    meta = json.loads((folder / "meta.json").read_text("utf8"))
    (folder / "meta.json").write_text(json.dumps(meta | {"schema": 99}))
    assert len(made_kb(folder, [Concept("X:1", ("a",))])) == 1


def test_only_known_files_are_written(kb, tmp_path):
    names = ("mine.txt", "vectors/9f3a/about.json", "vectors/9f3a.0000000000000001/mine.txt")
    files = kb.files() | {name: np.zeros(3, np.uint8) for name in names}
    KnowledgeBase.from_bytes(pack(files)).save_to(tmp_path / "a" / "copy")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["copy"]
    assert len(all_files(tmp_path / "a" / "copy")) == len(KB_FILES)


@pytest.mark.parametrize("name", ["../x", "columns.x", "vectors", "", 3, "columns.0123456789ab/.."])
def test_a_generation_cannot_lead_out_of_the_folder(folder, name):
    meta = json.loads((folder / "meta.json").read_text("utf8"))
    (folder / "meta.json").write_bytes(sealed_meta(meta | {"generation": name}))
    with pytest.raises(BioelError, match=r"\[B023\]"):
        KnowledgeBase.open(folder)


def test_columns_that_are_removed_while_they_are_opened(folder, monkeypatch):
    map_folder, pending = layout.map_folder, [Concept("X:5", ("Five",)), Concept("X:6", ("Six",))]

    def removed_before(home: Path, names: tuple[str, ...]) -> dict[str, layout.RawFile]:
        if pending and names is COLUMN_FILES:
            add = pending.pop()
            monkeypatch.setattr(layout, "map_folder", map_folder)
            add_concepts(folder, [add])
            monkeypatch.setattr(layout, "map_folder", removed_before)
        return map_folder(home, names)

    monkeypatch.setattr(layout, "map_folder", removed_before)
    kb = KnowledgeBase.open(folder)
    assert list(kb.ids) == ["X:1", "X:2", "X:3", "X:4", "X:5", "X:6"]
    kb.verify()


def test_a_fingerprint_that_is_a_path_is_refused(kb):
    with pytest.raises(ValueError, match="not the fingerprint"):
        write_vectors(kb, lambda names: np.ones((len(names), 2)), fingerprint="../x", dim=2)


def test_unknown_schema_versions_are_refused(tmp_path):
    build_kb([Concept("X:1", ("one",))], tmp_path / "kb")
    meta = json.loads((tmp_path / "kb" / "meta.json").read_text("utf8"))
    for version in (3, 5, 0, True, "4"):
        (tmp_path / "kb" / "meta.json").write_bytes(sealed_meta(meta | {"schema": version}))
        with pytest.raises(BioelError, match=r"\[B021\]"):
            KnowledgeBase.open(tmp_path / "kb")
