"""`bioel kb info`: show sources, counts and vectors of a knowledge base."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from spacy_bioel.cli.console import JsonOption, show_table, write_json
from spacy_bioel.cli.models import open_kb
from spacy_bioel.kb.vectors.writing import describe_vectors

if TYPE_CHECKING:
    from spacy_bioel.kb.columns.store import KnowledgeBase

_N_TYPES = 12  # types in the table; JSON has all


def info(
    kb: Annotated[
        Path,
        typer.Argument(
            help="Folder that `bioel kb build` wrote, or starter:mesh, starter:genes ..."
        ),
    ],
    json_file: JsonOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte and compare checksums.")
    ] = False,
) -> None:
    """Show sources, counts and vectors of a knowledge base, and verify its files on request."""
    base = open_kb(kb)
    about = describe(base)
    if verify:
        from spacy_bioel.pipeline.verifying import verify_kb

        verify_kb(base)
        about["verified"] = True
    if json_file is not None:
        write_json(json_file, about)
    if str(json_file) != "-":
        show_table(_as_table(about, kb=kb))


def describe(base: KnowledgeBase) -> dict[str, Any]:
    """Describe a knowledge base: metadata, concepts per type and vectors, as JSON values.

    RAISES BioelError: Those of `kb.vectors.writing.describe_vectors`, for damaged vectors.
    """
    import numpy as np

    about = {key: value for key, value in base.meta.items() if key != "columns"}
    n_per_type = np.bincount(base.type_ids, minlength=len(base.type_names)).tolist()
    per_type = dict(zip(base.type_names, n_per_type, strict=True))
    about["types"] = dict(sorted(per_type.items(), key=lambda item: (-item[1], item[0])))
    n_per_source = np.bincount(base.name_sources, minlength=len(base.sources)).tolist()
    about["names_of_sources"] = dict(zip(base.sources, n_per_source, strict=True))
    about["vectors"] = describe_vectors(base)
    return about


def _as_table(about: dict[str, Any], *, kb: Path) -> Table:
    table = Table("what", "value", title="Knowledge base")
    for key, value in about.items():
        if key == "types":
            shown = [f"{name} {n:,}" for name, n in list(value.items())[:_N_TYPES]]
            more = len(value) - len(shown)
            table.add_row("types", ", ".join(shown + ([f"and {more} more"] if more else [])))
        elif key == "counts":
            for name, n in value.items():
                table.add_row(name.replace("_", " "), f"{n:,}")
        elif key == "names_of_sources":
            shown = [f"{name or 'unnamed'} {n:,}" for name, n in value.items()]
            table.add_row("names of sources", ", ".join(shown))
        elif key == "vectors":
            shown = [_vectors_text(vectors, kb=kb) for vectors in value]
            table.add_row(key, "\n".join(shown) or f"none; run bioel kb encode {kb} MODEL")
        else:
            table.add_row(key, str(value))
    return table


def _vectors_text(vectors: dict[str, Any], *, kb: Path) -> str:
    text = f"{vectors['n']:,} x {vectors['dim']}, encoder {vectors['fingerprint']}"
    if not vectors["current"]:
        return f"{text}; of what it was before: run bioel kb encode {kb} MODEL"
    return f"{text}; {ann_text(vectors['ann'])}"


def ann_text(ann: dict[str, Any] | None) -> str:
    """Describe an approximate index, with its recall of exact search."""
    if ann is None:
        return "no approximate index"
    recall = f"recall@1 {ann['recall@1']:.2%}, recall@10 {ann['recall@10']:.2%}"
    lists = f"{ann['steps'][0][0]} to {ann['steps'][-1][0]} lists a query"
    return f"approximate index {ann['kind']}, {lists}, {recall}"
