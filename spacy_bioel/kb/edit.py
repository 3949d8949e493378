"""Change a knowledge base: add concepts, edit names, retire ids, and remove outdated vectors.

Each change rewrites all columns, which takes seconds for half a million names. There are no
tombstones and no segments to merge, so a changed knowledge base is read as fast as a new one.
Vectors are kept, and the next encoding copies the vectors of unchanged names. Concurrent changes
run one after the other, and every change starts from the result of the previous one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.build import (
    BuildReport,
    Draft,
    Drafts,
    extend_unique,
    follow_chains,
    merge_records,
    write_columns,
)
from spacy_bioel.kb.folder import Transaction, editing
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import has_vectors, stored_vectors
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept, IntArray


@dataclass(frozen=True, slots=True)
class NameEdit:
    """A change to a concept's names. Names are compared in normalised form.

    add (Sequence[str]): Synonyms to add.
    remove (Sequence[str]): Names to remove; the first remaining name becomes the preferred name.
    rename (str): New preferred name; the old one becomes a synonym. "": keep the preferred name.
    """

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    rename: str = ""

    def apply(self, draft: Draft, *, id: str, where: str, source: int) -> None:
        """Apply the change to a draft.

        id, where (str): Concept and knowledge base, for error messages.
        source (int): Source of new names, as an index into `Drafts.sources`.
        RAISES BioelError: [B403] unknown name to remove, [B404] removal of the last name, [B405]
            new name without letters or digits, [B442] new name that the concept already has.
        """
        for name in (*self.add, *([self.rename] if self.rename else [])):
            if not normalize_name(name):
                raise BioelError(Errors.B405.format(name=name))
        known = {normalize_name(name): name for name in draft.names}
        for name in self.add:
            if (same := known.get(normalize_name(name))) is not None:
                raise BioelError(Errors.B442.format(path=where, id=id, name=name, same=same))
        named = [*zip(draft.names, draft.sources, strict=True), *((n, source) for n in self.add)]
        if self.rename:
            named = [(self.rename, source), *_without_name(named, self.rename)]
        for name in self.remove:
            if len(remaining := _without_name(named, name)) == len(named):
                names = ", ".join(repr(name) for name, _ in named)
                raise BioelError(Errors.B403.format(path=where, id=id, name=name, names=names))
            if not remaining:
                raise BioelError(Errors.B404.format(path=where, id=id, name=name))
            named = remaining
        draft.names = tuple(name for name, _ in named)
        draft.sources = tuple(source for _, source in named)


def _without_name(named: list[tuple[str, int]], removed: str) -> list[tuple[str, int]]:
    """Drop all spellings of one name from (name, source) pairs."""
    key = normalize_name(removed)
    return [(name, source) for name, source in named if normalize_name(name) != key]


@dataclass(frozen=True, slots=True)
class EditReport:
    """Result of a change: net counts of added concepts, names and retired ids, plus details."""

    concepts: int
    names: int
    retired: int
    vectors_outdated: bool  # whether existing vectors are now outdated
    report: BuildReport  # counts for the records in the change, and for the whole KB


def add_concepts(
    path: str | Path,
    concepts: Iterable[Concept],
    *,
    types: Collection[str] | None = None,
    source: str = "",
    release: str = "",
    licence: str = "",
) -> EditReport:
    """Add concept records to a knowledge base. The records may be in any order.

    A record with a known id adds names, types and parents to the concept, and a definition if the
    concept has none; the preferred name stays. A record with a retired id adds to the replacement
    concept. A record that retires a current id changes nothing; see `retire_ids`.

    types (Collection[str] | None): Add only new concepts with any of these types; None adds all.
    source, release, licence (str): Origin of the records, added to the stored origin.
    RAISES BioelError: [B026] bad id, [B027] circular replacements; the same errors as
        `_changing`.
    """
    KnowledgeBase.open(path)  # fail early if the path is not a knowledge base
    records = list(concepts)  # read all records before taking the lock
    report = BuildReport()
    with _changing(path, to="add concepts") as (transaction, kb):
        base = drafts_of(kb)
        drafts = merge_records(records, types=types, report=report, base=base, source=source)
        origin = {"source": source, "release": release, "licence": licence}
        return _replace_columns(transaction, kb, drafts, report, **origin)


def retire_ids(path: str | Path, replaced_by: Mapping[str, str]) -> EditReport:
    """Remove concepts from a knowledge base, optionally replacing their ids.

    A replacement takes over the names, children and id of the old concept. Without a replacement, a
    concept is removed along with the names that no other concept has, and its id becomes unknown.

    replaced_by (Mapping[str, str]): Maps each id to retire to its replacement, or to "". A
        replacement may itself be retired.
    RAISES BioelError: [B027] circular replacements, [B028] no concept would be left,
        [B200] unknown id, [B201] id that is already retired; the same errors as `_changing`.
    """
    with _changing(path, to="retire ids") as (transaction, kb):
        for id in replaced_by:
            _check_current(kb, id, Errors.B201)
        drafts = drafts_of(kb)
        replacements = {id: new for id, new in replaced_by.items() if new}
        drafts.retired = follow_chains(drafts.retired | replacements)
        removed = {id: drafts.current.pop(id) for id in replaced_by}
        for id in replacements:
            if (replacement := drafts.current.get(drafts.retired[id])) is None:
                raise _unknown_id(kb, drafts.retired[id])
            replacement.names += removed[id].names
            replacement.sources += removed[id].sources
            replacement.xrefs = extend_unique(replacement.xrefs, removed[id].xrefs)
        for draft in drafts.current.values():
            draft.parents = tuple(drafts.retired.get(parent, parent) for parent in draft.parents)
        return _replace_columns(transaction, kb, drafts, BuildReport(records=len(replaced_by)))


def edit_names(path: str | Path, edits: Mapping[str, NameEdit]) -> EditReport:
    """Edit concept names in a knowledge base, recording "edit" as the source of new names.

    edits (Mapping[str, NameEdit]): The change to each concept, by the concept's id.
    RAISES BioelError: [B200] unknown id, [B406] retired id; the same errors as `NameEdit.apply`
        and `_changing`.
    """
    with _changing(path, to="edit names") as (transaction, kb):
        drafts = drafts_of(kb)
        source = drafts.source_index("edit")
        for id, edit in edits.items():
            _check_current(kb, id, Errors.B406)
            edit.apply(drafts.current[id], id=id, where=kb.where, source=source)
        return _replace_columns(transaction, kb, drafts, BuildReport(records=len(edits)))


@dataclass(frozen=True, slots=True)
class Compaction:
    """Result of `compact_kb`: what was removed."""

    leftovers: int  # number of vector files that were removed
    n_bytes: int  # total size of the removed vector files
    edit: EditReport | None  # effect of dropping the retired ids; None if they were kept


def compact_kb(path: str | Path, *, forget_retired: bool = False) -> Compaction:
    """Remove all encoders' outdated vectors, and unfinished files left behind by killed commands.

    forget_retired (bool): Also drop all retired ids, which become unknown.
    RAISES BioelError: The same errors as `_changing`, from `verify` only with `forget_retired`.
    """
    edit = None
    with _changing(path, to="compact", columns=forget_retired) as (transaction, kb):
        stored = stored_vectors(kb)
        current = {v.encoder: v.path for v in reversed(stored) if v.is_current}
        outdated = [vectors for vectors in stored if vectors.path not in current.values()]
        if forget_retired:
            drafts = drafts_of(kb)
            drafts.retired, drafts.withdrawn = {}, {}
            edit = _replace_columns(transaction, kb, drafts, BuildReport())
        transaction.remove(vectors.path for vectors in outdated)
    return Compaction(len(outdated), sum(len(vectors.raw) for vectors in outdated), edit)


@contextmanager
def _changing(
    path: str | Path, *, to: str, columns: bool = True
) -> Iterator[tuple[Transaction, KnowledgeBase]]:
    """Lock a knowledge base for a change, and open its current version.

    columns (bool): Whether the columns will be rewritten. If so, all columns are verified first.
    RAISES BioelError: [B203] the folder is not writable, [B212] another writer does not finish in
        time; the same errors as `KnowledgeBase.open` and `verify`.
    """
    folder = Path(path).resolve()
    KnowledgeBase.open(folder)  # if this is not a knowledge base, fail before locking
    try:
        with editing(folder, to=to) as transaction:
            kb = KnowledgeBase.open(folder)
            if columns:
                kb.verify()  # rewriting would give damaged columns valid checksums
            yield transaction, kb
    except OSError as error:
        raise BioelError(Errors.B203.format(path=folder, error=error)) from error


def drafts_of(kb: KnowledgeBase) -> Drafts:
    """Reconstruct a knowledge base's drafts from its columns."""

    def split(offsets: IntArray, values: list[Any]) -> Iterator[tuple[Any, ...]]:
        return (tuple(values[start:end]) for start, end in pairwise(offsets.tolist()))

    ids, names = list(kb.ids), list(kb.names)
    drafts = map(
        Draft,
        split(kb.concept_offsets, [names[row] for row in kb.concept_names.tolist()]),
        split(kb.type_offsets, [kb.type_names[row] for row in kb.type_ids.tolist()]),
        split(kb.parent_offsets, [ids[row] for row in kb.parents.tolist()]),
        kb.definitions,
        kb.xrefs_of_all(np.arange(len(kb))),
        split(kb.concept_offsets, kb.name_sources.tolist()),
    )
    current = dict(zip(ids, drafts, strict=True))
    targets = (ids[row] for row in kb.retired_targets.tolist())
    retired = dict(zip(kb.retired, targets, strict=True))
    return Drafts(current, retired, list(kb.sources), dict(kb.withdrawn))


def _replace_columns(
    transaction: Transaction, kb: KnowledgeBase, drafts: Drafts, report: BuildReport, **origin: str
) -> EditReport:
    """Write drafts as the new columns of `kb`, extend its recorded origin, and count changes."""
    about: dict[str, Any] = {"selection": kb.meta.get("selection", {})}
    for key in ("source", "release", "licence"):
        values = f"{kb.meta.get(key, '')}, {origin.get(key, '')}".split(", ")
        about[key] = ", ".join(dict.fromkeys(filter(None, values)))
    transaction.replace_columns(write_columns, drafts=drafts, report=report, about=about)
    return EditReport(
        concepts=report.concepts - len(kb),
        names=report.names - kb.n_names,
        retired=report.retired - len(kb.retired),
        vectors_outdated=has_vectors(kb) and report.fingerprint != kb.fingerprint,
        report=report,
    )


def _check_current(kb: KnowledgeBase, id: str, if_retired: str) -> None:
    if (current := kb.canonical(id)) != id:
        raise BioelError(if_retired.format(path=kb.where, id=id, current=current))
    if kb.find(id) < 0:
        raise _unknown_id(kb, id)


def _unknown_id(kb: KnowledgeBase, id: str) -> BioelError:
    return BioelError(Errors.B200.format(path=kb.where, id=id, first=kb.ids[0]))
