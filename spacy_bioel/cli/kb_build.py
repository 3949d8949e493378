"""`bioel kb build` and `bioel kb encode`: make a knowledge base from source files."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.cli.console import (
    JsonOption,
    KbFolder,
    PrefixOption,
    progress_bar,
    show_note,
    track,
    write_json,
)
from spacy_bioel.cli.kb_show import ann_text
from spacy_bioel.cli.models import load_model, require_linker
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
from spacy_bioel.kb.columns.store import KnowledgeBase


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
            about={"source": source_name, "release": release, "licence": licence},
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
    if write_json(json_file, asdict(report)):
        show_counts(f"Built {out}", asdict(report))
    if had_vectors:
        show_note(f"The vectors of the names before are gone: run bioel kb encode {out} MODEL")


def encode(
    kb: KbFolder,
    model: Annotated[
        str,
        typer.Argument(help="Pipeline with a bioel_linker; or KB again, for the bundled encoder."),
    ],
) -> None:
    """Encode all names with a pipeline's linker, and store the vectors in the knowledge base.

    A pipeline can search a large knowledge base only with vectors of its own encoder. Vectors of
    other encoders are kept. Names that already have a vector of this encoder are not encoded again,
    so that an interrupted run resumes. A pipeline that writes names gets a trie of them too.
    Commands that change the knowledge base wait meanwhile.
    """
    base = KnowledgeBase.open(kb)
    linker = require_linker(load_model(model), model)
    with progress_bar("Encoding names", total=base.n_names) as advance:
        done = linker.encode_kb(base, progress=advance)
    kept = f", {done.copied:,} were there" if done.copied else ""
    show_note(f"Encoded {done.encoded:,} names of {kb} with encoder {linker.fingerprint}{kept}.")
    if done.ann:
        show_note(f"Built an {ann_text(done.ann)}.")
