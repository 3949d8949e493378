"""Evidence fusion: turn candidate features into probabilities, and rank the candidates.

A network with one small hidden layer scores each candidate. Probabilities are a softmax over a
mention's candidates and NIL, whose score is 0, so they are comparable across mentions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import DECIMALS, BoolArray, DoubleArray, FloatArray, IntArray

# A candidate below this probability hardly affects the others, so its cross-references are not
# worth reading.
_MIN_EQUIVALENT_PROBABILITY = 0.05
# Different sources use different prefixes for the same vocabulary. UMLS ids have no prefix.
_STANDARD_PREFIXES = {"MSH": "MESH", "UMLS": "", "UMLS_CUI": ""}
_STANDARD_PREFIXES |= dict.fromkeys(("SCTID", "SNOMEDCT", "SNOMEDCT_US", "SNOMED_CT"), "SNOMED")


@dataclass(frozen=True, eq=False)
class Fusion:
    """Weights of the fusion network.

    mean, scale (DoubleArray): Shift and divisor of the features. Shape (n_features,).
    hidden (DoubleArray), hidden_bias (DoubleArray): The hidden layer. Shapes (n_features,
        n_hidden), (n_hidden,).
    output (DoubleArray), direct (DoubleArray): Weights of the hidden layer, and of the features
        themselves, in the score. Shapes (n_hidden,), (n_features,).
    bias (float): Bias of every candidate against NIL.
    """

    mean: DoubleArray
    scale: DoubleArray
    hidden: DoubleArray
    hidden_bias: DoubleArray
    output: DoubleArray
    direct: DoubleArray
    bias: float

    def scores(self, features: FloatArray) -> DoubleArray:
        """Return each candidate's score, the log-odds against NIL. Shape (n,).

        features (FloatArray): Shape (n, len(FEATURES)).
        """
        z = (features - self.mean) / self.scale
        hidden = np.tanh(z @ self.hidden + self.hidden_bias)
        return hidden @ self.output + z @ self.direct + self.bias

    def weights(self) -> DoubleArray:
        """Return all fitted weights as one vector, in the order that `evaluation.fit` uses."""
        parts = [self.hidden, self.hidden_bias, self.output, self.direct, np.array([self.bias])]
        return np.concatenate([part.ravel() for part in parts])

    def to_json(self, features: Sequence[str]) -> dict[str, Any]:
        """Return the weights by name, together with the feature names."""
        weights = {name: np.round(value, 5).tolist() for name, value in vars(self).items()}
        return {"features": list(features)} | weights

    @classmethod
    def from_json(cls, data: Mapping[str, Any], features: Sequence[str]) -> Fusion:
        """Build the weights from the output of `to_json`.

        RAISES BioelError: [B272] if weights are not finite numbers or have the wrong shape.
        """
        try:
            weights = {name: np.array(data[name], dtype=float) for name in cls.__dataclass_fields__}
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise _invalid_weights(f"{type(error).__name__} {error}") from error
        n, hidden = len(features), weights["output"].size
        shapes = {"hidden": (n, hidden), "hidden_bias": (hidden,), "output": (hidden,), "bias": ()}
        for name, weight in weights.items():
            if weight.shape != shapes.get(name, (n,)) or not np.isfinite(weight).all():
                raise _invalid_weights(f"{name} of shape {weight.shape}")
        return cls(bias=float(weights.pop("bias")), **weights)


@cache
def bundled_fusion(file: str, features: tuple[str, ...]) -> Fusion:
    """Load fusion weights from a file bundled with the package."""
    return Fusion.from_json(json.loads((ASSETS_FOLDER / file).read_text("utf8")), features)


def read_weights(data: Any, features: Sequence[str]) -> Fusion | None:
    """Load saved weights; None if there are none or if their features differ (warns [W062]).

    RAISES BioelError: The same errors as `Fusion.from_json`.
    """
    found = data.get("features", features) if isinstance(data, Mapping) else features
    if list(found) != list(features):
        LOGGER.warning(Warnings.W062.format(found=found, expected=features))
        return None
    return None if data is None else Fusion.from_json(data, features)


def _invalid_weights(found: str) -> BioelError:
    expected = "finite weights for each feature"
    return BioelError(Errors.B272.format(file="fusion.json", found=found, expected=expected))


def softmax_by_group(
    scores: DoubleArray, groups: IntArray, *, counted: BoolArray | None = None
) -> DoubleArray:
    """Return each candidate's probability among its group's candidates and NIL. Shape (n,).

    scores (DoubleArray): Score of each candidate; -inf if it is excluded. Shape (n,).
    groups (IntArray): Index of the mention of each candidate. Shape (n,).
    counted (BoolArray | None): Mask of the candidates that lower the probability of other
        candidates; None: all. Shape (n,).
    """
    n_groups = int(groups.max(initial=-1)) + 1
    highest = np.zeros(n_groups)  # at least 0, the score of NIL
    np.maximum.at(highest, groups, scores)
    odds = np.exp(scores - highest[groups])
    counted_odds = odds if counted is None else odds * counted
    return odds / (np.bincount(groups, counted_odds, n_groups) + np.exp(-highest))[groups]


def rank(
    kb: KnowledgeBase,
    concepts: IntArray,
    scores: DoubleArray,
    groups: IntArray,
    *,
    top: int,
    kept: BoolArray | None = None,
) -> tuple[IntArray, DoubleArray]:
    """Return the indices of each group's `top` best candidates (grouped, best first), and every
    candidate's probability.

    Of equivalent concepts, only the most probable one lowers the probability of others. Ties go
    to the lower concept row, i.e. the lower id. Probabilities are rounded before they are compared,
    because their last bits depend on the other candidates in a batch.

    concepts (IntArray): Concept row of each candidate. Shape (n,).
    kept (BoolArray | None): Candidates that are always returned. Shape (n,).
    """
    probabilities = softmax_by_group(scores, groups)
    repeated = have_likelier_equivalents(kb, concepts, probabilities, groups)
    if repeated.any():
        probabilities = softmax_by_group(scores, groups, counted=~repeated)
    order = np.lexsort((concepts, -np.round(probabilities, DECIMALS), groups))
    groups_in_order = groups[order]
    first = np.searchsorted(groups_in_order, groups_in_order)
    is_kept = np.arange(len(order)) - first < top
    if kept is not None:
        is_kept |= kept[order]
    return order[is_kept], probabilities


def have_likelier_equivalents(
    kb: KnowledgeBase, concepts: IntArray, probabilities: DoubleArray, groups: IntArray
) -> BoolArray:
    """Return whether each candidate has a more probable equivalent in its group. Shape (n,).

    Between equally probable candidates, the lower concept row counts as more probable.
    """
    repeated = np.zeros(len(concepts), dtype=bool)
    rows = np.flatnonzero(probabilities >= _MIN_EQUIVALENT_PROBABILITY)
    sizes = np.bincount(groups[rows], minlength=1)
    rows = rows[sizes[groups[rows]] > 1]
    if not len(rows):
        return repeated
    order = rows[np.lexsort((concepts[rows], -probabilities[rows], groups[rows]))]
    different = np.unique(concepts[order])
    columns = zip(different.tolist(), kb.ids_of(different), kb.xrefs_of_all(different), strict=True)
    identities = {row: (standard_id(id), {*map(standard_id, xs)}) for row, id, xs in columns}
    likelier: list[tuple[str, set[str]]] = []
    group = -1
    for row in order.tolist():
        if groups[row] != group:
            likelier, group = [], groups[row]
        id, xrefs = identities[int(concepts[row])]
        for other, other_xrefs in likelier:
            # One concept refers to the other or, across vocabularies, both refer to a third.
            if id in other_xrefs or other in xrefs:
                repeated[row] = True
            elif id.rpartition(":")[0] != other.rpartition(":")[0]:
                repeated[row] |= not xrefs.isdisjoint(other_xrefs)
        likelier.append((id, xrefs))
    return repeated


def standard_id(id: str) -> str:
    """Normalise an id to its canonical form: "msh:d001" becomes "MESH:D001"."""
    prefix, separator, local = id.partition(":")
    if not separator:
        return id.upper()
    standard = _STANDARD_PREFIXES.get(prefix.upper(), prefix.upper())
    return f"{standard}:{local}".lstrip(":").upper()
