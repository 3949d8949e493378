"""What is built follows from the records, in any order, and nothing else is overwritten."""

from pathlib import Path
from typing import Any

import pytest
from kb_files import names_of

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import Branches, BuildReport, build_kb
from spacy_bioel.kb.edit import retire_ids
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept


def built(tmp_path: Path, *concepts: Concept, **options) -> tuple[KnowledgeBase, BuildReport]:
    report = build_kb(concepts, tmp_path / "kb", **options)
    return KnowledgeBase.open(tmp_path / "kb"), report


def test_rows_are_sorted_by_id_and_first_concept(kb):
    assert list(kb.ids) == ["X:1", "X:2", "X:3", "X:4"]
    # "cold" of X:3 is the row of "Cold" of X:2, and both spellings of estradiol are one.
    assert list(kb.names) == [
        "Disease", "Illness", "Cold", "common cold", "Heart Attack", "β-Estradiol",
    ]  # fmt: skip
    assert kb.name_concepts.tolist() == [0, 0, 1, 2, 1, 2, 3]
    assert kb.name_is_preferred.tolist() == [True, False, True, False, False, True, True]
    assert kb.name_offsets.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert kb.concept_names.tolist() == [0, 1, 2, 3, 4, 2, 5]
    assert kb.concept_offsets.tolist() == [0, 2, 4, 6, 7]


def test_meta_has_source_release_and_licence(kb):
    meta = kb.meta
    assert (meta["schema"], meta["normalizer"]) == (5, 1)
    assert (meta["source"], meta["release"], meta["licence"]) == ("made up", "2026", "CC0")
    assert meta["counts"] == {
        "records": 5, "concepts": 4, "names": 6, "entries": 7, "ambiguous_names": 1,
        "merged_records": 0, "merged_names": 1, "empty_names": 0, "dropped_by_type": 0,
        "dropped_by_branch": 0, "dropped_nameless": 0, "inherited_types": 0,
        "unknown_parents": 1, "retired": 1,
        "retired_current": 0, "retired_missing": 0, "withdrawn": 0, "redirected": 0,
    }  # fmt: skip


def test_order_of_records_does_not_matter(tmp_path):
    records = [Concept(f"X:{i}", (f"name {i % 3}", f"other {i}")) for i in range(9)]
    forward = build_kb(records, tmp_path / "forward")
    backward = build_kb(reversed(records), tmp_path / "backward")
    assert forward.fingerprint == backward.fingerprint


def test_records_of_one_id_are_merged(tmp_path):
    kb, report = built(
        tmp_path,
        Concept("X:1", ("a",), ("T",), ("X:2",), xrefs=("A:1", " B:2\tof two\nlines ", "")),
        Concept("X:2", ("p",), ("T",), xrefs=("D:4",)),
        Concept("X:1", ("b", "A"), ("U", "T"), ("X:2",), "text", xrefs=("A:1", "C:3")),
    )
    assert names_of(kb, "X:1") == ["a", "b"]
    assert kb.types_of(0) == ("T", "U")
    assert kb.parents_of(0).tolist() == [1]
    assert kb.definition(0) == "text"
    assert kb.xrefs(0) == ("A:1", "B:2 of two lines", "C:3")
    assert (report.records, report.merged_records, report.merged_names) == (3, 1, 1)
    retire_ids(tmp_path / "kb", {"X:2": "X:1"})
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert kb.xrefs(0) == ("A:1", "B:2 of two lines", "C:3", "D:4")


@pytest.mark.parametrize(
    ("of_first", "of_second", "names"),
    [
        # A preferred spelling wins over a synonym.
        (("X:1", "a", "all"), ("X:2", "ALL", "A"), ["a", "ALL"]),
        (("X:1", "All"), ("X:2", "ALL"), ["All"]),
        # Of two, that of the oldest concept, by its number.
        (("G:109880", "Braf"), ("G:673", "BRAF"), ["BRAF"]),
    ],
)
def test_the_spelling_of_a_shared_name(tmp_path, of_first, of_second, names):
    kb, _ = built(tmp_path, *(Concept(id, tuple(own)) for id, *own in (of_first, of_second)))
    assert list(kb.names) == names
    assert kb.preferred_name(1) == names[-1]


def test_names_without_a_word_are_dropped(tmp_path):
    kb, report = built(tmp_path, Concept("X:1", ("+", "Plus\n sign")), Concept("X:2", ("-", "")))
    assert list(kb.ids) == ["X:1"]
    assert names_of(kb, "X:1") == ["Plus sign"]
    assert kb.name_is_preferred.tolist() == [True]
    assert (report.empty_names, report.dropped_nameless) == (3, 1)


def test_types_come_from_parents_wherever_they_are(tmp_path):
    kb, report = built(
        tmp_path,
        Concept("X:1", ("child",), (), ("X:3", "X:2", "X:7")),
        Concept("X:2", ("mother",), ("B",)),
        Concept("X:3", ("father",), ("C", "B")),
        Concept("X:4", ("grandchild",), (), ("X:1",)),
        Concept("X:5", ("of any type",), ("T", "A")),
        Concept("X:7", (), replaced_by="X:9"),
        Concept("X:9", ("stepmother",), ("A",)),
        types={"A"},
    )
    assert list(kb.ids) == ["X:1", "X:5", "X:9"]
    assert kb.types_of(0) == ("C", "B", "A")
    assert kb.type_names == ("A", "B", "C", "T")
    assert kb.parents_of(0).tolist() == [2]
    # X:4 would have inherited from X:1, which has no types of its own: one level only.
    assert (report.inherited_types, report.dropped_by_type, report.unknown_parents) == (1, 3, 2)


def test_retired_ids_follow_their_chain(tmp_path):
    kb, report = built(
        tmp_path,
        Concept("X:5", ("now",)),
        Concept("X:1", (), replaced_by="X:2"),
        Concept("X:2", (), replaced_by="X:5"),
        Concept("X:3", (), replaced_by="X:404"),
        Concept("X:5", (), replaced_by="X:1"),
    )
    assert [kb.canonical(id) for id in ("X:1", "X:2", "X:3", "X:5")] == ["X:5", "X:5", "X:3", "X:5"]
    assert kb.find_all(["X:1", "X:3", "X:5"]).tolist() == [0, -1, 0]
    assert list(kb.names) == ["now"]
    assert (report.retired, report.retired_missing, report.retired_current) == (2, 1, 1)


# X:1 -> X:2 -> X:3, X:1 -> X:4, X:5 alone; X:3 also below X:4. X:6 and X:7 are a circle.
TREE = (
    Concept("X:1", ("all",)),
    Concept("X:2", ("left",), parents=("X:1",)),
    Concept("X:3", ("leaf",), parents=("X:2", "X:4")),
    Concept("X:4", ("right",), parents=("X:1",)),
    Concept("X:5", ("alone",)),
    Concept("X:6", ("around",), parents=("X:7",)),
    Concept("X:7", ("and around",), parents=("X:6",)),
    Concept("X:9", (), replaced_by="X:2"),
)


@pytest.mark.parametrize(
    ("under", "exclude", "expected"),
    [
        (["X:2"], [], ["X:2", "X:3"]),
        (["X:9"], [], ["X:2", "X:3"]),
        (["X:2", "X:5"], [], ["X:2", "X:3", "X:5"]),
        ([], ["X:2"], ["X:1", "X:4", "X:5", "X:6", "X:7"]),
        (["X:1"], ["X:4"], ["X:1", "X:2"]),
        (["X:6"], [], ["X:6", "X:7"]),
    ],
)
def test_branches(tmp_path, under, exclude, expected):
    kb, report = built(tmp_path, *TREE, branches=Branches(under, exclude))
    assert list(kb.ids) == expected
    assert report.dropped_by_branch == 7 - len(expected)
    assert kb.canonical("X:9") == ("X:2" if "X:2" in expected else "X:9")


# Errors, which leave no folder.

SPELLINGS = ("HP:6001158", "HP:0001180", "HP:1180000", "HP:0000118", "MESH:D126400", "MESH:D012640")


@pytest.mark.parametrize(
    ("concepts", "options", "message"),
    [
        (TREE, {"branches": Branches(["X:22"])}, r"\[B310\] .* 'X:22', .* Did you mean: X:2"),
        (TREE, {"branches": Branches(["X:1"], ["X:1"])}, r"\[B028\] .* 7 are outside the branches"),
        ([Concept("X:1", ("a",), ("T",))], {"types": {"Gene"}},
         r"\[B028\] .* types: Gene; .* in the source: T\."),
        ([Concept("X:1", ("+",))], {}, r"\[B028\] .* 1 have no name"),
        ([], {}, r"\[B028\]"),
        ([Concept("X:1", (), replaced_by="X:2"), Concept("X:2", (), replaced_by="X:1"),
          Concept("X:3", ("a",))], {}, r"\[B027\].*X:1 -> X:2 -> X:1"),
        *(([Concept("X:1", ("a",)), Concept(id, ("b",))], {}, r"\[B026\] In record 2, the id is")
          for id in ("", "X 1", "X:1|X:2", "X:1\n", "NIL")),
        *(([Concept("X:1", (), replaced_by=id)], {}, r"\[B026\] In record 1, the replacement is")
          for id in (" ", "X 1", "X:1|X:2", "X:1\n", "NIL")),
        # An id in another spelling is suggested, rather than ids that have many of its characters.
        *(([Concept(id, (id,)) for id in SPELLINGS], {"branches": Branches([id])},
           rf"\[B310\] .*Did you mean: {suggested}\?")
          for id, suggested in (("HP:118", "HP:0000118"), ("hp_0000118", "HP:0000118"),
                                ("MESH:D12640", "MESH:D012640"))),
    ],
)  # fmt: skip
def test_records_that_cannot_be_built(tmp_path, concepts, options: dict[str, Any], message):
    with pytest.raises(BioelError, match=message):
        build_kb(concepts, tmp_path / "kb", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "writing", ["pathlib.Path.write_bytes", "spacy_bioel.kb.build.serialized_columns", "os.fsync"]
)
def test_a_disk_that_is_full_leaves_the_old_one(tmp_path, folder, monkeypatch, writing):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, full)
    with pytest.raises(BioelError, match=r"\[B203\].*No space left"):
        build_kb([Concept("Y:1", ("a",))], folder)
    with pytest.raises(BioelError, match=r"\[B203\]"):
        build_kb([Concept("Y:1", ("a",))], tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["kb"]
    KnowledgeBase.open(folder).verify()
