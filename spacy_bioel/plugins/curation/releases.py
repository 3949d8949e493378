"""Compare two releases of a knowledge base, and move annotations from one to the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from spacy_bioel.io.open import Place, curie
from spacy_bioel.io.table import Column, column_indices, header_of, separator_of, split_rows
from spacy_bioel.kb.build import Draft
from spacy_bioel.kb.edit import drafts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.curation.sources import file_lines, format_of_file
from spacy_bioel.plugins.curation.tables import name_columns, row_cells
from spacy_bioel.text.normalize import normalize_name, normalize_names

# Where each format has the ids of links: a string in JSON, and for the other formats a row of
# PubTator, a reference of BRAT or an infon of BioC. Tables have columns of ids.
_ID_FIELDS = {
    "json": re.compile(
        r'"text"\s*+:\s*+"(?:[^"\\]|\\.)*+"|"([^"\\\s]++)"|"(?:[^"\\]|\\.)*+"'
        r'|(?<="xrefs")\s*+:\s*+\[[^][]*+\]'
    ),
    "text": re.compile(
        r"^[^\t|]+\t\d+\t\d+\t[^\t]*\t[^\t]*\t(\S+)|^[^\t|]+\t[A-Za-z_]+\t(\S+)\t(\S+)\s*$"
        r"|^N\d+\tReference \S+ (\S+)|<infon[^<>]*+>([^<]++)</infon>"
    ),
}
_ID = re.compile(r"[^|;,+\s]+")
_LIKE_ID = re.compile(r"C\d{7}|[A-Za-z][\w.-]*:[A-Za-z_]{0,11}\d[\w.-]*")


class Change(NamedTuple):
    """A difference between two releases.

    kind (str): "added", "replaced", "merged", "split", "consider", "gone", "renamed", "parents
        changed", "name added", "name gone", "name moved" or "name ambiguous".
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
    before, after = drafts_of(old).current, drafts_of(new)
    old_owners, owners = _owners_of_names(before), _owners_of_names(after.current)
    current = {id: id if id in after.current else after.retired.get(id, "") for id in before}
    for id, draft in before.items():
        name, now = draft.names[0], after.current.get(current[id])
        if now is None:
            to = what_became(id, new)[1]
            heirs = {heir for name in normalize_names(draft.names) for heir in owners.get(name, ())}
            if len(heirs) > 1:
                yield Change("split", id, name, tuple(sorted(heirs)))
            else:
                yield Change("consider" if to else "gone", id, name, to)
        elif current[id] != id:
            kind = "merged" if current[id] in before else "replaced"
            yield Change(kind, id, name, (current[id],), now.names[0])
        else:
            if normalize_name(name) != normalize_name(now.names[0]):
                yield Change("renamed", id, name, (), now.names[0])
            if {current.get(parent) or parent for parent in draft.parents} != set(now.parents):
                yield Change("parents changed", id, name, now.parents)
    for id, draft in after.current.items():
        if id not in before:
            yield Change("added", id, draft.names[0])
    for name, ids in old_owners.items():
        found = tuple(owners.get(name, ()))
        has_others = not {current[id] or id for id in ids}.issuperset(found)
        for id in ids:
            if has_others:
                is_kept = (current[id] or id) in found
                yield Change("name ambiguous" if is_kept else "name moved", id, name, found)
            elif id == current[id] not in found and normalize_name(before[id].names[0]) != name:
                yield Change("name gone", id, name)
    for name in sorted(owners.keys() - old_owners.keys()):
        for id in owners[name]:
            if id in before and normalize_name(after.current[id].names[0]) != name:
                yield Change("name added", id, name)


def _owners_of_names(drafts: Mapping[str, Draft]) -> dict[str, list[str]]:
    """Return the ids of the concepts with each normalised name."""
    owners: dict[str, dict[str, None]] = defaultdict(dict)
    named = [(name, id) for id, draft in drafts.items() for name in draft.names]
    for name, (_, id) in zip(normalize_names([name for name, _ in named]), named, strict=True):
        owners[name][id] = None
    return {name: list(ids) for name, ids in owners.items() if name}


def what_became(id: str, new: KnowledgeBase) -> tuple[str, tuple[str, ...]]:
    """Return what became of an id in a release, and the ids for it."""
    if (row := new.find(id)) >= 0:
        return ("unchanged" if new.ids[row] == id else "moved"), (new.ids[row],)
    others = tuple(other for other in new.withdrawn.get(id, ()) if other in new)
    return ("needs a person" if others else "gone"), others


class MovedId(NamedTuple):
    """An id of an annotation, in the old release and in the new one.

    status (str): "unchanged", "moved", "needs a person", "gone", or for ids that the old release
        does not have "in neither release", with one of its prefixes, or "not in OLD".
    name (str): Preferred name in the old release.
    """

    status: str
    id: str
    name: str
    to: tuple[str, ...]
    place: Place


@lru_cache(maxsize=4)
def _prefixes_in(kb: KnowledgeBase) -> set[str]:
    return {id.partition(":")[0] for id in kb.ids if ":" in id}


def _id_fields(
    path: Path, chosen: Mapping[str, Column]
) -> Iterator[tuple[Place, str, list[tuple[int, int]]]]:
    """Yield each line or row of a file, and the spans that may be ids of links."""
    format = format_of_file(path)
    if format not in ("csv", "tsv"):
        fields = _ID_FIELDS.get(format, _ID_FIELDS["text"])
        for place, line in file_lines(path):
            yield place, line, [span for match in fields.finditer(line) for span in match.regs[1:]]
        return
    read: list[str] = []  # blank lines, too

    def watched() -> Iterator[tuple[Place, str]]:
        for place, line in file_lines(path):
            read.append(line)
            yield place, line

    columns: Container[int] | None = None  # of ids; empty: any may have ids
    for place, row, record in split_rows(watched(), separator_of(path), quoted=format == "csv"):
        if columns is None and not row[0].startswith("#"):
            header = header_of(row)
            columns = name_columns(tuple(header))
            if chosen:
                columns = column_indices(path, chosen, header)["id"]
        text = "".join(read)
        start = text.rindex(record)
        read.clear()
        cells = enumerate(row_cells(place, row, record))
        ats = [(start + c.at, len(c.text)) for i, c in cells if not columns or i in columns]
        yield place, text, [(at, at + length) for at, length in ats]
    yield Place(path), "".join(read), []


def migrated_lines(
    path: Path,
    old: KnowledgeBase,
    new: KnowledgeBase,
    *,
    columns: Mapping[str, Column] = MappingProxyType({}),
    prefix: str = "",
) -> Iterator[tuple[str, list[MovedId]]]:
    """Yield each line of annotations, with the ids in it; those that moved are replaced.

    All other ids stay as they are; so does everything else.

    columns (Mapping): Column of "id" in a table; empty: by header.
    RAISES BioelError: [B128] if a column is missing, [B262] if there is no column of a number.
    """
    moves: list[MovedId] = []

    def change(place: Place, match: re.Match[str]) -> str:
        id = curie(match[0], prefix)
        if (row := old.find(id)) < 0:
            is_own, has_prefix = id.partition(":")[0] in _prefixes_in(old), ":" in match[0]
            shown = match[0] if has_prefix else id
            if _LIKE_ID.fullmatch(shown) or (is_own and has_prefix):
                status = "in neither release" if is_own and id not in new else "not in OLD"
                moves.append(MovedId(status, shown, "", (id,) * (id in new), place))
            return match[0]
        status, to = what_became(id, new)
        if status == "gone" and (known := what_became(old.ids[row], new))[1]:
            status, to = ("moved" if known[0] == "unchanged" else known[0]), known[1]
        moves.append(MovedId(status, id, old.preferred_name(row), to, place))
        return to[0].removeprefix(id.removesuffix(match[0])) if status == "moved" else match[0]

    for place, line, fields in _id_fields(path, columns):
        pieces, done = [], 0
        for start, end in fields:
            if start >= 0 and " " not in line[start:end].strip():
                pieces += [line[done:start], _ID.sub(partial(change, place), line[start:end])]
                done = end
        yield "".join([*pieces, line[done:]]), moves[:]
        moves.clear()
