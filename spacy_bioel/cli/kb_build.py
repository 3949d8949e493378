"""`bioel kb build`: build a knowledge base from source files."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import JsonOption, PrefixOption, show_note, track, write_json
from spacy_bioel.cli.sources import (
    ColumnsOption,
    FormatOption,
    LicenceOption,
    ReleaseOption,
    SourceNameOption,
    SourcesArgument,
    open_sources,
    read_retired,
    reporting_bad,
    show_counts,
    split_list,
)
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.merge import Branches
from spacy_bioel.kb.columns.layout import map_vectors


def build(
    out: Annotated[Path, typer.Argument(help="Folder to create, or knowledge base to replace.")],
    sources: SourcesArgument,
    format: FormatOption = None,
    prefix: PrefixOption = "",
    columns: ColumnsOption = None,
    types: Annotated[
        str | None,
        typer.Option(metavar="TYPE,...", help="Keep only concepts that have one of these types."),
    ] = None,
    under: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Keep only this concept and those below it; may be repeated."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Leave out this concept and those below it; the same."),
    ] = None,
    source_name: SourceNameOption = "",
    release: ReleaseOption = "",
    licence: LicenceOption = "",
    retired: Annotated[
        Path | None,
        typer.Option(metavar="FILE.tsv", help="Retired ids: the old id, a tab, the current id."),
    ] = None,
    skip_bad: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT.tsv",
            help="Leave out bad records, and write each to this table; default: the first is an "
            "error.",
        ),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Build a knowledge base from one or several sources.

    Records with the same id are merged. The report counts everything that is left out. The folder
    is created, or replaced, only after all sources were read.

    With --skip-bad one bad record does not stop the others: a line of a table, of JSON lines, of
    RRF or of a dictionary, a frame of OBO, a record of MeSH XML, an entry of a JSON object. Damage
    of a file as a whole is an error in any case, as are all errors in OWL and OBO JSON.
    """
    had_vectors = bool(map_vectors(out))
    with reporting_bad(skip_bad, sources=sources):
        concepts, about = open_sources(
            sources,
            format=format,
            prefix=prefix,
            columns=columns,
            source=source_name,
            release=release,
            licence=licence,
        )
        if retired is not None:
            concepts = chain(concepts, read_retired(retired, prefix=prefix))
        report = build_kb(
            track(concepts, "Reading concepts"),
            out,
            types=None if types is None else split_list(types),
            branches=Branches(under or (), exclude or ()) if under or exclude else None,
            **about,
        )
    if json_file is not None:
        write_json(json_file, asdict(report))
    if str(json_file) != "-":
        show_counts(f"Built {out}", asdict(report))
    if had_vectors:
        show_note(f"The vectors of the names before are gone: run bioel kb encode {out} MODEL")
