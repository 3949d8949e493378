"""Commands that write knowledge bases.

`bioel kb build` makes a knowledge base from source files, and `bioel kb encode` adds vectors.
`bioel kb copy`, `add`, `edit`, `retire` and `compact` copy and change a knowledge base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, make_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_show import MEANINGS_OF_COUNTS, ann_text, open_kb_argument
from spacy_bioel.errors import BioelError, Errors, Warnings, shortened
from spacy_bioel.io.formats import detect_ontology_format, read_ontology
from spacy_bioel.io.ontology import read_obo_header
from spacy_bioel.io.open import counting_kept, curie, skip_if_bad
from spacy_bioel.io.table import COLUMN_KEYS, Column, read_table
from spacy_bioel.kb.build import Branches, build_kb, check_ids
from spacy_bioel.kb.edit import (
    EditReport,
    NameEdit,
    add_concepts,
    compact_kb,
    edit_names,
    retire_ids,
)
from spacy_bioel.kb.folder import homes_in
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.registered import MAPPINGS, load_registered, missing_names, registered_names
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

# Longer numbers in --columns are read as header names.
_MAX_DIGITS = 9
_RETIRED = {"id": 1, "replaced_by": 2}  # columns of a file of retired ids
# Counts shown by `add`, `edit` and `retire`.
_EDIT_COUNTS = (
    "records", "merged_records", "redirected", "merged_names", "empty_names", "dropped_by_type",
    "dropped_nameless", "inherited_types", "unknown_parents", "retired_current", "retired_missing",
    "concepts", "names", "retired", "fingerprint",
)  # fmt: skip

_SOURCES = "OBO, OWL, MeSH XML, a UMLS or OMOP folder, CTD, JSONL, CSV, TSV or XLSX."


@dataclass(frozen=True)
class SourceOptions:
    """Options for the sources of a knowledge base."""

    format: console.Format = None
    prefix: console.Prefix = ""
    columns: Annotated[
        str | None,
        Option(
            metavar="KEY=COLUMN,...",
            help="Table columns, by number from 1 or by header: id=1,name=2,synonyms=Synonyms. "
            f"The keys are {', '.join(COLUMN_KEYS)}.",
        ),
    ] = None
    synonym_separator: Annotated[
        str,
        Option(
            metavar="TEXT", help="What separates synonyms in a cell; default: | or ;, detected."
        ),
    ] = ""
    vocabulary: Annotated[
        str,
        Option(metavar="NAME,...", help="Vocabularies of OMOP to read, such as SNOMED,RxNorm."),
    ] = ""
    types: Annotated[
        str | None,
        Option(metavar="TYPE,...", help="Keep only concepts that have one of these types."),
    ] = None
    source: Annotated[
        str,
        Option(
            "--source-name", help="Name of the source, stored as metadata; default: the file names."
        ),
    ] = ""
    release: Annotated[
        str, Option(help="Release of the source, stored as metadata; default: from OBO headers.")
    ] = ""
    licence: Annotated[
        str, Option(help="Licence of the source, stored as metadata; default: from OBO headers.")
    ] = ""
    skip_bad: console.SkipBad = None


@console.expand_options
def build(
    out: Annotated[Path, Argument(help="Folder to create, or knowledge base to replace.")],
    sources: Annotated[list[Path], Argument(metavar="SOURCE", help=_SOURCES)],
    options: SourceOptions,
    under: Annotated[
        list[str] | None,
        Option(metavar="ID", help="Keep only this concept and its descendants; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        Option(metavar="ID", help="Leave out this concept and its descendants; repeatable."),
    ] = None,
    retired: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Retired ids: old id, tab, current id per line."),
    ] = None,
    json_file: console.Json = None,
) -> None:
    """Build a knowledge base from one or several sources.

    Records with the same id are merged. The report counts everything that is left out. The folder
    is created or replaced only after all sources have been read.

    With --skip-bad, bad records are skipped: lines of tables, JSON lines, RRF or dictionaries, OBO
    frames, MeSH XML records, and entries of JSON objects. A damaged file always stops the build,
    and so does any error in OWL or OBO JSON.

    Example: `bioel kb build my_kb terms.csv --columns id=Code,name=Label --prefix MY`
    """
    console.check_distinct([*sources, retired], [options.skip_bad, json_file])
    had_vectors = bool(homes_in(out, "vectors"))
    with console.reporting_bad(options.skip_bad, sources=sources):
        concepts, about = open_sources(sources, options)
        if retired is not None:
            concepts = chain(concepts, read_table(retired, columns=_RETIRED, prefix=options.prefix))
        report = build_kb(
            console.track(concepts, "Reading concepts"),
            out,
            branches=Branches(under or (), exclude or ()) if under or exclude else None,
            **about,
        )
    if console.write_json(json_file, asdict(report)):
        show_counts(f"Built {out}", asdict(report))
    if had_vectors:
        console.show_note(
            f"The vectors of the replaced knowledge base are gone: run bioel kb encode {out} MODEL"
        )


def encode(
    kb: console.KbFolder,
    model: Annotated[
        str,
        Argument(help="Pipeline with a bioel_linker; starter: the bundled encoder."),
    ],
    code: console.Code = None,
    gpu_id: console.GpuId = -1,
) -> None:
    """Encode all names with a pipeline's linker, and store the vectors in the knowledge base.

    A pipeline needs vectors from its own encoder to search a large knowledge base. Vectors from
    other encoders are kept. Names that already have a vector from this encoder are not encoded
    again. For constrained decoding, a trie of the names is also written. Commands that change the
    knowledge base wait until encoding ends.

    If the pipeline was saved with a copy of this knowledge base, the copy gets the vectors too.

    Example: `bioel kb encode my_kb starter`
    """
    from spacy_bioel.cli.inputs import load_model, require_linker

    base = KnowledgeBase.open(kb)
    linker = require_linker(load_model(model), model)
    with console.progress_bar("Encoding names", total=base.n_names) as advance:
        done = linker.encode_kb(base, progress=advance)
    kept = f", {done.copied:,} already had vectors" if done.copied else ""
    console.show_note(
        f"Encoded {done.encoded:,} names of {kb} with encoder {linker.fingerprint}{kept}."
    )
    if done.ann:
        console.show_note(f"Built an {ann_text(done.ann)}.")
    for copy in parts_of(linker.kb_if_built()) if linker.included else ():
        if copy.path and copy.fingerprint == base.fingerprint:
            KnowledgeBase.open(kb).save_to(copy.path)
            console.show_note(f"The copy in {copy.where} has the vectors too.")
        else:
            console.show_note(f"Not encoded: {copy.where}, which is not the same knowledge base.")


def open_sources(
    paths: Sequence[Path], options: SourceOptions
) -> tuple[Iterator[Concept], dict[str, Any]]:
    """Open the sources given by a command's options.

    RETURNS (tuple): A stream of the concepts in all files; and the `types` to keep, `source`,
        `release` and `licence`, whose defaults are the file names and OBO headers.
    """
    columns = None if options.columns is None else parse_columns(options.columns)
    detects = options.format is None and columns is None
    formats = [
        (path, detect_ontology_format(path) if detects else options.format) for path in paths
    ]
    headers = [read_obo_header(path) for path, name in formats if name == "obo"]
    defaults = {"source": [path.name for path in paths]}
    defaults |= {key: [h[i] for h in headers] for i, key in enumerate(("release", "licence"))}
    reading: Any = {"columns": columns, "synonym_separator": options.synonym_separator}
    reading["vocabularies"] = split_list(options.vocabulary)
    concepts = chain.from_iterable(
        _with_good_ids(path, read_ontology(path, format=name, prefix=options.prefix, **reading))
        for path, name in formats
    )
    about: dict[str, Any] = {"types": None if options.types is None else split_list(options.types)}
    for key, values in defaults.items():
        about[key] = getattr(options, key) or ", ".join(dict.fromkeys(filter(None, values)))
    return counting_kept(concepts), about


def _with_good_ids(path: Path, concepts: Iterable[Concept]) -> Iterator[Concept]:
    for number, concept in enumerate(concepts, start=1):
        with skip_if_bad():
            check_ids(concept, where=f"record {number} of {path}")
            yield concept


def show_counts(title: str, counts: Mapping[str, int | str]) -> None:
    """Print a table of the non-zero counts and their meanings."""
    rows = [
        (MEANINGS_OF_COUNTS[name], count if isinstance(count, str) else f"{count:,}")
        for name, count in counts.items()
        if count
    ]
    console.show_table(("count", "value"), rows, title=title)


def parse_columns(text: str) -> dict[str, Column]:
    """Parse "id=1,name=Label" as {"id": 1, "name": "Label"}."""
    columns: dict[str, Column] = {}
    for part in split_list(text):
        key, _, column = (piece.strip() for piece in part.partition("="))
        if not key or not column:
            raise BioelError(Errors.B070.format(part=part))
        columns[key] = int(column) if column.isdecimal() and len(column) <= _MAX_DIGITS else column
    return columns


def split_list(text: str) -> list[str]:
    """Parse "a, b" as ["a", "b"]."""
    return [part.strip() for part in text.split(",") if part.strip()]


def copy(
    kb: console.Kb,
    out: Annotated[Path, Argument(metavar="OUT", help="Folder of the copy.")],
) -> None:
    """Copy a knowledge base, which may be bundled, to a folder that can be changed.

    Example: `bioel kb copy starter:genes my_genes`
    """
    open_kb_argument(kb).save_to(out)
    console.show_note(f"To add concepts to it: bioel kb add {out} SOURCE")


def _mapping_options() -> type:
    """Return a dataclass with an option for each format of mappings; those missing are hidden."""
    missing = missing_names(MAPPINGS)
    help = "Add exact mappings of concepts as cross-references; repeatable."
    formats: Any = [
        (
            name,
            Annotated[
                list[Path] | None,
                Option(metavar=f"FILE.{name}.tsv", help=help, hidden=name in missing),
            ],
            None,
        )
        for name in (*registered_names(MAPPINGS), *missing)
    ]
    return make_dataclass("Mappings", formats)


@partial(console.expand_options, plugins=[_mapping_options()])
def add(
    kb: console.KbFolder,
    options: SourceOptions,
    plugins: list[Any],
    sources: Annotated[list[Path] | None, Argument(metavar="SOURCE", help=_SOURCES)] = None,
    json_file: console.Json = None,
) -> None:
    """Add the concepts of one or several sources, or mappings, to a knowledge base.

    Existing entries are kept. An existing concept receives the names, types and parents that it
    lacks, and a definition if it has none; its preferred name is kept. A record with a retired id
    is merged into the concept that replaced the id. A current id is not retired, even if a source
    retires it: use `bioel kb retire`.

    All columns are rewritten, in seconds for half a million names, and replaced in one step.
    Vectors are kept: `bioel kb encode` encodes only the new names. The command waits for other
    commands that are changing the knowledge base.

    Examples: `bioel kb add my_kb local_terms.tsv`, `bioel kb add my_kb --sssom omim.sssom.tsv`
    """
    given = {name: files for name, files in vars(plugins[0]).items() if files}
    readers = {name: load_registered(MAPPINGS, name) for name in given}
    mappings = [(path, readers[name]) for name, files in given.items() for path in files]
    paths, left_out = [*(sources or ()), *(path for path, _ in mappings)], Counter[str]()
    if not paths:
        raise BioelError(Errors.B638)
    console.check_distinct(paths, [options.skip_bad, json_file])
    with console.reporting_bad(options.skip_bad, sources=paths):
        concepts, about = open_sources(sources or (), options)
        if mappings:
            base = KnowledgeBase.open(kb)
            concepts = chain(concepts, *(read(path, base, left_out) for path, read in mappings))
            names = [path.name for path, _ in mappings]
            about["source"] = ", ".join(filter(None, [about["source"], *names]))
        edited = add_concepts(kb, console.track(concepts, "Reading concepts"), **about)
    if left_out.total():
        why = ", ".join(f"{reason}: {n:,}" for reason, n in left_out.most_common())
        shown = shortened(", ".join(names))
        console.show_note(Warnings.W413.format(path=shown, n=left_out.total(), why=why))
    show_edit_report(f"Added to {kb}", edited, kb=kb, json_file=json_file)


def show_edit_report(title: str, edited: EditReport, *, kb: Path, json_file: Path | None) -> None:
    """Show or write the report on a change, with a note if vectors are outdated."""
    report = asdict(edited.report)
    counts = {key: report[key] for key in _EDIT_COUNTS}
    changes = {"concepts": edited.concepts, "names": edited.names, "retired": edited.retired}
    about = {f"new_{key}": n for key, n in changes.items()} | counts
    if console.write_json(json_file, about | {"vectors_outdated": edited.vectors_outdated}):
        shown = {f"{key}_{'removed' if n < 0 else 'added'}": abs(n) for key, n in changes.items()}
        show_counts(title, shown | counts)
    if edited.vectors_outdated:
        console.show_note(
            f"The vectors are outdated: run bioel kb encode {kb} MODEL, which encodes only the new "
            "names."
        )


def edit(
    kb: console.KbFolder,
    id: Annotated[str, Argument(help="Id of the concept.")],
    add: Annotated[
        list[str] | None, Option(metavar="NAME", help="Synonym to add; repeatable.")
    ] = None,
    remove: Annotated[
        list[str] | None, Option(metavar="NAME", help="Name to remove; repeatable.")
    ] = None,
    rename: Annotated[str, Option(metavar="NAME", help="New preferred name.")] = "",
    prefix: console.Prefix = "",
    json_file: console.Json = None,
) -> None:
    """Change the names of one concept of a knowledge base.

    Names are compared ignoring case and punctuation. A renamed concept keeps its old name as a
    synonym. --rename "new name" --remove "old name" also removes the old name. If any change is
    invalid, nothing is changed.

    All columns are rewritten, in seconds for half a million names, and replaced in one step.
    Vectors are kept: `bioel kb encode` encodes only the new names. Changes are lost when the
    knowledge base is built again: keep lasting changes in your own source for `bioel kb add`.

    Example: `bioel kb edit my_kb MESH:D009270 --add Narcanti`
    """
    if not (add or remove or rename):
        raise BioelError(Errors.B402)
    change = NameEdit(add=add or (), remove=remove or (), rename=rename)
    edited = edit_names(kb, {curie(id, prefix): change})
    show_edit_report(f"Edited {curie(id, prefix)} in {kb}", edited, kb=kb, json_file=json_file)
    for name in filter(None, (*change.add, rename)):
        if (number := normalize_name(name)).replace(" ", "").isdecimal():
            console.show_note(Warnings.W443.format(name=name, number=number, kb=kb, id=id))


def retire(
    kb: console.KbFolder,
    old: Annotated[str | None, Argument(help="Id to retire.")] = None,
    replaced_by: Annotated[
        str, Option(metavar="ID", help="Id of the concept that replaces it.")
    ] = "",
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Ids to retire: old id, tab, current id per line."),
    ] = None,
    prefix: console.Prefix = "",
    json_file: console.Json = None,
) -> None:
    """Retire ids in a knowledge base.

    A retired id resolves to its replacement, which takes over the concept's names and
    children. Without a replacement, the concept, its id, and the names that no other concept has
    are removed. If any id is unknown, none is retired.

    Example: `bioel kb retire my_kb MESH:C000001 --replaced-by MESH:D009270`
    """
    console.check_distinct([pairs], [json_file])
    if (old is None) == (pairs is None) or (pairs is not None and replaced_by):
        raise BioelError(Errors.B204)
    replacements = {} if old is None else {curie(old, prefix): curie(replaced_by, prefix)}
    for record in () if pairs is None else read_table(pairs, columns=_RETIRED, prefix=prefix):
        second = record.replaced_by
        if (first := replacements.setdefault(record.id, second)) != second:
            clash = {"path": pairs, "id": record.id, "first": first, "second": second}
            raise BioelError(Errors.B205.format(**clash))
    show_edit_report(f"Retired in {kb}", retire_ids(kb, replacements), kb=kb, json_file=json_file)


def compact(
    kb: console.KbFolder,
    forget_retired: Annotated[
        bool, Option("--forget-retired", help="Also remove all retired ids.")
    ] = False,
    json_file: console.Json = None,
) -> None:
    """Remove unused files from a knowledge base.

    Unused files are outdated vectors from all encoders, and temporary files left by killed
    commands. Run `bioel kb encode` first, because it reuses outdated vectors. Columns need no
    compaction, because `bioel kb add` and `bioel kb retire` rewrite them. Retired ids are kept,
    unless --forget-retired is set.

    Example: `bioel kb compact my_kb`
    """
    done = compact_kb(kb, forget_retired=forget_retired)
    megabytes = round(done.n_bytes / 1e6, 1)
    n_forgotten = 0 if done.edit is None else -done.edit.retired
    lines = []
    if done.leftovers:
        n_removed = console.count_of(done.leftovers, "unused item")
        lines.append(f"Removed {n_removed} ({megabytes:,} MB).")
    if n_forgotten:
        lines.append(f"Forgot {console.count_of(n_forgotten, 'retired id')}.")
    if done.edit is not None and done.edit.vectors_outdated:
        lines.append(f"The vectors are outdated: run bioel kb encode {kb} MODEL (no new names).")
    console.show_note(" ".join(lines) or "Nothing to remove.")
    content = {"leftovers": done.leftovers, "megabytes": megabytes, "forgotten": n_forgotten}
    console.write_json(json_file, content)
