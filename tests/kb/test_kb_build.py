from pathlib import Path

import pytest
from kb_files import made_kb

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import BuildReport, build_kb
from spacy_bioel.kb.edit import retire_ids
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept


def built(tmp_path: Path, *concepts: Concept, **options) -> tuple[KnowledgeBase, BuildReport]:
    report = build_kb(concepts, tmp_path / "kb", **options)
    return KnowledgeBase.open(tmp_path / "kb"), report


def names_of(kb: KnowledgeBase, concept: int) -> list[str]:
    return [kb.name(row) for row in kb.names_of(concept)]


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


def test_order_of_records_does_not_matter(tmp_path):
    records = [Concept(f"X:{i}", (f"name {i % 3}", f"other {i}")) for i in range(9)]
    forward = build_kb(records, tmp_path / "forward")
    backward = build_kb(reversed(records), tmp_path / "backward")
    assert forward.fingerprint == backward.fingerprint


def test_records_of_one_id_are_merged(tmp_path):
    kb, report = built(
        tmp_path,
        Concept("X:1", ("a",), ("T",), ("X:2",)),
        Concept("X:2", ("p",), ("T",)),
        Concept("X:1", ("b", "A"), ("U", "T"), ("X:2",), "text"),
    )
    assert names_of(kb, 0) == ["a", "b"]
    assert kb.types_of(0) == ("T", "U")
    assert kb.parents_of(0).tolist() == [1]
    assert kb.definition(0) == "text"
    assert (report.records, report.merged_records, report.merged_names) == (3, 1, 1)


def test_a_preferred_spelling_wins_over_a_synonym(tmp_path):
    kb, _ = built(tmp_path, Concept("X:1", ("a", "all")), Concept("X:2", ("ALL", "A")))
    assert list(kb.names) == ["a", "ALL"]
    assert kb.preferred_name(1) == "ALL"
    kb, _ = built(tmp_path, Concept("X:1", ("All",)), Concept("X:2", ("ALL",)))
    assert list(kb.names) == ["All"]


def test_a_shared_name_is_spelled_as_the_oldest_concept_has_it(tmp_path):
    concepts = [Concept("G:109880", ("Braf",)), Concept("G:673", ("BRAF",))]
    assert list(made_kb(tmp_path / "kb", concepts).names) == ["BRAF"]


def test_names_without_a_word_are_dropped(tmp_path):
    kb, report = built(tmp_path, Concept("X:1", ("+", "Plus\n sign")), Concept("X:2", ("-", "")))
    assert list(kb.ids) == ["X:1"]
    assert names_of(kb, 0) == ["Plus sign"]
    assert kb.name_is_preferred.tolist() == [True]
    assert (report.empty_names, report.dropped_nameless) == (3, 1)


def test_types_come_from_parents_wherever_they_are(tmp_path):
    kb, report = built(
        tmp_path,
        Concept("X:1", ("child",), (), ("X:3", "X:2", "X:7")),
        Concept("X:2", ("mother",), ("B",)),
        Concept("X:3", ("father",), ("C", "B")),
        Concept("X:4", ("grandchild",), (), ("X:1",)),
        Concept("X:7", (), replaced_by="X:9"),
        Concept("X:9", ("stepmother",), ("A",)),
        types={"A"},
    )
    assert list(kb.ids) == ["X:1", "X:9"]
    assert kb.types_of(0) == ("C", "B", "A")
    assert kb.parents_of(0).tolist() == [1]
    # X:4 would have inherited from X:1, which has no types of its own: one level only.
    assert (report.inherited_types, report.dropped_by_type, report.unknown_parents) == (1, 3, 2)


def test_type_filter_keeps_any_match(tmp_path):
    concepts = [
        Concept("X:1", ("a",), ("T", "U")),
        Concept("X:2", ("b",), ("V",)),
        Concept("X:3", ("c",)),
    ]
    kb, report = built(tmp_path, *concepts, types={"U"})
    assert list(kb.ids) == ["X:1"]
    assert kb.type_names == ("T", "U")
    assert report.dropped_by_type == 2


def test_retired_ids_follow_their_chain(tmp_path):
    kb, report = built(
        tmp_path,
        Concept("X:5", ("now",)),
        Concept("X:1", ("old",), replaced_by="X:2"),
        Concept("X:2", (), replaced_by="X:5"),
        Concept("X:3", (), replaced_by="X:404"),
        Concept("X:5", (), replaced_by="X:1"),
    )
    assert [kb.canonical(id) for id in ("X:1", "X:2", "X:3", "X:5")] == ["X:5", "X:5", "X:3", "X:5"]
    assert kb.find_all(["X:1", "X:3", "X:5"]).tolist() == [0, -1, 0]
    assert list(kb.names) == ["now"]
    assert (report.retired, report.retired_missing, report.retired_current) == (2, 1, 1)


def test_retired_ids_in_a_circle(tmp_path):
    with pytest.raises(BioelError, match=r"\[B027\].*X:1 -> X:2 -> X:1"):
        build_kb(
            [
                Concept("X:1", (), replaced_by="X:2"),
                Concept("X:2", (), replaced_by="X:1"),
                Concept("X:3", ("a",)),
            ],
            tmp_path / "kb",
        )


@pytest.mark.parametrize("id", ["", "X 1", "X:1|X:2", "X:1\n", "NIL"])
def test_bad_ids(tmp_path, id):
    with pytest.raises(BioelError, match=r"\[B026\] In record 2, the id is"):
        build_kb([Concept("X:1", ("a",)), Concept(id, ("b",))], tmp_path / "kb")
    with pytest.raises(BioelError, match=r"\[B026\] In record 1, the replacement is"):
        build_kb([Concept("X:1", (), replaced_by=id or " ")], tmp_path / "kb")


def test_nothing_left(tmp_path):
    with pytest.raises(BioelError, match=r"\[B028\] .* types: Gene; .* in the source: T\."):
        build_kb([Concept("X:1", ("a",), ("T",))], tmp_path / "kb", types={"Gene"})
    with pytest.raises(BioelError, match=r"\[B028\] .* 1 have no name"):
        build_kb([Concept("X:1", ("+",))], tmp_path / "kb")
    with pytest.raises(BioelError, match=r"\[B028\]"):
        build_kb([], tmp_path / "kb")
    assert list(tmp_path.iterdir()) == []


def test_meta_has_source_release_and_licence(folder):
    meta = KnowledgeBase.open(folder).meta
    assert (meta["schema"], meta["normalizer"]) == (5, 1)
    assert (meta["source"], meta["release"], meta["licence"]) == ("made up", "2026", "CC0")
    assert meta["counts"] == {
        "records": 5, "concepts": 4, "names": 6, "entries": 7, "ambiguous_names": 1,
        "merged_records": 0, "merged_names": 1, "empty_names": 0, "dropped_by_type": 0,
        "dropped_by_branch": 0, "dropped_nameless": 0, "inherited_types": 0,
        "unknown_parents": 1, "retired": 1,
        "retired_current": 0, "retired_missing": 0, "withdrawn": 0, "redirected": 0,
    }  # fmt: skip


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


def test_other_folders_are_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for out in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(BioelError, match=r"\[B029\]"):
            build_kb([Concept("Y:1", ("a",))], out)
    (tmp_path / "empty").mkdir()
    assert build_kb([Concept("Y:1", ("a",))], tmp_path / "empty").concepts == 1


def test_cross_references_are_merged_tidied_and_inherited(tmp_path):
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
