"""OMOP vocabularies, as downloaded from Athena."""

import gzip
import re

import pytest
from athena import CONCEPT, FILES, RELATIONSHIP, SYNONYM, write_athena

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import detect_ontology_format, read_ontology
from spacy_bioel.io.omop import read_athena
from spacy_bioel.io.open import skipping_bad
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept


def test_concepts_of_all_vocabularies(tmp_path):
    concepts = {c.id: c for c in read_ontology(write_athena(tmp_path / "athena"))}
    names = ("Myocardial infarction", "Heart attack", '"MI"')
    infarction = "SNOMED:22298006"
    assert concepts[infarction] == Concept(
        infarction, names, types=("Condition", "Standard"), xrefs=("OMOP:4329847",)
    )
    assert concepts["SNOMED:57054005"].parents == (infarction,)
    beak = concepts["SNOMED:235610009"]
    assert (beak.names, beak.parents) == (('"Bird\'s beak" esophagus',), ())  # no longer its child
    aspirin = concepts["RxNorm:1191"]
    assert aspirin.names == ("aspirin", "acetylsalicylic acid", "ASA")
    assert (aspirin.types, aspirin.parents) == (("Drug", "Standard"), ("ATC:B01AC",))
    baby = concepts["RxNorm_Extension:OMOP1"]  # ids in a knowledge base have no white space
    assert baby.names == ("aspirin 81 MG [Médicament]", "baby aspirin")
    assert concepts["ATC:B01AC"].types == ("Drug",)


def test_the_standard_concept_is_a_cross_reference(tmp_path):
    concepts = {c.id: c for c in read_athena(write_athena(tmp_path), vocabularies=["ICD10CM"])}
    assert list(concepts) == ["ICD10CM:I21.9", "ICD10CM:I21.3", "ICD10CM:Z99.8"]
    assert concepts["ICD10CM:I21.9"].xrefs == ("OMOP:45571656", "SNOMED:22298006", "OMOP:4329847")
    assert concepts["ICD10CM:I21.3"].xrefs == (
        *("OMOP:45533436", "SNOMED:57054005", "OMOP:312327"),
        *("SNOMED:235610009", "OMOP:4275423"),
    )
    assert concepts["ICD10CM:Z99.8"].xrefs == ("OMOP:45500000",)  # to a concept that is missing
    assert concepts["ICD10CM:Z99.8"].types == ("Observation",)


def test_retired_concepts(tmp_path):
    folder = write_athena(tmp_path / "athena")
    report = build_kb(read_athena(folder, vocabularies=["SNOMED"]), tmp_path / "kb")
    assert (report.concepts, report.retired, report.withdrawn) == (3, 1, 3)
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert kb["SNOMED:194797004"].id == "SNOMED:22298006"
    assert kb.withdrawn == {
        "SNOMED:194798009": ["SNOMED:57054005"],
        "SNOMED:194799001": ["RxNorm:1191"],  # replaced by a concept that was left out
        "SNOMED:194800002": [],
    }
    report = build_kb(read_athena(folder, vocabularies=["SNOMED", "RxNorm"]), tmp_path / "kb")
    assert (report.retired, report.withdrawn) == (2, 2)


def test_two_replacements_are_for_a_person(tmp_path):
    more = f"{RELATIONSHIP}4100001\t312327\tConcept replaced by\t20040731\t20991231\t\n"
    folder = write_athena(tmp_path, CONCEPT_RELATIONSHIP=more)
    (retired,) = (c for c in read_athena(folder) if c.id == "SNOMED:194797004")
    assert (retired.replaced_by, retired.consider) == ("", ("SNOMED:22298006", "SNOMED:57054005"))


def test_order_and_layout_do_not_matter(tmp_path):
    def shuffled(text: str) -> str:
        """Lines in reverse, the last column first, its name in capitals, as databases export."""
        header, *rows = (line.split("\t") for line in text.splitlines())
        rows = [[name.upper() for name in header], *reversed(rows)]
        return "\ufeff" + "".join("\t".join([*row[-1:], *row[:-1]]) + "\r\n" for row in rows)

    expected = {c.id: c for c in read_athena(write_athena(tmp_path / "a"))}
    files = {name: shuffled(text) for name, text in FILES.items()}
    found = {c.id: c for c in read_athena(write_athena(tmp_path / "b", **files))}
    assert found.keys() == expected.keys()
    for id, concept in found.items():
        assert sorted(concept.names) == sorted(expected[id].names)
        assert sorted(concept.xrefs) == sorted(expected[id].xrefs)


def test_packed_files(tmp_path):
    folder = write_athena(tmp_path, CONCEPT=None)
    (folder / "CONCEPT.csv.gz").write_bytes(gzip.compress(CONCEPT.encode()))
    assert detect_ontology_format(folder) == "omop"
    assert len(list(read_ontology(folder))) == CONCEPT.count("\n") - 1


ROW = "4\tX\tDrug\tATC\tATC 4th\tC\tB01\t19700101\t20991231"
FAULTS = [
    ({"CONCEPT": None}, r"B123.*CONCEPT\.csv.*Athena"),
    ({"CONCEPT": None, "CONCEPT_RELATIONSHIP": None}, r"B123.*CONCEPT\.csv.*Athena"),
    ({"CONCEPT": None, "CONCEPT_SYNONYM": None}, r"B123.*CONCEPT\.csv.*Athena"),
    (dict.fromkeys(FILES), r"B407.*MRCONSO\.RRF.*CONCEPT\.csv"),
    ({"CONCEPT_SYNONYM": None}, r"B123.*CONCEPT_SYNONYM\.csv.*Athena"),
    ({"CONCEPT_RELATIONSHIP": None}, r"B123.*CONCEPT_RELATIONSHIP\.csv"),
    ({"CONCEPT": CONCEPT.replace("vocabulary_id", "vocab")}, r"B128.*CONCEPT.csv.*vocabulary_id"),
    ({"CONCEPT_SYNONYM": SYNONYM.replace("\t", ",")}, r"B128.*CONCEPT_SYNONYM.csv.*concept_id"),
    ({"CONCEPT": f"{CONCEPT}{ROW}\n"}, r"B510.*CONCEPT.csv, line 15: .*9, expected 10"),
    ({"CONCEPT": f"{CONCEPT}{ROW}\t\tx\n"}, r"B510.*CONCEPT.csv, line 15: .*11, expected 10"),
    ({"CONCEPT": f"{CONCEPT}x{ROW}\t\n"}, r"B132.*CONCEPT.csv, line 15: .*concept_id.*'x4'"),
    ({"CONCEPT_SYNONYM": f"{SYNONYM}4.0\tX\t0\n"}, r"B132.*SYNONYM.csv, line 9: .*'4.0'"),
    ({"CONCEPT_SYNONYM": f"{SYNONYM}{'9' * 30}\tX\t0\n"}, r"B132.*SYNONYM.csv, line 9"),
    ({"CONCEPT_RELATIONSHIP": f"{RELATIONSHIP}1\t\tIs a\t1\t2\t\n"}, r"B132.*line 17: .*_id_2"),
    ({"CONCEPT_SYNONYM": ""}, r"B102.*CONCEPT_SYNONYM.csv"),
]


RELATIONS = {
    "Maps to": ["Maps", "maps to", "Map to", "Maps_to"],
    "Is a": ["Is A", "Isa", "is-a"],
    "Concept replaced by": ["Concept replaced", "Concept_replaced_by"],
}
FAULTS += [
    (
        {"CONCEPT_RELATIONSHIP": wrong.join(RELATIONSHIP.rsplit(right, most))},
        rf"B132\] .*relationship_id '{wrong}'.*'{right}'",
    )
    for right, misspelt in RELATIONS.items()
    for wrong in misspelt
    for most in (1, -1)
]


@pytest.mark.parametrize("changed, message", FAULTS)
def test_faults(tmp_path, changed, message):
    with pytest.raises(BioelError, match=message):
        list(read_ontology(write_athena(tmp_path, **changed)))


def test_other_relations_are_not_read(tmp_path, caplog):
    others = (
        "Subsumes", "Mapped from", "Maps to value", "Maps to unit", "Concept replaces", "Has a",
        "Concept same_as to", "Concept same_as from", "Concept was_a to", "Concept poss_eq to",
        "Concept alt_to to", "Value mapped from", "Is FDA-appr ind of", "Is current in",
    )  # fmt: skip
    row = "4329847\t312327\t{}\t20020131\t20991231\t\n"
    rows = RELATIONSHIP + "".join(map(row.format, others))
    folder = write_athena(tmp_path / "athena", CONCEPT_RELATIONSHIP=rows)
    plain = write_athena(tmp_path / "plain")
    assert list(read_ontology(folder)) == list(read_ontology(plain)) and not caplog.messages


def test_an_unknown_vocabulary(tmp_path):
    with pytest.raises(BioelError, match="B606.*CPT4.*ATC, ICD10CM, RxNorm, RxNorm Extension, SNO"):
        list(read_athena(write_athena(tmp_path), vocabularies=["SNOMED", "CPT4"]))


def test_bad_rows_are_skipped(tmp_path):
    bad = re.sub("^312327", "x", CONCEPT, flags=re.M), f"{SYNONYM}1\n", f"{RELATIONSHIP}?\t1\n"
    folder = write_athena(tmp_path, **dict(zip(FILES, bad, strict=True)))
    places = []
    with skipping_bad(lambda record: places.append((record.path[len(str(tmp_path)) + 1 :],
                                                    record.line))):  # fmt: skip
        concepts = {c.id: c for c in read_athena(folder)}
    assert places == [("CONCEPT.csv", 3), ("CONCEPT_RELATIONSHIP.csv", 17),
                      ("CONCEPT_SYNONYM.csv", 9)]  # fmt: skip
    assert "SNOMED:57054005" not in concepts
    assert concepts["ICD10CM:I21.9"].xrefs[1:] == ("SNOMED:22298006", "OMOP:4329847")
    assert concepts["ATC:B01AC"].names == ("PLATELET INHIBITORS",)
