"""`bioel patient`: what the notes of a patient say, as tables and Phenopackets."""

import csv
import json
import re
from datetime import date, datetime

import pytest
from google.protobuf.json_format import MessageToDict, Parse
from openpyxl import Workbook
from phenopackets import Family, Phenopacket
from tables import cases, concepts_of

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

CONCEPTS = concepts_of(cases(__file__, "phenotypes"))
NOTES = cases(__file__, "notes_of_ann")
RELATIVES = ("father", "mother", "sister")


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hpo") / "kb"
    build_kb(CONCEPTS, folder, source="hp.obo", release="hp/releases/2025-01-16")
    return folder


@pytest.fixture()
def patients(tmp_path):
    folder = tmp_path / "patients"
    write_notes(folder / "Ann", NOTES)
    return folder


def write_notes(folder, notes):
    folder.mkdir(parents=True)
    for name, text in notes.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf8")


def read_csv(path):
    with path.open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file))


def read_packet(path, kind=Phenopacket):
    return Parse(path.read_text("utf8"), kind())


def features(packet):
    """Ids of the phenotypic features of a message, with whether they are excluded."""
    return {(x.type.id, x.excluded) for x in packet.phenotypic_features}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_patient_of_five_notes_as_a_table(bioel, kb, patients, tmp_path, suffix):
    out = tmp_path / f"p{suffix}"
    assert "5 documents" in bioel("patient", kb, patients, "-o", out).err
    lines = out.read_text("utf8").splitlines()
    if suffix == ".jsonl":
        rows = [json.loads(line) for line in lines]
    else:
        rows = list(csv.DictReader(lines, delimiter="," if suffix == ".csv" else "\t"))
    assert {row["patient"] for row in rows} == {"Ann"}
    assert {(row["id"], row["person"], row["status"]) for row in rows} == {
        *cases(__file__, "rows_of_ann")
    }
    assert [row["person"] for row in rows[-2:]] == ["family", "father"]


def test_first_and_last_mention_evidence_and_contradictions(bioel, kb, patients):
    rows = bioel("patient", kb, patients).rows
    (row,) = [r for r in rows if r["id"] == "HP:0002650" and r["person"] == "patient"]
    assert row["name"] == "Scoliosis"
    assert (row["first_date"], row["first_note"]) == ("2023-11-02", "clinic 2023-11-02")
    assert (row["last_date"], row["last_note"]) == ("2024-03-05", "letter_20240305")
    assert [mention["date"] for mention in row["evidence"]] == ["2023-11-02", "2024-03-05"]
    for row in rows:
        for mention in row["evidence"]:
            assert NOTES[mention["note"]][mention["start"] : mention["end"]] == mention["text"]
    (undated,) = [row for row in rows if row["status"] == "possible"]
    assert (undated["first_date"], undated["first_note"]) == ("", "phone")
    found = {(r["id"], r["status"]): r["contradicts"] for r in rows if r["contradicts"]}
    assert found == {
        ("HP:0001251", "present"): ["HP:0001251"],
        ("HP:0001251", "absent"): ["HP:0001251"],
        ("HP:0007359", "present"): ["HP:0001250"],  # a focal seizure is a seizure
        ("HP:0001250", "absent"): ["HP:0007359"],
    }


@pytest.mark.parametrize(("notes", "expected"), cases(__file__, "rows_of_notes"))
def test_rows_of_notes(bioel, kb, tmp_path, notes, expected):
    """Dates, first and last mentions, evidence and contradictions."""
    write_notes(tmp_path / "Bob", notes)
    rows = bioel("patient", kb, tmp_path / "Bob").rows
    found = []
    for row, values in zip(rows, expected, strict=True):
        row["contradicts"] = (*row["contradicts"],)
        row["evidence"] = (*(mention["note"] for mention in row["evidence"]),)
        found.append({key: row[key] for key in values})
    assert found == [*expected]


def test_phenopacket(bioel, kb, patients, tmp_path):
    out = tmp_path / "p.phenopacket.json"
    shown = bioel("patient", kb, patients, "-o", out).err
    packet = read_packet(out)
    assert (packet.id, packet.subject.id) == ("Ann", "Ann")
    absent = {("HP:0001250", True), ("HP:0001251", True), ("HP:0002315", True)}
    present = {(f"HP:{id}", False) for id in ("0001251", "0001252", "0002650", "0007359")}
    assert features(packet) == absent | present
    assert len(packet.phenotypic_features) == 7  # present and historical ataxia are one
    labels = {x.type.id: x.type.label for x in packet.phenotypic_features}
    assert labels["HP:0007359"] == "Focal-onset seizure"
    assert [(x.term.id, x.term.label, x.excluded) for x in packet.diseases] == [
        ("MONDO:0005393", "Gout", False)
    ]
    ataxia = next(
        x for x in packet.phenotypic_features if (x.type.id, x.excluded) == ("HP:0001251", False)
    )
    assert [x.reference.id for x in ataxia.evidence] == ["letter_20240305", "2024_06_01"]
    assert ataxia.evidence[1].reference.description == "2024-06-01 characters 0-6: Ataxia"
    assert all(x.evidence_code.id.startswith("ECO:") for x in ataxia.evidence)
    assert ataxia.description == "Contradicted in the notes: HP:0001251"
    # What is left out is counted: possible headache, fever, onset and aspirin, father and family.
    assert "[W396]" in shown and "6 (" in shown
    assert "possible: 1" in shown and "conditional: 1" in shown
    assert not any(x.HasField("onset") for x in packet.phenotypic_features)
    # The metadata names every vocabulary that is used.
    meta = packet.meta_data
    assert meta.phenopacket_schema_version == "2.0"
    assert meta.created_by.startswith("spacy-bioel ")
    assert meta.created.ToJsonString() == "2024-06-01T00:00:00Z"
    resources = {x.namespace_prefix: x for x in meta.resources}
    used = {m.group(1) for m in re.finditer(r'"id": "([A-Z]\w+):\d+"', out.read_text("utf8"))}
    assert used == {"HP", "MONDO", "ECO"} == set(resources)
    for prefix, resource in resources.items():
        assert resource.id == prefix.lower()
        assert resource.version and resource.name
        assert resource.url == f"http://purl.obolibrary.org/obo/{prefix.lower()}.owl"
        assert resource.iri_prefix == f"http://purl.obolibrary.org/obo/{prefix}_"
    assert (resources["HP"].name, resources["HP"].version) == ("hp.obo", "2025-01-16")


@pytest.mark.parametrize(("notes", "expected"), cases(__file__, "implied_findings"))
def test_findings_that_others_imply(bioel, kb, tmp_path, notes, expected):
    """What is present implies what is broader; what is absent, what is narrower."""
    write_notes(tmp_path / "Ann", {"1": notes})
    done = bioel("patient", kb, tmp_path / "Ann", "-o", tmp_path / "p.phenopacket.json")
    packet = read_packet(tmp_path / "p.phenopacket.json")
    assert features(packet) == {*expected}
    n_rows = len(bioel("patient", kb, tmp_path / "Ann").rows)
    n_left = n_rows - len(expected)
    assert ("findings left out: 1" in done.err) == (n_left == 1)


def test_implied_findings_of_relatives(bioel, kb, tmp_path):
    write_notes(tmp_path / "Ann", {"1": "Her mother had seizures and focal seizures. Seizures."})
    bioel("patient", kb, tmp_path / "Ann", "-o", tmp_path / "p.family.json")
    family = read_packet((tmp_path / "p.family.json"), Family)
    assert features(family.proband) == {("HP:0001250", False)}
    assert features(family.relatives[0]) == {("HP:0007359", False)}


def test_the_same_notes_give_the_same_file(bioel, kb, patients, tmp_path):
    files = [tmp_path / "a.family.json", tmp_path / "b.family.json"]
    for file, options in zip(files, ([], ["--n-process", 2, "--batch-size", 1]), strict=True):
        bioel("patient", kb, patients, "-o", file, *options)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_created(bioel, kb, tmp_path):
    write_notes(tmp_path / "Bob", {"a": "Ataxia."})
    out = tmp_path / "p.phenopacket.json"

    def created(*options):
        bioel("patient", kb, tmp_path / "Bob", "-o", out, *options)
        return json.loads(out.read_text("utf8"))["metaData"]["created"][:10]

    days = [date.today().isoformat(), created(), date.today().isoformat()]
    assert days[0] <= days[1] <= days[2]
    assert created("--created", "2020-02-29") == "2020-02-29"


def test_family(bioel, kb, tmp_path):
    text = (
        "Ataxia. Father: scoliosis. Mother: ataxia, no seizures. Her sister has hypotonia.\n"
        "Family history of gout.\n"
    )
    write_notes(tmp_path / "Ann", {"2024-01-01": text})
    out, alone = tmp_path / "p.family.json", tmp_path / "p.phenopacket.json"
    shown = bioel("patient", kb, tmp_path / "Ann", "-o", out, "-o", alone).err
    family = read_packet(out, Family)
    assert family.proband == read_packet(alone)
    assert features(family.proband) == {("HP:0001251", False)}
    assert {packet.id: features(packet) for packet in family.relatives} == {
        "Ann-father": {("HP:0002650", False)},
        "Ann-mother": {("HP:0001251", False), ("HP:0001250", True)},
        "Ann-sister": {("HP:0001252", False)},
    }
    persons = {x["individualId"]: x for x in MessageToDict(family.pedigree)["persons"]}
    assert persons["Ann"]["maternalId"] == "Ann-mother"
    assert persons["Ann"]["paternalId"] == "Ann-father"
    assert persons["Ann-sister"]["maternalId"] == "0"
    sexes = [persons[id].get("sex") for id in ("Ann", *(f"Ann-{x}" for x in RELATIVES))]
    assert sexes == [None, "MALE", "FEMALE", "FEMALE"]
    assert {x["familyId"] for x in persons.values()} == {"Ann"}
    assert family.meta_data == family.proband.meta_data
    assert "in relatives or others: 1" in shown  # nobody in particular has gout
    assert "in relatives or others: 5" in shown


def test_a_table_of_several_patients(bioel, kb, tmp_path):
    rows = cases(__file__, "notes_in_a_table")
    table = tmp_path / "notes.csv"
    lines = ["id,who,when,text", *(",".join(row) for row in rows)]
    table.write_text("\n".join(lines), encoding="utf8")
    book = Workbook()
    book.active.append(["id", "who", "when", "text"])
    for id, who, when, text in rows:
        book.active.append([id, who, datetime.fromisoformat(when) if when else None, text])
    book.save(tmp_path / "notes.xlsx")
    keys = lines[0].split(",")
    records = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
    (tmp_path / "notes.jsonl").write_text("\n".join(records), encoding="utf8")
    columns = ["--patient-column", "who", "--date-column", "when"]
    found = [
        bioel("patient", kb, tmp_path / f"notes{suffix}", *columns).rows
        for suffix in (".csv", ".xlsx", ".jsonl")
    ]
    assert found[0] == found[1] == found[2]
    shown = ((x["patient"], x["status"], x["first_date"], bool(x["contradicts"])) for x in found[0])
    assert [*shown] == [*cases(__file__, "rows_of_the_table")]
    packets, families = tmp_path / "out" / "all.phenopackets", tmp_path / "all.families"
    bioel("patient", kb, table, *columns, "-o", packets, "-o", families)
    names = [path.name for path in sorted(packets.iterdir())]
    assert names == ["P 2.phenopacket.json", "P%2F1.phenopacket.json"]
    for path in packets.iterdir():
        read_packet(path)
    for path in families.iterdir():
        assert read_packet(path, Family).proband.subject.id in ("P/1", "P 2")
    without_dates = bioel("patient", kb, table, "--patient-column", "who").rows
    assert {row["first_date"] for row in without_dates} == {""}


def test_folders_of_several_patients(bioel, kb, patients, tmp_path):
    write_notes(patients / "Bob", {"1": "Ataxia.", "2": "Nothing to report."})
    write_notes(patients / "Cem", {"1": "Nothing to report."})
    every = bioel("patient", kb, patients).rows
    assert {row["patient"] for row in every} == {"Ann", "Bob"}
    assert bioel("patient", kb, patients / "Ann", patients / "Bob").rows == every
    out = tmp_path / "all.phenopackets"
    bioel("patient", kb, patients, "-o", out)
    assert len([*out.iterdir()]) == 3  # of Cem, nothing is found
    cem = read_packet(out / "Cem.phenopacket.json")
    assert cem.subject.id == "Cem" and not cem.phenotypic_features


def test_a_failed_note_is_reported(bioel, kb, patients, tmp_path):
    (patients / "Ann/latin1.txt").write_bytes("Ménière\n".encode("latin1"))
    out = tmp_path / "p.csv"
    shown = bioel("patient", kb, patients, "-o", out, status=1).err
    assert "Document latin1 failed: [B251]" in shown and "1 document failed" in shown
    assert len(read_csv(out)) == 15


def test_formulas_are_escaped_and_nothing_is_written_after_a_mistake(bioel, kb, patients, tmp_path):
    write_notes(patients / "=Bob", {"1": "Ataxia."})
    bioel("patient", kb, patients / "=Bob", "-o", tmp_path / "formula.csv")
    assert read_csv(tmp_path / "formula.csv")[0]["patient"] == "'=Bob"
    outs = [tmp_path / "p.csv", tmp_path / "p.phenopacket.json", tmp_path / "p.phenopackets"]
    options = [option for out in outs for option in ("-o", out)]
    assert "[B597]" in bioel("patient", kb, patients, *options, status=2).err
    assert not [out for out in outs if out.exists()]


def test_a_knowledge_base_without_phenotypes(bioel, tmp_path):
    build_kb([Concept("C0004134", ("Ataxia",))], tmp_path / "umls")
    write_notes(tmp_path / "Bob", {"1": "Ataxia."})
    out = tmp_path / "p.phenopacket.json"
    shown = bioel("patient", tmp_path / "umls", tmp_path / "Bob", "-o", out, status=2).err
    assert "[B599]" in shown and "C0004134" in shown
    (row,) = bioel("patient", tmp_path / "umls", tmp_path / "Bob").rows
    assert row["id"] == "C0004134"
    # Without the root of phenotypes in the knowledge base, all its HPO concepts are phenotypes.
    build_kb([Concept("HP:0001251", ("Ataxia",))], tmp_path / "part")
    bioel("patient", tmp_path / "part", tmp_path / "Bob", "-o", out)
    packet = read_packet(out)
    assert features(packet) == {("HP:0001251", False)}
    assert all(resource.version for resource in packet.meta_data.resources)
