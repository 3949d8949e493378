"""Build of a knowledge base: from records to the folder of columns that `kb.columns.store` maps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.build.merge import (
    Branches,
    BuildReport,
    Draft,
    Drafts,
    merge_records,
    nothing_left,
)
from spacy_bioel.kb.columns.arrays import SortedKeys, offsets_of
from spacy_bioel.kb.columns.files import write_array, write_strings
from spacy_bioel.kb.columns.keys import KeyArray, name_keys, word_keys
from spacy_bioel.kb.columns.layout import check_replaceable, homes_of, is_kb, map_vectors
from spacy_bioel.kb.columns.schema import ARRAY_COLUMNS, XREF_SEPARATOR, write_meta
from spacy_bioel.kb.transaction import editing
from spacy_bioel.kb.words.ngrams import build_postings
from spacy_bioel.processor import without_collection
from spacy_bioel.text.normalize import normalize_names, on_one_line
from spacy_bioel.types import Concept

_BLOCK = 1 << 12  # concepts whose names are normalised together
_NGRAMS = ("ngram_codes", "ngram_offsets", "ngram_names", "ngram_norms")


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
    """Build a knowledge base from records, in any order.

    Records with the same id are merged. Concepts without types inherit those of their parents.
    Names with the same `normalize_name` share one row. Its spelling is that of the first concept
    (by id) with this preferred name, otherwise that of the first concept with this name. The
    result does not depend on the order of the records, except for the order of the names within a
    concept.

    out (str | Path): Output folder. An existing knowledge base is replaced at the very end, and
        its vectors are removed.
    types (Collection[str] | None): Keep concepts that have any of these; None keeps all.
    branches (Branches | None): Keep only these; None keeps all.
    source, release, licence (str): Origin of the records, for meta.json.
    RAISES BioelError: [B026] bad id, [B027] retired ids in a circle, [B028] no concept left,
        [B029] `out` exists and is not a knowledge base, [B203] `out` is not writable, [B212]
        another writer does not finish in time, [B310] a branch that the records do not have.
    """
    out = Path(out).resolve()
    check_replaceable(out)
    report = BuildReport()
    drafts = merge_records(concepts, types=types, report=report, source=source, branches=branches)
    about = {"source": source, "release": release, "licence": licence}
    try:
        with editing(out, to="build it", make=True) as transaction:
            check_replaceable(out)
            before = homes_of(map_vectors(out), "vectors")
            with transaction.columns(without=before) as folder:
                write_columns(folder, drafts, report=report, about=about)
    except OSError as error:
        raise BioelError(Errors.B203.format(path=out, error=error)) from error
    return report


def build_once(
    read: Callable[[], Iterable[Concept]], out: Path, *, about: Mapping[str, str]
) -> None:
    """Build a knowledge base unless it exists; wait for a thread or process that is building it.

    read (Callable): Returns the records; called only if they are needed.
    about (Mapping[str, str]): source, release and licence.
    RAISES BioelError: Errors of `build_kb`, except [B203].
    RAISES OSError: When `out` is not writable.
    """
    if is_kb(out):
        return
    check_replaceable(out)
    with editing(out, to="build it", make=True) as transaction:
        if is_kb(out):
            return
        report = BuildReport()
        with without_collection(), transaction.columns() as folder:
            drafts = merge_records(read(), types=None, report=report, source=about["source"])
            write_columns(folder, drafts, report=report, about=about)


def write_columns(
    folder: Path, drafts: Drafts, *, report: BuildReport, about: Mapping[str, str]
) -> None:
    """Write the files of a knowledge base to an empty folder.

    drafts (Drafts): Concepts in the order of their ids; chains of retired ids are followed.
    report (BuildReport): Gets the counts and the fingerprint.
    about (Mapping[str, str]): source, release and licence.
    RAISES BioelError: [B028] no concept has a name.
    """
    rows = _assign_rows(drafts.current, report)
    if not rows.ids:
        raise nothing_left(report, types=None, drafts=drafts.current)
    writer = _Writer(folder)
    _write_names(writer, rows, drafts.sources, report)
    _write_concepts(writer, rows, drafts.current, report)
    retired = drafts.retired
    known = {id: rows.ids[target] for id, target in sorted(retired.items()) if target in rows.ids}
    report.retired, report.retired_missing = len(known), len(retired) - len(known)
    writer.strings("retired", known)
    writer.keys("retired", word_keys(known))
    writer.array("retired_targets", list(known.values()))
    counts = {name: count for name, count in asdict(report).items() if name != "fingerprint"}
    report.fingerprint = write_meta(folder, counts=counts, **about)


@dataclass(slots=True)
class _Rows:
    """Row numbers: concepts sorted by id, names by their first concept."""

    ids: dict[str, int] = field(default_factory=dict)  # of the concepts that have a name
    names: dict[str, int] = field(default_factory=dict)  # normalised
    surfaces: list[str] = field(default_factory=list)  # stored spellings, in row order
    # Of each entry, sorted by concept: rows of its name and its source, and 1 if it is preferred.
    entry_names: array[int] = field(default_factory=lambda: array("i"))
    entry_sources: array[int] = field(default_factory=lambda: array("i"))
    entry_is_preferred: bytearray = field(default_factory=bytearray)
    n_names: list[int] = field(default_factory=list)  # number of entries of each concept


def _assign_rows(drafts: dict[str, Draft], report: BuildReport) -> _Rows:
    rows = _Rows()
    # Of a preferred name that several concepts have, the one that spells it: the shortest id is the
    # oldest, so that "BRAF" of man is not spelled "Braf" as in mice.
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
        age = len(id), id
        if age <= oldest.setdefault(preferred, age):
            oldest[preferred] = age
            rows.surfaces[rows.names[preferred]] = surfaces[preferred][0]
    return rows


def _distinct_names(
    drafts: Mapping[str, Draft], report: BuildReport
) -> Iterator[tuple[str, dict[str, tuple[str, int]]]]:
    """Of each concept: from normalised name to first spelling and its source, as they appear."""
    waiting = iter(drafts.items())
    while block := list(islice(waiting, _BLOCK)):
        # A line break would break the column.
        lines = [on_one_line(name) for _, draft in block for name in draft.names]
        names = zip(normalize_names(lines), lines, strict=True)
        for id, draft in block:
            surfaces: dict[str, tuple[str, int]] = {}
            for source, (normalized, surface) in zip(draft.sources, names, strict=False):
                if not normalized:
                    report.empty_names += 1
                elif normalized in surfaces:
                    report.merged_names += 1
                else:
                    surfaces[normalized] = surface, source
            yield id, surfaces


@dataclass(frozen=True)
class _Writer:
    """Writes columns with the types of the schema."""

    folder: Path

    def array(self, name: str, values: Sequence[Any] | NDArray[Any]) -> None:
        write_array(self.folder, name, np.asarray(values, dtype=ARRAY_COLUMNS[name]))

    def strings(self, name: str, values: Iterable[str]) -> None:
        write_strings(self.folder, name, values)

    def keys(self, name: str, keys: KeyArray) -> None:
        ordered = SortedKeys.of(keys)
        self.array(f"{name}_keys", ordered.keys)
        self.array(f"{name}_key_rows", ordered.rows)

    def ragged(self, offsets: str, values: str, rows: Iterable[Sequence[int]]) -> None:
        flat, counts = array("i"), array("i")
        for row in rows:
            flat.extend(row)
            counts.append(len(row))
        self.array(offsets, offsets_of(counts))
        self.array(values, flat)


def _write_names(writer: _Writer, rows: _Rows, sources: Sequence[str], report: BuildReport) -> None:
    names = np.frombuffer(rows.entry_names, dtype=np.dtype("i"))
    is_preferred = np.frombuffer(rows.entry_is_preferred, dtype=bool)
    concepts = np.repeat(np.arange(len(rows.n_names)), rows.n_names)
    per_name = np.bincount(names, minlength=len(rows.surfaces))
    by_name = np.argsort(names, kind="stable")  # keeps the concepts of a name in ascending order
    writer.strings("names", rows.surfaces)
    writer.keys("name", name_keys(rows.names))
    writer.array("name_offsets", offsets_of(per_name))
    writer.array("name_concepts", concepts[by_name])
    writer.array("name_is_preferred", is_preferred[by_name])
    writer.array("concept_offsets", offsets_of(rows.n_names))
    writer.array("concept_names", names)
    report.concepts, report.names, report.entries = len(rows.ids), len(rows.surfaces), len(names)
    report.ambiguous_names = int((per_name > 1).sum())
    postings: tuple[NDArray[Any], ...] = build_postings(list(rows.names))
    for column, values in zip(_NGRAMS, postings, strict=True):
        writer.array(column, values)
    # Sources that brought no name leave no trace.
    entries = np.frombuffer(rows.entry_sources, dtype=np.dtype("i"))
    used, numbers = np.unique(entries, return_inverse=True)
    writer.strings("sources", (" ".join(sources[number].split()) for number in used.tolist()))
    writer.array("name_sources", numbers)


def _write_concepts(
    writer: _Writer, rows: _Rows, drafts: dict[str, Draft], report: BuildReport
) -> None:
    kept = [drafts[id] for id in rows.ids]
    writer.strings("ids", rows.ids)
    writer.keys("id", word_keys(rows.ids))
    writer.strings("definitions", (" ".join(draft.definition.split()) for draft in kept))
    writer.strings("xrefs", (XREF_SEPARATOR.join(draft.xrefs) for draft in kept))
    vocabulary = {t: i for i, t in enumerate(sorted({t for draft in kept for t in draft.types}))}
    writer.strings("type_names", vocabulary)
    writer.ragged("type_offsets", "type_ids", ([vocabulary[t] for t in d.types] for d in kept))

    def known_parents() -> Iterator[list[int]]:
        for id, draft in zip(rows.ids, kept, strict=True):
            others = (parent for parent in dict.fromkeys(draft.parents) if parent != id)
            of_one = [rows.ids.get(parent, -1) for parent in others]
            report.unknown_parents += of_one.count(-1)
            yield [row for row in of_one if row >= 0]

    writer.ragged("parent_offsets", "parents", known_parents())
