"""Fitting of the fusion, the weights of the evidence, on development mentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.evidence import FEATURES
from spacy_bioel.pipeline.linker.fusion import FloatArray, Fusion, default_fusion, share
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.measuring import ProgressBar, link_given, silent
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, metric_of, percent_of
from spacy_bioel.tuning.development import (
    Development,
    gather_development,
    gather_reading,
    gold_docs,
)
from spacy_bioel.types import AnnotatedText

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
        the penalty: a few hundred mentions are too few to fit all weights. None: random initial
        weights.
    n_hidden (int): Size of the hidden layer, without a prior.
    l2 (float): Strength of the penalty on the weights, without a prior.
    seed (int): Seed of the random initial weights.
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


def fit_nearest(
    development: Development, priors: Sequence[Fusion | None], *, folds: int = 5, seed: int = 0
) -> Fusion:
    """Fit a fusion with the prior under which held-out mentions are most likely.

    The default weights may be a poor prior for some corpora, such as phrases of patients. Mentions
    with equal strings are in one fold, because their evidence is equal.

    priors (Sequence): Priors to choose from, weights of other corpora; None: no prior.
    folds (int): Number of folds.
    seed (int): Seed of sample, folds and initial weights.
    """
    # With more mentions than these, the prior matters little.
    sample = np.random.default_rng(seed).permutation(len(development))[:_CHOOSING_MENTIONS]
    fold = string_folds([development.strings[i] for i in sample], folds=folds, seed=seed)
    losses = [0.0] * len(priors)
    for number in sorted(set(fold.tolist())) if fold.any() else []:
        fitting = development.take(sample[fold != number])
        held_out = development.take(sample[fold == number])
        for i, prior in enumerate(priors):
            losses[i] += log_loss(fit_fusion(fitting, prior=prior, seed=seed), held_out)
    return fit_fusion(development, prior=priors[int(np.argmin(losses))], seed=seed)


def string_folds(strings: Sequence[str], *, folds: int, seed: int) -> NDArray[np.int64]:
    """Assign a fold to each mention, the same to equal strings. Shape (n,)."""
    unique, string = np.unique(np.array(strings, dtype=object), return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(unique)) % folds)[string]


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


# NIL is ignored, because its threshold is chosen afterwards.
PROTOCOL, METRIC = "gold", "accuracy@1_nil_ignored"


def tune_weights(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Fit the linker's fusion, so that scores of candidates are probabilities of being right.

    texts (Sequence[AnnotatedText]): Gold documents, at least one.
    folds (Sequence[Fold]): Folds of the documents.
    RETURNS (Tuned | None): None without evidence from candidate generation, which may be switched
        off.
    """
    linker = find_linker(nlp)
    assert linker is not None
    development = gather_development(linker, gold_docs(nlp, texts))
    if not len(development.features):
        return None

    def fit(part: Development) -> Fusion:
        return fit_nearest(part, [default_fusion(), None])

    return _tune(nlp, texts, "fusion", development, fit, folds=folds, progress=progress)


def tune_reading(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Fit the weights of a contextual linker: scores from the context against scores of strings.

    Arguments and return value are those of `tune_weights`.
    """
    development = gather_reading(nlp, gold_docs(nlp, texts))
    if not len(development.features):
        return None

    def fit(part: Development) -> Fusion:
        # Five numbers need no hidden layer.
        return fit_fusion(part, n_hidden=0, l2=0.001)

    return _tune(nlp, texts, "reading", development, fit, folds=folds, progress=progress)


# The features that the weights in each attribute of a linker are for.
_FEATURES = {"fusion": FEATURES, "reading": READ_FEATURES}


def _tune(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    name: str,
    development: Development,
    fit: Callable[[Development], Fusion],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar,
) -> Tuned:
    """Fit and assign the attribute `name` of the linker.

    development (Development): Mentions of all documents.
    """
    linker = find_linker(nlp)
    assert linker is not None
    metric = metric_of(PROTOCOL, METRIC)
    previous = getattr(linker, name)
    held_out: list[Counts] = []
    with progress(f"Fitting weights ({name})", total=1 + len(folds)) as advance:
        for fold in folds:
            part = development.of_documents(fold.fitting.tolist())
            setattr(linker, name, _as_saved(fit(part), name) if len(part) else previous)
            held_out += _counts(nlp, linker, [texts[i] for i in fold.held_out.tolist()])
            advance(1)
        setattr(linker, name, _as_saved(fit(development), name))
        advance(1)
    return Tuned(
        linker.name,
        {"weights": name, "mentions": len(development)},
        PROTOCOL,
        METRIC,
        percent_of(_counts(nlp, linker, texts), metric),
        percent_of(held_out, metric) if held_out else None,
    )


def _as_saved(fusion: Fusion, name: str) -> Fusion:
    """Round weights as saving does, so that the saved weights are measured."""
    return Fusion.from_json(fusion.to_json(_FEATURES[name]), _FEATURES[name])


def _counts(nlp: Language, linker: Linker, texts: Sequence[AnnotatedText]) -> list[Counts]:
    links = list(link_given(nlp, linker, texts))
    return count_documents(texts, links, protocol=PROTOCOL, canonical=linker.kb.canonical)
