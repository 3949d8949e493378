"""Weights of evidence: features of candidates -> scores and probabilities -> ranked candidates.

A network with one small hidden layer gives every candidate a score, and the candidates of a
mention and NIL, whose score is 0, share the probability. So a score can be compared across
mentions, and says how likely it is that the candidate is the concept meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import DoubleArray, IntArray


@dataclass(frozen=True, eq=False)
class Fusion:
    """Weights of the evidence.

    mean, scale (DoubleArray): Shift and divisor of the features. Shape (n_features,).
    hidden (DoubleArray), hidden_bias (DoubleArray): Shapes (n_features, n_hidden), (n_hidden,).
    output (DoubleArray), direct (DoubleArray): Of the hidden layer and of the features themselves.
        Shapes (n_hidden,), (n_features,).
    bias (float): Of every candidate against NIL.
    """

    mean: DoubleArray
    scale: DoubleArray
    hidden: DoubleArray
    hidden_bias: DoubleArray
    output: DoubleArray
    direct: DoubleArray
    bias: float

    def scores(self, features: NDArray[np.float32]) -> DoubleArray:
        """A score of each candidate, as log-odds against NIL. Shape (n,).

        features (NDArray[float32]): Shape (n, len(FEATURES)).
        """
        z = (features - self.mean) / self.scale
        hidden = np.tanh(z @ self.hidden + self.hidden_bias)
        return hidden @ self.output + z @ self.direct + self.bias

    def weights(self) -> DoubleArray:
        """All that is fitted, as one vector, in the order of `evaluation.fit`."""
        parts = [self.hidden, self.hidden_bias, self.output, self.direct, np.array([self.bias])]
        return np.concatenate([part.ravel() for part in parts])

    def to_json(self, features: Sequence[str]) -> dict[str, Any]:
        """Numbers by name, with the features that they are for."""
        numbers = {name: np.round(value, 5).tolist() for name, value in vars(self).items()}
        return {"features": list(features)} | numbers

    @classmethod
    def from_json(cls, data: Mapping[str, Any], features: Sequence[str]) -> Fusion:
        """RAISES BioelError: [B062] when the weights are for other features than today's, [B272]
        when they are no numbers, or numbers of other shapes."""
        found = data.get("features") if isinstance(data, Mapping) else data
        if found != list(features):
            raise BioelError(Errors.B062.format(found=found, expected=features))
        try:
            weights = {name: np.array(data[name], dtype=float) for name in cls.__dataclass_fields__}
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise _no_weights(f"{type(error).__name__} {error}") from error
        n, hidden = len(features), weights["output"].size
        shapes = {"hidden": (n, hidden), "hidden_bias": (hidden,), "output": (hidden,), "bias": ()}
        for name, weight in weights.items():
            if weight.shape != shapes.get(name, (n,)) or not np.isfinite(weight).all():
                raise _no_weights(f"{name} of shape {weight.shape}")
        bias = float(weights.pop("bias"))
        return cls(bias=bias, **weights)


def _no_weights(found: str) -> BioelError:
    expected = "finite weights, as many as there are features"
    return BioelError(Errors.B272.format(file="fusion.json", found=found, expected=expected))


def softmax_by_group(
    scores: DoubleArray, groups: NDArray[np.int64], *, counted: NDArray[np.bool_] | None = None
) -> DoubleArray:
    """Probability of each candidate among those of its group and NIL.

    scores (DoubleArray): -inf for a candidate that is out of the question. Shape (n,).
    groups (NDArray[int64]): Number of the mention of each candidate. Shape (n,).
    counted (NDArray[bool] | None): Candidates that take probability from others; None: all.
        Shape (n,).
    """
    n_groups = int(groups.max(initial=-1)) + 1
    highest = np.zeros(n_groups)  # NIL's
    np.maximum.at(highest, groups, scores)
    odds = np.exp(scores - highest[groups])
    taken = odds if counted is None else odds * counted
    return odds / (np.bincount(groups, taken, n_groups) + np.exp(-highest))[groups]


DECIMALS = 4  # of the probability of a candidate


_Identity = tuple[str, set[str]]  # id and cross-references of a concept, in one spelling


# Rarer candidates take so little from the others that their cross-references are not read.
_LEAST = 0.05


# Sources spell the names of vocabularies in several ways. Ids of UMLS have no prefix.
_SPELLINGS = {"MSH": "MESH", "UMLS": "", "UMLS_CUI": ""}
_SPELLINGS |= dict.fromkeys(("SCTID", "SNOMEDCT", "SNOMEDCT_US", "SNOMED_CT"), "SNOMED")


def softmax_with_equivalents(
    kb: KnowledgeBase, concepts: IntArray, scores: DoubleArray, groups: IntArray
) -> DoubleArray:
    """`softmax_by_group` with the likeliest of equivalents counted alone. concepts: rows, shape (n,)."""
    shares = softmax_by_group(scores, groups)
    repeated = repeats(kb, concepts, shares, groups)
    return softmax_by_group(scores, groups, counted=~repeated) if repeated.any() else shares


def rank(
    kb: KnowledgeBase,
    concepts: IntArray,
    scores: DoubleArray,
    groups: IntArray,
    *,
    top: int,
    kept: NDArray[np.bool_] | None = None,
) -> tuple[IntArray, DoubleArray]:
    """The `top` best candidates of each group: their rows, group after group, best first; and the
    probability of each candidate, see `softmax_with_equivalents`.

    kept (NDArray[bool] | None): Candidates that are returned in any case. Shape (n,).

    Ties go to the lower concept row, which is the lower id. Probabilities are as they are shown:
    what differs in the last bits, by the other rows of a batch, is a tie.
    """
    shares = softmax_with_equivalents(kb, concepts, scores, groups)
    order = np.lexsort((concepts, -np.round(shares, DECIMALS), groups))
    in_order = groups[order]
    first = np.searchsorted(in_order, in_order)
    is_kept = np.arange(len(order)) - first < top
    return order[is_kept if kept is None else is_kept | kept[order]], shares


def repeats(
    kb: KnowledgeBase, concepts: IntArray, shares: DoubleArray, groups: IntArray
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
