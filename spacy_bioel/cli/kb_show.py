"""Commands that read knowledge bases.

`bioel kb list` shows the bundled knowledge bases. `bioel kb info`, `show` and `search` show the
contents of a knowledge base. `bioel verify` checks saved pipelines and knowledge bases for damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Exit, Option

from spacy_bioel.cli import console
from spacy_bioel.kb.knowledge_base import KnowledgeBase, corrected, search_names
from spacy_bioel.kb.vector_files import describe_vectors

MEANINGS_OF_COUNTS = {
    "records": "records read",
    "concepts": "concepts",
    "names": "different names",
    "entries": "names, counted once for each concept",
    "ambiguous_names": "names that several concepts share",
    "merged_records": "records merged into the concept that already has their id",
    "merged_names": "names left out: the concept has them already, perhaps in another spelling",
    "empty_names": "names left out: no letter or digit",
    "dropped_by_type": "concepts left out: no type listed in --types",
    "dropped_by_branch": "concepts left out by --under and --exclude",
    "dropped_nameless": "concepts left out: no name",
    "inherited_types": "concepts without a type that received their parents' types",
    "unknown_parents": "parent links left out: the parent is not in the knowledge base",
    "retired": "retired ids that resolve to a concept",
    "retired_current": "retired ids left out: still current",
    "retired_missing": "retired ids left out: the replacement is not in the knowledge base",
    "withdrawn": "retired ids without a replacement, for a person to decide",
    "redirected": "records with a retired id, merged into its replacement",
    "fingerprint": "fingerprint of the contents",
    "concepts_added": "concepts added",
    "concepts_removed": "concepts removed",
    "names_added": "names added",
    "names_removed": "names removed",
    "retired_added": "ids retired",
    "retired_removed": "retired ids forgotten",
}


def list_kbs(json_file: console.Json = None) -> None:
    """List the bundled knowledge bases: contents, release, source, licence and number of concepts.

    These names can be used wherever a command reads a knowledge base. A bundled knowledge base is
    built when it is first used; until then, its number of concepts is not known.

    Example: `bioel kb list`
    """
    from spacy_bioel.kb.bundled import list_bundled

    kbs = list_bundled()
    if console.write_json(json_file, kbs):
        keys = ("name", "contents", "release", "concepts", "source", "licence")
        for kb in kbs:
            kb["concepts"] = "not built yet" if (n := kb["concepts"]) is None else f"{n:,}"
        console.show_table(keys, [[str(kb[key]) for key in keys] for kb in kbs])


def info(
    kb: console.Kb,
    json_file: console.Json = None,
    verify: Annotated[
        bool, Option("--verify", help="Also verify the checksums of all files.")
    ] = False,
) -> None:
    """Show a knowledge base's sources, counts and vectors, and verify its files on request.

    Example: `bioel kb info starter:mesh`
    """
    base = open_kb_argument(kb)
    about = describe_kb(base)
    if verify:
        base.verify(homes=True)
        about["verified"] = True
    if console.write_json(json_file, about):
        console.show_table(("field", "value"), _info_rows(about, kb=kb), title="Knowledge base")


def open_kb_argument(kb: str) -> KnowledgeBase:
    """Open a knowledge base for reading: a folder, or a bundled one such as "starter:genes"."""
    if kb.startswith("starter:") and not Path(kb).exists():
        from spacy_bioel.kb.bundled import starter_kb

        return starter_kb(kb)
    return KnowledgeBase.open(kb)


def describe_kb(base: KnowledgeBase) -> dict[str, Any]:
    """Describe a knowledge base (metadata, concepts per type, vectors) as JSON values."""
    about = {key: value for key, value in base.meta.items() if key != "withdrawn"}
    n_per_type = np.bincount(base.type_ids, minlength=len(base.type_names)).tolist()
    per_type = dict(zip(base.type_names, n_per_type, strict=True))
    about["types"] = dict(sorted(per_type.items(), key=lambda item: (-item[1], item[0])))
    n_per_source = np.bincount(base.name_sources, minlength=len(base.sources)).tolist()
    about["names_of_sources"] = dict(zip(base.sources, n_per_source, strict=True))
    about["vectors"] = describe_vectors(base)
    return about


def _info_rows(about: dict[str, Any], *, kb: str) -> Iterator[tuple[str, str]]:
    for key, value in about.items():
        if key in ("types", "names_of_sources"):
            shown = [f"{name or 'unnamed'} {n:,}" for name, n in value.items()]
            n = 12 if key == "types" else len(shown)
            yield key.replace("_", " "), ", ".join(_shorten_list(shown, n))
        elif key == "selection":
            shown = [f"--{option} {id}" for option, ids in value.items() for id in ids]
            yield key, " ".join(shown) or "all concepts"
        elif key == "counts":
            yield from (
                (MEANINGS_OF_COUNTS.get(name, name), f"{n:,}") for name, n in value.items() if n
            )
        elif key == "vectors":
            encode = f"run bioel kb encode {kb} MODEL"
            shown = [
                f"{v['n']:,} x {v['dim']}, encoder {v['fingerprint']}; "
                + (ann_text(v["ann"]) if v["current"] else f"outdated: {encode}")
                for v in value
            ]
            yield key, "\n".join(shown) or f"none; {encode}"
        else:
            yield key, str(value)


def _shorten_list(items: list[str], n: int) -> list[str]:
    """Shorten a list for a table; the JSON output contains all items."""
    n_more = len(items) - n
    return [*items[:n], f"and {n_more:,} more"] if n_more > 0 else items


def ann_text(ann: dict[str, Any] | None) -> str:
    """Describe an approximate index and its recall relative to exact search."""
    if ann is None:
        return "no approximate index"
    recall = f"recall@1 {ann['recall@1']:.2%}, recall@10 {ann['recall@10']:.2%}"
    lists = f"{ann['steps'][0][0]} to {ann['steps'][-1][0]} lists per query"
    return f"approximate index {ann['kind']}, {lists}, {recall}"


def show(
    kb: console.Kb,
    id: Annotated[str, Argument(help="Current or retired id of a concept.")],
    json_file: console.Json = None,
) -> None:
    """Show a concept: names, definition, types, parents, children, cross-references, retired ids.

    Example: `bioel kb show starter:mesh MESH:D009270`
    """
    base = open_kb_argument(kb)
    concept, row = base[id], base.find(id)
    names, sources = concept.names, base.sources_of(row)
    related = {"parents": base.parents_of(row), "children": base.children_of(row)}
    about: dict[str, Any] = {
        "id": concept.id,
        **({"asked_for": id} if concept.id != id else {}),
        "preferred_name": names[0],
        "names": [{"name": n, "source": source} for n, source in zip(names, sources, strict=True)],
        "definition": concept.definition,
        "types": list(concept.types),
        **{
            relation: [{"id": base.ids[r], "name": base.preferred_name(r)} for r in rows.tolist()]
            for relation, rows in related.items()
        },
        "xrefs": list(concept.xrefs),
        "retired_ids": list(base.retired_ids_of(row)),
    }
    if console.write_json(json_file, about):
        title = f"{concept.id} {names[0]}{f' (replaced {id})' if concept.id != id else ''}"
        named = zip(names, sources if len({*sources}) > 1 else repeat(""), strict=False)
        parents, children = ([" ".join(of.values()) for of in about[key]] for key in related)
        rows = {
            "names": "\n".join(f"{name} ({source})" if source else name for name, source in named),
            "definition": concept.definition,
            "types": ", ".join(concept.types),
            "parents": "\n".join(parents),
            "children": "\n".join(_shorten_list(children, 20)),
            "cross-references": ", ".join(concept.xrefs),
            "retired ids": ", ".join(about["retired_ids"]),
        }
        console.show_table((), [row for row in rows.items() if row[1]], title=title)
        console.show_note(f"Knowledge base: {base.releases[0]}")


def search(
    kb: console.Kb,
    words: Annotated[list[str], Argument(help="Words in a name, or an id.")],
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of concepts.")] = 10,
    json_file: console.Json = None,
) -> None:
    """Search for concepts by name; the name may be misspelled.

    The exit status is 1 if no similar name is found.

    Example: `bioel kb search starter:mesh naloxon`
    """
    base = open_kb_argument(kb)
    query = " ".join(words)
    hits = search_names(base, query, limit)
    respelled = None if hits else corrected(base, query)
    if respelled and (hits := search_names(base, respelled, limit)):
        console.show_note(f"No name is similar to {query!r}; searched for {respelled!r}.")
    if console.write_json(json_file, [asdict(hit) for hit in hits]):
        named = [(hit, hit.concept) for hit in hits]
        rows = [(c.id, c.names[0], h.name, ", ".join(c.types), f"{h.score:.2f}") for h, c in named]
        if rows:
            console.show_table(("id", "preferred name", "matched name", "types", "score"), rows)
        else:
            console.show_note(f"No name is similar to {query!r}.")
        console.show_note(f"Knowledge base: {base.releases[0]}")
    if not hits:
        raise Exit(1)


def verify_command(
    path: Annotated[Path, Argument(help="Folder of a saved pipeline or knowledge base.")],
    code: console.Code = None,
    json_file: console.Json = None,
) -> None:
    """Check that a saved pipeline or a knowledge base is unchanged.

    The command reads every byte and compares digests. In a pipeline, it checks the `bioel_mentions`
    and `bioel_linker` pipes and their knowledge bases, and loads the rest. If a pipe has no
    manifest.json, its files cannot be checked; the command reports this.

    The exit status is 0 if no file has changed, 1 if any file has changed, and 2 if PATH is neither
    a pipeline nor a knowledge base.

    Example: `bioel verify tuned`
    """
    from spacy_bioel.loading import verify_saved

    result = verify_saved(path)
    if console.write_json(json_file, asdict(result)):
        rows = [(folder, "unchanged") for folder in result.whole]
        rows += [(folder, "no manifest, cannot be checked") for folder in result.without]
        rows += [(folder, "changed or damaged") for folder in result.failed]
        console.show_table(("folder", "status"), rows)
    for message in result.failed.values():
        console.show_error(message)
    if result.failed:
        raise Exit(1)
