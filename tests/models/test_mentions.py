"""Decoding of span scores to mentions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from thinc.api import noop

from spacy_bioel.models.span_enumerator import build_span_enumerator_v1

OUT = -np.inf
# One document of two tokens, spans of up to two tokens, one label.
LOGITS = np.array([[[np.log(3)], [-500.0]], [[-np.log(4)], [OUT]]], dtype="float32")


def test_spans_of_a_probability() -> None:
    decode = build_span_enumerator_v1(noop()).attrs["kind"].decode
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lowest, found in (
            (0.5, [[0, 1, 0]]),
            (0.1, [[0, 1, 0], [1, 2, 0]]),
            (0.0, [[0, 1, 0], [0, 2, 0], [1, 2, 0]]),  # and none that leaves its document
        ):
            spans, probabilities = decode(LOGITS, np.array([2]), lowest)
            assert spans.tolist() == found
        assert probabilities.tolist() == pytest.approx([0.75, 0.0, 0.2])


def test_scores_far_off_have_a_loss() -> None:
    loss = build_span_enumerator_v1(noop()).attrs["kind"].loss
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = np.ones((len(LOGITS), LOGITS.shape[2]), dtype=bool)
        value, gradient = loss(LOGITS, np.array([[0, 2, 0], [0, 3, 0]]), known)
    # The second gold mention is too wide. -log(0.25) - log(1e-8) - log(0.8)
    assert value == pytest.approx(np.log(4) + np.log(1e8) + np.log(1.25), rel=1e-5)
    assert gradient[..., 0].tolist() == [pytest.approx([0.75, -1.0]), pytest.approx([0.2, 0.0])]
