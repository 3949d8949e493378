"""Symbolic and hard links in folders that commands write to: nothing outside is changed."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kb_files import encode

from spacy_bioel.errors import BioelError
from spacy_bioel.files import replacing_folder
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import NameEdit, add_concepts, compact_kb, edit_names, retire_ids
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.pipe import save_files
from spacy_bioel.types import Concept

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")

CONCEPTS = [Concept("X:1", ("one", "uno")), Concept("X:2", ("two",))]


WRITERS: dict[str, Callable[[Path], object]] = {
    "build": lambda kb: build_kb(CONCEPTS[:1], kb),
    "add": lambda kb: add_concepts(kb, [Concept("X:3", ("three",))]),
    "edit": lambda kb: edit_names(kb, {"X:1": NameEdit(add=["ein"])}),
    "retire": lambda kb: retire_ids(kb, {"X:1": "X:2"}),
    "encode": encode,
    "compact": compact_kb,
    "forget": lambda kb: compact_kb(kb, forget_retired=True),
    "copy": lambda kb: KnowledgeBase.from_bytes(KnowledgeBase.open(kb).to_bytes()).save_to(kb),
}
LINKS = [".holder", ".lock", "kb.0001.safetensors", "vectors", "tries",
         ".new.0123456789ab", ".kb.0002.safetensors.0123456789ab-1-2.new", "kb.0002.safetensors",
         "kb.0003.safetensors", "vectors/f.0123456789abcdef.safetensors", "notes"]  # fmt: skip


def contents(folder: Path) -> dict[str, Any]:
    """Each path in a folder, with the contents of files and the targets of links."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture()
def kb(tmp_path) -> Path:
    build_kb(CONCEPTS, tmp_path / "kb")
    return tmp_path / "kb"


@pytest.fixture()
def outside(tmp_path) -> Path:
    """A folder of unrelated files, some with the names of files of a knowledge base."""
    for name in ("photos/a.jpg", "f.0123456789abcdef.safetensors", "file", "codes"):
        path = tmp_path / "outside" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "outside"


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_in_the_folder_is_refused_before_anything_changes(kb, outside, writer, name):
    target = outside / "file" if name in (".holder", ".lock") or name[-1] == "w" else outside
    if name in ("kb.0001.safetensors", "kb.0002.safetensors"):  # the third leads to nothing
        shutil.copy(kb / "kb.0001.safetensors", outside / name)
    if name.endswith(".safetensors"):
        target = outside / Path(name).name
    (kb / name).unlink(missing_ok=True)
    (kb / name).parent.mkdir(exist_ok=True)
    (kb / name).symlink_to(target)
    before = contents(kb), contents(outside)
    with pytest.raises(BioelError, match=r"\[B485\] .*" + name):
        WRITERS[writer](kb)
    assert (contents(kb), contents(outside)) == before


def test_the_folder_itself_may_be_a_link(kb, tmp_path):
    (tmp_path / "disk").mkdir()
    kb.rename(tmp_path / "disk" / "big")
    kb.symlink_to(tmp_path / "disk" / "big")
    for write in WRITERS.values():
        build_kb(CONCEPTS, kb)
        encode(kb)
        write(kb)
    assert kb.is_symlink() and [path.name for path in (tmp_path / "disk").iterdir()] == ["big"]


def test_a_file_that_is_linked_twice_is_never_written_to(kb, outside):
    """`cp -al` makes copies of hard links, which take no space."""
    os.link(kb / "kb.0001.safetensors", outside / "kb.0001.safetensors")
    os.link(outside / "file", kb / ".holder")
    before = contents(outside)
    encode(kb)
    WRITERS["edit"](kb)
    assert contents(outside) == before
    assert not (kb / ".holder").exists()


def test_an_output_folder_that_is_a_link_stays_one(tmp_path):
    """Its target is replaced, and no temporary folder is left next to the link or the target."""
    (tmp_path / "disk" / "model").mkdir(parents=True)
    (tmp_path / "disk" / "model" / "old").touch()
    for name in ("model", "not there yet"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
        with replacing_folder(tmp_path / name) as folder:
            (folder / "new").touch()
    assert sorted(contents(tmp_path / "disk")) == [
        "model", "model/new", "not there yet", "not there yet/new"
    ]  # fmt: skip
    assert sorted(os.listdir(tmp_path)) == ["disk", "model", "not there yet"]
    assert (tmp_path / "model").is_symlink()


def test_files_of_a_pipeline_that_are_links_are_replaced_themselves(tmp_path, outside):
    """Files of a model downloaded from a hub are links into a cache of all models."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("cfg.json", "README.md", "meta.json"):
        (model / name).symlink_to(outside / "file")
    save_files(model, {"cfg.json": lambda: b"{}"})
    assert (model / "cfg.json").read_text() == "{}" and not (model / "cfg.json").is_symlink()
    assert (outside / "file").read_text() == "file"
