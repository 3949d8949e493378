"""Pairs of a name and an id get the verdict that a curator would give."""

from pathlib import Path

import pytest
from kb_files import made_kb
from tables import cases, concepts_of

import spacy_bioel
from spacy_bioel.io.ontology import read_obo
from spacy_bioel.kb.build import Branches, build_kb
from spacy_bioel.kb.edit import add_concepts, compact_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.curation.check import Checker
from spacy_bioel.plugins.curation.pairs import Cell, IdVerdict, Pair
from spacy_bioel.plugins.curation.sources import read_pairs
from spacy_bioel.types import Concept

HP = concepts_of(cases(__file__, "hp"))
MONDO = concepts_of(cases(__file__, "mondo"))


@pytest.fixture(scope="module")
def kbs(tmp_path_factory) -> list[KnowledgeBase]:
    folder = tmp_path_factory.mktemp("kbs")
    return [made_kb(folder / name, of) for name, of in (("hp", HP), ("mondo", MONDO))]


@pytest.fixture(scope="module")
def checker(kbs) -> Checker:
    return Checker(kbs)


def only(checker: Checker, text: str):
    [finding] = checker.check_text(text)
    return finding


def verdict(checker: Checker, text: str) -> IdVerdict:
    return only(checker, text).verdict


def checker_of(folder: Path, *concepts: Concept, **settings: Branches) -> Checker:
    build_kb(concepts, folder, **settings)
    return Checker([folder])


@pytest.mark.parametrize("text, expected, name", cases(__file__, "verdicts"))
def test_verdicts(checker, text, expected, name):
    finding = only(checker, text)
    assert finding.verdict.value == expected
    assert name in (None, finding.name)


@pytest.mark.parametrize("text, name", cases(__file__, "running_text"))
def test_names_in_running_text(checker, text, name):
    finding = only(checker, text)
    assert not finding.is_wrong
    assert finding.name == (name or "dilated cardiomyopathy")


@pytest.mark.parametrize("text, right", cases(__file__, "proposed"))
def test_another_concept_is_proposed(checker, text, right):
    finding = only(checker, text)
    assert finding.verdict is IdVerdict.OTHER
    assert (finding.proposals[0].id, finding.proposals[0].score) == (right, 1.0)


@pytest.mark.parametrize("text", cases(__file__, "no_ids"))
def test_numbers_that_are_no_ids(checker, text):
    assert checker.check_text(text) == []


def test_proposals_where_the_name_does_not_fit(checker):
    finding = only(checker, "Congenital TTP (MONDO:0010134)")
    assert finding.verdict is IdVerdict.OTHER
    assert finding.found.name == "Pendred syndrome"
    assert all(proposal.score < 1 for proposal in finding.proposals)
    # A retired id is certain only if the name fits.
    assert only(checker, "HP:0009999").is_certain
    assert only(checker, "Epileptic fit (HP:0009999)").is_certain
    finding = only(checker, "Ataxia (HP:0009999)")
    assert not finding.is_certain
    assert (finding.found.id, finding.proposals[0].id) == ("HP:0001250", "HP:0001251")


def test_an_id_of_another_vocabulary_is_found_by_its_cross_reference(checker):
    assert only(checker, "Marinesco-Sjogren syndrome (OMIM:248800)").verdict is IdVerdict.AGREES
    finding = only(checker, "SHORT syndrome (MIM:248800)")
    assert (finding.verdict, finding.found.id) == (IdVerdict.OTHER, "MONDO:0009567")
    assert only(checker, "SHORT syndrome (OMIM:269880)").verdict is IdVerdict.NOT_CHECKED


def test_the_form_of_ids(tmp_path):
    """Numbers have any length if one is short, else that of the vocabulary's other ids."""
    for start, ids in (("P:", range(26)), ("Q:", range(10, 30)), ("R:", range(100_000, 100_009))):
        concepts = (Concept(f"{start}{i}", (f"name {i}",)) for i in ids)
        checker = checker_of(tmp_path / start[0], *concepts)
        verdicts = [verdict(checker, start + end).value for end in ("900", "900000", "B12")]
        newer = "malformed" if start == "R:" else "not checked"
        assert verdicts == [newer, "not checked", "malformed"]
        assert verdict(checker, f"{start}{ids[0]}") is IdVerdict.EXISTS
        kind = "malformed" if start == "R:" else "unknown id"
        assert verdict(checker, f"{start}0012").value == kind


def test_a_cross_reference_in_a_knowledge_base_with_some_ids_of_that_vocabulary(tmp_path):
    mixed = [Concept(f"X:{i}", (f"disease {i}",), xrefs=(f"OMIM:{300000 + i}",)) for i in range(5)]
    own = [Concept("OMIM:600000", ("Gout",)), Concept("OMIM:600001", ("Mumps",))]
    checker = checker_of(tmp_path / "mixed", *mixed, *own)
    assert verdict(checker, "Disease 3 (OMIM:300003)") is IdVerdict.AGREES
    finding = only(checker, "Gout (OMIM:300003)")
    assert (finding.verdict, finding.found.id) == (IdVerdict.OTHER, "X:3")
    assert verdict(checker, "Gout (OMIM:300009)") is IdVerdict.UNKNOWN
    # The whole vocabulary knows better than the cross-references of others.
    whole = [Concept(f"OMIM:{i}", (f"entry {i}",)) for i in (*range(100_000, 100_009), 600_000)]
    checkers = checker_of(tmp_path / "omim", *whole), checker_of(tmp_path / "x", *mixed)
    both = Checker([kb for one in checkers for kb in one.kbs])
    assert verdict(both, "Disease 3 (OMIM:300003)") is IdVerdict.UNKNOWN


def test_imported_ids_do_not_make_a_vocabulary_complete(kbs):
    mondo = Checker(kbs[1:])
    assert only(mondo, "Seizure (HP:0001250)").verdict is IdVerdict.AGREES
    assert only(mondo, "Ataxia (HP:0001251)").verdict is IdVerdict.NOT_CHECKED


def test_the_first_of_two_knowledge_bases_with_a_prefix_decides(kbs, tmp_path, caplog):
    build_kb([Concept("HP:0001250", ("Fit",)), Concept("HP:1111111", ("New",))], tmp_path / "new")
    both = Checker([kbs[0], tmp_path / "new"])
    assert "W401" in caplog.text
    assert only(both, "Seizure (HP:0001250)").verdict is IdVerdict.AGREES
    assert only(both, "New (HP:1111111)").verdict is IdVerdict.AGREES


@pytest.mark.parametrize("text, verdicts", cases(__file__, "several_ids"))
def test_several_ids_in_a_text(checker, text, verdicts):
    """Each has its own name, or shares the name before their bracket."""
    findings = checker.check_text(text)
    assert [finding.verdict.value for finding in findings] == [*verdicts]
    assert findings[-1].line == len(text.splitlines())


@pytest.fixture(scope="module")
def go(tmp_path_factory) -> Checker:
    folder = tmp_path_factory.mktemp("go")
    (folder / "go.obo").write_text(cases(__file__, "obo_of_go"), "utf8")
    return checker_of(folder / "kb", *read_obo(folder / "go.obo"))


def test_an_id_that_was_replaced(go):
    finding = only(go, "GO:0006561")
    assert (finding.verdict, finding.found.id) == (IdVerdict.RETIRED, "GO:0055129")
    assert finding.is_certain
    # The name of an obsolete term does not contradict its replacement.
    assert only(go, "GO:0006561 ! obsolete L-proline biosynthetic process").is_certain


def test_an_id_with_terms_to_consider_needs_a_person(go):
    finding = only(go, "GO:1990854")
    assert (finding.verdict, finding.found, finding.is_certain) == (IdVerdict.RETIRED, None, False)
    assert [proposal.id for proposal in finding.proposals] == ["GO:0055129"]
    finding = only(go, "GO:0000005")
    assert (finding.verdict, finding.proposals) == (IdVerdict.RETIRED, ())
    assert only(go, "GO:0000007").verdict is IdVerdict.UNKNOWN


def test_an_id_with_two_replacements_needs_a_person(tmp_path):
    clefts = Concept("X:1", ("Cleft lip",)), Concept("X:2", ("Cleft palate",))
    checker = checker_of(tmp_path, *clefts, Concept("X:3", ("Cleft",), consider=("X:1", "X:2")))
    finding = only(checker, "Cleft (X:3)")
    assert (finding.verdict, finding.is_certain) == (IdVerdict.RETIRED, False)
    assert [proposal.id for proposal in finding.proposals] == ["X:1", "X:2"]


def test_an_id_of_a_branch_that_was_left_out_is_not_checked(tmp_path):
    ids = {1: "all", 2: "finding", 3: "onset", 7: "adult onset"}
    concepts = [Concept(f"X:{n}", (name,), parents=("X:1",)) for n, name in ids.items()]
    checker = checker_of(tmp_path, *concepts, branches=Branches(["X:2"]))
    finding = only(checker, "Adult onset (X:7)")
    assert (finding.verdict, finding.name) == (IdVerdict.NOT_CHECKED, "Adult onset")
    assert finding.reason.endswith("it was built with --under X:2") and not finding.proposals
    # A concept with the name has another id.
    assert verdict(checker, "Finding (X:7)") is IdVerdict.UNKNOWN
    assert only(checker, "Finding (X:2)").reason == ""


def test_an_id_that_is_newer_than_the_release_is_not_checked(tmp_path):
    ids = [f"{letter}{number:06}" for letter in "CD" for number in range(100, 110)]
    concepts = [Concept(f"X:{id}", (f"name {id}",)) for id in ids]
    checker = checker_of(tmp_path, *concepts, Concept("X:D000120", (), consider=()))
    newer = only(checker, "New disease (X:D000121)")
    assert newer.verdict is IdVerdict.NOT_CHECKED and "newer" in newer.reason
    assert verdict(checker, "New disease (X:D000119)") is IdVerdict.UNKNOWN
    assert verdict(checker, "X:C000110") is IdVerdict.NOT_CHECKED
    assert verdict(checker, "Name D000101 (X:D000121)") is IdVerdict.UNKNOWN


def test_withdrawn_ids_survive_a_change(go, tmp_path):
    go.kbs[0].save_to(tmp_path / "kb")
    add_concepts(tmp_path / "kb", [Concept("GO:0000005", ("back again",)), Concept("GO:1", ("a",))])
    assert set(KnowledgeBase.open(tmp_path / "kb").withdrawn) == {"GO:1990854"}
    compact_kb(tmp_path / "kb", forget_retired=True)
    assert not KnowledgeBase.open(tmp_path / "kb").withdrawn


def test_in_python(kbs):
    text = "| Finding | id |\n|---|---|\n| Ataxia | HP:0001250 |\n"
    [finding] = spacy_bioel.check(text, kbs)
    found = finding.verdict, finding.name, finding.found.name
    assert found == ("other concept", "Ataxia", "Seizure")
    assert spacy_bioel.check(text, str(kbs[0].path))[0].proposals[0].id == "HP:0001251"
    assert spacy_bioel.check("no id", kbs[0]) == []


@pytest.mark.parametrize("name, verdicts", cases(__file__, "one_name"))
def test_several_ids_in_a_cell_with_one_name(checker, tmp_path, name, verdicts):
    path = tmp_path / "a.csv"
    path.write_text(f"id,name\nHP:0001250|HP:0001251,{name}\n")
    findings = [*map(checker.check, read_pairs(path, checker.ids, values=checker.values))]
    assert [finding.verdict.value for finding in findings] == [*verdicts]
    assert any(finding.name for finding in findings)


def test_a_name_that_is_not_checked_begins_after_the_sentence(checker):
    _, finding = checker.check_text("Seizure (HP:0001250) and **microcephaly** (GO:0005515)")
    assert finding.name == "microcephaly"


def test_long_names_and_odd_ids(checker):
    [finding] = checker.check_text(f"{'x' * 10_000} (HP:0001250)")
    assert finding.verdict is IdVerdict.OTHER
    assert [f.verdict for f in checker.check_text("— (HP:0001250)")] == [IdVerdict.EXISTS]
    for id in ("HP:000 1250", "no id", "", "HP:", "x" * 10_000):
        assert checker.check(Pair(Cell(id))).verdict is IdVerdict.MALFORMED


@pytest.mark.parametrize("text, expected", cases(__file__, "bundled"))
def test_bundled_vocabularies_are_not_whole(text, expected):
    [finding] = spacy_bioel.check(text)
    assert finding.verdict == expected, finding
