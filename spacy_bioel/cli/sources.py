"""Sources of concepts for the commands: options, reading, and the table of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, TextIO

import typer

from spacy_bioel.cli.console import count_of, show_note, show_table, writing
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.formats import detect_ontology_format, read_ontology
from spacy_bioel.io.ontology import read_obo_header
from spacy_bioel.io.records import BadRecord, Skipped, one_record, skipped_so_far, skipping_bad
from spacy_bioel.io.table import read_table
from spacy_bioel.kb.build.merge import check_ids
from spacy_bioel.types import Concept

SourcesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="SOURCE",
        help="OBO, OWL, MeSH XML, a UMLS folder, CTD, BioSyn dictionary, JSONL, CSV or TSV.",
    ),
]
FormatOption = Annotated[
    str | None, typer.Option(help="Format of the sources; default: detected from the content.")
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=COLUMN,...",
        help="Columns of a table, by number or header: id=1,name=2,synonyms=Synonyms.",
    ),
]
SourceNameOption = Annotated[
    str, typer.Option(help="Name of the source, for the record; default: the file names.")
]
ReleaseOption = Annotated[
    str, typer.Option(help="Release of the source, for the record; default: that of OBO headers.")
]
LicenceOption = Annotated[
    str, typer.Option(help="Licence of the source, for the record; default: that of OBO headers.")
]
# Longer numbers are taken for names in the header.
_MAX_DIGITS = 9
Columns = dict[str, str | int | tuple[str, ...]]


def read_retired(path: Path, *, prefix: str) -> Iterator[Concept]:
    """Stream the pairs of a file: the old id, a tab, the current id."""
    yield from read_table(path, columns={"id": 1, "replaced_by": 2}, prefix=prefix)


def open_sources(
    paths: Sequence[Path],
    *,
    format: str | None,
    prefix: str,
    columns: str | None,
    about: dict[str, str],
) -> tuple[Iterator[Concept], dict[str, str]]:
    """Open the sources given by the options of a command.

    about (dict[str, str]): "source", "release" and "licence".
    RETURNS (tuple): A stream of the concepts of all files; and `about`, by default with the file
        names and the values in OBO headers.
    RAISES BioelError: [B070] when `columns` is not KEY=COLUMN,...; those of the readers.
    """
    chosen = None if columns is None else parse_columns(columns)
    stated = {"source": ", ".join(path.name for path in paths), "release": "", "licence": ""}
    if chosen is None and not (about["release"] and about["licence"]):
        names = ((path, format or detect_ontology_format(path)) for path in paths)
        headers = [read_obo_header(path) for path, name in names if name == "obo"]
        for key, values in zip(("release", "licence"), zip(*headers, strict=True), strict=False):
            stated[key] = ", ".join(dict.fromkeys(filter(None, values)))
    concepts = chain.from_iterable(
        read_ontology(path, format=format, prefix=prefix, columns=chosen) for path in paths
    )
    skipped = skipped_so_far()
    about = {key: value or stated[key] for key, value in about.items()}
    return concepts if skipped is None else _with_good_ids(concepts, skipped), about


def _with_good_ids(concepts: Iterable[Concept], skipped: Skipped) -> Iterator[Concept]:
    """Concepts that a knowledge base may have, of sources whose bad records are skipped."""
    for number, concept in enumerate(concepts, start=1):
        with one_record():
            check_ids(concept, number=number)
            skipped.kept += 1
            yield concept


@contextmanager
def reporting_bad(report: Path | None, *, sources: Sequence[Path]) -> Iterator[None]:
    """Skip bad records, and write each to a table; None: they are errors.

    RAISES BioelError: [B400] when no record is good. The table is written all the same.
    """
    if report is None:
        yield
        return
    failure: BioelError | None = None
    with writing(report) as file, skipping_bad(partial(_write_bad, file)) as skipped:
        file.write("file\tline\tcode\tmessage\n")
        try:
            yield
        except BioelError as error:
            failure = error
    if failure is not None and skipped.first is not None and not skipped.kept:
        names = ", ".join(map(str, sources))
        message = Errors.B400.format(
            n=skipped.n, sources=names, report=report, first=skipped.first.message
        )
        raise BioelError(message) from failure
    if failure is not None:
        raise failure
    show_note(f"{count_of(skipped.n, 'bad record')} left out, see {report}")


def _write_bad(file: TextIO, record: BadRecord) -> None:
    line = str(record.line or "")
    cells = (record.path, line, record.code, record.message.partition("] ")[2])
    file.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def show_counts(title: str, counts: Mapping[str, int | str]) -> None:
    """Print a table of the counts that are not zero."""
    rows = [
        (name.replace("_", " "), count if isinstance(count, str) else f"{count:,}")
        for name, count in counts.items()
        if count
    ]
    show_table(("count", "value"), rows, title=title)


def parse_columns(text: str) -> Columns:
    """Parse "id=1,name=Label" as {"id": 1, "name": "Label"}.

    RAISES BioelError: [B070] when a part is not KEY=COLUMN.
    """
    columns: Columns = {}
    for part in split_list(text):
        key, _, column = (piece.strip() for piece in part.partition("="))
        if not key or not column:
            raise BioelError(Errors.B070.format(part=part))
        is_number = column.isdecimal() and len(column) <= _MAX_DIGITS
        columns[key] = int(column) if is_number else column
    return columns


def split_list(text: str) -> list[str]:
    """Parse "a, b" as ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]
