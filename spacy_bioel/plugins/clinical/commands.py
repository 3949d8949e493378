"""The `bioel patient` command."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from spacy_bioel import __version__
from spacy_bioel.cli import console
from spacy_bioel.cli.documents import show_totals
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import suffix_of
from spacy_bioel.plugins.clinical.errors import ClinicalErrors, ClinicalWarnings

if TYPE_CHECKING:
    from spacy_bioel.export.rows import Document


def patient_command(
    model: Annotated[str, Argument(metavar="KB", help="A knowledge base or a pipeline.")],
    notes: Annotated[
        list[str],
        Argument(
            metavar="NOTES...",
            help="A folder of .txt or .txt.gz notes for each patient, or a folder of such folders; "
            "or CSV, TSV, XLSX or JSONL with the columns text, --patient-column and optionally id.",
        ),
    ],
    output: Annotated[
        list[str] | None,
        Option("--output", "-o", metavar="OUT", help="Output path; repeatable. Default: stdout."),
    ] = None,
    patient_column: Annotated[str, Option(help="Column with the patient of each note.")] = "",
    date_column: Annotated[str, Option(help="Column with the date of each note.")] = "",
    created: Annotated[str, Option(help="Date of Phenopackets; default: the latest note's.")] = "",
    kb: console.MoreKbs = None,
    code: console.Code = None,
    n_process: console.NProcess = 1,
    batch_size: console.BatchSize = 64,
) -> None:
    """Gather each patient's findings from their notes into tables, timelines or Phenopackets.

    Notes are linked as with --preset clinical. The name of a folder identifies the patient, and a
    date in a file name (2024-03-31, 20240331) is the date of the note. The suffix of an output
    selects its format:

    * .csv, .tsv, .jsonl, stdout: one row per patient, person, concept and status (present,
      historical, possible, conditional, absent, family, other, unknown), with the first and last
      mention, and the evidence: note, offsets and text. Contradictory findings are kept, and each
      row lists the ids that contradict it.
    * .html: a timeline of each patient's findings, and a table with the evidence.
    * .phenopacket.json: a Phenopacket (2.0) of one patient. HPO concepts are phenotypic features;
      MONDO, OMIM, Orphanet and DOID concepts are diseases. Absent findings are marked as excluded.
    * .family.json: a Family, with a Phenopacket for each relative mentioned in the notes.
    * .phenopackets, .families: a folder with such a file for each patient.

    Example: `bioel patient kb/hpo patients -o findings.csv -o packets.phenopackets`
    """
    from spacy_bioel import loading
    from spacy_bioel.cli import inputs
    from spacy_bioel.export.rows import Totals, check_linker, link_texts
    from spacy_bioel.plugins.clinical import patients, reading

    outputs = {name: suffix_of(name, patients.PATIENT_SUFFIXES) for name in output or ["-"]}
    console.check_distinct([*notes, code], outputs)
    created = reading.iso_date(created, "--created")
    stream = reading.stream_notes(notes, patient_column, date_column)
    nlp = loading.load_model(model, more=kb or (), preset="clinical")
    linker = loading.require_linker(nlp, model)
    check_linker(nlp)
    make = partial(patients.PatientWriter, author=f"spacy-bioel {__version__}", created=created)
    writers = {name: make(suffix, linker.kb) for name, suffix in outputs.items()}
    small = next((name for name, writer in writers.items() if writer.holds_one), None)
    waiting, totals = deque[patients.Note](), Totals()

    def documents() -> Iterator[Document]:
        first = ""
        for note in stream:
            if small and note.patient != (first := first or note.patient):
                found = f"{first!r:.40} and {note.patient!r:.40}"
                raise BioelError(ClinicalErrors.B597.format(path=small, found=found))
            waiting.append(note)
            yield note.text, note.id

    results = link_texts(nlp, documents(), batch_size=batch_size, n_process=n_process)
    with ExitStack() as files, closing(results):
        opened = [
            files.enter_context(inputs.writing_format(Path(name), writer.format()))
            for name, writer in writers.items()
        ]
        linked = ((waiting.popleft(), document) for document in inputs.watched(results, totals))
        for patient in patients.gather_patients(linked, contiguous=not patient_column):
            for write in opened:
                write(patient)
        if not totals.documents:
            raise BioelError(Errors.B142.format(source=", ".join(notes)))
    for name, writer in writers.items():
        if n := writer.left_out.total():
            why = ", ".join(f"{reason}: {n:,}" for reason, n in writer.left_out.most_common())
            console.show_note(ClinicalWarnings.W396.format(path=name, n=n, why=why))
    show_totals(totals)
