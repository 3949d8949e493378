"""`bioel kb add`: add concepts and names to a knowledge base."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    show_counts,
    split_list,
)
from spacy_bioel.kb.build.grow import add_concepts

if TYPE_CHECKING:
    from spacy_bioel.kb.build.grow import Growth

# Keys of a report that count the records read, not the whole knowledge base.
_OF_RECORDS = (
    "records", "merged_records", "redirected", "merged_names", "empty_names", "dropped_by_type",
    "dropped_nameless", "inherited_types", "unknown_parents", "retired_current", "retired_missing",
)  # fmt: skip


def add(
    kb: Annotated[Path, typer.Argument(help="Folder that `bioel kb build` wrote.")],
    sources: SourcesArgument,
    format: FormatOption = None,
    prefix: PrefixOption = "",
    columns: ColumnsOption = None,
    types: Annotated[
        str | None,
        typer.Option(metavar="TYPE,...", help="Add only new concepts with one of these types."),
    ] = None,
    source_name: SourceNameOption = "",
    release: ReleaseOption = "",
    licence: LicenceOption = "",
    json_file: JsonOption = None,
) -> None:
    """Add the concepts of one or several sources to a knowledge base.

    Existing entries are kept. An existing concept gets the names, types and parents that it lacks,
    and a definition if it has none; its preferred name stays. A record of a retired id is merged
    into the concept that replaced it. A current id is not retired, whatever a source says: use
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
        source=source_name,
        release=release,
        licence=licence,
    )
    growth = add_concepts(
        kb,
        track(concepts, "Reading concepts"),
        types=None if types is None else split_list(types),
        **about,
    )
    show_growth(f"Added to {kb}", growth, kb=kb, json_file=json_file)


def show_growth(title: str, growth: Growth, *, kb: Path, json_file: Path | None) -> None:
    """Show or write the report of a change, with a note on outdated vectors."""
    about = as_json(growth)
    if json_file is not None:
        write_json(json_file, about)
    if str(json_file) != "-":
        shown = (_positive(*count) for count in about.items() if count[1] is not True)
        show_counts(title, dict(shown))
    if growth.vectors_outdated:
        show_note(
            f"The vectors are of an earlier state: run bioel kb encode {kb} MODEL; it encodes new "
            "names only."
        )


def _positive(key: str, count: Any) -> tuple[str, Any]:
    """Turn a negative count of new items into a positive count of gone ones."""
    is_fewer = isinstance(count, int) and count < 0
    return (key.replace("new_", "gone_"), -count) if is_fewer else (key, count)


def as_json(growth: Growth) -> dict[str, Any]:
    """Convert a change to a flat record."""
    report = asdict(growth.report)
    return {
        "new_concepts": growth.concepts,
        "new_names": growth.names,
        "new_retired": growth.retired,
        **{key: report[key] for key in _OF_RECORDS},
        "concepts": report["concepts"],
        "names": report["names"],
        "retired": report["retired"],
        "fingerprint": report["fingerprint"],
        "vectors_outdated": growth.vectors_outdated,
    }
