"""Concepts of several vocabularies that are the same thing do not compete.

Two concepts are equivalents if a cross-reference of one is the id of the other, or if they are of
different vocabularies and have a cross-reference in common. Of the candidates of a mention that are
equivalents, only the likeliest takes probability from the others. So each has about the score that
it would have alone, the order of all candidates stays as it is, and where there are no equivalents
nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.linker.fusion import FloatArray, share

IntArray = NDArray[np.int64]
# Rarer candidates take so little from the others that their cross-references are not read.
_LEAST = 0.05
# Sources spell the names of vocabularies in several ways. Ids of UMLS have no prefix.
_SPELLINGS = {
    "MSH": "MESH",
    "UMLS": "",
    "UMLS_CUI": "",
    "SCTID": "SNOMED",
    "SNOMEDCT": "SNOMED",
    "SNOMEDCT_US": "SNOMED",
    "SNOMED_CT": "SNOMED",
}


def share_of_equivalents(
    kb: KnowledgeBase, concepts: IntArray, scores: FloatArray, groups: IntArray
) -> FloatArray:
    """Probability of each candidate among those of its group and NIL, as `fusion.share` has it, but
    with the likeliest of equivalents counted alone. Shape (n,).

    concepts (IntArray): Concept rows of the candidates. Shape (n,).
    scores, groups: See `fusion.share`.
    """
    shares = share(scores, groups)
    repeated = repeats(kb, concepts, shares, groups)
    return share(scores, groups, counted=~repeated) if repeated.any() else shares


def repeats(
    kb: KnowledgeBase, concepts: IntArray, shares: FloatArray, groups: IntArray
) -> NDArray[np.bool_]:
    """Candidates that are equivalents of a likelier one of their group. Shape (n,).

    Ties go to the lower concept row.
    """
    repeated = np.zeros(len(concepts), dtype=bool)
    rows = np.flatnonzero(shares >= _LEAST)
    sizes = np.bincount(groups[rows], minlength=1)
    rows = rows[sizes[groups[rows]] > 1]
    if not len(rows) or not kb.has_xrefs:
        return repeated
    order = rows[np.lexsort((concepts[rows], -shares[rows], groups[rows]))]
    different = np.unique(concepts[order])
    known = {
        row: _Identity(id, kb.xrefs(row))
        for row, id in zip(different.tolist(), kb.ids_of(different), strict=True)
    }
    likelier: list[_Identity] = []
    before = -1
    for row in order.tolist():
        if groups[row] != before:
            likelier, before = [], groups[row]
        one = known[int(concepts[row])]
        repeated[row] = any(map(one.is_equivalent, likelier))
        likelier.append(one)
    return repeated


class _Identity:
    """Id and cross-references of a concept, in one spelling."""

    def __init__(self, id: str, xrefs: Iterable[str]) -> None:
        self.id = _spelled(id)
        self.xrefs = set(map(_spelled, xrefs))

    @property
    def vocabulary(self) -> str:
        return self.id.rpartition(":")[0]

    def is_equivalent(self, other: _Identity) -> bool:
        if self.id in other.xrefs or other.id in self.xrefs:
            return True
        return self.vocabulary != other.vocabulary and not self.xrefs.isdisjoint(other.xrefs)


def _spelled(id: str) -> str:
    vocabulary, separator, local = id.partition(":")
    if not separator:
        return id.upper()
    spelled = _SPELLINGS.get(vocabulary.upper(), vocabulary.upper())
    return f"{spelled}:{local}".lstrip(":").upper()
