"""Compare two releases of a knowledge base, and move annotations from one to the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spacy_bioel.curation.sources import file_lines, format_of_file
from spacy_bioel.io.open import Place, curie
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name, normalize_names

# Where each format has the ids of links: a string in JSON, a cell, and for the other formats a row
# of PubTator, a reference of BRAT or an infon of BioC.
_ID_FIELDS = {
    "json": re.compile(r'(?<!"text":)(?<!"text": )"([^"\\\s]+)"'),
    "csv": re.compile(r'(?:^|(?<=[,;"]))([^,;"\r\n]+)(?=[,;"\r\n]|$)'),
    "tsv": re.compile(r"(?:^|(?<=\t))([^\t\r\n]+)"),
    "text": re.compile(
        r"^[^\t|]+\t\d+\t\d+\t[^\t]*\t[^\t]*\t(\S+)|^[^\t|]+\t[A-Za-z_]+\t(\S+)\t(\S+)\s*$"
        r"|^N\d+\tReference \S+ (\S+)|<infon[^>]*>([^<]+)</infon>"
    ),
}
_ID = re.compile(r"[^|;,+\s]+")


class Change(NamedTuple):
    """A difference between two releases.

    kind (str): "added", "replaced", "merged", "split", "consider", "gone", "renamed", "parents
        changed", "name moved" or "name ambiguous".
    name (str): The name that changed, else the preferred name.
    to (tuple[str, ...]): Ids in the new release: replacements, concepts to consider, parents, or
        those with the name.
    """

    kind: str
    id: str
    name: str
    to: tuple[str, ...] = ()
    new_name: str = ""


def compare_releases(old: KnowledgeBase, new: KnowledgeBase) -> Iterator[Change]:
    """Yield the changes from one release to the next, by id, then by name.

    A concept was split if it was retired, and its names are now those of several concepts.
    """
    old_ids, new_ids = list(old.ids), list(new.ids)
    rows = new.find_all(old_ids).tolist()
    current = {id: new_ids[row] if row >= 0 else "" for id, row in zip(old_ids, rows, strict=True)}
    before, after = _ids_of_names(old, old_ids), _ids_of_names(new, new_ids)
    for row, id in enumerate(old_ids):
        now, name = rows[row], old.preferred_name(row)
        if now < 0:
            names = normalize_names(old.names.take(old.names_of(row)))
            owners = {other for name in names for other in after.get(name, ())}
            status, to = what_became(id, new)
            kind = "gone" if status == "gone" else "consider"
            if len(owners) > 1:
                kind, to = "split", tuple(sorted(owners))
            yield Change(kind, id, name, to)
            continue
        new_name = new.preferred_name(now)
        if new_ids[now] != id:
            kind = "merged" if new_ids[now] in current else "replaced"
            yield Change(kind, id, name, (new_ids[now],), new_name)
            continue
        if normalize_name(name) != normalize_name(new_name):
            yield Change("renamed", id, name, (), new_name)
        parents = {current[parent] or parent for parent in old.ids_of(old.parents_of(row))}
        new_parents = new.ids_of(new.parents_of(now))
        if parents != set(new_parents):
            yield Change("parents changed", id, name, tuple(new_parents))
    for row, id in enumerate(new_ids):
        if id not in current:
            yield Change("added", id, new.preferred_name(row))
    for name, ids in before.items():
        owners = after.get(name, [])
        kept = {current[id] or id for id in ids}
        if owners and not kept.intersection(owners):
            yield Change("name moved", ids[0], name, tuple(owners))
        elif len(ids) == 1 and len(owners) > 1:
            yield Change("name ambiguous", ids[0], name, tuple(owners))


def _ids_of_names(kb: KnowledgeBase, ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of the concepts with each normalised name."""
    names = normalize_names(list(kb.names))
    starts, concepts, _ = kb.concepts_of_names(np.arange(len(names)))
    rows: dict[str, dict[int, None]] = defaultdict(dict)
    for name, start, end in zip(names, starts.tolist(), starts[1:].tolist(), strict=False):
        rows[name].update(dict.fromkeys(concepts[start:end].tolist()))
    return {name: [ids[row] for row in sorted(found)] for name, found in rows.items() if name}


def what_became(id: str, new: KnowledgeBase) -> tuple[str, tuple[str, ...]]:
    """Return what became of an id in a release, and the ids for it."""
    if (row := new.find(id)) >= 0:
        return ("unchanged" if new.ids[row] == id else "moved"), (new.ids[row],)
    others = tuple(other for other in new.withdrawn.get(id, ()) if other in new)
    return ("needs a person" if others else "gone"), others


class MovedId(NamedTuple):
    """An id of an annotation, in the old release and in the new one.

    status (str): "unchanged", "moved", "needs a person" or "gone".
    name (str): Preferred name in the old release.
    """

    status: str
    id: str
    name: str
    to: tuple[str, ...]
    place: Place


def migrated_lines(
    path: Path, old: KnowledgeBase, new: KnowledgeBase, *, prefix: str = ""
) -> Iterator[tuple[str, list[MovedId]]]:
    """Yield each line of annotations, with the ids in it; those that moved are replaced.

    Ids that need a person, or are gone, stay as they are; so does everything else.
    """
    fields = _ID_FIELDS.get(format_of_file(path), _ID_FIELDS["text"])
    moves: list[MovedId] = []

    def change(place: Place, match: re.Match[str]) -> str:
        id = curie(match[0], prefix)
        if (row := old.find(id)) < 0:
            return match[0]
        status, to = what_became(id, new)
        if status == "gone" and (known := what_became(old.ids[row], new))[1]:
            status, to = ("moved" if known[0] == "unchanged" else known[0]), known[1]
        moves.append(MovedId(status, id, old.preferred_name(row), to, place))
        return to[0].removeprefix(id.removesuffix(match[0])) if status == "moved" else match[0]

    for place, line in file_lines(path):
        pieces, done = [], 0
        for start, end in (span for match in fields.finditer(line) for span in match.regs[1:]):
            if start >= 0 and " " not in line[start:end].strip():
                pieces += [line[done:start], _ID.sub(partial(change, place), line[start:end])]
                done = end
        yield "".join([*pieces, line[done:]]), moves[:]
        moves.clear()
