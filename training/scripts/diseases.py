"""Names of diseases that the table of MeSH descriptors leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import Concept


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
        if any(of & {"C", "F03"} for of in types) and not any("D" in of for of in types):
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
