"""`bioel kb build` and `bioel kb encode`: make a knowledge base from source files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, TextIO

from typer import Argument, Option

from spacy_bioel.cli import console, options
from spacy_bioel.cli.kb_show import ann_text
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.formats import detect_ontology_format, read_ontology
from spacy_bioel.io.ontology import read_obo_header
from spacy_bioel.io.records import BadRecord, Skipped, one_record, skipped_so_far, skipping_bad
from spacy_bioel.io.table import read_table
from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.kb.build.merge import Branches, check_ids
from spacy_bioel.kb.columns.layout import map_vectors
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import Concept

# Longer numbers are taken for names in the header.
_MAX_DIGITS = 9
Columns = dict[str, str | int | tuple[str, ...]]


def build(
    out: Annotated[Path, Argument(help="Folder to create, or knowledge base to replace.")],
    sources: options.Sources,
    format: options.Format = None,
    prefix: options.Prefix = "",
    columns: options.Columns = None,
    types: options.Types = None,
    under: Annotated[
        list[str] | None, Option(metavar="ID", help="Keep this and what is below; can be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, Option(metavar="ID", help="Leave this out and what is below; the same.")
    ] = None,
    source_name: options.SourceName = "",
    release: options.Release = "",
    licence: options.Licence = "",
    retired: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Retired ids: the old id, a tab, the current id."),
    ] = None,
    skip_bad: Annotated[
        Path | None,
        Option(metavar="REPORT.tsv", help="Leave out bad records, and write each to this table."),
    ] = None,
    json_file: options.Json = None,
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
            console.track(concepts, "Reading concepts"),
            out,
            types=None if types is None else split_list(types),
            branches=Branches(under or (), exclude or ()) if under or exclude else None,
            **about,
        )
    if console.write_json(json_file, asdict(report)):
        show_counts(f"Built {out}", asdict(report))
    if had_vectors:
        console.show_note(
            f"The vectors of the names before are gone: run bioel kb encode {out} MODEL"
        )


def encode(
    kb: options.KbFolder,
    model: Annotated[
        str,
        Argument(help="Pipeline with a bioel_linker; or KB again, for the bundled encoder."),
    ],
) -> None:
    """Encode all names with a pipeline's linker, and store the vectors in the knowledge base.

    A pipeline can search a large knowledge base only with vectors of its own encoder. Vectors of
    other encoders are kept. Names that already have a vector of this encoder are not encoded again,
    so that an interrupted run resumes. A pipeline that writes names gets a trie of them too.
    Commands that change the knowledge base wait meanwhile.
    """
    from spacy_bioel.cli.models import load_model, require_linker

    base = KnowledgeBase.open(kb)
    linker = require_linker(load_model(model), model)
    with console.progress_bar("Encoding names", total=base.n_names) as advance:
        done = linker.encode_kb(base, progress=advance)
    kept = f", {done.copied:,} were there" if done.copied else ""
    console.show_note(
        f"Encoded {done.encoded:,} names of {kb} with encoder {linker.fingerprint}{kept}."
    )
    if done.ann:
        console.show_note(f"Built an {ann_text(done.ann)}.")


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
    with console.writing(report) as file, skipping_bad(partial(_write_bad, file)) as skipped:
        file.write("file\tline\tcode\tmessage\n")
        try:
            yield
        except BioelError as error:
            failure = error
    if failure is not None and skipped.first is not None and not skipped.kept:
        places = {"sources": ", ".join(map(str, sources)), "report": report}
        what = Errors.B400.format(n=skipped.n, first=skipped.first.message, **places)
        raise BioelError(what) from failure
    if failure is not None:
        raise failure
    console.show_note(f"{console.count_of(skipped.n, 'bad record')} left out, see {report}")


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
    console.show_table(("count", "value"), rows, title=title)


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
