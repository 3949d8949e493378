"""Cross-references and sources of names, and folders of the version that had neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.grow import add_concepts, retire_ids
from spacy_bioel.kb.columns.schema import META_FILE, columns_of_version, fingerprint_of, sealed_meta
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import Concept


def to_version_1(folder: Path) -> None:
    """Rewrite a knowledge base as the version before cross-references wrote it."""
    meta = json.loads((folder / META_FILE).read_text("utf8"))
    names = columns_of_version(1)
    for path in (folder / meta["generation"]).iterdir():
        if path.name not in names:
            path.unlink()
    columns = {name: meta["columns"][name] for name in names}
    meta |= {"schema": 1, "columns": columns, "fingerprint": fingerprint_of(columns)}
    (folder / META_FILE).write_bytes(sealed_meta(meta))


def test_merged_tidied_and_inherited(tmp_path):
    build_kb(
        [
            Concept("X:1", ("one",), xrefs=("A:1", " B:2\tof two\nlines ", "")),
            Concept("X:1", ("uno",), xrefs=("A:1", "C:3")),
            Concept("X:2", ("two",), xrefs=("D:4",)),
        ],
        tmp_path / "kb",
    )
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert kb.xrefs(0) == ("A:1", "B:2 of two lines", "C:3")
    retire_ids(tmp_path / "kb", {"X:2": "X:1"})
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert kb.xrefs(0) == ("A:1", "B:2 of two lines", "C:3", "D:4")


def test_names_that_were_added_tell_where_they_come_from(tmp_path):
    build_kb([Concept("HP:1", ("Seizure", "Fit"))], tmp_path / "kb", source="hp.obo")
    mine = [Concept("HP:1", ("convulsion", "SEIZURE"))]
    for source in ("mine.jsonl", "mine.jsonl"):  # a second time adds nothing
        add_concepts(tmp_path / "kb", mine, source=source)
    kb = KnowledgeBase.open(tmp_path / "kb")
    names = [kb.name(row) for row in kb.names_of(0).tolist()]
    assert names == ["Seizure", "Fit", "convulsion"]
    assert kb.sources_of(0) == ("hp.obo", "hp.obo", "mine.jsonl")
    assert kb.sources == ("hp.obo", "mine.jsonl")
    kb.verify()


def test_a_folder_of_version_1_opens_and_grows(tmp_path):
    record = Concept("X:1", ("one", "uno"), xrefs=("A:1",))
    build_kb([record], tmp_path / "kb", source="x.obo")
    to_version_1(tmp_path / "kb")
    kb = KnowledgeBase.open(tmp_path / "kb")
    kb.verify()
    assert (kb.meta["schema"], kb.xrefs(0), kb.sources_of(0)) == (1, (), ("x.obo", "x.obo"))
    kb.save_to(tmp_path / "copy")
    assert KnowledgeBase.from_bytes(kb.to_bytes()).fingerprint == kb.fingerprint
    assert KnowledgeBase.open(tmp_path / "copy").fingerprint == kb.fingerprint
    add_concepts(tmp_path / "kb", [record], source="again")
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert (kb.meta["schema"], kb.xrefs(0), kb.sources_of(0)) == (2, ("A:1",), ("x.obo", "x.obo"))


def test_a_version_that_is_not_known(tmp_path):
    build_kb([Concept("X:1", ("one",))], tmp_path / "kb")
    meta = json.loads((tmp_path / "kb" / META_FILE).read_text("utf8"))
    for version in (3, 0, True, "2"):
        (tmp_path / "kb" / META_FILE).write_bytes(sealed_meta(meta | {"schema": version}))
        with pytest.raises(BioelError, match=r"\[B021\]"):
            KnowledgeBase.open(tmp_path / "kb")
