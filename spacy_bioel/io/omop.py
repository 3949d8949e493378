"""Reader for OMOP vocabularies downloaded from Athena (https://athena.ohdsi.org)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.io.open import (
    StrPath,
    curie,
    file_in,
    misspelt,
    numbered_lines,
    skip_if_bad,
    unique_names,
)
from spacy_bioel.io.table import check_row, column_indices, header_of, split_rows
from spacy_bioel.types import OMOP, STANDARD, Concept

_ATHENA_FILES = ("CONCEPT", "CONCEPT_RELATIONSHIP", "CONCEPT_SYNONYM")
_CODES = ("concept_id", "vocabulary_id", "concept_code")
_ENGLISH = frozenset(("4180186", "4093769", "0"))  # language ids: English (current, old), unset
_MAX_ID_DIGITS = 18
# Valid relations that are not read, although they look like misspellings of ones that are.
_OTHER_RELATIONS = ("Concept replaces", "Maps to unit", "Maps to value")


def read_athena(
    folder: StrPath, *, prefix: str = "", vocabularies: Collection[str] = ()
) -> Iterator[Concept]:
    """Stream concepts from the CONCEPT, CONCEPT_SYNONYM and CONCEPT_RELATIONSHIP files in a folder.

    A concept's cross-references are its OMOP id, and the concepts that it "Maps to". A concept with
    an invalid_reason is retired. If only one concept replaces it, and is read too, that is recorded
    as its replacement; otherwise concepts to consider are listed. Only English synonyms are read.

    prefix (str): Ignored, because ids have the prefix of their vocabulary.
    vocabularies (Collection[str]): Vocabularies to read; if empty, all are read.
    """
    concepts, relations, synonyms = (
        file_in(folder, f"{name}.csv", of="an Athena download") for name in _ATHENA_FILES
    )
    known, curies, others = set(), dict[int, str](), dict[int, str]()
    for id, vocabulary, code in _rows(concepts, *_CODES):
        known.add(vocabulary)
        if not vocabularies or vocabulary in vocabularies:
            curies[id] = _to_curie(vocabulary, code)
    if unknown := sorted(set(vocabularies) - known):
        about = {"unknown": ", ".join(unknown), "known": ", ".join(sorted(known))}
        raise BioelError(Errors.B606.format(path=concepts, **about))
    related: dict[str, dict[int, tuple[int, ...]]]
    related = {"Is a": {}, "Maps to": {}, "Concept replaced by": {}}
    columns = ["concept_id_1", "concept_id_2", "relationship_id", "invalid_reason"]
    unread = Counter[str]()
    for id, other, relation, invalid in _rows(relations, *columns):
        if id not in curies or id == other or invalid:
            continue
        if relation in related:
            related[relation][id] = (*related[relation].get(id, ()), other)
            others[other] = curies.get(other, "")
        else:
            unread[relation] += 1
    for relation, n in unread.items():
        if relation not in _OTHER_RELATIONS and (meant := misspelt(relation, related)):
            problem = f"{n:,} rows have the relationship_id {relation!r}, expected {meant!r}"
            raise BioelError(Errors.B132.format(where=relations, problem=problem))
    for id, vocabulary, code in _rows(concepts, *_CODES):
        if id in others:
            others[id] = curies.get(id) or _to_curie(vocabulary, code)
    names: dict[int, list[str]] = defaultdict(list)
    columns = ["concept_id", "concept_synonym_name", "language_concept_id"]
    for id, name, language in _rows(synonyms, *columns):
        if language in _ENGLISH and id in curies:
            names[id].append(name)
    columns = ["concept_id", "concept_name", "domain_id", "standard_concept", "invalid_reason"]
    for id, name, domain, standard, invalid in _rows(concepts, *columns):
        if id not in curies:
            continue
        all_names = unique_names([name, *names.pop(id, ())])
        above, maps_to, new = (
            [other for other in found.pop(id, ()) if others[other]] for found in related.values()
        )
        if not invalid:
            types = (domain, STANDARD) if standard == "S" else (domain,)
            xrefs = [f"{OMOP}{id}", *(x for o in maps_to for x in (others[o], f"{OMOP}{o}"))]
            parents = tuple(others[other] for other in above)
            yield Concept(curies[id], all_names, types, parents, xrefs=tuple(xrefs))
        elif len(new) == 1 and new[0] in curies:
            yield Concept(curies[id], all_names, replaced_by=others[new[0]])
        else:
            consider = sorted({others[other] for other in new + maps_to})
            yield Concept(curies[id], all_names, consider=tuple(consider))


def _to_curie(vocabulary: str, code: str) -> str:
    return re.sub(r"[\s|]", "_", curie(f"{vocabulary}:{code}"))


def _rows(path: Path, *columns: str) -> Iterator[list[Any]]:
    """Stream each row's cells in the given columns, with concept ids converted to integers."""
    rows = split_rows(numbered_lines(path, ends=True), "\t", quoted=False)
    header = [name.lower() for name in header_of(next(rows, (None, [], ""))[1])]
    at = [i for (i,) in column_indices(path, {c: c for c in columns}, header).values()]
    numbers = [i for i, name in enumerate(columns) if name.startswith("concept_id")]
    for where, row, _ in rows:
        with skip_if_bad(where):
            check_row(where, row, len(header), ())
            cells: list[Any] = [row[i] for i in at]
            for i in numbers:
                if not cells[i].isdecimal() or len(cells[i]) > _MAX_ID_DIGITS:
                    problem = f"expected a number as {columns[i]}, found {cells[i]!r:.40}"
                    raise BioelError(Errors.B132.format(where=where, problem=problem))
                cells[i] = int(cells[i])
            yield cells
