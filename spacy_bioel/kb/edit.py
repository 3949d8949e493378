"""Changes of a knowledge base: concepts are added, names edited, ids retired, leftovers removed.

Each change rewrites all columns, which takes seconds for half a million names. There are no
tombstones and no segments to merge, so a changed knowledge base is read as fast as a built one.
Vectors stay, and the next encoding copies from them. Concurrent changes run one after the other,
each on the result of the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.build import (
    BuildReport,
    Draft,
    Drafts,
    different,
    follow_chains,
    merge_records,
    write_columns,
)
from spacy_bioel.kb.folder import Transaction, editing
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import has_vectors, stored_vectors
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept, IntArray

_ABOUT = ("source", "release", "licence")


@dataclass(frozen=True, slots=True)
class NameEdit:
    """A change of the names of a concept; names are compared by `normalize_name`.

    add (Sequence[str]): Synonyms to add.
    remove (Sequence[str]): Names to remove; of the others the first is the preferred name then.
    rename (str): New preferred name; the one before stays as a synonym. "": none.
    """

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    rename: str = ""

    def apply(self, draft: Draft, *, id: str, where: str, source: int) -> None:
        """Change the names of a draft.

        id, where: Concept and knowledge base, for messages.
        source (int): Source of new names, among `Drafts.sources`.
        RAISES BioelError: [B403] when there is no such name to remove, [B404] when none would be
            left, [B405] on a new name that no text could have, [B442] on one that is there.
        """
        for name in (*self.add, *([self.rename] if self.rename else [])):
            if not normalize_name(name):
                raise BioelError(Errors.B405.format(name=name))
        known = {normalize_name(name): name for name in draft.names}
        for name in self.add:
            if (same := known.get(normalize_name(name))) is not None:
                raise BioelError(Errors.B442.format(path=where, id=id, name=name, same=same))
        pairs = [*zip(draft.names, draft.sources, strict=True), *((n, source) for n in self.add)]
        if self.rename:
            pairs = [(self.rename, source), *_others(pairs, self.rename)]
        for name in self.remove:
            left = _others(pairs, name)
            if len(left) == len(pairs):
                names = ", ".join(repr(name) for name, _ in pairs)
                raise BioelError(Errors.B403.format(path=where, id=id, name=name, names=names))
            if not left:
                raise BioelError(Errors.B404.format(path=where, id=id, name=name))
            pairs = left
        draft.names = tuple(name for name, _ in pairs)
        draft.sources = tuple(source for _, source in pairs)


def _others(pairs: list[tuple[str, int]], name: str) -> list[tuple[str, int]]:
    gone = normalize_name(name)
    return [(other, source) for other, source in pairs if normalize_name(other) != gone]


@dataclass(frozen=True, slots=True)
class EditReport:
    """Effect of a change on a knowledge base: differences to the counts before."""

    concepts: int
    names: int
    retired: int
    vectors_outdated: bool  # there are vectors that the change has outdated
    report: BuildReport  # of the records of the change, and of the whole knowledge base


def add_concepts(
    path: str | Path,
    concepts: Iterable[Concept],
    *,
    types: Collection[str] | None = None,
    source: str = "",
    release: str = "",
    licence: str = "",
) -> EditReport:
    """Add records to a knowledge base, in any order.

    A record of a known id adds names, types and parents to the concept, and a definition if it had
    none; the preferred name stays. A record of a retired id adds to the concept that replaced it.
    A record that retires a current id changes nothing; see `retire_ids`.

    types (Collection[str] | None): Add only new concepts that have any of these; None adds all.
    source, release, licence (str): Origin of the records, added to those in meta.json.
    RAISES BioelError: [B026] bad id, [B027] retired ids in a circle; those of `_changing`.
    """
    KnowledgeBase.open(path)  # fails early if there is no knowledge base
    records = list(concepts)  # sources are read before the lock is taken
    report = BuildReport()
    with _changing(path, to="add concepts") as (transaction, kb):
        base = drafts_of(kb)
        drafts = merge_records(records, types=types, report=report, base=base, source=source)
        about = _about(kb, source=source, release=release, licence=licence)
        return _replace(transaction, kb, drafts, report, about)


def retire_ids(path: str | Path, replaced_by: Mapping[str, str]) -> EditReport:
    """Remove concepts from a knowledge base.

    The replacement of a concept inherits its names, its children and its id.
    One without is gone, with the names that only it had, and its id is unknown.

    replaced_by (Mapping[str, str]): Ids of concepts and of their replacements; "" for none.
        A replacement may itself be retired.
    RAISES BioelError: [B027] ids replace each other in a circle, [B028] no concept would be left,
        [B200] unknown id, [B201] id that is retired already; those of `_changing`.
    """
    with _changing(path, to="retire ids") as (transaction, kb):
        for id in replaced_by:
            _check_current(kb, id, Errors.B201)
        drafts = drafts_of(kb)
        successors = {id: new for id, new in replaced_by.items() if new}
        drafts.retired = follow_chains(drafts.retired | successors)
        gone = {id: drafts.current.pop(id) for id in replaced_by}
        for id in successors:
            heir = drafts.current.get(drafts.retired[id])
            if heir is None:
                raise _unknown(kb, drafts.retired[id])
            heir.names += gone[id].names
            heir.sources += gone[id].sources
            heir.xrefs = different(heir.xrefs, gone[id].xrefs)
        for draft in drafts.current.values():
            draft.parents = tuple(drafts.retired.get(parent, parent) for parent in draft.parents)
        report = BuildReport(records=len(replaced_by))
        return _replace(transaction, kb, drafts, report, _about(kb))


def edit_names(
    path: str | Path, edits: Mapping[str, NameEdit], *, source: str = "edit"
) -> EditReport:
    """Change the names of concepts of a knowledge base.

    edits (Mapping[str, NameEdit]): By the ids of the concepts.
    source (str): Origin of new names, which they remember.
    RAISES BioelError: [B200] unknown id, [B406] retired id; those of `NameEdit.apply` and
        `_changing`.
    """
    with _changing(path, to="edit names") as (transaction, kb):
        drafts = drafts_of(kb)
        if source not in drafts.sources:
            drafts.sources.append(source)
        number = drafts.sources.index(source)
        for id, edit in edits.items():
            _check_current(kb, id, Errors.B406)
            edit.apply(drafts.current[id], id=id, where=kb.where, source=number)
        return _replace(transaction, kb, drafts, BuildReport(records=len(edits)), _about(kb))


@dataclass(frozen=True, slots=True)
class Compaction:
    """Effect of `compact_kb`."""

    leftovers: int  # sets of vectors
    n_bytes: int
    growth: EditReport | None  # of the dropped ids, if they were to be forgotten


def compact_kb(path: str | Path, *, forget_retired: bool = False) -> Compaction:
    """Remove outdated vectors of each encoder, and the leftovers of killed commands.

    forget_retired (bool): In the same step, drop all retired ids, which are unknown from now on.
    RAISES BioelError: Those of `_changing`, those of `verify` only with `forget_retired`.
    """
    growth = None
    with _changing(path, to="compact", columns=forget_retired) as (transaction, kb):
        stored = stored_vectors(kb)
        current = {v.encoder: v.name for v in reversed(stored) if v.is_current}
        outdated = [vectors for vectors in stored if vectors.name not in current.values()]
        if forget_retired:
            drafts = drafts_of(kb)
            drafts.retired = {}
            growth = _replace(transaction, kb, drafts, BuildReport(), _about(kb))
        transaction.remove_vectors(vectors.name for vectors in outdated)
    return Compaction(len(outdated), sum(vectors.n_bytes for vectors in outdated), growth)


@contextmanager
def _changing(
    path: str | Path, *, to: str, columns: bool = True
) -> Iterator[tuple[Transaction, KnowledgeBase]]:
    """Open a transaction on a knowledge base, and its state at the beginning.

    columns (bool): Whether columns are rewritten, which are verified then.
    RAISES BioelError: [B203] the folder is not writable, [B212] another writer does not finish in
        time; those of `KnowledgeBase.open` and `verify`.
    """
    folder = Path(path).resolve()
    KnowledgeBase.open(folder)  # fails before a lock is made where there is none
    try:
        with editing(folder, to=to) as transaction:
            kb = KnowledgeBase.open(folder)
            if columns:
                kb.verify()  # new columns get new checksums, which would hide damage
            yield transaction, kb
    except OSError as error:
        raise BioelError(Errors.B203.format(path=folder, error=error)) from error


def drafts_of(kb: KnowledgeBase) -> Drafts:
    """Reconstruct the drafts of a knowledge base from its columns."""

    def pieces(offsets: IntArray, values: list[Any]) -> Iterator[tuple[Any, ...]]:
        return (tuple(values[start:end]) for start, end in pairwise(offsets.tolist()))

    ids, names = list(kb.ids), list(kb.names)
    drafts = map(
        Draft,
        pieces(kb.concept_offsets, [names[row] for row in kb.concept_names.tolist()]),
        pieces(kb.type_offsets, [kb.type_names[row] for row in kb.type_ids.tolist()]),
        pieces(kb.parent_offsets, [ids[row] for row in kb.parents.tolist()]),
        kb.definitions,
        kb.xrefs_of_all(np.arange(len(kb))),
        pieces(kb.concept_offsets, kb.name_sources.tolist()),
    )
    current = dict(zip(ids, drafts, strict=True))
    targets = (ids[row] for row in kb.retired_targets.tolist())
    return Drafts(current, dict(zip(kb.retired, targets, strict=True)), list(kb.sources))


def _replace(
    transaction: Transaction,
    kb: KnowledgeBase,
    drafts: Drafts,
    report: BuildReport,
    about: Mapping[str, str],
) -> EditReport:
    """Replace the columns of `kb` by columns of drafts."""
    write = partial(write_columns, drafts=drafts, report=report, about=about)
    transaction.replace_columns(write)
    return EditReport(
        concepts=report.concepts - len(kb),
        names=report.names - kb.n_names,
        retired=report.retired - len(kb.retired),
        vectors_outdated=has_vectors(kb) and report.fingerprint != kb.fingerprint,
        report=report,
    )


def _about(kb: KnowledgeBase, **new: str) -> dict[str, str]:
    """Source, release and licence, with the new values appended."""
    lists = {key: f"{kb.meta.get(key, '')}, {new.get(key, '')}".split(", ") for key in _ABOUT}
    return {key: ", ".join(dict.fromkeys(filter(None, parts))) for key, parts in lists.items()}


def _check_current(kb: KnowledgeBase, id: str, if_retired: str) -> None:
    if (current := kb.canonical(id)) != id:
        raise BioelError(if_retired.format(path=kb.where, id=id, current=current))
    if kb.find(id) < 0:
        raise _unknown(kb, id)


def _unknown(kb: KnowledgeBase, id: str) -> BioelError:
    return BioelError(Errors.B200.format(path=kb.where, id=id, first=kb.ids[0]))
