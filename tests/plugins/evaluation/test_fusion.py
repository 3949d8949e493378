"""A fusion scores as computed by hand, and fitted weights tell right from wrong."""

import json
from dataclasses import replace
from math import exp, tanh
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spacy_bioel.linking.evidence import FEATURES, default_fusion
from spacy_bioel.models.fusion import Fusion, rank, read_weights, softmax_by_group
from spacy_bioel.plugins.evaluation.fit import (
    Development,
    _FusionLoss,
    fit_fusion,
    fit_with_best_prior,
    merge_development,
)

N = len(FEATURES)
EXACT, DENSE = FEATURES.index("exact"), FEATURES.index("dense")


def table(*rows: dict[str, float]) -> np.ndarray:
    """Return the features of candidates; those that are not given are 0."""
    return np.array([[row.get(name, 0.0) for name in FEATURES] for row in rows], dtype=np.float32)


def fusion_by_hand() -> Fusion:
    """Return a fusion with one hidden unit on "exact", a direct weight of "dense", and bias -1."""
    mean, scale, direct = np.zeros(N), np.ones(N), np.zeros(N)
    hidden = np.zeros((N, 1))
    mean[DENSE], scale[DENSE], direct[DENSE] = 0.5, 0.25, 0.3
    hidden[EXACT, 0] = 2.0
    return Fusion(mean, scale, hidden, np.array([0.1]), np.array([3.0]), direct, bias=-1.0)


def test_scores_by_hand():
    features = table({}, {"exact": 1.0, "dense": 0.75}, {"dense": 1.0, "words": 0.9})
    # "dense" is counted from 0.5 in steps of 0.25.
    assert fusion_by_hand().scores(features).tolist() == pytest.approx(
        [3 * tanh(bias) + 0.3 * steps - 1 for bias, steps in ((0.1, -2), (2.1, 1), (0.1, 2))]
    )


def test_softmax_by_hand():
    scores = np.array([0.0, 1.0, 2.0, -np.inf, -np.inf])
    groups = np.array([0, 1, 1, 1, 2])
    both = exp(1) + exp(2) + 1  # the 1 is NIL
    assert softmax_by_group(scores, groups).tolist() == pytest.approx(
        [1 / 2, exp(1) / both, exp(2) / both, 0.0, 0.0]
    )


def test_ranking_breaks_ties_by_the_lower_id():
    queries, concepts = np.array([0, 0, 0, 1, 2, 2]), np.array([7, 3, 5, 4, 2, 1])
    tiny = 1e-7  # a difference in the last bits is a tie
    scores = np.array([0.5 + tiny, 0.5, 0.9, 0.1, 0.3 + tiny, 0.3])
    kb: Any = SimpleNamespace(
        ids_of=lambda rows: ["X"] * len(rows), xrefs_of_all=lambda rows: [()] * len(rows)
    )
    assert rank(kb, concepts, scores, queries, top=2)[0].tolist() == [2, 1, 3, 5, 4]
    assert rank(kb, concepts, scores, queries, top=1)[0].tolist() == [2, 3, 5]
    none = np.zeros(0, np.int64)
    assert rank(kb, none, np.zeros(0), none, top=3)[0].tolist() == []


def test_the_gradient_is_that_of_finite_differences():
    generator = np.random.default_rng(0)
    # Mentions with one right candidate, with none, with two; one has no candidates at all.
    rows = [np.arange(0, 3), np.arange(3, 5), np.arange(0), np.arange(5, 8)]
    right = np.array([0, 1, 0, 0, 0, 1, 0, 1], dtype=bool)
    z = generator.standard_normal((8, 3))
    mentions = Development(z, rows, [right[r] for r in rows], list("abcd"), [0] * 4)
    loss = _FusionLoss(z, mentions, l2=0.01, n_hidden=2)
    assert loss.n_weights == 3 * 2 + 2 + 2 + 3 + 1
    weights = generator.standard_normal(loss.n_weights)
    _, gradient = loss(weights)
    for i in range(loss.n_weights):
        step = np.zeros(loss.n_weights)
        step[i] = 1e-5
        slope = (loss(weights + step)[0] - loss(weights - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, abs=1e-7)


def development(n: int, *, seed: int) -> Development:
    """Return mentions with 4 candidates: only the right one, if any, has "dense" above 0.6."""
    generator = np.random.default_rng(seed)
    features = np.zeros((4 * n, N), np.float32)
    features[:, EXACT] = generator.random(4 * n) > 0.5  # random
    features[:, DENSE] = generator.uniform(0.0, 0.5, 4 * n)
    features[:, FEATURES.index("has_encoder")] = 1.0
    is_right = np.zeros(4 * n, dtype=bool)
    known = np.flatnonzero(generator.random(n) > 0.3)
    is_right[4 * known + generator.integers(0, 4, len(known))] = True
    features[is_right, DENSE] = generator.uniform(0.7, 1.0, len(known))
    rows = list(np.arange(4 * n).reshape(n, 4))
    strings = [f"string {i}" for i in range(n)]
    return Development(features, rows, [is_right[r] for r in rows], strings, list(range(n)))


@pytest.fixture(scope="module")
def fitted() -> Fusion:
    return fit_fusion(development(150, seed=0), n_hidden=3, l2=0.002)


def test_fitted_weights_tell_right_from_wrong(fitted):
    data = development(100, seed=1)
    groups = np.repeat(np.arange(100), 4)
    shares = softmax_by_group(fitted.scores(data.features), groups)
    is_right = np.concatenate(data.right)
    assert shares[is_right].min() > 0.5 > shares[~is_right].max()
    nil = 1 - np.bincount(groups, shares)
    is_nil = np.array([not right.any() for right in data.right])
    assert 10 < is_nil.sum() < 50
    assert nil[is_nil].min() > 0.5 > nil[~is_nil].max()


def test_a_misleading_prior_is_not_used(fitted):
    backwards = replace(fitted, output=-fitted.output, direct=-fitted.direct)
    data = development(40, seed=3)
    for priors in ([fitted, backwards], [backwards, fitted]):
        fitted_again = fit_with_best_prior(data, priors)
        assert fitted_again.to_json(FEATURES) == fit_fusion(data, prior=fitted).to_json(FEATURES)
    # No prior is better than a misleading one.
    fitted_again = fit_with_best_prior(data, [backwards, None])
    assert fitted_again.to_json(FEATURES) == fit_fusion(data).to_json(FEATURES)


def test_strings_do_not_leak_into_the_choice_of_a_prior(monkeypatch):
    data = replace(development(30, seed=0), strings=[f"string {i % 6}" for i in range(30)])
    seen: list[set[str]] = []

    def fit(part: Development, **_: object) -> Fusion:
        seen.append(set(part.strings))
        return default_fusion()

    def loss(_: Fusion, part: Development) -> float:
        assert len(part) and not seen[-1] & set(part.strings)
        return 0.0

    monkeypatch.setattr("spacy_bioel.plugins.evaluation.fit.fit_fusion", fit)
    monkeypatch.setattr("spacy_bioel.plugins.evaluation.fit.log_loss", loss)
    fit_with_best_prior(data, [default_fusion(), None])
    assert len(seen) == 5 * 2 + 1 and len(seen[-1]) == 6


def test_mentions_of_several_corpora_are_merged():
    first, second = development(3, seed=0), development(2, seed=1)
    both = merge_development([first, second])
    assert both.features.shape == (20, N) and len(both) == 5
    assert both.rows[3].tolist() == [12, 13, 14, 15]
    assert list(both.documents) == [0, 1, 2, 3, 4]
    assert both.strings[3] == "string 0"
    assert both.for_documents([1, 3]).rows[1].tolist() == [12, 13, 14, 15]
    assert both.right[3].tolist() == second.right[0].tolist()
    assert both.features[both.rows[4]].tolist() == second.features[4:8].tolist()


def test_json_round_trip(fitted):
    data = json.loads(json.dumps(fitted.to_json(FEATURES)))
    assert data["features"] == list(FEATURES)
    again = Fusion.from_json(data, FEATURES)
    features = development(5, seed=2).features
    assert again.scores(features).tolist() == pytest.approx(fitted.scores(features), abs=1e-2)
    assert again.to_json(FEATURES) == data
    # Weights for other features are not used.
    assert isinstance(read_weights(data, FEATURES), Fusion)
    assert read_weights(data | {"features": list(FEATURES[:-1])}, FEATURES) is None
    assert read_weights(None, FEATURES) is None
