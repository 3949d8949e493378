"""Compare two releases of a knowledge base, and migrate annotations to the new release."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from spacy_bioel.io import table
from spacy_bioel.io.open import Place, curie
from spacy_bioel.kb.build import Draft
from spacy_bioel.kb.edit import drafts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.curation.sources import file_lines, format_of_file
from spacy_bioel.plugins.curation.tables import name_columns, row_cells
from spacy_bioel.text.normalize import normalize_name, normalize_names

# Patterns for link ids in each format: a string in JSON; in the other formats, a PubTator row, a
# BRAT reference or note, or a BioC infon. Tables have id columns.
_ID_FIELDS = {
    "json": re.compile(
        r'"text"\s*+:\s*+"(?:[^"\\]|\\.)*+"|"([^"\\\s]++)"|"(?:[^"\\]|\\.)*+"'
        r'|(?<="xrefs")\s*+:\s*+\[[^][]*+\]'
    ),
    "text": re.compile(
        r"^[^\t|]+\t\d+\t\d+\t[^\t]*\t[^\t]*\t(\S+)|^[^\t|]+\t[A-Za-z_]+\t(\S+)\t(\S+)\s*$"
        r"|^N\d+\tReference \S+ (\S+)|<infon[^<>]*+>([^<]++)</infon>"
        r"|^#\d+\t\S+ \S+\t(\S+(?=\s*$)|[A-Za-z][\w-]*:\w+)"
    ),
}
_BRAT_REFERENCE = re.compile(r"N\d+\tReference (\S+) ")
# The start of a list of ids, or of candidates with an id each.
_JSON_LIST = re.compile(r'(?:"candidates"\s*:\s*\[|:\s*\[(?=\s*"))\s*')
_JSON_COMMA = re.compile(r"\s*,\s*")
_ID = re.compile(r"([|;,+\s]*)([^|;,+\s]+)")
_LOOKS_LIKE_ID = re.compile(r"C\d{7}|[A-Za-z][\w.-]*:[A-Za-z_]{0,11}\d[\w.-]*")


class Change(NamedTuple):
    """A difference between two releases.

    kind (str): "added", "not in OLD", "replaced", "merged", "split", "consider", "gone", "not in
        NEW", "meaning changed", "renamed", "parents changed", "name added", "name gone", "name
        moved" or "name ambiguous".
    name (str): The name that changed, or else the preferred name.
    to (tuple[str, ...]): Ids in the new release: replacements, concepts to consider, parents, or
        the concepts with the name.
    """

    kind: str
    id: str
    name: str
    to: tuple[str, ...] = ()
    new_name: str = ""


def compare_releases(old: KnowledgeBase, new: KnowledgeBase) -> Iterator[Change]:
    """Yield the changes from one release to the next, first by id, then by name.

    A concept was split if it was retired, and several concepts now have its names.
    """
    before, after = drafts_of(old).current, drafts_of(new)
    old_owners, owners = _owners_of_names(before), _owners_of_names(after.current)
    current = {id: id if id in after.current else after.retired.get(id, "") for id in before}
    changed_meanings = set()  # ids with their old preferred names
    for id, draft in before.items():
        name, now = draft.names[0], after.current.get(current[id])
        if now is None:
            status, to = id_outcome(id, old, new)
            heirs = {heir for name in normalize_names(draft.names) for heir in owners.get(name, ())}
            if len(heirs) > 1 and status != "not in NEW":
                yield Change("split", id, name, tuple(sorted(heirs)))
            else:
                yield Change("consider" if to else status, id, name, to)
        elif current[id] != id:
            kind = "merged" if current[id] in before else "replaced"
            yield Change(kind, id, name, (current[id],), now.names[0])
        else:
            if (key := normalize_name(name)) != normalize_name(now.names[0]):
                to = _with_old_meaning(id, old, new)
                changed_meanings |= {(id, key)} if to else set()
                yield Change("meaning changed" if to else "renamed", id, name, to, now.names[0])
            if {current.get(parent) or parent for parent in draft.parents} != set(now.parents):
                yield Change("parents changed", id, name, now.parents)
    for id, draft in after.current.items():
        if id not in before:
            kind = "added" if old.would_select(id, new) else "not in OLD"
            yield Change(kind, id, draft.names[0])
    for name, ids in old_owners.items():
        found = tuple(owners.get(name, ()))
        has_others = not {current[id] or id for id in ids}.issuperset(found)
        for id in ids:
            if has_others and (id, name) not in changed_meanings:
                is_kept = (current[id] or id) in found
                yield Change("name ambiguous" if is_kept else "name moved", id, name, found)
            elif id == current[id] not in found and normalize_name(before[id].names[0]) != name:
                yield Change("name gone", id, name)
    for name in sorted(owners.keys() - old_owners.keys()):
        for id in owners[name]:
            if id in before and normalize_name(after.current[id].names[0]) != name:
                yield Change("name added", id, name)


def _owners_of_names(drafts: Mapping[str, Draft]) -> dict[str, list[str]]:
    """Map each normalised name to the ids of the concepts that have it."""
    owners: dict[str, dict[str, None]] = defaultdict(dict)
    named = [(name, id) for id, draft in drafts.items() for name in draft.names]
    for name, (_, id) in zip(normalize_names([name for name, _ in named]), named, strict=True):
        owners[name][id] = None
    return {name: list(ids) for name, ids in owners.items() if name}


@lru_cache(maxsize=1 << 16)
def id_outcome(id: str, old: KnowledgeBase, new: KnowledgeBase) -> tuple[str, tuple[str, ...]]:
    """Return the status of an old id (see `IdOutcome`), and its ids in the new release."""
    if (row := new.find(id)) >= 0 and new.ids[row] != id:
        return "moved", (new.ids[row],)
    if row >= 0:
        others = _with_old_meaning(id, old, new)
        return ("needs a person", others) if others else ("unchanged", (id,))
    others = tuple(other for other in new.withdrawn.get(id, ()) if other in new)
    if others or id in new.withdrawn or new.would_select(id, old):
        return ("needs a person" if others else "gone"), others
    return "not in NEW", ()


def _with_old_meaning(id: str, old: KnowledgeBase, new: KnowledgeBase) -> tuple[str, ...]:
    """Return other concepts that took over an id's preferred name, changing its meaning.

    If the id keeps the name as a synonym, other concepts with this synonym do not matter.
    """
    row, name = new.find(id), normalize_name(old.preferred_name(old.find(id)))
    if name == normalize_name(new.preferred_name(row)):
        return ()
    (_, had, _), (_, have, is_preferred) = (
        kb.concepts_of_names(kb.lookup_names([name])) for kb in (old, new)
    )
    known = {row, *(new.find(other) for other in old.ids_of(had))}
    is_lost = row not in have
    taken = zip(have.tolist(), is_preferred.tolist(), strict=True)
    return tuple(new.ids[r] for r, first in taken if r not in known and (first or is_lost))


class IdOutcome(NamedTuple):
    """An annotated id, and what became of it in the new release.

    status (str): "unchanged", "moved", "needs a person", "gone", or "not in NEW" if NEW has only
        other branches. For an id that the old release lacks: "in neither release" if the old
        release has its prefix, or "not in OLD".
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
    path: Path, chosen: Mapping[str, table.Column]
) -> Iterator[tuple[Place, str, list[tuple[int, int]]]]:
    """Yield a file's lines or rows (.json: the whole file) with spans that may be link ids."""
    format = format_of_file(path)
    if format not in ("csv", "tsv"):
        lines, fields = file_lines(path), _ID_FIELDS.get(format, _ID_FIELDS["text"])
        if table.table_suffix(path) == ".json":  # lists may span several lines
            lines = iter([(Place(path, 1), "".join(line for _, line in lines))])
        for place, line in lines:
            yield place, line, [span for match in fields.finditer(line) for span in match.regs[1:]]
        return
    read: list[str] = []  # the row's lines, and blank lines before it

    def recorded_lines() -> Iterator[tuple[Place, str]]:
        for place, line in file_lines(path):
            read.append(line)
            yield place, line

    columns: Container[int] | None = None  # id columns; if empty, any column may hold ids
    rows = table.split_rows(recorded_lines(), table.separator_of(path), quoted=format == "csv")
    for place, row, record in rows:
        if columns is None and not row[0].startswith("#"):
            header = table.header_of(row)
            columns = name_columns(tuple(header))
            if chosen:
                columns = table.column_indices(path, chosen, header)["id"]
        text = "".join(read)
        start = text.rindex(record)
        read.clear()
        cells = enumerate(row_cells(place, row, record))
        spans = [(start + c.at, len(c.text)) for i, c in cells if not columns or i in columns]
        first = place._replace(line=place.line - text.count("\n", 0, start))
        yield first, text, [(at, at + length) for at, length in spans]
    yield Place(path), "".join(read), []


def migrated_lines(
    path: Path,
    old: KnowledgeBase,
    new: KnowledgeBase,
    *,
    columns: Mapping[str, table.Column] = MappingProxyType({}),
    prefix: str = "",
) -> Iterator[tuple[str, list[IdOutcome], int]]:
    """Yield each annotation line with moved ids replaced, its ids' outcomes, and a repeat count.

    The rest of a line is unchanged. If several ids of a link become the same id, it is written
    once; the count is the number of ids that are dropped.

    columns (Mapping): Column of "id" in a table; empty: the header decides.
    RAISES BioelError: [B128] if a column is missing, [B262] if a column number is out of range.
    """
    outcomes: list[IdOutcome] = []
    moved: set[str] = set()  # new ids on this line
    of_mentions: dict[str, dict[str, bool]] = defaultdict(dict)  # in BRAT: whether each id moved

    def new_id(raw: str, place: Place) -> tuple[str, bool]:
        id = curie(raw, prefix)
        if (row := old.find(id)) < 0:
            is_own, has_prefix = id.partition(":")[0] in _prefixes_in(old), ":" in raw
            shown = raw if has_prefix else id
            if _LOOKS_LIKE_ID.fullmatch(shown) or (is_own and has_prefix):
                status = "in neither release" if is_own and id not in new else "not in OLD"
                outcomes.append(IdOutcome(status, shown, "", (id,) * (id in new), place))
            return raw, False
        status, to = id_outcome(id, old, new)
        if status == "gone" and (known := id_outcome(old.ids[row], old, new))[1]:
            status, to = ("moved" if known[0] == "unchanged" else known[0]), known[1]
        outcomes.append(IdOutcome(status, id, old.preferred_name(row), to, place))
        if status != "moved":
            return raw, False
        moved.add(to[0].removeprefix(id.removesuffix(raw)))
        return to[0].removeprefix(id.removesuffix(raw)), True

    for place, line, spans in _id_fields(path, columns):
        pieces, done, n_repeated = list[str](), 0, 0
        reference = _BRAT_REFERENCE.match(line)
        for start, end in spans:
            if start < 0 or " " in line[start:end].strip():
                continue
            place = place._replace(line=place.line + line.count("\n", done, start))
            pieces.append(line[done:start])
            done, seen = start, of_mentions[reference[1]] if reference else {}
            for match in _ID.finditer(line, start, end):
                (between, raw), done = match.groups(), match.end()
                id, is_moved = new_id(raw, place)
                if id in seen and (is_moved or seen[id]):
                    n_repeated += 1
                else:
                    pieces.append(between + id)
                    seen[id] = is_moved
        changed = "".join([*pieces, line[done:]])
        if format_of_file(path) == "json" and moved:
            changed, n_in_lists = _without_repeats(changed, moved)
            n_repeated += n_in_lists
        yield "" if reference and n_repeated else changed, outcomes[:], n_repeated
        outcomes.clear()
        moved.clear()


def _without_repeats(text: str, moved: Container[str]) -> tuple[str, int]:
    """Remove ids and candidates that repeat a moved id in the same JSON list, and count them."""
    n_left_out, decode = 0, json.JSONDecoder().raw_decode
    for match in reversed(list(_JSON_LIST.finditer(text))):  # nested lists come first
        seen, before, comma = set(), match.end(), re.match("", text)
        start = before
        with suppress(ValueError, TypeError):  # not a list of ids
            while comma:
                item, end = decode(text, start)
                id = item.get("id") if isinstance(item, dict) else item
                if id in seen and id in moved:
                    n_left_out += 1
                    text, end = text[:before] + text[end:], before
                seen.add(id)
                if comma := _JSON_COMMA.match(text, end):
                    before, start = end, comma.end()
    return text, n_left_out
