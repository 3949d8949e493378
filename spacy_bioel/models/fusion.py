"""Weights of evidence: features of candidates to a score each, and scores to probabilities.

A network with one small hidden layer gives every candidate a score, and the candidates of a
mention and NIL, whose score is 0, share the probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fusion:
    """Weights of the evidence.

    mean, scale (FloatArray): Shift and divisor of the features. Shape (n_features,).
    hidden (FloatArray), hidden_bias (FloatArray): Shapes (n_features, n_hidden), (n_hidden,).
    output (FloatArray), direct (FloatArray): Of the hidden layer and of the features themselves.
        Shapes (n_hidden,), (n_features,).
    bias (float): Of every candidate against NIL.
    """

    mean: FloatArray
    scale: FloatArray
    hidden: FloatArray
    hidden_bias: FloatArray
    output: FloatArray
    direct: FloatArray
    bias: float

    def scores(self, features: NDArray[np.float32]) -> FloatArray:
        """A score of each candidate, as log-odds against NIL. Shape (n,).

        features (NDArray[float32]): Shape (n, len(FEATURES)).
        """
        z = (features - self.mean) / self.scale
        hidden = np.tanh(z @ self.hidden + self.hidden_bias)
        return hidden @ self.output + z @ self.direct + self.bias

    def weights(self) -> FloatArray:
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


def share(
    scores: FloatArray, groups: NDArray[np.int64], *, counted: NDArray[np.bool_] | None = None
) -> FloatArray:
    """Probability of each candidate among those of its group and NIL.

    scores (FloatArray): -inf for a candidate that is out of the question. Shape (n,).
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
