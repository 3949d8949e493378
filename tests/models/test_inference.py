"""Inference by NumPy equals the torch networks, and needs no torch."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from spacy_bioel.models import inference
from spacy_bioel.nn.rescnn import FrozenEmbeddings, ResCNN
from spacy_bioel.nn.spans import LinearSpanScorer, SpanScorer, TagScorer

SIZES = {"width": 7, "max_width": 4, "n_features": 5}
LENGTHS = np.array([300, 0, 1, 600])
DRAW = np.random.default_rng(0)
TOKENS = DRAW.standard_normal((901, 7)).astype(np.float32)
# (first token, width - 1, feature): several of one span too.
SPANS = np.array([[0, 2, 1], [0, 2, 4], [0, 2, 1], [511, 3, 0], [512, 1, 3], [900, 0, 2]])
WORDS = np.array([[1, 0], [1, 3], [600, 4]])


def random_weights(network: Any) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    return {name: tensor.numpy() for name, tensor in network.eval().state_dict().items()}


def shapes_of(weights: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in weights.items()}


@pytest.mark.parametrize(
    ("network", "infer", "shapes"),
    [
        (
            SpanScorer(n_labels=2, hidden=6, context=0, dropout=0.2, **SIZES),
            inference.span_logits,
            inference.span_shapes(n_labels=2, hidden=6, **SIZES),
        ),
        (
            LinearSpanScorer(n_labels=2, context=0, dropout=0.2, **SIZES),
            partial(inference.linear_span_logits, max_width=4),
            inference.span_shapes(n_labels=2, hidden=0, **SIZES),
        ),
        (
            TagScorer(n_tags=5, context=0, dropout=0.2, **SIZES),
            inference.tag_logits,
            inference.tag_shapes(n_labels=2, **SIZES),
        ),
    ],
    ids=["spans", "linear", "tags"],
)
@pytest.mark.parametrize("matches", [True, False])
def test_detectors(network: Any, infer: Any, shapes: Any, matches: bool) -> None:
    weights = random_weights(network)
    assert shapes_of(weights) == shapes
    inputs = (TOKENS, LENGTHS, SPANS[:] if matches else SPANS[:0], WORDS if matches else WORDS[:0])
    with torch.inference_mode():
        expected = network(*map(torch.from_numpy, inputs)).numpy()
    found = infer(weights, *inputs)
    assert (np.isfinite(found) == np.isfinite(expected)).all()
    inside = np.isfinite(expected)
    assert np.abs(found[inside] - expected[inside]).max() < 1e-5 * np.abs(expected[inside]).max()


def make_rescnn(*, positions: bool = False, **settings: Any) -> ResCNN:
    torch.manual_seed(0)
    embeddings = FrozenEmbeddings(
        words=torch.randint(-127, 128, (50, 24), dtype=torch.int8),
        scale=torch.rand(50, 1) / 127,
        positions=torch.randn(25, 24) if positions else torch.zeros(25, 24),
        token_type=torch.randn(24),
        norm_weight=torch.rand(24),
        norm_bias=torch.randn(24),
    )
    return ResCNN(embeddings, **{"dim": 16, "blocks": 3, "filters": 8} | settings).eval()


def by_numpy(network: ResCNN) -> inference.ResCNN:
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    tables = {name: tensor.numpy() for name, tensor in network.embeddings.tables().items()}
    return inference.ResCNN(weights, tables, widths=network.widths)


def names(lengths: list[int]) -> list[list[int]]:
    draw = np.random.default_rng(1)
    return [draw.integers(0, 50, n).tolist() for n in lengths]


@pytest.mark.parametrize("lengths", [[1, 4, 2, 9, 1, 3, 25, 1], [1], [2], [3, 1]], ids=len)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooling": "attention"},
        {"positions": True},
        {"widths": [1]},
        {"widths": [3, 7, 1]},
        {"widths": [5]},
    ],
    ids=str,
)
def test_rescnn(settings: dict[str, Any], lengths: list[int]) -> None:
    network, pieces = make_rescnn(**settings), names(lengths)
    with torch.inference_mode():
        expected = network(torch.tensor(sum(pieces, [])), torch.tensor(lengths)).numpy()
    fast = by_numpy(network)
    found = fast(pieces)
    assert found.shape == (len(lengths), 16)
    assert np.abs(found - expected).max() < 1e-5
    shapes = inference.rescnn_shapes(
        **{"dim": 16, "blocks": 3, "filters": 8, "widths": [1, 3, 5], "pooling": "max"} | settings,
        width=24,
    )
    assert shapes_of(dict(network.state_dict())) == shapes


def test_a_name_alone_or_with_others() -> None:
    fast, pieces = by_numpy(make_rescnn()), names([1, 4, 2, 9, 25])
    alone = np.concatenate([fast([name]) for name in pieces])
    assert np.abs(fast(pieces) - alone).max() < 1e-5


# As where torch is not installed: None stops its import.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import spacy_bioel
nlp = spacy_bioel.load()
doc = nlp("Naloxone reverses hypotensive effects in rats with kidney failures.")
print([span.kb_id_ for span in doc.spans["bioel"]])
print(any("dense" in c.evidence for span in doc.spans["bioel"] for c in span._.candidates))
import torch
"""


def test_the_starter_links_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    printed, error = done.stdout.splitlines(), done.stderr.strip().splitlines()[-1]
    assert printed == ["['MESH:D009270', 'MESH:D007022', 'NCBITaxon:10116']", "True"]
    assert error.startswith("ModuleNotFoundError")
