"""Merging of records, of any source and in any order, to one draft per concept."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.text.normalize import on_one_line
from spacy_bioel.types import Concept

_BAD_ID = re.compile(r"[\s|]")


@dataclass(slots=True)
class BuildReport:
    """Counts of a build: what was kept, merged, inherited and dropped.

    fingerprint (str): Fingerprint of the knowledge base.
    """

    records: int = 0
    concepts: int = 0
    names: int = 0  # distinct
    entries: int = 0  # pairs of concept and name
    ambiguous_names: int = 0  # of more than one concept
    merged_records: int = 0  # with the id of an earlier record
    merged_names: int = 0  # that the concept has in another spelling
    empty_names: int = 0  # that `normalize_name` makes empty
    dropped_by_type: int = 0
    dropped_by_branch: int = 0  # outside the branches to keep
    dropped_nameless: int = 0
    inherited_types: int = 0  # concepts with the types of their parents
    unknown_parents: int = 0  # links to parents that are not in the knowledge base
    retired: int = 0  # ids that lead to a concept
    retired_current: int = 0  # ids that are also current, and stay so
    retired_missing: int = 0  # ids whose replacement is not in the knowledge base
    redirected: int = 0  # added records of retired ids, which went to the replacements
    fingerprint: str = ""


@dataclass(slots=True)
class Draft:
    """Draft of a concept, merged from all records of one id.

    Tuples: empty ones take no memory, and the garbage collector looks at none of them.
    """

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    definition: str = ""
    xrefs: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()  # of each name, among `Drafts.sources`

    def add(self, record: Concept, *, source: int = 0) -> None:
        self.names += record.names
        self.sources += (source,) * len(record.names)
        self.types = different(self.types, filter(None, record.types))
        self.parents = different(self.parents, record.parents)
        self.definition = self.definition or record.definition
        # On one line: line breaks and tabs separate them in the column.
        self.xrefs = different(self.xrefs, filter(None, map(on_one_line, record.xrefs)))


def different(known: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    """Those that are known, and others, each once."""
    both = known + tuple(more)
    return tuple(dict.fromkeys(both)) if len(both) > 1 else both


@dataclass(slots=True)
class Drafts:
    """Contents of a knowledge base before they are columns."""

    current: dict[str, Draft] = field(default_factory=dict)  # concepts by id
    retired: dict[str, str] = field(default_factory=dict)  # ids, and those that replaced them
    sources: list[str] = field(default_factory=list)  # of the build, then of later additions


def merge_records(
    concepts: Iterable[Concept],
    *,
    types: Collection[str] | None,
    report: BuildReport,
    base: Drafts | None = None,
    source: str = "",
    branches: Branches | None = None,
) -> Drafts:
    """Read all records, inherit types and apply the filters.

    types (Collection[str] | None): Keep concepts that have any of these; None keeps all.
    report (BuildReport): Gets the counts.
    base (Drafts | None): Existing drafts, which are all kept; records are added to them.
    branches (Branches | None): Keep these concepts, also below concepts of other types.
    RETURNS (Drafts): In the order of ids, chains of retired ids followed to the end.
    RAISES BioelError: [B026] bad id, [B027] retired ids in a circle, [B028] no concept left,
        [B310] a branch that the records do not have.
    """
    drafts = base or Drafts()
    if source not in drafts.sources:
        drafts.sources.append(source)
    known = frozenset(drafts.current)
    _collect(concepts, drafts, report, source=drafts.sources.index(source))
    for id in drafts.current.keys() & drafts.retired.keys():
        del drafts.retired[id]
        report.retired_current += 1
    drafts.retired = follow_chains(drafts.retired)
    _inherit_types(drafts, known, report)
    kept = {id: drafts.current[id] for id in sorted(drafts.current)}
    if types is not None:
        wanted = frozenset(types)
        kept = {id: d for id, d in kept.items() if id in known or wanted & set(d.types)}
        report.dropped_by_type = len(drafts.current) - len(kept)
    if branches is not None:
        in_branches = branches.kept(drafts)
        report.dropped_by_branch = len(kept)
        kept = {id: draft for id, draft in kept.items() if id in in_branches}
        report.dropped_by_branch -= len(kept)
    if not kept:
        raise nothing_left(report, types=types, drafts=drafts.current)
    return Drafts(kept, drafts.retired, drafts.sources)


def nothing_left(
    report: BuildReport, *, types: Collection[str] | None, drafts: dict[str, Draft]
) -> BioelError:
    """Error [B028], with counts that help to find the cause."""
    seen = Counter(t for draft in drafts.values() for t in draft.types)
    return BioelError(
        Errors.B028.format(
            records=report.records,
            by_type=report.dropped_by_type,
            by_branch=report.dropped_by_branch,
            nameless=report.dropped_nameless,
            asked="all" if types is None else ", ".join(sorted(types)) or "none",
            seen=", ".join(t for t, _ in seen.most_common(10)) or "none",
        )
    )


def _collect(
    concepts: Iterable[Concept], drafts: Drafts, report: BuildReport, *, source: int
) -> None:
    before = dict(drafts.retired)
    for number, record in enumerate(concepts, start=1):
        report.records = number
        check_ids(record, number=number)
        if record.replaced_by:
            drafts.retired.setdefault(record.id, record.replaced_by)
            continue
        id = before.get(record.id, record.id)
        report.redirected += id != record.id
        report.merged_records += id in drafts.current
        drafts.current.setdefault(id, Draft()).add(record, source=source)


def check_ids(record: Concept, *, number: int) -> None:
    """Refuse a record whose id or replacement cannot be one. RAISES BioelError: [B026]."""
    replacement = {"replacement": record.replaced_by} if record.replaced_by else {}
    for what, id in {"id": record.id, **replacement}.items():
        if not id or _BAD_ID.search(id):
            raise BioelError(Errors.B026.format(number=number, field=what, found=id))


def follow_chains(retired: dict[str, str]) -> dict[str, str]:
    """Map each retired id to the last id of its chain. RAISES BioelError: [B027] a circle."""
    last: dict[str, str] = {}
    for id in retired:
        chain: dict[str, None] = {}
        while id in retired and id not in last:
            if id in chain:
                raise BioelError(Errors.B027.format(cycle=" -> ".join([*chain, id])))
            chain[id] = None
            id = retired[id]
        last.update(dict.fromkeys(chain, last.get(id, id)))
    return {id: last[id] for id in retired}


def _inherit_types(drafts: Drafts, known: Collection[str], report: BuildReport) -> None:
    """Let concepts without types inherit the own types of their parents (one level).

    known (Collection[str]): Ids of existing concepts, which inherited when they were added.
    """
    inherited = {}
    for id, draft in drafts.current.items():
        if draft.parents:
            draft.parents = tuple(drafts.retired.get(id, id) for id in draft.parents)
        if not draft.types and id not in known:
            parents = (drafts.current.get(parent) for parent in draft.parents)
            known_types = (parent.types for parent in parents if parent is not None)
            inherited[id] = different((), chain.from_iterable(known_types))
    for id, types in inherited.items():
        drafts.current[id].types = types
        report.inherited_types += bool(types)


@dataclass(frozen=True)
class Branches:
    """Choice of branches; each id stands for its concept and all that lie below it.

    under (Sequence[str]): Branches to keep; empty: all.
    exclude (Sequence[str]): Branches to leave out. A concept of both is left out.
    """

    under: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def kept(self, drafts: Drafts) -> set[str]:
        """Ids of the concepts to keep. Retired ids stand for those that replaced them.

        RAISES BioelError: [B310] on an id that the sources do not have.
        """
        children = defaultdict(list)
        for id, draft in drafts.current.items():
            for parent in draft.parents:
                children[parent].append(id)
        kept = set(drafts.current)
        if self.under:
            kept = _below([_current(id, drafts) for id in self.under], children)
        return kept - _below([_current(id, drafts) for id in self.exclude], children)


def _current(id: str, drafts: Drafts) -> str:
    current = drafts.retired.get(id, id)
    if current not in drafts.current:
        near = get_close_matches(id, [*drafts.current, *drafts.retired], n=3)
        hint = f"Did you mean: {', '.join(near)}?" if near else "Check the id and its prefix."
        raise BioelError(Errors.B310.format(id=id, hint=hint))
    return current


def _below(ids: Collection[str], children: Mapping[str, Sequence[str]]) -> set[str]:
    found, waiting = set(ids), list(ids)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
