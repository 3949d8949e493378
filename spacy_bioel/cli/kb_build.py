"""`bioel kb build`: source files to a knowledge base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from spacy_bioel.cli.console import (
    JsonOption,
    PrefixOption,
    show_note,
    show_table,
    track,
    write_json,
)
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.types import Concept


def build(
    out: Annotated[Path, typer.Argument(help="Folder to make, or knowledge base to replace.")],
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE",
            help="OBO, OWL, MeSH XML, a UMLS folder, CTD, BioSyn dictionary, JSONL, CSV or TSV.",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(help="Format of the sources; recognised from content if not given."),
    ] = None,
    prefix: PrefixOption = "",
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=COLUMN,...",
            help="The columns of a table, by number or header: id=1,name=2,synonyms=Synonyms.",
        ),
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(metavar="TYPE,...", help="Keep only concepts that have one of these types."),
    ] = None,
    source_name: Annotated[
        str, typer.Option(help="Name of the source, for the record; else the file names.")
    ] = "",
    release: Annotated[
        str, typer.Option(help="Release of the source, for the record; else as an OBO header says.")
    ] = "",
    licence: Annotated[
        str, typer.Option(help="Licence of the source, for the record; else as an OBO header says.")
    ] = "",
    retired: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tsv", help="Retired ids: the old id, a tab, the current id."),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Build a knowledge base from one or several sources.

    Concepts of one id are merged. Everything that is left out is counted in the report. The
    folder appears, or replaces the one before, only when all sources were read.
    """
    from spacy_bioel.kb.build import build_kb
    from spacy_bioel.kb.schema import VECTORS_FILE

    chosen_columns = None if columns is None else parse_columns(columns)
    if chosen_columns is None and not (release and licence):
        stated_release, stated_licence = _stated(sources, format=format)
        release, licence = release or stated_release, licence or stated_licence
    had_vectors = (out / VECTORS_FILE).is_file()
    concepts = _read_all(sources, retired, format=format, prefix=prefix, columns=chosen_columns)
    report = build_kb(
        track(concepts, "Reading concepts"),
        out,
        types=None if types is None else _split(types),
        source=source_name or ", ".join(path.name for path in sources),
        release=release,
        licence=licence,
    )
    if json_file is not None:
        write_json(json_file, asdict(report))
    if str(json_file) != "-":
        table = Table("count", "value", title=f"Built {out}")
        for name, count in asdict(report).items():
            if count:
                text = count if isinstance(count, str) else f"{count:,}"
                table.add_row(name.replace("_", " "), text)
        show_table(table)
    if had_vectors:
        show_note(f"The vectors of the names before are gone: run bioel kb encode {out} MODEL")


def parse_columns(text: str) -> dict[str, str | int | tuple[str, ...]]:
    """Read "id=1,name=Label" as {"id": 1, "name": "Label"}.

    RAISES BioelError: [B070] when a part is no KEY=COLUMN.
    """
    columns: dict[str, str | int | tuple[str, ...]] = {}
    for part in _split(text):
        key, _, column = (piece.strip() for piece in part.partition("="))
        if not key or not column:
            raise BioelError(Errors.B070.format(part=part))
        columns[key] = int(column) if column.isdigit() else column
    return columns


def _stated(sources: Iterable[Path], *, format: str | None) -> tuple[str, str]:
    """Releases and licences that the headers of OBO files state, each once."""
    from spacy_bioel.io.formats import detect_ontology_format
    from spacy_bioel.io.ontology import read_obo_header

    names = ((path, format or detect_ontology_format(path)) for path in sources)
    headers = [read_obo_header(path) for path, name in names if name == "obo"]
    releases, licences = zip(*headers, strict=True) if headers else ((), ())
    return _join(releases), _join(licences)


def _join(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def _read_all(
    sources: Iterable[Path],
    retired: Path | None,
    *,
    format: str | None,
    prefix: str,
    columns: dict[str, str | int | tuple[str, ...]] | None,
) -> Iterator[Concept]:
    from spacy_bioel.io.formats import read_ontology
    from spacy_bioel.io.table import read_table

    for path in sources:
        yield from read_ontology(path, format=format, prefix=prefix, columns=columns)
    if retired is not None:
        yield from read_table(retired, columns={"id": 1, "replaced_by": 2}, prefix=prefix)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
