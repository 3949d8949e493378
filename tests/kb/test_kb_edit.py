"""An edit gives what building at once gives, or changes nothing."""

from functools import partial

import pytest
from kb_files import (
    all_files,
    columns_of,
    edit_about,
    encode,
    flip,
    names_of,
    place_of,
    vectors_of,
)

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.edit import (
    Compaction,
    NameEdit,
    add_concepts,
    compact_kb,
    edit_names,
    retire_ids,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import has_vectors, is_encoded
from spacy_bioel.types import Concept


def test_nothing_added_changes_nothing(folder, kb):
    encode(folder)
    change = add_concepts(folder, [])
    assert (change.concepts, change.names, change.vectors_outdated) == (0, 0, False)
    assert change.report.fingerprint == kb.fingerprint
    assert has_vectors(KnowledgeBase.open(folder))


def test_adding_gives_the_same_as_building_at_once(tmp_path):
    old = [
        Concept("X:3", ("Heart Attack", "cold"), ("Disease",), ("X:1",), "An infarct."),
        Concept("X:1", ("Disease", "Illness"), ("Disease",)),
        Concept("X:4", ("β-Estradiol", "beta estradiol"), ("Chemical",)),
        Concept("X:8", (), replaced_by="X:3"),
    ]
    build_kb(old, tmp_path / "kb")
    new = [
        Concept("X:0", ("Zero", "cold"), ("Gene",), ("X:4",), "None."),
        Concept("X:5", ("Five",), ("Chemical",), ("X:0",)),
        Concept("X:12", (), replaced_by="X:5"),
    ]
    change = add_concepts(tmp_path / "kb", new)
    assert (change.concepts, change.names, change.retired) == (2, 2, 1)
    built = build_kb([*old, *new], tmp_path / "at_once")
    assert change.report.fingerprint == built.fingerprint


def test_known_concepts_stay_and_get_more_names(folder):
    change = add_concepts(
        folder,
        [
            Concept("X:3", ("MI", "heart  attack"), ("Finding",), ("X:2",), "Another text."),
            Concept("X:4", ("oestradiol",), definition="A hormone."),
        ],
    )
    kb = KnowledgeBase.open(folder)
    assert names_of(kb, "X:3") == ["Heart Attack", "Cold", "MI"]
    assert kb.types_of(kb.find("X:3")) == ("Disease", "Finding")
    assert kb.ids.take(kb.parents_of(kb.find("X:3"))) == ["X:1", "X:2"]
    assert kb.definition(kb.find("X:3")) == "An infarct."
    assert kb.definition(kb.find("X:4")) == "A hormone."
    assert kb.preferred_name(kb.find("X:4")) == "β-Estradiol"
    assert (change.concepts, change.names, change.report.merged_records) == (0, 2, 2)
    kb.verify()


def test_a_retired_id_adds_to_its_replacement(folder):
    new = [Concept("X:8", ("infarct",)), Concept("X:6", ("x",), (), ("X:8",))]
    change = add_concepts(folder, [*new, Concept("X:1", (), replaced_by="X:2")])
    kb = KnowledgeBase.open(folder)
    assert names_of(kb, "X:3") == ["Heart Attack", "Cold", "infarct"]
    assert (kb.canonical("X:8"), change.report.redirected) == ("X:3", 1)
    assert kb.parents_of(kb.find("X:6")).tolist() == [kb.find("X:3")]
    # A record does not retire a current id.
    assert kb.canonical("X:1") == "X:1"
    assert (change.retired, change.report.retired_current) == (0, 1)


def test_the_type_filter_and_inheritance_apply_to_new_concepts(tmp_path):
    base = [Concept("X:1", ("a",), ("T",)), Concept("X:2", ("b",), (), ("X:3",))]
    build_kb([*base, Concept("X:3", ("c",))], tmp_path / "kb")
    new = [
        Concept("X:4", ("d",), ("U",)),
        Concept("X:5", ("e",), ("V",)),
        Concept("X:3", (), ("U",)),
    ]
    change = add_concepts(
        tmp_path / "kb", [*new, Concept("X:6", ("f",), (), ("X:3",))], types={"U"}
    )
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert list(kb.ids) == ["X:1", "X:2", "X:3", "X:4", "X:6"]
    # When X:2 was added, its parent had no type yet; X:6 was added later.
    assert [kb.types_of(row) for row in (1, 2, 4)] == [(), ("U",), ("U",)]
    assert change.report.dropped_by_type == 1


def test_sources_of_names_and_of_the_whole(folder):
    mine = [Concept("X:3", ("infarct", "COLD"))]
    for source in ("more", "made up", "more"):  # a second time adds nothing
        add_concepts(folder, mine, source=source, licence="CC BY")
    kb = KnowledgeBase.open(folder)
    assert (kb.meta["source"], kb.meta["release"]) == ("made up, more", "2026")
    assert kb.meta["licence"] == "CC0, CC BY"
    assert names_of(kb, "X:3") == ["Heart Attack", "Cold", "infarct"]
    assert kb.sources_of(kb.find("X:3")) == ("made up", "made up", "more")
    assert kb.sources == ("made up", "more")
    kb.verify()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: add_concepts(folder, []),
        lambda folder: retire_ids(folder, {"X:1": ""}),
        partial(compact_kb, forget_retired=True),
    ],
)
def test_damage_is_not_rewritten_with_new_checksums(folder, change):
    path = columns_of(folder)
    flip(path, place_of(path, "names").start)
    before = all_files(folder)
    with pytest.raises(BioelError, match=r"\[B024\] names in kb\.0001\.safetensors"):
        change(folder)
    assert all_files(folder) == before


def test_a_replaced_concept_leaves_names_and_children(folder):
    add_concepts(folder, [Concept("X:5", ("Five", "lupus"), (), ("X:3",))])
    change = retire_ids(folder, {"X:3": "X:1"})
    kb = KnowledgeBase.open(folder)
    assert list(kb.ids) == ["X:1", "X:2", "X:4", "X:5"]
    assert names_of(kb, "X:1") == ["Disease", "Illness", "Heart Attack", "Cold"]
    assert kb.parents_of(kb.find("X:5")).tolist() == [kb.find("X:1")]
    # X:8 was retired in favour of X:3.
    assert [kb.canonical(id) for id in ("X:3", "X:8")] == ["X:1", "X:1"]
    assert (change.concepts, change.names, change.retired) == (-1, 0, 1)
    kb.verify()


def test_a_concept_without_replacement_is_gone(folder):
    change = retire_ids(folder, {"X:3": ""})
    kb = KnowledgeBase.open(folder)
    assert kb.find_all(["X:2", "X:3", "X:8"]).tolist() == [1, -1, -1]
    # "cold" is a name of X:2 as well.
    assert list(kb.names) == ["Disease", "Illness", "Cold", "common cold", "β-Estradiol"]
    assert (change.concepts, change.names, change.retired) == (-1, -1, -1)


def test_chains_are_followed_whatever_their_order(folder):
    retire_ids(folder, {"X:2": "X:3", "X:3": "X:4"})
    kb = KnowledgeBase.open(folder)
    assert [kb.canonical(id) for id in ("X:2", "X:3", "X:8")] == ["X:4", "X:4", "X:4"]
    assert names_of(kb, "X:4") == ["β-Estradiol", "Cold", "common cold", "Heart Attack"]
    retire_ids(folder, {"X:1": "X:2"})
    assert KnowledgeBase.open(folder).canonical("X:1") == "X:4"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"X:7": "X:1"}, r"\[B200\].*no concept 'X:7' \(its first id is X:1"),
        ({"X:1": "X:7"}, r"\[B200\].*no concept 'X:7'"),
        ({"X:1": "X:2", "X:2": ""}, r"\[B200\].*no concept 'X:2'"),
        ({"X:8": "X:1"}, r"\[B201\] 'X:8' is already retired.*replaced by X:3"),
        ({"X:1": "X:1"}, r"\[B027\]"),
        ({"X:1": "X:2", "X:2": "X:1"}, r"\[B027\]"),
        (dict.fromkeys(("X:1", "X:2", "X:3", "X:4"), ""), r"\[B028\]"),
    ],
)
def test_ids_that_cannot_be_retired(folder, kb, pairs, message):
    with pytest.raises(BioelError, match=message):
        retire_ids(folder, pairs)
    assert KnowledgeBase.open(folder).fingerprint == kb.fingerprint
    assert [path.name for path in folder.parent.iterdir()] == ["kb"]


def test_forgotten_ids_are_unknown(folder):
    change = compact_kb(folder, forget_retired=True).edit
    assert (change.concepts, change.names, change.retired) == (0, 0, -1)
    assert KnowledgeBase.open(folder).find("X:8") == -1


def test_vectors_that_are_old_or_unreadable_are_leftovers(folder):
    encode(folder)
    encode(folder, "g")
    assert compact_kb(folder) == Compaction(0, 0, None)
    retire_ids(folder, {"X:1": "X:2"})
    encode(folder, "g")
    n_bytes = vectors_of(folder, "f").stat().st_size
    assert compact_kb(folder) == Compaction(1, n_bytes, None)
    assert not has_vectors(KnowledgeBase.open(folder), "f")
    assert is_encoded(KnowledgeBase.open(folder), fingerprint="g")
    edit_about(vectors_of(folder), lambda about: about.clear())
    assert compact_kb(folder).leftovers == 1
    assert not has_vectors(KnowledgeBase.open(folder))
    assert all_files(folder) == [columns_of(folder).name]


@pytest.fixture
def gout(tmp_path):
    names = {"X:1": ("Gout", "podagra"), "X:2": ("Rash",), "X:3": ("A",)}
    concepts = [Concept(id, own) for id, own in names.items()]
    build_kb([*concepts, Concept("X:9", (), replaced_by="X:1")], tmp_path / "gout", source="mine")
    return tmp_path / "gout"


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (NameEdit(add=["gouty arthritis"]), ["Gout", "podagra", "gouty arthritis"]),
        (NameEdit(remove=["gout"]), ["podagra"]),
        (NameEdit(rename="Gouty arthritis"), ["Gouty arthritis", "Gout", "podagra"]),
        (NameEdit(rename="Podagra"), ["Podagra", "Gout"]),
        (NameEdit(rename="New", remove=["gout", "podagra"]), ["New"]),
        (NameEdit(add=["rash"]), ["Gout", "podagra", "Rash"]),  # the spelling of its first concept
    ],
)
def test_names_are_edited(gout, edit, names):
    change = edit_names(gout, {"X:1": edit})
    kb = KnowledgeBase.open(gout)
    assert names_of(kb, "X:1") == names
    assert (change.concepts, change.report.records) == (0, 1)
    assert change.names == kb.n_names - 4
    assert (kb.canonical("X:9"), names_of(kb, "X:2")) == ("X:1", ["Rash"])
    assert kb.meta["source"] == "mine"
    assert kb.preferred_name(kb.find("X:1")) == names[0]


@pytest.mark.parametrize(
    ("id", "edit", "message"),
    [
        ("X:4", NameEdit(add=["a"]), r"\[B200\] .*'X:4'"),
        ("X:9", NameEdit(add=["a"]), r"\[B406\] 'X:9' is retired .* X:1 has its names"),
        ("X:1", NameEdit(remove=["none"]), r"\[B403\] .*'none'; its names are: 'Gout'"),
        ("X:2", NameEdit(remove=["RASH"]), r"\[B404\] 'RASH' is the only name of 'X:2'"),
        ("X:1", NameEdit(add=["PODAGRA"]), r"\[B442\] 'X:1' .* already has the name 'podagra'"),
        ("X:1", NameEdit(add=["?"]), r"\[B405\] '\?' has no letter or digit"),
    ],
)
def test_edits_that_are_refused_change_nothing(gout, id, edit, message):
    before = all_files(gout)
    with pytest.raises(BioelError, match=message):
        edit_names(gout, {"X:3": NameEdit(add=["b"]), id: edit})
    assert all_files(gout) == before
