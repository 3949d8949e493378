"""Errors and warnings of the clinical notes plugin."""

from __future__ import annotations

from spacy_bioel.errors import Errors, Warnings


class ClinicalErrors(Errors):
    B490 = "{path} is not a rules file for bioel_context ({error}). Expected a JSON object with words, cues and sections, as in docs/guides/negation.md: edit a copy of spacy_bioel/plugins/clinical/assets/context.json."
    B491 = "--context and --preset apply to mentions that the pipeline finds, not to mentions that the input provides (--mentions given). Leave out one of the two."
    B594 = "{path} has notes, such as {note}, and folders with notes, such as {folder}. Expected the notes of one patient, or a folder for each patient. Move the notes into a folder of their own."
    B595 = "{source} cannot be read as notes of patients. Expected, without a column, a folder of .txt files for each patient; with --patient-column NAME, a table or JSON lines."
    B596 = "Note {id!r:.40} has no patient in {column!r}, expected a value in each row. Fill it in, or correct --patient-column."
    B597 = "{path} holds one patient, but the notes are of several: {found}. Write a folder with a file for each: -o NAME.phenopackets or NAME.families"
    B598 = "The date of {where} is {found:.40}, expected one date such as 2024-03-31, or none. Correct it."
    B599 = "{kb} has no ids for a Phenopacket, expected HPO, MONDO, OMIM, Orphanet or DOID (HP:0001250); its first is {id!r}. Use another knowledge base, build it again with --prefix HP if its ids lack their prefix, or write a table."
    B607 = "A document has the id {id!r:.40}, but note_id in NOTE_NLP is an integer. Name the documents by their note_id: in the column id of a table, or as 123.txt in a folder."


class ClinicalWarnings(Warnings):
    W303 = "{path}: this format cannot store negation or family history; negated mentions will look affirmed. Also write JSON lines, a table or a page."
    W396 = "{path}: findings left out: {n:,} ({why}). A table contains all: -o NAME.csv"
    W415 = "All concept ids in NOTE_NLP are 0, because {kb} has no cross-reference to OMOP. Link with a knowledge base of OMOP vocabularies, which `bioel kb build kb/omop athena/` builds from a download of https://athena.ohdsi.org."
