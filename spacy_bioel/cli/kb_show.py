"""`bioel kb info`, `show` and `search`: what a knowledge base has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from spacy_bioel.cli.console import JsonOption, show_note, show_table, write_json
from spacy_bioel.cli.models import open_kb
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.search import search_names
from spacy_bioel.kb.vectors.stored import describe_vectors

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
        show_table(_info_table(about, kb=kb))


def describe(base: KnowledgeBase) -> dict[str, Any]:
    """Describe a knowledge base: metadata, concepts per type and vectors, as JSON values.

    RAISES BioelError: Those of `kb.vectors.stored.describe_vectors`, for damaged vectors.
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


def _info_table(about: dict[str, Any], *, kb: Path) -> Table:
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


KbArgument = Annotated[
    str,
    typer.Argument(
        metavar="KB",
        help="Folder that `bioel kb build` wrote, or a knowledge base of the package: "
        "starter:mesh, starter:genes, starter:species or starter:cells.",
    ),
]
_N_CHILDREN = 20  # in the table; JSON has all


def show(
    kb: KbArgument,
    id: Annotated[str, typer.Argument(help="Id of a concept, also one that was retired.")],
    json_file: JsonOption = None,
) -> None:
    """Show a concept: its names, definition, types, parents, children, cross-references and the ids
    that it replaced."""
    base = _open(kb)
    about = describe_concept(base, id)
    if json_file is not None:
        write_json(json_file, about)
    if str(json_file) != "-":
        show_table(_as_table(about))
        show_note(f"Knowledge base: {base.releases[0]}")


def search(
    kb: KbArgument,
    words: Annotated[list[str], typer.Argument(help="Words of a name, or an id.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of concepts.")] = 10,
    json_file: JsonOption = None,
) -> None:
    """Search for concepts by their names, which may be misspelled. The exit status is 1 when there
    is none."""
    base = _open(kb)
    hits = search_names(base, " ".join(words), limit)
    if json_file is not None:
        write_json(json_file, [asdict(hit) for hit in hits])
    if str(json_file) != "-":
        table = Table("id", "preferred name", "matched name", "types", "score")
        for hit in hits:
            concept = hit.concept
            table.add_row(
                concept.id, concept.names[0], hit.name, ", ".join(concept.types), f"{hit.score:.2f}"
            )
        if hits:
            show_table(table)
        else:
            show_note(f"No name is like {' '.join(words)!r}.")
        show_note(f"Knowledge base: {base.releases[0]}")
    if not hits:
        raise typer.Exit(1)


def describe_concept(base: KnowledgeBase, id: str) -> dict[str, Any]:
    """Describe a concept and its neighbours, as JSON values.

    RAISES BioelError: [B337] for an unknown id.
    """
    concept = base[id]
    row = base.find(id)
    about: dict[str, Any] = {"id": concept.id}
    if concept.id != id:
        about["asked_for"] = id
    about["preferred_name"] = concept.names[0]
    sources = base.sources_of(row)
    about["names"] = [
        {"name": name, "source": source}
        for name, source in zip(concept.names, sources, strict=True)
    ]
    about["definition"] = concept.definition
    about["types"] = list(concept.types)
    for relation, rows in (("parents", base.parents_of(row)), ("children", base.children_of(row))):
        about[relation] = [
            {"id": base.ids[other], "name": base.preferred_name(other)} for other in rows.tolist()
        ]
    about["xrefs"] = list(concept.xrefs)
    about["retired_ids"] = list(base.retired_ids_of(row))
    return about


def _open(kb: str) -> KnowledgeBase:
    if kb.startswith("starter:"):
        from spacy_bioel.pipeline.linker.starter import starter_kb

        return starter_kb(kb)

    return KnowledgeBase.open(kb)


def _as_table(about: dict[str, Any]) -> Table:
    title = f"{about['id']} {about['preferred_name']}"
    if "asked_for" in about:
        title += f" (replaced {about['asked_for']})"
    table = Table(show_header=False, title=title)
    several = len({name["source"] for name in about["names"]}) > 1
    names = [
        f"{one['name']} ({one['source']})" if several and one["source"] else one["name"]
        for one in about["names"]
    ]
    related = {
        relation: [f"{one['id']} {one['name']}" for one in about[relation]]
        for relation in ("parents", "children")
    }
    more = len(related["children"]) - _N_CHILDREN
    if more > 0:
        related["children"][_N_CHILDREN:] = [f"and {more:,} more"]
    rows = {
        "names": "\n".join(names),
        "definition": about["definition"],
        "types": ", ".join(about["types"]),
        "parents": "\n".join(related["parents"]),
        "children": "\n".join(related["children"]),
        "cross-references": ", ".join(about["xrefs"]),
        "retired ids": ", ".join(about["retired_ids"]),
    }
    for key, value in rows.items():
        if value:
            table.add_row(key, value)
    return table
