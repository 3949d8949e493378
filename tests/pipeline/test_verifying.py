"""`bioel verify` detects a single changed bit in any file."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import spacy
from tiny import needs

from spacy_bioel import pipe as stored_pipe
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.loading import verify_saved

PIPES = ("bioel_linker", "bioel_mentions")


@pytest.fixture
def model(trained, trained_folder, tmp_path) -> Path:
    """A saved pipeline whose knowledge base has vectors and a trie."""
    shutil.copytree(trained_folder, tmp_path / "model")
    kb = KnowledgeBase.open(tmp_path / "model" / "bioel_linker" / "kb")
    linker: Any = trained.get_pipe("bioel_linker")
    linker.encode_kb(kb)
    with suppress(ImportError):  # if the plugin has been removed
        from spacy_bioel.plugins.contextual.constrained_decoding import write_trie

        letters = {chr(n): n for n in range(32, 127)}
        write_trie(
            kb, lambda names: [[letters[c] for c in name] for name in names], fingerprint="f" * 16
        )
    return tmp_path / "model"


def flip(path: Path, at: float) -> bytes:
    """Change one bit of a file. RETURNS (bytes): The original content."""
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[int(at * (len(whole) - 1))] ^= 1
    path.write_bytes(changed)
    return whole


def saved_files(folder: Path) -> list[Path]:
    found = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return sorted(path for path in found if path.stat().st_size)


def test_what_was_saved(bioel, model, tmp_path):
    found = verify_saved(model)
    assert [Path(folder).name for folder in found.whole] == [
        *["bioel_linker", "kb", "bioel_mentions", "model"]
    ]
    assert (found.without, found.failed) == ([], {})
    for path, status in (("model", 0), ("model/bioel_linker/kb", 0), ("", 2), ("none", 2)):
        bioel("verify", tmp_path / path, status=status)


@needs("contextual")
def test_each_bit_of_a_pipe_and_of_its_knowledge_base(model):
    files = [path for name in PIPES for path in saved_files(model / name)]
    in_kb = [
        path.relative_to(model / "bioel_linker/kb").parts[0] for path in files if "kb" in path.parts
    ]
    assert in_kb == ["kb.0001.safetensors", "tries", "vectors"] and len(files) > 12
    missed = []
    for path in files:
        for at in [i / 20 for i in range(21)] if "kb" in path.parts else [0.37, 1.0]:
            whole = flip(path, at)
            if not verify_saved(model).failed:
                missed.append((path.relative_to(model), at))
            path.write_bytes(whole)
    assert missed == []
    assert not verify_saved(model).failed


def test_a_changed_file_is_refused_when_it_is_loaded(bioel, model, monkeypatch):
    for name in PIPES:
        for path in (path for path in saved_files(model / name) if path.parent.name == name):
            whole = flip(path, 0.6)
            with pytest.raises(BioelError, match=rf"\[B466\] {path}|\[B466\].*manifest\.json"):
                spacy.load(model)
            path.write_bytes(whole)
    weights = model / "bioel_mentions" / "model.safetensors"
    monkeypatch.setattr(stored_pipe, "MAX_BYTES_CHECKED", 100)
    whole = flip(weights, 0.6)
    spacy.load(model)  # large files are compared by size alone
    said = bioel("verify", model, status=1).err
    assert f"error: [B466] {weights} has changed since it was saved" in said
    weights.write_bytes(whole + b"\0")
    with pytest.raises(BioelError, match=r"\[B466\].*model\.safetensors"):
        spacy.load(model)


@pytest.mark.parametrize("file", ["config.cfg", "meta.json", "vocab/strings.json", "tokenizer"])
def test_the_rest_of_a_pipeline_is_parsed(model, file):
    (model / file).write_bytes(b"\xff[")
    assert list(verify_saved(model).failed) == [str(model)]


def test_pipelines_of_earlier_versions_load(bioel, model):
    for name in PIPES:
        (model / name / "manifest.json").unlink()
    spacy.load(model)
    found = verify_saved(model)
    assert found.without == [str(model / name) for name in PIPES]
    assert found.failed == {}
    about = bioel("verify", model, "--json", "-").json
    assert (len(about["without"]), len(about["whole"]), about["failed"]) == (2, 2, {})
