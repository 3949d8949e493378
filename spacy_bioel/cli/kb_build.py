"""`bioel kb build` and `bioel kb encode`: make a knowledge base from source files.

`bioel kb copy`, `add`, `edit`, `retire` and `compact`: change a knowledge base.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, TextIO

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_show import ann_text, open_kb
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.formats import detect_ontology_format, read_ontology
from spacy_bioel.io.ontology import read_obo_header
from spacy_bioel.io.open import BadRecord, Skipped, curie, skip_if_bad, skipped_so_far, skipping_bad
from spacy_bioel.io.table import read_table
from spacy_bioel.kb.build import Branches, build_kb, check_ids
from spacy_bioel.kb.edit import (
    EditReport,
    NameEdit,
    add_concepts,
    compact_kb,
    edit_names,
    retire_ids,
)
from spacy_bioel.kb.folder import map_vectors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

# Longer numbers are taken for names in the header.
_MAX_DIGITS = 9
Columns = dict[str, str | int | tuple[str, ...]]


def build(
    out: Annotated[Path, Argument(help="Folder to create, or knowledge base to replace.")],
    sources: console.Sources,
    format: console.Format = None,
    prefix: console.Prefix = "",
    columns: console.Columns = None,
    types: console.Types = None,
    under: Annotated[
        list[str] | None, Option(metavar="ID", help="Keep this and what is below; can be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, Option(metavar="ID", help="Leave this out and what is below; the same.")
    ] = None,
    source_name: console.SourceName = "",
    release: console.Release = "",
    licence: console.Licence = "",
    retired: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Retired ids: the old id, a tab, the current id."),
    ] = None,
    skip_bad: Annotated[
        Path | None,
        Option(metavar="REPORT.tsv", help="Leave out bad records, and write each to this table."),
    ] = None,
    json_file: console.Json = None,
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
            sources, format, prefix, columns, source=source_name, release=release, licence=licence
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
    kb: console.KbFolder,
    model: Annotated[
        str,
        Argument(help="Pipeline with a bioel_linker; or KB again, for the bundled encoder."),
    ],
    code: console.Code = None,
) -> None:
    """Encode all names with a pipeline's linker, and store the vectors in the knowledge base.

    A pipeline can search a large knowledge base only with vectors of its own encoder. Vectors of
    other encoders are kept. Names that already have a vector of this encoder are not encoded again,
    so that an interrupted run resumes. A pipeline that writes names gets a trie of them too.
    Commands that change the knowledge base wait meanwhile.
    """
    from spacy_bioel.cli.inputs import load_model, require_linker

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
    paths: Sequence[Path], format: str | None, prefix: str, columns: str | None, **about: str
) -> tuple[Iterator[Concept], dict[str, str]]:
    """Open the sources given by the options of a command.

    about (str): "source", "release" and "licence".
    RETURNS (tuple): A stream of the concepts of all files; and `about`, by default with the file
        names and the values in OBO headers.
    RAISES BioelError: [B070] when `columns` is not KEY=COLUMN,...; those of the readers.
    """
    chosen = None if columns is None else parse_columns(columns)
    stated = {"source": ", ".join(path.name for path in paths), "release": "", "licence": ""}
    detect = detect_ontology_format if chosen is None and format is None else lambda path: format
    formats = [(path, detect(path)) for path in paths]
    headers = [read_obo_header(path) for path, name in formats if name == "obo"]
    for key, values in zip(("release", "licence"), zip(*headers, strict=True), strict=False):
        stated[key] = ", ".join(dict.fromkeys(filter(None, values)))
    concepts = chain.from_iterable(
        read_ontology(path, format=name, prefix=prefix, columns=chosen) for path, name in formats
    )
    skipped = skipped_so_far()
    about = {key: value or stated[key] for key, value in about.items()}
    return concepts if skipped is None else _with_good_ids(concepts, skipped), about


def _with_good_ids(concepts: Iterable[Concept], skipped: Skipped) -> Iterator[Concept]:
    """Concepts that a knowledge base may have, of sources whose bad records are skipped."""
    for number, concept in enumerate(concepts, start=1):
        with skip_if_bad():
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


# Keys of a report: those that count the records read, and the whole knowledge base.
_COUNTS = (
    "records", "merged_records", "redirected", "merged_names", "empty_names", "dropped_by_type",
    "dropped_nameless", "inherited_types", "unknown_parents", "retired_current", "retired_missing",
    "concepts", "names", "retired", "fingerprint",
)  # fmt: skip


def copy(
    kb: console.Kb,
    out: Annotated[Path, Argument(metavar="OUT", help="Folder of the copy.")],
) -> None:
    """Copy a knowledge base, also one of the package, to a folder that can be changed."""
    open_kb(kb).save_to(out)
    console.show_note(f"To add concepts to it: bioel kb add {out} SOURCE")


def add(
    kb: console.KbFolder,
    sources: console.Sources,
    format: console.Format = None,
    prefix: console.Prefix = "",
    columns: console.Columns = None,
    types: console.Types = None,
    source_name: console.SourceName = "",
    release: console.Release = "",
    licence: console.Licence = "",
    json_file: console.Json = None,
) -> None:
    """Add the concepts of one or several sources to a knowledge base.

    Existing entries are kept. An existing concept gets the names, types and parents that it lacks,
    and a definition if it has none; its preferred name stays. A record of a retired id is merged
    into the concept that replaced it. A current id is not retired, even if a source says so: use
    `bioel kb retire`.

    All columns are rewritten, in seconds for half a million names, and replaced in one step.
    Vectors are kept: `bioel kb encode` encodes the new names only. The command waits for others
    that are changing the knowledge base.
    """
    concepts, about = open_sources(
        sources, format, prefix, columns, source=source_name, release=release, licence=licence
    )
    chosen = None if types is None else split_list(types)
    growth = add_concepts(kb, console.track(concepts, "Reading concepts"), types=chosen, **about)
    show_edit_report(f"Added to {kb}", growth, kb=kb, json_file=json_file)


def show_edit_report(title: str, growth: EditReport, *, kb: Path, json_file: Path | None) -> None:
    """Show or write the report of a change, with a note on outdated vectors."""
    report = asdict(growth.report)
    counts = {key: report[key] for key in _COUNTS}
    new = {"concepts": growth.concepts, "names": growth.names, "retired": growth.retired}
    about = {f"new_{key}": n for key, n in new.items()} | counts
    if console.write_json(json_file, about | {"vectors_outdated": growth.vectors_outdated}):
        changed = {f"{'gone' if n < 0 else 'new'}_{key}": abs(n) for key, n in new.items()}
        show_counts(title, changed | counts)
    if growth.vectors_outdated:
        console.show_note(
            f"The vectors are of an earlier state: run bioel kb encode {kb} MODEL; it encodes new "
            "names only."
        )


def edit(
    kb: console.KbFolder,
    id: Annotated[str, Argument(help="Id of the concept.")],
    add: Annotated[
        list[str] | None, Option(metavar="NAME", help="Synonym to add; may be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, Option(metavar="NAME", help="Name to remove; may be repeated.")
    ] = None,
    rename: Annotated[str, Option(metavar="NAME", help="New preferred name.")] = "",
    prefix: console.Prefix = "",
    json_file: console.Json = None,
) -> None:
    """Change the names of one concept of a knowledge base.

    Names are compared without case and punctuation. A renamed concept has its old name as a
    synonym. Removal comes last: --rename "new name" --remove "old name" leaves no trace of the old
    one. If anything is wrong, nothing is changed.

    All columns are rewritten, in seconds for half a million names, and replaced in one step.
    Vectors are kept: `bioel kb encode` encodes the new names only. Changes are lost when the
    knowledge base is built again: keep those that shall stay in a source of your own, for
    `bioel kb add`.
    """
    if not (add or remove or rename):
        raise BioelError(Errors.B402)
    change = NameEdit(add=add or (), remove=remove or (), rename=rename)
    growth = edit_names(kb, {curie(id, prefix): change})
    show_edit_report(f"Edited {curie(id, prefix)} in {kb}", growth, kb=kb, json_file=json_file)


def retire(
    kb: console.KbFolder,
    old: Annotated[str | None, Argument(help="Id to retire.")] = None,
    replaced_by: Annotated[
        str, Option(metavar="ID", help="Id of the concept that takes its place.")
    ] = "",
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Ids to retire: the old id, a tab, the current id."),
    ] = None,
    prefix: console.Prefix = "",
    json_file: console.Json = None,
) -> None:
    """Retire ids of a knowledge base.

    A retired id resolves to its replacement, which takes over the names and the children of the
    concept. Without a replacement, the concept, the names that only it had and its id are removed.
    If one of the ids is unknown, none is retired.
    """
    if (old is None) == (pairs is None) or (pairs is not None and replaced_by):
        raise BioelError(Errors.B204)
    chosen = {curie(old, prefix): curie(replaced_by, prefix)} if old is not None else {}
    for record in () if pairs is None else read_retired(pairs, prefix=prefix):
        known = chosen.setdefault(record.id, record.replaced_by)
        if known != record.replaced_by:
            places = {"path": pairs, "id": record.id, "first": known}
            raise BioelError(Errors.B205.format(second=record.replaced_by, **places))
    show_edit_report(f"Retired in {kb}", retire_ids(kb, chosen), kb=kb, json_file=json_file)


def compact(
    kb: console.KbFolder,
    forget_retired: Annotated[
        bool, Option("--forget-retired", help="Also remove all retired ids.")
    ] = False,
    json_file: console.Json = None,
) -> None:
    """Remove unused files of a knowledge base.

    These are outdated vectors of all encoders, and leftovers of killed commands. Run
    `bioel kb encode` first: it reuses outdated vectors. Columns need no compaction, because
    `bioel kb add` and `bioel kb retire` rewrite them. Retired ids are kept without
    `--forget-retired`.
    """
    done = compact_kb(kb, forget_retired=forget_retired)
    about = {"leftovers": done.leftovers, "megabytes": round(done.n_bytes / 1e6, 1), "forgotten": 0}
    shown = f"Removed {console.count_of(done.leftovers, 'leftover')} of {about['megabytes']:,} MB."
    if (growth := done.edit) is not None:
        about["forgotten"] = -growth.retired
        shown += f" Forgot {console.count_of(-growth.retired, 'retired id')}."
        if growth.vectors_outdated:
            shown += f" The vectors fit no longer: run bioel kb encode {kb} MODEL; no name is new."
    console.show_note(shown)
    console.write_json(json_file, about)
