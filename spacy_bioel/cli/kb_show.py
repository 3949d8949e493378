"""`bioel kb info`, `show` and `search`: what a knowledge base has; `bioel verify`: whether it, or a
pipeline, is as it was saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.kb.knowledge_base import KnowledgeBase, corrected, search_names
from spacy_bioel.kb.vector_files import describe_vectors

# In tables; JSON has all.
_N_TYPES = 12
_N_CHILDREN = 20


def info(
    kb: console.Kb,
    json_file: console.Json = None,
    verify: Annotated[bool, Option("--verify", help="Compare checksums of every byte.")] = False,
) -> None:
    """Show sources, counts and vectors of a knowledge base, and verify its files on request."""
    base = open_kb(kb)
    about = describe(base)
    if verify:
        base.verify()
        base.verify_homes()
        about["verified"] = True
    if console.write_json(json_file, about):
        console.show_table(("what", "value"), _info_rows(about, kb=kb), title="Knowledge base")


def open_kb(kb: str) -> KnowledgeBase:
    """Open a knowledge base for reading: a folder, or one of the package, as "starter:genes"."""
    if kb.startswith("starter:") and not Path(kb).exists():
        from spacy_bioel.kb.bundled import starter_kb

        return starter_kb(kb)
    return KnowledgeBase.open(kb)


def describe(base: KnowledgeBase) -> dict[str, Any]:
    """Describe a knowledge base: metadata, concepts per type and vectors, as JSON values.

    RAISES BioelError: Those of `kb.vector_files.describe_vectors`, for damaged vectors.
    """
    about = {key: value for key, value in base.meta.items() if key != "columns"}
    n_per_type = np.bincount(base.type_ids, minlength=len(base.type_names)).tolist()
    per_type = dict(zip(base.type_names, n_per_type, strict=True))
    about["types"] = dict(sorted(per_type.items(), key=lambda item: (-item[1], item[0])))
    n_per_source = np.bincount(base.name_sources, minlength=len(base.sources)).tolist()
    about["names_of_sources"] = dict(zip(base.sources, n_per_source, strict=True))
    about["vectors"] = describe_vectors(base)
    return about


def _info_rows(about: dict[str, Any], *, kb: str) -> Iterator[tuple[str, str]]:
    for key, value in about.items():
        if key == "types":
            shown = [f"{name} {n:,}" for name, n in value.items()]
            yield "types", ", ".join(_first(shown, _N_TYPES))
        elif key == "counts":
            yield from ((name.replace("_", " "), f"{n:,}") for name, n in value.items())
        elif key == "names_of_sources":
            shown = [f"{name or 'unnamed'} {n:,}" for name, n in value.items()]
            yield "names of sources", ", ".join(shown)
        elif key == "vectors":
            shown = [_vectors_text(vectors, kb=kb) for vectors in value]
            yield key, "\n".join(shown) or f"none; run bioel kb encode {kb} MODEL"
        else:
            yield key, str(value)


def _first(shown: list[str], n: int) -> list[str]:
    more = len(shown) - n
    return [*shown[:n], f"and {more:,} more"] if more > 0 else shown


def _vectors_text(vectors: dict[str, Any], *, kb: str) -> str:
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


def show(
    kb: console.Kb,
    id: Annotated[str, Argument(help="Id of a concept, also one that was retired.")],
    json_file: console.Json = None,
) -> None:
    """Show a concept: its names, definition, types, parents, children, cross-references and the ids
    that it replaced."""
    base = open_kb(kb)
    about = _describe_concept(base, id)
    if console.write_json(json_file, about):
        title = f"{about['id']} {about['preferred_name']}"
        title += f" (replaced {about['asked_for']})" if "asked_for" in about else ""
        console.show_table((), [row for row in _concept_rows(about).items() if row[1]], title=title)
        console.show_note(f"Knowledge base: {base.releases[0]}")


def search(
    kb: console.Kb,
    words: Annotated[list[str], Argument(help="Words of a name, or an id.")],
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Number of concepts.")] = 10,
    json_file: console.Json = None,
) -> None:
    """Search for concepts by their names, which may be misspelled. The exit status is 1 when there
    is none."""
    base = open_kb(kb)
    hits = search_names(base, " ".join(words), limit)
    if not hits and (meant := corrected(base, " ".join(words))):
        hits = search_names(base, meant, limit)
        if hits:
            console.show_note(f"No name is like {' '.join(words)!r}; searched for {meant!r}.")
    if console.write_json(json_file, [asdict(hit) for hit in hits]):
        rows = [
            (c.id, c.names[0], hit.name, ", ".join(c.types), f"{hit.score:.2f}")
            for hit in hits
            for c in [hit.concept]
        ]
        if rows:
            console.show_table(("id", "preferred name", "matched name", "types", "score"), rows)
        else:
            console.show_note(f"No name is like {' '.join(words)!r}.")
        console.show_note(f"Knowledge base: {base.releases[0]}")
    if not hits:
        raise Exit(1)


def _describe_concept(base: KnowledgeBase, id: str) -> dict[str, Any]:
    """Describe a concept and its neighbours, as JSON values.

    RAISES BioelError: [B337] for an unknown id.
    """
    concept = base[id]
    row = base.find(id)
    related = {"parents": base.parents_of(row), "children": base.children_of(row)}
    return {
        "id": concept.id,
        **({"asked_for": id} if concept.id != id else {}),
        "preferred_name": concept.names[0],
        "names": [
            {"name": name, "source": source}
            for name, source in zip(concept.names, base.sources_of(row), strict=True)
        ],
        "definition": concept.definition,
        "types": list(concept.types),
        **{
            relation: [{"id": base.ids[r], "name": base.preferred_name(r)} for r in rows.tolist()]
            for relation, rows in related.items()
        },
        "xrefs": list(concept.xrefs),
        "retired_ids": list(base.retired_ids_of(row)),
    }


def _concept_rows(about: dict[str, Any]) -> dict[str, str]:
    several = len({one["source"] for one in about["names"]}) > 1
    names = [
        f"{one['name']} ({one['source']})" if several and one["source"] else one["name"]
        for one in about["names"]
    ]
    parents, children = (
        [f"{one['id']} {one['name']}" for one in about[key]] for key in ("parents", "children")
    )
    return {
        "names": "\n".join(names),
        "definition": about["definition"],
        "types": ", ".join(about["types"]),
        "parents": "\n".join(parents),
        "children": "\n".join(_first(children, _N_CHILDREN)),
        "cross-references": ", ".join(about["xrefs"]),
        "retired ids": ", ".join(about["retired_ids"]),
    }


def verify(
    path: Annotated[Path, Argument(help="Folder of a saved pipeline, or of a knowledge base.")],
    code: console.Code = None,
    json_file: console.Json = None,
) -> None:
    """Read every byte of a saved pipeline or a knowledge base, and compare digests.

    Of a pipeline, its pipes `bioel_mentions` and `bioel_linker` and their knowledge bases are
    compared; the rest of it is loaded. A pipe without a manifest.json has no digests, and the
    command says so.

    The exit status is 0 when nothing is wrong, 1 when something is, and 2 when PATH is no pipeline
    and no knowledge base.
    """
    from spacy_bioel.loading import verify_saved as run

    found = run(path)
    if console.write_json(json_file, asdict(found)):
        shown = {
            "as it was saved": found.whole,
            "without a manifest: there is nothing to compare": found.without,
            "not as it was saved": found.failed,
        }
        rows = [(folder, state) for state, folders in shown.items() for folder in folders]
        console.show_table(("folder", "found"), rows)
    for message in found.failed.values():
        console.show_error(message)
    if found.failed:
        raise Exit(1)
