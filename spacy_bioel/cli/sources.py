"""Sources of concepts for the commands: options, reading, and the table of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.table import Table

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
    paths: list[Path],
    *,
    format: str | None,
    prefix: str,
    columns: str | None,
    source: str,
    release: str,
    licence: str,
) -> tuple[Iterator[Concept], dict[str, str]]:
    """Open the sources given by the options of a command.

    RETURNS (tuple): A stream of the concepts of all files; and source, release and licence, by
        default the file names and the values in OBO headers.
    RAISES BioelError: [B070] when `columns` is not KEY=COLUMN,...; those of the readers.
    """
    chosen = None if columns is None else parse_columns(columns)
    if chosen is None and not (release and licence):
        stated_release, stated_licence = _stated(paths, format=format)
        release, licence = release or stated_release, licence or stated_licence
    source = source or ", ".join(path.name for path in paths)
    about = {"source": source, "release": release, "licence": licence}
    return _read(paths, format=format, prefix=prefix, columns=chosen), about


def _read(
    paths: Iterable[Path], *, format: str | None, prefix: str, columns: Columns | None
) -> Iterator[Concept]:

    concepts = chain.from_iterable(
        read_ontology(path, format=format, prefix=prefix, columns=columns) for path in paths
    )
    skipped = skipped_so_far()
    yield from concepts if skipped is None else _with_good_ids(concepts, skipped)


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
    table = Table("count", "value", title=title)
    for name, count in counts.items():
        if count:
            text = count if isinstance(count, str) else f"{count:,}"
            table.add_row(name.replace("_", " "), text)
    show_table(table)


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


def _stated(sources: Iterable[Path], *, format: str | None) -> tuple[str, str]:
    """Releases and licences in the headers of OBO files, without duplicates."""
    names = ((path, format or detect_ontology_format(path)) for path in sources)
    headers = [read_obo_header(path) for path, name in names if name == "obo"]
    releases, licences = zip(*headers, strict=True) if headers else ((), ())
    return _join(releases), _join(licences)


def _join(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def split_list(text: str) -> list[str]:
    """Parse "a, b" as ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]
