"""Cut a small knowledge base out of MeSH: the concepts of a corpus and their neighbourhoods."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spacy_bioel.storage.atomic import replacing_file
from spacy_bioel.text.normalize import normalize_name

_BRANCHES = ("C", "F03", "D")  # MeSH trees: diseases, mental disorders, chemicals
_KINSHIP = {"parent": 0.6, "child": 0.4, "sibling": 0.3, "mapped": 0.1}


@dataclass(slots=True)
class Entry:
    """One MeSH record: all names, its tree numbers, and the headings it maps to (or none)."""

    names: list[str]
    trees: list[str]
    headings: list[str]


def read_records(descriptors: Path, supplementary: Path) -> dict[str, Entry]:
    """Diseases and chemicals of both tables; a supplementary record has its headings' trees."""
    records: dict[str, Entry] = {}
    for mesh_id, name, synonyms, trees in _rows(descriptors):
        kept = [tree for tree in trees.split("|") if tree.startswith(_BRANCHES)]
        if kept:
            records[mesh_id] = Entry([name, *filter(None, synonyms.split("|"))], kept, [])
    for mesh_id, name, synonyms, mapped in _rows(supplementary):
        headings = [heading for heading in mapped.split(",") if heading in records]
        if headings:
            kept = [tree for heading in headings for tree in records[heading].trees]
            records[mesh_id] = Entry([name, *filter(None, synonyms.split("|"))], kept, headings)
    return records


def _rows(path: Path) -> Iterator[list[str]]:
    # Four columns: id, name, synonyms and tree numbers or headings; more are not read.
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf8") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")[:4]


def corpus_ids(paths: list[Path]) -> set[str]:
    """The MeSH ids in PubTator files, composites taken apart, NIL left out."""
    ids: set[str] = set()
    for path in paths:
        for line in path.read_text(encoding="utf8").splitlines():
            fields = line.split("\t")
            if len(fields) == 6:
                ids.update(fields[5].split("|"))
    return ids - {"-1"}


def kinship(core: set[str], records: dict[str, Entry]) -> dict[str, float]:
    """Nearness of each record to the corpus concepts by tree number or mapping."""
    # A supplementary record has no place of its own in the tree: only descriptors count.
    trees = {tree: mesh_id for mesh_id, e in records.items() if not e.headings for tree in e.trees}
    own = {tree for tree, mesh_id in trees.items() if mesh_id in core}
    shared = {_parent(tree) for tree in own}
    near: dict[str, float] = defaultdict(float)
    for tree, mesh_id in trees.items():
        above = _parent(tree)
        kin = {"parent": tree in shared, "child": above in own, "sibling": above in shared}
        scores = [_KINSHIP[name] for name, holds in kin.items() if holds]
        near[mesh_id] = max([near[mesh_id], *scores])
    for mesh_id, entry in records.items():
        if core.intersection(entry.headings):
            near[mesh_id] = _KINSHIP["mapped"]
    return near


def _parent(tree: str) -> str:
    return tree.rpartition(".")[0]


def likeness(core: set[str], records: dict[str, Entry]) -> dict[str, float]:
    """Best Jaccard overlap of words between a name of each record and one of the corpus."""
    by_word: dict[str, list[frozenset[str]]] = defaultdict(list)
    targets = {_words(name) for mesh_id in core for name in records[mesh_id].names}
    for target in targets:
        for word in target:
            by_word[word].append(target)
    best: dict[str, float] = {}
    for mesh_id, entry in records.items():
        best[mesh_id] = 0.0
        for words in {_words(name) for name in entry.names}:
            for target in {target for word in words for target in by_word.get(word, ())}:
                overlap = len(words & target) / len(words | target)
                best[mesh_id] = max(best[mesh_id], overlap)
    return best


def _words(name: str) -> frozenset[str]:
    return frozenset(normalize_name(name).split())


def concept(mesh_id: str, records: dict[str, Entry], parents: dict[str, list[str]]) -> str:
    """One line of the output."""
    entry = records[mesh_id]
    codes = sorted({tree.split(".")[0] for tree in entry.trees})
    row = {
        "id": f"MESH:{mesh_id}",
        "names": list(dict.fromkeys(entry.names)),
        "types": list(dict.fromkeys([*codes, *(code[0] for code in codes)])),
        "parents": [f"MESH:{parent}" for parent in parents[mesh_id]],
    }
    return json.dumps({key: value for key, value in row.items() if value}, ensure_ascii=False)


def main(
    descriptors: Annotated[Path, typer.Argument(help="MeSH descriptors, TSV")],
    supplementary: Annotated[Path, typer.Argument(help="MeSH supplementary records, TSV")],
    output: Annotated[Path, typer.Argument(help="The excerpt, JSON lines")],
    corpora: Annotated[list[Path], typer.Argument(help="PubTator files")],
    size: Annotated[int, typer.Option(help="Number of concepts")] = 3000,
) -> None:
    """Write the excerpt: every corpus concept, then the nearest and most alike others."""
    records = read_records(descriptors, supplementary)
    core = corpus_ids(corpora)
    if unknown := sorted(core - records.keys()):
        raise typer.BadParameter(f"not a disease or chemical in this MeSH: {', '.join(unknown)}")
    near, alike = kinship(core, records), likeness(core, records)
    rest = sorted(records.keys() - core, key=lambda i: (-near.get(i, 0.0) - alike[i], i))
    chosen = core | set(rest[: max(0, size - len(core))])
    trees = {tree: i for i in chosen if not records[i].headings for tree in records[i].trees}
    parents = {}
    for mesh_id in chosen:
        entry = records[mesh_id]
        above = entry.headings or [trees.get(_parent(tree), "") for tree in entry.trees]
        parents[mesh_id] = sorted(chosen.intersection(above))
    lines = [concept(mesh_id, records, parents) for mesh_id in sorted(chosen)]
    with replacing_file(output) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf8")


if __name__ == "__main__":
    typer.run(main)
