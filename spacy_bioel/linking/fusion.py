"""The one decision: features of candidates -> a probability each -> ranked candidates.

A network with one small hidden layer gives every candidate a score, and the candidates of a
mention and NIL, whose score is 0, share the probability. So a score can be compared across
mentions, and says how likely it is that the candidate is the concept meant.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import srsly
from numpy.typing import NDArray

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import FEATURES
from spacy_bioel.models.inference import Doubles, Fusion, share

DECIMALS = 4  # of the probability of a candidate


# Fitted by training/scripts/starter.py; used until `fit_fusion` has seen a corpus of one's own.
_DEFAULT = Path(__file__).parents[1] / "assets" / "fusion.json"


@cache
def default_fusion() -> Fusion:
    """Weights that serve most knowledge bases, with an encoder or without."""
    return Fusion.from_json(srsly.read_json(_DEFAULT), FEATURES)


IntArray = NDArray[np.int64]


_Identity = tuple[str, set[str]]  # id and cross-references of a concept, in one spelling


# Rarer candidates take so little from the others that their cross-references are not read.
_LEAST = 0.05


# Sources spell the names of vocabularies in several ways. Ids of UMLS have no prefix.
_SPELLINGS = {"MSH": "MESH", "UMLS": "", "UMLS_CUI": ""}
_SPELLINGS |= dict.fromkeys(("SCTID", "SNOMEDCT", "SNOMEDCT_US", "SNOMED_CT"), "SNOMED")


def share_of_equivalents(
    kb: KnowledgeBase, concepts: IntArray, scores: Doubles, groups: IntArray
) -> Doubles:
    """`share` with the likeliest of equivalents counted alone. concepts: rows, shape (n,)."""
    shares = share(scores, groups)
    repeated = repeats(kb, concepts, shares, groups)
    return share(scores, groups, counted=~repeated) if repeated.any() else shares


def rank(
    kb: KnowledgeBase,
    concepts: IntArray,
    scores: Doubles,
    groups: IntArray,
    *,
    top: int,
    kept: NDArray[np.bool_] | None = None,
) -> tuple[IntArray, Doubles]:
    """The `top` best candidates of each group: their rows, group after group, best first; and the
    probability of each candidate, see `share_of_equivalents`.

    kept (NDArray[bool] | None): Candidates that are returned in any case. Shape (n,).

    Ties go to the lower concept row, which is the lower id. Probabilities are as they are shown:
    what differs in the last bits, by the other rows of a batch, is a tie.
    """
    shares = share_of_equivalents(kb, concepts, scores, groups)
    order = np.lexsort((concepts, -np.round(shares, DECIMALS), groups))
    in_order = groups[order]
    first = np.searchsorted(in_order, in_order)
    is_kept = np.arange(len(order)) - first < top
    return order[is_kept if kept is None else is_kept | kept[order]], shares


def repeats(
    kb: KnowledgeBase, concepts: IntArray, shares: Doubles, groups: IntArray
) -> NDArray[np.bool_]:
    """Candidates that are equivalents of a likelier one of their group. Shape (n,).

    Ties go to the lower concept row.
    """
    repeated = np.zeros(len(concepts), dtype=bool)
    rows = np.flatnonzero(shares >= _LEAST)
    sizes = np.bincount(groups[rows], minlength=1)
    rows = rows[sizes[groups[rows]] > 1]
    if not len(rows):
        return repeated
    order = rows[np.lexsort((concepts[rows], -shares[rows], groups[rows]))]
    different = np.unique(concepts[order])
    columns = zip(different.tolist(), kb.ids_of(different), kb.xrefs_of_all(different), strict=True)
    known = {row: (_spelled(id), set(map(_spelled, xrefs))) for row, id, xrefs in columns}
    likelier: list[_Identity] = []
    before = -1
    for row in order.tolist():
        if groups[row] != before:
            likelier, before = [], groups[row]
        one = known[int(concepts[row])]
        repeated[row] = any(_are_equivalent(one, other) for other in likelier)
        likelier.append(one)
    return repeated


def _are_equivalent(one: _Identity, other: _Identity) -> bool:
    (id, xrefs), (other_id, other_xrefs) = one, other
    if id in other_xrefs or other_id in xrefs:
        return True
    is_other_vocabulary = id.rpartition(":")[0] != other_id.rpartition(":")[0]
    return is_other_vocabulary and not xrefs.isdisjoint(other_xrefs)


def _spelled(id: str) -> str:
    vocabulary, separator, local = id.partition(":")
    if not separator:
        return id.upper()
    spelled = _SPELLINGS.get(vocabulary.upper(), vocabulary.upper())
    return f"{spelled}:{local}".lstrip(":").upper()
