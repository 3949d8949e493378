"""Build a knowledge base: merge concept records from any source, and write them as columns.

Records with the same id are merged into one draft concept. Concepts and names get row numbers, and
are written as the columns that `kb.knowledge_base` maps into memory.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import (
    XREF_SEPARATOR,
    offsets_of,
    serialized_columns,
    write_column,
    write_strings,
)
from spacy_bioel.kb.folder import check_replaceable, editing, homes_in
from spacy_bioel.kb.knowledge_base import KeyArray, SortedKeys, name_keys, word_keys
from spacy_bioel.kb.spelling import build_postings
from spacy_bioel.text.normalize import normalize_name, on_one_line
from spacy_bioel.types import NIL, Concept

_BAD_ID = re.compile(r"[\s|]")


@dataclass(slots=True)
class BuildReport:
    """Counts of the records, concepts and names that a build kept, merged or dropped.

    fingerprint (str): Fingerprint of the knowledge base.
    """

    records: int = 0
    concepts: int = 0
    names: int = 0  # distinct normalised names
    entries: int = 0  # (concept, name) pairs
    ambiguous_names: int = 0  # names shared by several concepts
    merged_records: int = 0  # records that repeat the id of an earlier record
    merged_names: int = 0  # spellings of a name that the concept already has
    empty_names: int = 0  # names for which `normalize_name` returns ""
    dropped_by_type: int = 0
    dropped_by_branch: int = 0  # concepts outside the branches to keep
    dropped_nameless: int = 0
    inherited_types: int = 0  # concepts that inherited the types of their parents
    unknown_parents: int = 0  # links to parents that are not in the knowledge base
    retired: int = 0  # retired ids whose replacement is in the knowledge base
    retired_current: int = 0  # ids that are both retired and current; treated as current
    retired_missing: int = 0  # retired ids whose replacement is not in the knowledge base
    withdrawn: int = 0  # retired ids without a replacement
    redirected: int = 0  # records of retired ids, merged into the replacements
    fingerprint: str = ""


@dataclass(slots=True)
class Draft:
    """A draft concept, merged from all records with the same id.

    The fields are tuples, because empty tuples take no memory and garbage collection skips tuples.
    """

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    definition: str = ""
    xrefs: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()  # index of each name's source in `Drafts.sources`

    def add(self, record: Concept, *, source: int = 0) -> None:
        self.names += record.names
        self.sources += (source,) * len(record.names)
        self.types = extend_unique(self.types, filter(None, record.types))
        self.parents = extend_unique(self.parents, record.parents)
        self.definition = self.definition or record.definition
        # Replace tabs and line breaks, because the column uses them as separators.
        self.xrefs = extend_unique(self.xrefs, filter(None, map(on_one_line, record.xrefs)))


def extend_unique(known: tuple[str, ...], added: Iterable[str]) -> tuple[str, ...]:
    """Append strings to a tuple, keeping each distinct string once."""
    strings = known + tuple(added)
    return tuple(dict.fromkeys(strings)) if len(strings) > 1 else strings


@dataclass(slots=True)
class Drafts:
    """Contents of a knowledge base that is about to be written as columns."""

    current: dict[str, Draft] = field(default_factory=dict)  # draft concepts by id
    retired: dict[str, str] = field(default_factory=dict)  # replacement of each retired id
    sources: list[str] = field(default_factory=list)  # sources of the build, then of additions.
    # Ids retired without a replacement, mapped to the ids to consider instead. They are for
    # human readers only, so they are stored in the metadata and do not affect the fingerprint.
    withdrawn: dict[str, list[str]] = field(default_factory=dict)

    def source_index(self, source: str) -> int:
        """Return the index of a source in `sources`, adding the source if it is new."""
        if source not in self.sources:
            self.sources.append(source)
        return self.sources.index(source)


def merge_records(
    concepts: Iterable[Concept],
    *,
    report: BuildReport,
    types: Collection[str] | None = None,
    base: Drafts | None = None,
    source: str = "",
    branches: Branches | None = None,
) -> Drafts:
    """Merge records into draft concepts, inherit missing types from parents, and apply filters.

    report (BuildReport): Updated with the counts.
    types (Collection[str] | None): Keep only concepts with any of these types; None keeps all.
    base (Drafts | None): Existing drafts, which are all kept; records are added to them.
    branches (Branches | None): Keep only the concepts in these branches.
    RETURNS (Drafts): Concepts sorted by id; retired ids are mapped to current ids.
    RAISES BioelError: [B026] bad id, [B027] circular replacements, [B028] no concept left,
        [B310] a branch that is not in the records.
    """
    drafts = base or Drafts()
    base_ids, base_retired = frozenset(drafts.current), dict(drafts.retired)
    several: dict[str, set[str]] = defaultdict(set)  # all replacements of each id that has several
    source_index = drafts.source_index(source)
    for number, record in enumerate(concepts, start=1):
        report.records = number
        check_ids(record, where=f"record {number}")
        if record.replaced_by:
            first = drafts.retired.setdefault(record.id, record.replaced_by)
            if first != record.replaced_by:
                several[record.id] |= {first, record.replaced_by}
            continue
        if record.consider is not None:
            drafts.withdrawn.setdefault(record.id, list(record.consider))
            continue
        id = base_retired.get(record.id, record.id)
        report.redirected += id != record.id
        report.merged_records += id in drafts.current
        drafts.current.setdefault(id, Draft()).add(record, source=source_index)
    for id in drafts.current.keys() & drafts.retired.keys():
        del drafts.retired[id]
        report.retired_current += 1
    once = {id: other for id, other in drafts.retired.items() if id not in several}
    ends = follow_chains(once)
    for id in several.keys() & drafts.retired.keys():
        others = sorted({ends.get(other, other) for other in several[id]})
        if len(others) == 1:
            once[id] = others[0]
        else:  # the user must choose between them
            drafts.withdrawn[id] = others
    drafts.retired = follow_chains(once)
    _inherit_types(drafts, base_ids, report)
    kept = {id: drafts.current[id] for id in sorted(drafts.current)}
    if types is not None:
        wanted = frozenset(types)
        kept = {id: d for id, d in kept.items() if id in base_ids or wanted & set(d.types)}
        report.dropped_by_type = len(drafts.current) - len(kept)
    if branches is not None:
        ids_in_branches = branches.kept(drafts)
        report.dropped_by_branch = len(kept.keys() - ids_in_branches)
        kept = {id: draft for id, draft in kept.items() if id in ids_in_branches}
    if not kept:
        raise nothing_left(report, types=types, drafts=drafts.current)
    known = drafts.current.keys() | drafts.retired.keys()
    withdrawn = {id: others for id, others in drafts.withdrawn.items() if id not in known}
    return Drafts(kept, drafts.retired, drafts.sources, withdrawn)


def nothing_left(
    report: BuildReport, *, types: Collection[str] | None, drafts: dict[str, Draft]
) -> BioelError:
    """Return error [B028], with counts that help the user find the cause."""
    type_counts = Counter(name for draft in drafts.values() for name in draft.types)
    return BioelError(
        Errors.B028.format(
            records=report.records,
            by_type=report.dropped_by_type,
            by_branch=report.dropped_by_branch,
            nameless=report.dropped_nameless,
            asked="all" if types is None else ", ".join(sorted(types)) or "none",
            seen=", ".join(name for name, _ in type_counts.most_common(10)) or "none",
        )
    )


def check_ids(record: Concept, *, where: str) -> None:
    """Check the ids of a record and its replacement. RAISES BioelError: [B026] if one is bad."""
    for field_name, id in (("id", record.id), ("replacement", record.replaced_by or "-")):
        if id in ("", NIL) or _BAD_ID.search(id):
            raise BioelError(Errors.B026.format(where=where, field=field_name, found=id))


def follow_chains(retired: dict[str, str]) -> dict[str, str]:
    """Map each retired id to its final replacement. RAISES BioelError: [B027] on a cycle."""
    ends: dict[str, str] = {}
    for id in retired:
        passed: dict[str, None] = {}
        while id in retired and id not in ends:
            if id in passed:
                raise BioelError(Errors.B027.format(cycle=" -> ".join([*passed, id])))
            passed[id] = None
            id = retired[id]
        ends.update(dict.fromkeys(passed, ends.get(id, id)))
    return {id: ends[id] for id in retired}


def _inherit_types(drafts: Drafts, base_ids: Collection[str], report: BuildReport) -> None:
    """Copy the types of direct parents to new concepts that have no types of their own."""
    inherited = {}
    for id, draft in drafts.current.items():
        if draft.parents:
            draft.parents = tuple(drafts.retired.get(parent, parent) for parent in draft.parents)
        if not draft.types and id not in base_ids:
            parents = (drafts.current.get(parent) for parent in draft.parents)
            types_of_parents = (parent.types for parent in parents if parent is not None)
            inherited[id] = extend_unique((), chain.from_iterable(types_of_parents))
    for id, types in inherited.items():
        drafts.current[id].types = types
        report.inherited_types += bool(types)


@dataclass(frozen=True)
class Branches:
    """Ontology branches to keep or exclude. A branch is a concept and all its descendants.

    under (Sequence[str]): Root ids of the branches to keep; if empty, all concepts are kept.
    exclude (Sequence[str]): Root ids of the branches to exclude. A concept in both a kept and an
        excluded branch is excluded.
    """

    under: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def kept(self, drafts: Drafts) -> set[str]:
        """Return the ids of the concepts to keep; a retired id selects its replacement's branch.

        RAISES BioelError: [B310] if an id is not in the sources.
        """
        children = defaultdict(list)
        for id, draft in drafts.current.items():
            for parent in draft.parents:
                children[parent].append(id)

        def branches(ids: Iterable[str]) -> set[str]:
            """Return the ids of all concepts in the branches rooted at these ids."""
            waiting = [_current_id(id, drafts) for id in ids]
            found = set(waiting)
            while waiting:
                new = set(children.get(waiting.pop(), ())) - found
                found |= new
                waiting += new
            return found

        return set(branches(self.under) if self.under else drafts.current) - branches(self.exclude)


def _current_id(id: str, drafts: Drafts) -> str:
    if (current := drafts.retired.get(id, id)) not in drafts.current:
        known = [*drafts.current, *drafts.retired]
        same = [other for other in known if _without_zeros(other) == _without_zeros(id)]
        similar = same or get_close_matches(id, known, n=3)
        hint = f"Did you mean: {', '.join(similar)}?" if similar else "Check the id and its prefix."
        raise BioelError(Errors.B310.format(id=id, hint=hint))
    return current


def _without_zeros(id: str) -> str:
    """Normalise an id, so that "HP:0000118", "HP:118" and "hp_118" give the same string."""
    return re.sub(r"[\W_]+|(?<!\d)0+(?=\d)", "", id).lower()


def build_kb(
    concepts: Iterable[Concept],
    out: str | Path,
    *,
    types: Collection[str] | None = None,
    branches: Branches | None = None,
    source: str = "",
    release: str = "",
    licence: str = "",
) -> BuildReport:
    """Build a knowledge base folder from concept records in any order.

    Records with the same id are merged. Concepts without types inherit the types of their parents.
    Names that `normalize_name` maps to the same string share one row. The spelling of a shared name
    comes from the concept with the shortest id among the concepts that prefer this name, or else
    from the first concept with this name. The result does not depend on the order of the records,
    except for the order of the names within a concept.

    out (str | Path): Output folder. An existing knowledge base is replaced at the very end, and
        its vectors are removed.
    types (Collection[str] | None): Keep only concepts with any of these types; None keeps all.
    branches (Branches | None): Keep only the concepts in these branches; None keeps all.
    source, release, licence (str): Origin of the records, stored with the knowledge base.
    RAISES BioelError: [B026] bad id, [B027] circular replacements, [B028] no concept left,
        [B029] `out` exists and is not a knowledge base, [B203] `out` is not writable, [B212]
        another writer does not finish in time, [B310] a branch that is not in the records.
    """
    out = Path(out).resolve()
    check_replaceable(out)
    report = BuildReport()
    drafts = merge_records(concepts, types=types, report=report, source=source, branches=branches)
    kept = {**asdict(branches or Branches()), "types": sorted(types or ())}
    origin = {"source": source, "release": release, "licence": licence}
    about = origin | {"selection": {option: values for option, values in kept.items() if values}}
    try:
        with editing(out, to="build it", make=True) as transaction:
            check_replaceable(out)
            old_vectors = homes_in(out, "vectors")
            transaction.replace_columns(write_columns, drafts=drafts, report=report, about=about)
            transaction.remove(old_vectors)
    except OSError as error:
        raise BioelError(Errors.B203.format(path=out, error=error)) from error
    return report


def write_columns(
    folder: Path, *, drafts: Drafts, report: BuildReport, about: Mapping[str, Any]
) -> list[memoryview]:
    """Write a knowledge base's columns to scratch files in an empty folder.

    drafts (Drafts): Concepts sorted by id; retired ids are mapped to current ids.
    report (BuildReport): Updated with the counts and the fingerprint.
    about (Mapping): source, release, licence, and selection (values of the build's filter options).
    RETURNS (list[memoryview]): Pieces of the file with these columns.
    RAISES BioelError: [B028] no concept has a name.
    """
    rows = _assign_rows(drafts.current, report)
    if not rows.ids:
        raise nothing_left(report, types=None, drafts=drafts.current)
    _write_names(folder, rows, drafts.sources, report)
    _write_concepts(folder, rows, drafts.current, report)
    retired = sorted(id for id, target in drafts.retired.items() if target in rows.ids)
    report.retired, report.retired_missing = len(retired), len(drafts.retired) - len(retired)
    write_strings(folder, "retired", retired)
    _write_keys(folder, "retired", word_keys(retired))
    write_column(folder, "retired_targets", [rows.ids[drafts.retired[id]] for id in retired])
    report.withdrawn = len(drafts.withdrawn)
    counts = {name: count for name, count in asdict(report).items() if name != "fingerprint"}
    about = {**about, "counts": counts, "withdrawn": drafts.withdrawn}
    pieces, report.fingerprint = serialized_columns(folder, **about)
    return pieces


@dataclass(slots=True)
class _RowNumbers:
    """Row numbers of concepts (sorted by id) and names (in order of first appearance)."""

    ids: dict[str, int] = field(default_factory=dict)  # row of each concept that has a name
    names: dict[str, int] = field(default_factory=dict)  # row of each normalised name
    surfaces: list[str] = field(default_factory=list)  # stored spelling of each name row.
    # One entry per (concept, name) pair: the name's row, its source, and 1 if it is preferred.
    entry_names: array[int] = field(default_factory=lambda: array("i"))
    entry_sources: array[int] = field(default_factory=lambda: array("i"))
    entry_is_preferred: bytearray = field(default_factory=bytearray)
    n_names: list[int] = field(default_factory=list)  # number of names per concept


def _assign_rows(drafts: dict[str, Draft], report: BuildReport) -> _RowNumbers:
    rows = _RowNumbers()
    # If several concepts share a preferred name, the one with the shortest (hence oldest) id
    # determines its spelling: "BRAF" as in humans, not "Braf" as in mice.
    oldest: dict[str, tuple[int, str]] = {}
    for id, surfaces in _distinct_names(drafts, report):
        if not surfaces:
            report.dropped_nameless += 1
            continue
        rows.ids[id] = len(rows.ids)
        rows.n_names.append(len(surfaces))
        rows.entry_is_preferred += b"\1" + bytes(len(surfaces) - 1)
        preferred = next(iter(surfaces))
        for normalized, (surface, source) in surfaces.items():
            row = rows.names.setdefault(normalized, len(rows.surfaces))
            if row == len(rows.surfaces):
                rows.surfaces.append(surface)
            rows.entry_names.append(row)
            rows.entry_sources.append(source)
        if (age := (len(id), id)) <= oldest.setdefault(preferred, age):
            oldest[preferred] = age
            rows.surfaces[rows.names[preferred]] = surfaces[preferred][0]
    return rows


def _distinct_names(
    drafts: Mapping[str, Draft], report: BuildReport
) -> Iterator[tuple[str, dict[str, tuple[str, int]]]]:
    """Yield each concept's id, and its normalised names with their first spelling and source."""
    for id, draft in drafts.items():
        surfaces: dict[str, tuple[str, int]] = {}
        lines = list(map(on_one_line, draft.names))  # a stored name must be a single line
        for named in zip(map(normalize_name, lines), lines, draft.sources, strict=True):
            normalized, surface, source = named
            if not normalized:
                report.empty_names += 1
            elif normalized in surfaces:
                report.merged_names += 1
            else:
                surfaces[normalized] = surface, source
        yield id, surfaces


def _write_keys(folder: Path, name: str, keys: KeyArray) -> None:
    ordered = SortedKeys.from_keys(keys)
    write_column(folder, f"{name}_keys", ordered.keys)
    write_column(folder, f"{name}_key_rows", ordered.rows)


def _write_ragged(folder: Path, offsets: str, values: str, rows: Iterable[Sequence[int]]) -> None:
    flat, counts = array("i"), array("i")
    for row in rows:
        flat.extend(row)
        counts.append(len(row))
    write_column(folder, offsets, offsets_of(counts))
    write_column(folder, values, flat)


def _write_names(
    folder: Path, rows: _RowNumbers, sources: Sequence[str], report: BuildReport
) -> None:
    names = np.asarray(rows.entry_names)
    is_preferred = np.frombuffer(rows.entry_is_preferred, dtype=bool)
    concepts = np.repeat(np.arange(len(rows.n_names)), rows.n_names)
    concepts_per_name = np.bincount(names, minlength=len(rows.surfaces))
    by_name = np.argsort(names, kind="stable")  # stable: keeps each name's concepts in order
    write_strings(folder, "names", rows.surfaces)
    _write_keys(folder, "name", name_keys(rows.names))
    write_column(folder, "name_offsets", offsets_of(concepts_per_name))
    write_column(folder, "name_concepts", concepts[by_name])
    write_column(folder, "name_is_preferred", is_preferred[by_name])
    write_column(folder, "concept_offsets", offsets_of(rows.n_names))
    write_column(folder, "concept_names", names)
    report.concepts, report.names, report.entries = len(rows.ids), len(rows.surfaces), len(names)
    report.ambiguous_names = int((concepts_per_name > 1).sum())
    postings: tuple[NDArray[Any], ...] = build_postings(list(rows.names))
    for part, values in zip(("codes", "offsets", "names", "norms"), postings, strict=True):
        write_column(folder, f"ngram_{part}", values)
    # Drop sources that contribute no names to the knowledge base.
    used, source_rows = np.unique(rows.entry_sources, return_inverse=True)
    write_strings(folder, "sources", (" ".join(sources[index].split()) for index in used.tolist()))
    write_column(folder, "name_sources", source_rows)


def _write_concepts(
    folder: Path, rows: _RowNumbers, drafts: dict[str, Draft], report: BuildReport
) -> None:
    kept = [drafts[id] for id in rows.ids]
    write_strings(folder, "ids", rows.ids)
    _write_keys(folder, "id", word_keys(rows.ids))
    write_strings(folder, "definitions", (" ".join(draft.definition.split()) for draft in kept))
    write_strings(folder, "xrefs", (XREF_SEPARATOR.join(draft.xrefs) for draft in kept))
    type_names = sorted({name for draft in kept for name in draft.types})
    write_strings(folder, "type_names", type_names)
    type_rows = {name: row for row, name in enumerate(type_names)}
    _write_ragged(
        folder, "type_offsets", "type_ids", ([type_rows[t] for t in d.types] for d in kept)
    )

    def rows_of_parents() -> Iterator[list[int]]:
        for id, draft in zip(rows.ids, kept, strict=True):
            parents = [parent for parent in dict.fromkeys(draft.parents) if parent != id]
            known_rows = [rows.ids[parent] for parent in parents if parent in rows.ids]
            report.unknown_parents += len(parents) - len(known_rows)
            yield known_rows

    _write_ragged(folder, "parent_offsets", "parents", rows_of_parents())
