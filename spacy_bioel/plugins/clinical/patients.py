"""Gather patients' findings from linked notes, and write tables, timelines and Phenopackets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from spacy_bioel.errors import BioelError
from spacy_bioel.export.formats import PathFormat, TextFormat, Write, file_name, new_folder
from spacy_bioel.export.pages import PAGES, address_of
from spacy_bioel.export.rows import JsonRow, LinkedText
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.clinical.errors import ClinicalErrors
from spacy_bioel.plugins.clinical.status import Context
from spacy_bioel.text.normalize import escape_formula, table_line
from spacy_bioel.types import KbRelease

_PACKET, _FAMILY = ".phenopacket.json", ".family.json"
_FOLDERS = {".phenopackets": _PACKET, ".families": _FAMILY}  # one file per patient
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
PATIENT_SUFFIXES = (*_DELIMITERS, ".jsonl", ".ndjson", ".html", _PACKET, _FAMILY, *_FOLDERS)
_COLUMNS = (
    *("patient", "id", "name", "person", "status", "contradicts"),
    *("first_date", "first_note", "last_date", "last_note", "evidence"),
)
# The Phenopacket field for each prefix. HPO's onset, inheritance and other branches are excluded.
_PACKET_FIELDS = {"HP": "phenotypicFeatures"}
_PACKET_FIELDS |= dict.fromkeys(("MONDO", "OMIM", "ORPHA", "Orphanet", "DOID"), "diseases")
_PHENOTYPE = "HP:0000118"
_BETWEEN_TICKS = 18  # minimum distance between labels, as a percentage of the timeline
_SECTIONS: Any = PAGES.get_template("patient.html").module
_CODE = {"id": "ECO:0000501", "label": "evidence used in automatic assertion"}
_ECO = KbRelease("Evidence & Conclusion Ontology", "", "2019-10-16", "", "", 0)
_SEXES = dict.fromkeys(("mother", "sister", "aunt", "daughter", "niece", "grandmother"), "FEMALE")
_SEXES |= dict.fromkeys(("father", "brother", "uncle", "son", "nephew", "grandfather"), "MALE")


class Note(NamedTuple):
    """A patient's note, with its ISO date ("" if unknown)."""

    text: str | None
    id: str
    patient: str
    date: str


@dataclass(slots=True)
class Patient:
    """A patient, with note ids and dates, and mentions by person, concept id and status."""

    name: str
    notes: dict[tuple[str, str], None] = field(default_factory=dict)
    mentions: dict[tuple[str, str, str], list[JsonRow]] = field(default_factory=dict)

    def add(self, note: Note, linked: LinkedText) -> None:
        self.notes[note.id, note.date] = None
        for link in linked.links:
            context, text = Context.of(link) or Context(), str(linked.text)[link.start : link.end]
            place = {"note": note.id, "date": note.date, "start": link.start, "end": link.end}
            for id in link.ids:
                key = (context.relative or context.experiencer, id, context.assertion)
                self.mentions.setdefault(key, []).append({**place, "text": text})

    def timeline(self) -> tuple[dict[tuple[str, str], float], list[tuple[float, str]]]:
        """Return the notes' positions on a timeline: by date, or in order if no date is known.

        RETURNS (tuple): The position of each note, from 0 to 100, except undated notes among dated
            notes; and the positions that have room for a label, with the labels.
        """
        dated = {note: date.fromisoformat(note[1]).toordinal() for note in self.notes if note[1]}
        days = dated or {note: number for number, note in enumerate(self.notes)}
        first, last = min(days.values()), max(days.values())
        places = {note: 100 * (day - first) / (last - first or 1) for note, day in days.items()}
        ticks: list[tuple[float, str]] = []
        for (note, day), place in sorted(places.items(), key=lambda item: item[1]):
            if not ticks or place - ticks[-1][0] >= _BETWEEN_TICKS:
                ticks.append((place, day or note))
        return places, ticks

    def rows(self, kb: KnowledgeBase) -> list[JsonRow]:
        """Return a row for each person, concept and status, with the patient's own rows first.

        "contradicts" lists ids with the opposite status in the same person: the same id or, as "no
        seizures" contradicts "focal seizures", a broader or narrower one. The first and last
        mention are chosen by date among the dated notes or, if there are none, by order.
        """
        rows = {}
        for (person, id, status), evidence in sorted(self.mentions.items()):
            evidence.sort(key=lambda mention: (not mention["date"], mention["date"]))
            dated = [mention for mention in evidence if mention["date"]] or evidence
            name = kb.preferred_name(n) if (n := kb.find(id)) >= 0 else ""
            ends = (mention[key] for mention in (dated[0], dated[-1]) for key in ("date", "note"))
            values = (self.name, id, name, person, status, [], *ends, evidence)
            rows[person, id, status] = dict(zip(_COLUMNS, values, strict=True))
        for (person, id, status), row in rows.items():
            broader = _lineage(kb, id) if status in ("present", "family", "other") else ()
            for absent in filter(None, (rows.get((person, b, "absent")) for b in broader)):
                row["contradicts"].append(absent["id"])
                absent["contradicts"].append(id)
        return sorted(rows.values(), key=lambda row: row["person"] != "patient")


def _lineage(kb: KnowledgeBase, id: str) -> list[str]:
    """Return the sorted ids of a concept and its ancestors."""
    row = kb.find(id)
    return sorted({id, *(kb.ids_of(sorted(kb.lineage_of(row))) if row >= 0 else ())})


def gather_patients(
    linked: Iterable[tuple[Note, LinkedText]], *, contiguous: bool
) -> Iterator[Patient]:
    """Group findings by patient; set `contiguous` if each patient's notes are consecutive."""
    patients: dict[str, Patient] = {}
    for note, document in linked:
        if contiguous and note.patient not in patients:
            yield from patients.values()
            patients.clear()
        patients.setdefault(note.patient, Patient(note.patient)).add(note, document)
    yield from patients.values()


class PatientWriter:
    """Writes patients in the format selected by the output's suffix.

    holds_one (bool): Whether an output can hold only one patient.
    left_out (Counter): Number of findings excluded from Phenopackets so far, by reason.
    RAISES BioelError: [B599] if a Phenopacket can hold no concept of the knowledge base.
    """

    def __init__(self, suffix: str, kb: KnowledgeBase, *, author: str, created: str) -> None:
        self._suffix, self._kb, self._created = _FOLDERS.get(suffix, suffix), kb, created
        self.holds_one, self.left_out = suffix in (_PACKET, _FAMILY), Counter[str]()
        self._is_folder, self._is_family = suffix in _FOLDERS, self._suffix == _FAMILY
        if not (self.holds_one or self._is_folder):
            return
        releases = {"ECO": _ECO}
        for part in reversed(parts_of(kb)):
            prefixes = {id.partition(":")[0] for id in part.ids} & _PACKET_FIELDS.keys()
            releases |= dict.fromkeys(sorted(prefixes), part.releases[0])
        if len(releases) == 1:
            raise BioelError(ClinicalErrors.B599.format(kb=kb.title, id=next(iter(kb.ids), "none")))
        resources = [_resource(prefix, release) for prefix, release in releases.items()]
        meta = {"phenopacketSchemaVersion": "2.0", "createdBy": author}
        self._meta = meta | {"resources": resources}

    def format(self) -> TextFormat | PathFormat:
        """Return an output format that writes patients instead of documents."""
        if self._is_folder:
            return self._writing_folder
        is_table = self._suffix in _DELIMITERS
        start = table_line(_COLUMNS, _DELIMITERS[self._suffix]) if is_table else ""
        if self._suffix == ".html":
            page = PAGES.get_template("patients.html").render(
                title="Findings of patients", releases=self._kb.releases
            )
            start, end = page.split("<!-- patients -->")
            return TextFormat(self._section, start=start, end=end, has_failures=True)
        document = self._packet if self.holds_one else self._table_rows
        return TextFormat(document, start=start, has_failures=True)

    @contextmanager
    def _writing_folder(self, path: Path) -> Iterator[Write]:
        with new_folder(path) as folder:

            def write(patient: Patient) -> None:
                name = f"{file_name(patient.name)}{self._suffix}"
                (folder / name).write_text(self._packet(patient), encoding="utf8")

            yield write

    def _table_rows(self, patient: Patient) -> str:
        rows, delimiter, lines = patient.rows(self._kb), _DELIMITERS.get(self._suffix), []
        if delimiter is None:
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for row in rows:
            places = ('{note}:{start}-{end} "{text}"'.format(**m) for m in row["evidence"])
            lists = {"contradicts": "|".join(row["contradicts"]), "evidence": "; ".join(places)}
            cells = (escape_formula(" ".join(cell.split())) for cell in (row | lists).values())
            lines.append(table_line(cells, delimiter))
        return "".join(lines)

    def _section(self, patient: Patient) -> str:
        return str(_SECTIONS.patient(patient.name, patient.rows(self._kb), *patient.timeline()))

    def _packet(self, patient: Patient) -> str:
        """Return a patient's Phenopacket as JSON, or a Family with a Phenopacket per person."""
        people: dict[str, dict[str, dict[Any, JsonRow]]] = {"patient": {}}
        for row in patient.rows(self._kb):
            name = _PACKET_FIELDS.get(row["id"].partition(":")[0])
            if reason := self._reason(row, name):
                self.left_out[reason] += 1
            else:
                entries = people.setdefault(row["person"], {}).setdefault(str(name), {})
                _add_entry(entries, row, is_feature=name == _PACKET_FIELDS["HP"])
        day = self._created or max(day for _, day in patient.notes) or date.today().isoformat()
        meta = {"created": f"{day}T00:00:00Z", **self._meta}
        packets, persons = [], []
        for person, fields in people.items():
            for entries in fields.values():
                for key in _implied(self._kb, entries):
                    del entries[key]
                    self.left_out["implied by another finding"] += 1
            id = patient.name if person == "patient" else f"{patient.name}-{person}"
            sex = _SEXES.get(person, "UNKNOWN_SEX")
            lists = {name: list(entries.values()) for name, entries in fields.items()}
            packets.append({"id": id, "subject": {"id": id, "sex": sex}, **lists, "metaData": meta})
            parents = {"paternalId": "father", "maternalId": "mother"}
            for key, noun in parents.items():
                is_known = person == "patient" and noun in people
                parents[key] = f"{id}-{noun}" if is_known else "0"
            persons.append({"familyId": patient.name, "individualId": id, "sex": sex, **parents})
        whole: JsonRow = packets[0]
        if self._is_family:
            whole = {"id": patient.name, "proband": packets[0], "relatives": packets[1:]}
            whole |= {"pedigree": {"persons": persons}, "metaData": meta}
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

    def _reason(self, row: JsonRow, name: str | None) -> str:
        """Return why a finding is excluded from a Phenopacket, or "" if it is included."""
        if row["status"] in ("possible", "conditional", "unknown"):
            return str(row["status"])
        is_own, is_nobody = row["person"] == "patient", row["person"] in ("family", "other")
        if is_nobody or not (is_own or self._is_family):
            return "in relatives or others"
        is_hpo = name == _PACKET_FIELDS["HP"] and _PHENOTYPE in self._kb
        is_kept = _PHENOTYPE in _lineage(self._kb, row["id"]) if is_hpo else name
        return "" if is_kept else "neither phenotype nor disease"


def _implied(kb: KnowledgeBase, entries: Mapping[Any, JsonRow]) -> set[Any]:
    """Return the keys of entries implied by narrower present findings or broader absent ones."""
    broader = {key: {*_lineage(kb, key[0])} - {key[0]} for key in entries}
    absent = {id for id, is_absent in entries if is_absent}
    implied = {key for key, ids in broader.items() if key[1] and ids & absent}
    implied |= {(id, False) for key, ids in broader.items() if not key[1] for id in ids}
    return implied & entries.keys()


def _add_entry(entries: dict[Any, JsonRow], row: JsonRow, *, is_feature: bool) -> None:
    """Add a finding to the entries; an id's present and historical findings share an entry."""
    is_absent, term = row["status"] == "absent", {"id": row["id"], "label": row["name"]}
    entry: JsonRow = {"type" if is_feature else "term": term, "excluded": is_absent}
    entry = entries.setdefault((row["id"], is_absent), entry)
    if is_feature and row["contradicts"]:
        entry["description"] = f"Contradicted in the notes: {', '.join(row['contradicts'])}"
    for mention in row["evidence"] if is_feature else ():
        about = "{date} characters {start}-{end}: {text}".format(**mention).strip()
        reference = {"id": mention["note"], "description": about}
        entry.setdefault("evidence", []).append({"evidenceCode": _CODE, "reference": reference})


def _resource(prefix: str, release: KbRelease) -> dict[str, str]:
    iri = address_of(f"{prefix}:0").removesuffix("0")
    version = release.release.rpartition("/")[2] or release.fingerprint
    resource = {"id": prefix.lower(), "name": release.source or release.name, "version": version}
    url = f"{iri.removesuffix(f'{prefix}_')}{prefix.lower()}.owl" if "/obo/" in iri else iri
    return resource | {"url": url, "namespacePrefix": prefix, "iriPrefix": iri}
