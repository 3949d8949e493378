"""Commands that change knowledge bases: `bioel kb add`, `edit`, `retire` and `compact`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, make_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from spacy_bioel.cli import console
from spacy_bioel.cli.kb_build import (
    RETIRED_COLUMNS,
    SOURCES_HELP,
    SourceOptions,
    open_sources,
    show_counts,
)
from spacy_bioel.errors import BioelError, shortened
from spacy_bioel.io.open import curie
from spacy_bioel.io.table import read_table
from spacy_bioel.kb.edit import (
    EditReport,
    NameEdit,
    add_concepts,
    compact_kb,
    edit_names,
    retire_ids,
)
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.curation.errors import CurationErrors, CurationWarnings
from spacy_bioel.registered import MAPPINGS, load_registered, missing_names, registered_names
from spacy_bioel.text.normalize import normalize_name

# Counts shown by `add`, `edit` and `retire`.
_EDIT_COUNTS = (
    "records", "merged_records", "redirected", "merged_names", "empty_names", "dropped_by_type",
    "dropped_nameless", "inherited_types", "unknown_parents", "retired_current", "retired_missing",
    "concepts", "names", "retired", "fingerprint",
)  # fmt: skip


def _mapping_options() -> type:
    """Return a dataclass with one option per mapping format, hidden if the format is missing."""
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
    sources: Annotated[list[Path] | None, Argument(metavar="SOURCE", help=SOURCES_HELP)] = None,
    json_file: console.Json = None,
) -> None:
    """Add mappings, or the concepts of one or more sources, to a knowledge base.

    Existing entries are kept. An existing concept receives the names, types and parents that it
    lacks, and a definition if it has none; its preferred name is kept. A record with a retired id
    is merged into the concept that replaced the id. A current id is not retired, even if it is
    retired in a source; use `bioel kb retire` for that.

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
        raise BioelError(CurationErrors.B638)
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
        console.show_note(CurationWarnings.W413.format(path=shown, n=left_out.total(), why=why))
    show_edit_report(f"Added to {kb}", edited, kb=kb, json_file=json_file)


def show_edit_report(title: str, edited: EditReport, *, kb: Path, json_file: Path | None) -> None:
    """Show or write an edit report, with a note if vectors are outdated."""
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
    """Change the names of one concept in a knowledge base.

    Names are compared without regard to case or punctuation. A renamed concept keeps its old name
    as a synonym. --rename "new name" --remove "old name" also removes the old name. If any change
    is invalid, nothing is changed.

    All columns are rewritten, in seconds for half a million names, and replaced in one step.
    Vectors are kept: `bioel kb encode` encodes only the new names. Changes are lost if the
    knowledge base is rebuilt; keep permanent changes in your own source for `bioel kb add`.

    Example: `bioel kb edit my_kb MESH:D009270 --add Narcanti`
    """
    if not (add or remove or rename):
        raise BioelError(CurationErrors.B402)
    change = NameEdit(add=add or (), remove=remove or (), rename=rename)
    edited = edit_names(kb, {curie(id, prefix): change})
    show_edit_report(f"Edited {curie(id, prefix)} in {kb}", edited, kb=kb, json_file=json_file)
    for name in filter(None, (*change.add, rename)):
        if (number := normalize_name(name)).replace(" ", "").isdecimal():
            console.show_note(CurationWarnings.W443.format(name=name, number=number, kb=kb, id=id))


def retire(
    kb: console.KbFolder,
    old: Annotated[str | None, Argument(help="Id to retire.")] = None,
    replaced_by: Annotated[
        str, Option(metavar="ID", help="Id of the concept that replaces it.")
    ] = "",
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Ids to retire, one per line: old id, tab, current id."),
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
        raise BioelError(CurationErrors.B204)
    replacements = {} if old is None else {curie(old, prefix): curie(replaced_by, prefix)}
    for record in (
        () if pairs is None else read_table(pairs, columns=RETIRED_COLUMNS, prefix=prefix)
    ):
        second = record.replaced_by
        if (first := replacements.setdefault(record.id, second)) != second:
            clash = {"path": pairs, "id": record.id, "first": first, "second": second}
            raise BioelError(CurationErrors.B205.format(**clash))
    show_edit_report(f"Retired in {kb}", retire_ids(kb, replacements), kb=kb, json_file=json_file)


def compact(
    kb: console.KbFolder,
    forget_retired: Annotated[
        bool, Option("--forget-retired", help="Also remove all retired ids.")
    ] = False,
    json_file: console.Json = None,
) -> None:
    """Remove unused files from a knowledge base.

    Unused files are outdated vectors from all encoders, and temporary files left behind by killed
    commands. Run `bioel kb encode` first, because it reuses outdated vectors. Columns do not need
    compaction, because `bioel kb add` and `bioel kb retire` rewrite them. Retired ids are kept
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
