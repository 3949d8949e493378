"""`bioel kb copy`, `add`, `edit`, `retire`, `compact` and `upgrade`: change a knowledge base."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from spacy_bioel.cli import console, options
from spacy_bioel.cli.kb_build import open_sources, read_retired, show_counts, split_list
from spacy_bioel.cli.kb_show import open_kb
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.records import curie
from spacy_bioel.kb.build.grow import (
    Growth,
    NameEdit,
    add_concepts,
    compact_kb,
    edit_names,
    retire_ids,
    upgrade_kb,
)

# Keys of a report: those that count the records read, and the whole knowledge base.
_COUNTS = (
    "records", "merged_records", "redirected", "merged_names", "empty_names", "dropped_by_type",
    "dropped_nameless", "inherited_types", "unknown_parents", "retired_current", "retired_missing",
    "concepts", "names", "retired", "fingerprint",
)  # fmt: skip


def copy(
    kb: options.Kb,
    out: Annotated[Path, Argument(metavar="OUT", help="Folder of the copy.")],
) -> None:
    """Copy a knowledge base, also one of the package, to a folder that can be changed."""
    open_kb(kb).save_to(out)
    console.show_note(f"To add concepts to it: bioel kb add {out} SOURCE")


def add(
    kb: options.KbFolder,
    sources: options.Sources,
    format: options.Format = None,
    prefix: options.Prefix = "",
    columns: options.Columns = None,
    types: options.Types = None,
    source_name: options.SourceName = "",
    release: options.Release = "",
    licence: options.Licence = "",
    json_file: options.Json = None,
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
        sources,
        format=format,
        prefix=prefix,
        columns=columns,
        about={"source": source_name, "release": release, "licence": licence},
    )
    chosen = None if types is None else split_list(types)
    growth = add_concepts(kb, console.track(concepts, "Reading concepts"), types=chosen, **about)
    show_growth(f"Added to {kb}", growth, kb=kb, json_file=json_file)


def show_growth(title: str, growth: Growth, *, kb: Path, json_file: Path | None) -> None:
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
    kb: options.KbFolder,
    id: Annotated[str, Argument(help="Id of the concept.")],
    add: Annotated[
        list[str] | None, Option(metavar="NAME", help="Synonym to add; may be repeated.")
    ] = None,
    remove: Annotated[
        list[str] | None, Option(metavar="NAME", help="Name to remove; may be repeated.")
    ] = None,
    rename: Annotated[str, Option(metavar="NAME", help="New preferred name.")] = "",
    prefix: options.Prefix = "",
    json_file: options.Json = None,
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
    show_growth(f"Edited {curie(id, prefix)} in {kb}", growth, kb=kb, json_file=json_file)


def retire(
    kb: options.KbFolder,
    old: Annotated[str | None, Argument(help="Id to retire.")] = None,
    replaced_by: Annotated[
        str, Option(metavar="ID", help="Id of the concept that takes its place.")
    ] = "",
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Ids to retire: the old id, a tab, the current id."),
    ] = None,
    prefix: options.Prefix = "",
    json_file: options.Json = None,
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
    show_growth(f"Retired in {kb}", retire_ids(kb, chosen), kb=kb, json_file=json_file)


def compact(
    kb: options.KbFolder,
    forget_retired: Annotated[
        bool, Option("--forget-retired", help="Also remove all retired ids.")
    ] = False,
    json_file: options.Json = None,
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
    if (growth := done.growth) is not None:
        about["forgotten"] = -growth.retired
        shown += f" Forgot {console.count_of(-growth.retired, 'retired id')}."
        if growth.vectors_outdated:
            shown += f" The vectors fit no longer: run bioel kb encode {kb} MODEL; no name is new."
    console.show_note(shown)
    console.write_json(json_file, about)


def upgrade(kb: options.KbFolder) -> None:
    """Convert a knowledge base of an earlier version to the current layout.

    The earlier layout can be read, too. The current one can be changed while others read it, and
    can have vectors of several encoders. Names do not change; vectors are made again by `bioel kb
    encode`. Commands that change a knowledge base also convert it. Earlier versions cannot read the
    current layout.
    """
    done = upgrade_kb(kb)
    shown = f"Converted {kb} to the current layout." if done else f"{kb} has the current layout."
    console.show_note(shown)
