"""Fitting of the fusion, the weights of the evidence, on development mentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.linker.fusion import FloatArray, Fusion, share
from spacy_bioel.tuning.choosing import FOLDS
from spacy_bioel.tuning.development import Development

# Weight of the prior: it equals that of this many mentions for a weight that differs by one.
_PRIOR_MENTIONS = 80.0
# Maximum number of mentions for the choice of the initial weights.
_CHOOSING_MENTIONS = 1000


def require_scipy() -> None:
    """Check that SciPy is installed. RAISES BioelError: [B040] if it is not."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error


def fit_fusion(
    development: Development,
    *,
    prior: Fusion | None = None,
    n_hidden: int = 12,
    l2: float = 0.02,
    seed: int = 0,
) -> Fusion:
    """Fit a fusion: maximise the probability of right candidates, and of NIL where none is right.

    prior (Fusion | None): Weights fitted on other corpora, used as initial weights and as centre of
        the penalty: a few hundred mentions are too few to fit all weights. None: random ones.
    n_hidden, l2: Size of the hidden layer and strength of the penalty, without a prior.
    """
    require_scipy()
    from scipy.optimize import minimize

    features = development.features
    mean, spread = features.mean(0, dtype=float), features.std(0, dtype=float)
    if prior is not None:
        mean, spread, n_hidden = prior.mean, prior.scale, len(prior.output)
    # A feature without variance, such as "trained" in one corpus, is not scaled: divided by almost
    # zero, it would dominate wherever it differs, and `to_json` would round the scale to 0.
    scale = np.where(spread > 1e-3, spread, 1.0)
    loss = _Loss((features - mean) / scale, development, l2=l2, n_hidden=n_hidden)
    if prior is None:
        start = np.random.default_rng(seed).standard_normal(loss.n_weights) * 0.1
    else:
        start = loss.centre = prior.weights()
        loss.l2 = _PRIOR_MENTIONS / len(development)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    hidden, hidden_bias, output, direct, bias = loss.split(best.x)
    return Fusion(mean, scale, hidden, hidden_bias, output, direct, float(bias[0]))


def fit_nearest(development: Development, priors: Sequence[Fusion | None]) -> Fusion:
    """Fit a fusion with the prior under which held-out mentions are most likely.

    The default weights may be a poor prior for some corpora, such as phrases of patients. Mentions
    with equal strings are in one fold, because their evidence is equal.

    priors (Sequence): Priors to choose from, weights of other corpora; None: no prior.
    """
    # With more mentions than these, the prior matters little.
    sample = np.random.default_rng(0).permutation(len(development))[:_CHOOSING_MENTIONS]
    strings = np.array([development.strings[i] for i in sample], dtype=object)
    different, string = np.unique(strings, return_inverse=True)
    fold = (np.random.default_rng(0).permutation(len(different)) % FOLDS)[string]
    losses = [0.0] * len(priors)
    for number in sorted(set(fold.tolist())) if fold.any() else []:
        fitting = development.take(sample[fold != number])
        held_out = development.take(sample[fold == number])
        for i, prior in enumerate(priors):
            losses[i] += log_loss(fit_fusion(fitting, prior=prior), held_out)
    return fit_fusion(development, prior=priors[int(np.argmin(losses))])


def log_loss(fusion: Fusion, development: Development) -> float:
    """Sum of the negative log-likelihood of mentions under a fusion."""
    if not len(development):
        return 0.0
    z = (development.features - fusion.mean) / fusion.scale
    loss = _Loss(z, development, l2=0.0, n_hidden=len(fusion.output))
    return loss(fusion.weights())[0] * len(development)


class _Loss:
    """Mean negative log-likelihood with its gradient, as a function of one vector of weights.

    Mentions with the same evidence and the same right candidates, such as those of a string that is
    often mentioned, are computed once.
    """

    def __init__(
        self, z: FloatArray, development: Development, *, l2: float, n_hidden: int
    ) -> None:
        mentions = zip(development.rows, development.right, strict=True)
        keys = [(rows.tobytes(), right.tobytes()) for rows, right in mentions]
        once = development.take(list({key: i for i, key in enumerate(keys)}.values()))
        d, rows = z.shape[1], once.rows
        self.z, self.right = z[np.concatenate(rows)], np.concatenate(once.right)
        self.groups = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
        self.share = np.array(list(Counter(keys).values())) / len(keys)  # of all mentions
        self.l2 = l2
        self.centre: FloatArray | float = 0.0  # the penalty is on the distance to it
        self._shapes = [(d, n_hidden), (n_hidden,), (n_hidden,), (d,), (1,)]
        self.n_weights = sum(int(np.prod(shape)) for shape in self._shapes)
        self._has_right = np.bincount(self.groups, self.right, len(rows)) > 0

    def split(self, weights: FloatArray) -> list[FloatArray]:
        """Split the vector of weights into the parameters of a `Fusion`."""
        parts = np.split(weights, np.cumsum([int(np.prod(s)) for s in self._shapes])[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def __call__(self, weights: FloatArray) -> tuple[float, FloatArray]:
        hidden, hidden_bias, output, direct, bias = self.split(weights)
        active = np.tanh(self.z @ hidden + hidden_bias)
        probability = share(active @ output + self.z @ direct + bias, self.groups)
        total = np.bincount(self.groups, probability, len(self.share))
        right = np.bincount(self.groups, probability * self.right, len(self.share))
        likelihood = np.maximum(np.where(self._has_right, right, 1 - total), 1e-9)
        value = -self.share @ np.log(likelihood) + self.l2 * ((weights - self.centre) ** 2).sum()
        wanted = probability * self.right / likelihood[self.groups]
        d_scores = probability - wanted * self._has_right[self.groups]
        d_scores *= self.share[self.groups]
        d_active = np.outer(d_scores, output) * (1 - active**2)
        parts = [
            self.z.T @ d_active,
            d_active.sum(0),
            active.T @ d_scores,
            self.z.T @ d_scores,
            d_scores.sum(keepdims=True),
        ]
        gradient = np.concatenate([part.ravel() for part in parts])
        gradient += 2 * self.l2 * (weights - self.centre)
        return float(value), gradient
