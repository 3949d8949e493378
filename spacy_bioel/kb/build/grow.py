"""A knowledge base that changes: concepts added, ids retired, leftovers removed.

Each change writes all columns anew from those that are there, which takes seconds for half a
million names: there are no tombstones and nothing to merge later, and a knowledge base that grew is
read as fast as one that was built. Vectors stay, for the next encoding to copy from. Changes that
come at once are made one after the other, each from what the one before has left.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.build.build import write_columns
from spacy_bioel.kb.build.merge import BuildReport, Draft, Drafts, follow_chains, merge_records
from spacy_bioel.kb.columns.files import IntArray, write_files
from spacy_bioel.kb.columns.layout import files_of_set, generation_of, is_old_set
from spacy_bioel.kb.columns.schema import KB_FILES
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.transaction import Transaction, editing
from spacy_bioel.kb.vectors.stored import stored_vectors
from spacy_bioel.kb.vectors.writing import has_vectors
from spacy_bioel.types import Concept

_ABOUT = ("source", "release", "licence")


@dataclass(frozen=True, slots=True)
class Growth:
    """What a change made of a knowledge base.

    concepts, names, retired (int): How many more there are than before; can be negative.
    vectors_outdated (bool): Whether there are vectors, which are now those of an earlier state.
    report (BuildReport): Counts of what was read for the change, and of all that is there now.
    """

    concepts: int
    names: int
    retired: int
    vectors_outdated: bool
    report: BuildReport


def add_concepts(
    path: str | Path,
    concepts: Iterable[Concept],
    *,
    types: Collection[str] | None = None,
    source: str = "",
    release: str = "",
    licence: str = "",
) -> Growth:
    """Add records to a knowledge base, in any order.

    A record of an id that is there adds names, types and parents to it, and a definition if it had
    none; its preferred name stays. A record of a retired id adds to the concept that replaced it.
    A record that says that a current id is retired changes nothing, see `retire_ids`.

    path (str | Path): Folder of the knowledge base; replaced at the very end.
    types (Collection[str] | None): Add only new concepts that have any of these; None adds all.
    source, release, licence (str): Where the records come from, added to those in meta.json.
    RETURNS (Growth): What was added.
    RAISES BioelError: [B026] a bad id, [B027] retired ids in a circle, [B203] it cannot be
        written, [B212] another writer is not done with it in time; those of `KnowledgeBase.open`
        and `verify`.
    """
    KnowledgeBase.open(path)  # says at once that there is none
    records = list(concepts)  # others need not wait while sources are read
    report = BuildReport()
    with _changing(path, to="add concepts") as (transaction, kb):
        drafts = merge_records(records, types=types, report=report, base=drafts_of(kb))
        about = _about(kb, source=source, release=release, licence=licence)
        return _replace(transaction, kb, drafts, report, about)


def retire_ids(path: str | Path, replaced_by: Mapping[str, str]) -> Growth:
    """Take concepts out of a knowledge base.

    A concept with a replacement leaves its names and its children to it, and its id leads there.
    One without is gone, with the names that only it had, and its id is unknown.

    path (str | Path): Folder of the knowledge base; replaced at the very end.
    replaced_by (Mapping[str, str]): Ids of concepts and of their replacements; "" for none.
        A replacement may itself be retired.
    RETURNS (Growth): What was taken out.
    RAISES BioelError: [B027] ids replace each other in a circle, [B028] nothing would be left,
        [B200] an id that is unknown, [B201] an id that is retired already, [B203] it cannot be
        written, [B212] another writer is not done with it in time; those of `KnowledgeBase.open`
        and `verify`.
    """
    with _changing(path, to="retire ids") as (transaction, kb):
        drafts = _without(kb, replaced_by)
        report = BuildReport(records=len(replaced_by))
        return _replace(transaction, kb, drafts, report, _about(kb))


def _without(kb: KnowledgeBase, replaced_by: Mapping[str, str]) -> Drafts:
    """Drafts of a knowledge base in which ids are retired."""
    for id in replaced_by:
        _check_retirable(kb, id)
    drafts = drafts_of(kb)
    successors = {id: new for id, new in replaced_by.items() if new}
    drafts.retired = follow_chains(drafts.retired | successors)
    gone = {id: drafts.current.pop(id) for id in replaced_by}
    for id, draft in gone.items():
        if id in successors:
            heir = drafts.current.get(drafts.retired[id])
            if heir is None:
                raise _unknown(kb, drafts.retired[id])
            heir.names.extend(draft.names)
    for draft in drafts.current.values():
        draft.parents = [drafts.retired.get(parent, parent) for parent in draft.parents]
    return drafts


def forget_retired_ids(path: str | Path) -> Growth:
    """Drop all retired ids: they are unknown from now on.

    RETURNS (Growth): What was dropped.
    RAISES BioelError: [B203] it cannot be written, [B212] another writer is not done with it in
        time; those of `KnowledgeBase.open` and `verify`.
    """
    with _changing(path, to="forget retired ids") as (transaction, kb):
        drafts = Drafts(drafts_of(kb).current)
        return _replace(transaction, kb, drafts, BuildReport(), _about(kb))


def remove_leftovers(path: str | Path) -> tuple[int, int]:
    """Remove vectors of an earlier state, of each encoder, and what killed commands have left.

    RETURNS (tuple[int, int]): Vectors and folders removed, bytes freed.
    RAISES BioelError: [B203] it cannot be written, [B212] another writer is not done with it in
        time; those of `KnowledgeBase.open`.
    """
    with _editing(path, to="compact") as (transaction, kb):
        folder = transaction.folder
        stored = stored_vectors(kb)
        current = {v.encoder: v.name for v in reversed(stored) if v.is_current}
        outdated = [vectors for vectors in stored if vectors.name not in current.values()]
        freed = sum(vectors.n_bytes for vectors in outdated)
        transaction.remove_vectors(vectors.name for vectors in outdated)
        # An earlier version worked beside the folder.
        killed = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{12}}\.(new|old)")
        leftovers = [path for path in folder.parent.iterdir() if killed.fullmatch(path.name)]
        freed += sum(_n_bytes(path) for path in leftovers)
        for path in leftovers:
            shutil.rmtree(path)
    return len(outdated) + len(leftovers), freed


def upgrade_kb(path: str | Path) -> bool:
    """Bring the folder of an earlier version into the layout of this one, with its vectors.

    RETURNS (bool): Whether it was in another layout.
    RAISES BioelError: [B203] it cannot be written, [B212] another writer is not done with it in
        time; those of `KnowledgeBase.open` and `verify`.
    """
    with _changing(path, to="upgrade") as (transaction, kb):
        files = kb.files()
        old = [vectors for vectors in stored_vectors(kb) if is_old_set(vectors.name)]
        if generation_of(files) and not old:
            return False
        for vectors in old:
            if vectors.state is not None:  # else: nobody can read them
                with transaction.vectors(vectors.encoder) as folder:
                    write_files(folder, files_of_set(files, vectors.name))
        with transaction.columns() as folder:
            write_files(folder, {name: files[name] for name in KB_FILES})
        transaction.remove_vectors(vectors.name for vectors in old)
    return True


@contextmanager
def _editing(path: str | Path, *, to: str) -> Iterator[tuple[Transaction, KnowledgeBase]]:
    """The one writer of a knowledge base, and the state that it begins with."""
    folder = _folder(KnowledgeBase.open(path))
    try:
        with editing(folder, to=to) as transaction:
            yield transaction, KnowledgeBase.open(folder)
    except OSError as error:
        raise BioelError(Errors.B203.format(path=folder, error=error)) from error


@contextmanager
def _changing(path: str | Path, *, to: str) -> Iterator[tuple[Transaction, KnowledgeBase]]:
    """The same, for columns that are written anew."""
    with _editing(path, to=to) as (transaction, kb):
        kb.verify()  # new columns get new checksums, which would make damage look right
        yield transaction, kb


def drafts_of(kb: KnowledgeBase) -> Drafts:
    """What a knowledge base was built from, as far as it was kept."""
    ids, names = list(kb.ids), list(kb.names)
    drafts = map(
        Draft,
        _pieces(kb.concept_offsets, [names[row] for row in kb.concept_names.tolist()]),
        _pieces(kb.type_offsets, [kb.type_names[row] for row in kb.type_ids.tolist()]),
        _pieces(kb.parent_offsets, [ids[row] for row in kb.parents.tolist()]),
        kb.definitions,
    )
    current = dict(zip(ids, drafts, strict=True))
    targets = (ids[row] for row in kb.retired_targets.tolist())
    return Drafts(current, dict(zip(kb.retired, targets, strict=True)))


def _pieces(offsets: IntArray, values: list[str]) -> Iterator[list[str]]:
    """The values of each row of a ragged column."""
    return (values[start:end] for start, end in pairwise(offsets.tolist()))


def _replace(
    transaction: Transaction,
    kb: KnowledgeBase,
    drafts: Drafts,
    report: BuildReport,
    about: Mapping[str, str],
) -> Growth:
    """Put a knowledge base of these drafts in the place of `kb`."""
    with transaction.columns() as folder:
        write_columns(folder, drafts, report=report, about=about)
    return Growth(
        concepts=report.concepts - len(kb),
        names=report.names - kb.n_names,
        retired=report.retired - len(kb.retired),
        vectors_outdated=has_vectors(kb) and report.fingerprint != kb.fingerprint,
        report=report,
    )


def _about(kb: KnowledgeBase, **new: str) -> dict[str, str]:
    """source, release and licence, each with what is new."""
    lists = {key: f"{kb.meta.get(key, '')}, {new.get(key, '')}".split(", ") for key in _ABOUT}
    return {key: ", ".join(dict.fromkeys(filter(None, parts))) for key, parts in lists.items()}


def _check_retirable(kb: KnowledgeBase, id: str) -> None:
    current = kb.canonical(id)
    if current != id:
        raise BioelError(Errors.B201.format(path=kb.where, id=id, current=current))
    if kb.find(id) < 0:
        raise _unknown(kb, id)


def _unknown(kb: KnowledgeBase, id: str) -> BioelError:
    return BioelError(Errors.B200.format(path=kb.where, id=id, first=kb.ids[0]))


def _folder(kb: KnowledgeBase) -> Path:
    if kb.path is None:
        raise TypeError("a knowledge base in memory has no folder that could change")
    return kb.path


def _n_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())
