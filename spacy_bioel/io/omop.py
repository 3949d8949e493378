"""Reader for vocabularies of OMOP, as downloaded from Athena: https://athena.ohdsi.org"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import StrPath, curie, file_in, numbered_lines, skip_if_bad, unique_names
from spacy_bioel.io.table import check_row, column_indices, header_of, split_rows
from spacy_bioel.types import OMOP, STANDARD, Concept

_RELATIONS = ("Is a", "Maps to", "Concept replaced by")
# Concepts of the English language, now and formerly, and of none.
_ENGLISH = frozenset(("4180186", "4093769", "0"))
_NOT_IN_IDS = re.compile(r"[\s|]")
_MAX_DIGITS = 18


def read_athena(
    folder: StrPath, *, prefix: str = "", vocabularies: Collection[str] = ()
) -> Iterator[Concept]:
    """Stream the concepts in a folder with CONCEPT, CONCEPT_SYNONYM and CONCEPT_RELATIONSHIP.

    Ids are the vocabulary and the code, and types the domain and, for standard concepts,
    `STANDARD`. Cross-references are the id of OMOP, followed by the concepts that this one "Maps
    to", each with its code and its id of OMOP. A deleted or updated concept is retired; unless
    exactly one of the concepts read replaces it, those that replace it or that it maps to are the
    ones to consider. Only English synonyms are read.

    Memory holds an id and a code of each concept, the relationships of those in `vocabularies`,
    and their synonyms.

    folder (str | PathLike): The files may be compressed: CONCEPT.csv.gz, CONCEPT.csv.zst.
    prefix (str): Ignored, because all ids have a prefix.
    vocabularies (Collection[str]): Vocabularies to read, as in vocabulary_id; empty: all.
    RAISES BioelError: [B123] if a file is missing, [B128] a column, [B132] if an id is not a
        number, [B510] if a row has another number of cells, [B606] for an unknown vocabulary.
    """
    names = ("CONCEPT", "CONCEPT_RELATIONSHIP", "CONCEPT_SYNONYM")
    paths = [file_in(folder, f"{name}.csv", of="an Athena download") for name in names]
    ids, curies, is_kept, known = array("q"), [], bytearray(), set()
    for id, vocabulary, code in _rows(paths[0], "concept_id", "vocabulary_id", "concept_code"):
        ids.append(id)
        curies.append(_NOT_IN_IDS.sub("_", curie(f"{vocabulary}:{code}")))
        is_kept.append(not vocabularies or vocabulary in vocabularies)
        known.add(vocabulary)
    if unknown := sorted(set(vocabularies) - known):
        about = {"unknown": ", ".join(unknown), "known": ", ".join(sorted(known))}
        raise BioelError(Errors.B606.format(path=paths[0], **about))
    kept = np.frombuffer(is_kept, dtype=bool)
    related, starts = _relations(paths[1], np.frombuffer(ids, dtype=np.int64), kept)
    ids_kept = np.sort(np.frombuffer(ids, dtype=np.int64)[kept]).data
    synonyms: dict[int, list[str]] = defaultdict(list)
    columns = "concept_id", "concept_synonym_name", "language_concept_id"
    for id, name, language in _rows(paths[2], *columns):
        at = bisect_left(ids_kept, id) if language in _ENGLISH else len(ids_kept)
        if at < len(ids_kept) and ids_kept[at] == id:
            synonyms[id].append(name)
    cells = _rows(
        paths[0], "concept_id", "concept_name", "domain_id", "standard_concept", "invalid_reason"
    )
    for row, (id, name, domain, standard, invalid) in enumerate(cells):
        if not is_kept[row]:
            continue
        others: list[list[int]] = [[] for _ in _RELATIONS]
        for kind, other in related[starts[row] : starts[row + 1]].tolist():
            others[kind].append(other)
        parents, standards, new = others
        all_names = unique_names([name, *synonyms.pop(id, ())])
        if not invalid:
            types = (domain, STANDARD) if standard == "S" else (domain,)
            xrefs = [f"{OMOP}{id}"]
            for other in standards:
                xrefs += curies[other], f"{OMOP}{ids[other]}"
            above = tuple(curies[other] for other in parents)
            yield Concept(curies[row], all_names, types, above, xrefs=tuple(xrefs))
        elif len(new) == 1 and is_kept[new[0]]:
            yield Concept(curies[row], all_names, replaced_by=curies[new[0]])
        else:
            ids_to_consider = sorted({curies[other] for other in new + standards})
            yield Concept(curies[row], all_names, consider=tuple(ids_to_consider))


def _relations(path: Path, ids: Any, kept: Any) -> tuple[Any, Any]:
    """Read the relations of the concepts to keep.

    ids, kept (NDArray): Of each concept, its id and whether to keep it. Shape (n,) each.
    RETURNS (tuple[NDArray, NDArray]): The kind and the other concept, sorted by concept, and where
        those of each concept start. Shape (n_relations, 2) and (n + 1,).
    """
    order = np.argsort(ids, kind="stable")
    flat, columns = array("q"), ("concept_id_1", "concept_id_2", "relationship_id")
    for id, other, relation, invalid in _rows(path, *columns, "invalid_reason"):
        if relation in _RELATIONS and not invalid and id != other:
            flat.extend((id, _RELATIONS.index(relation), other))
    triples = np.frombuffer(flat, dtype=np.int64).reshape(-1, 3)
    pairs = triples[:, ::2]
    rows = order[np.searchsorted(ids, pairs, sorter=order).clip(max=len(ids) - 1)]
    good = (ids[rows] == pairs).all(axis=1) & kept[rows[:, 0]]
    first, others = rows[good, 0], np.stack([triples[good, 1], rows[good, 1]], axis=1)
    by_first = np.argsort(first, kind="stable")
    return others[by_first], np.searchsorted(first[by_first], np.arange(len(ids) + 1))


def _rows(path: Path, *columns: str) -> Iterator[list[Any]]:
    """Stream the cells of some columns; those of concept ids are numbers."""
    rows = split_rows(numbered_lines(path, ends=True), "\t", quoted=False)
    header = [name.lower() for name in header_of(next(rows, (None, [], ""))[1])]
    at = [i for (i,) in column_indices(path, {c: c for c in columns}, header).values()]
    numbers = [i for i, name in enumerate(columns) if name.startswith("concept_id")]
    for where, row, _ in rows:
        with skip_if_bad(where):
            check_row(where, row, len(header), ())
            cells: list[Any] = [row[i] for i in at]
            for i in numbers:
                if not cells[i].isdecimal() or len(cells[i]) > _MAX_DIGITS:
                    problem = f"expected a number as {columns[i]}, found {cells[i]!r:.40}"
                    raise BioelError(Errors.B132.format(where=where, problem=problem))
                cells[i] = int(cells[i])
            yield cells
