"""Products of whole numbers: exact, for any rows, so that every library gives the same."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import spacy
from safetensors.numpy import load, save

import spacy_bioel  # noqa: F401 - registers the factories
from spacy_bioel import integers
from spacy_bioel.errors import BioelError
from spacy_bioel.integers import IntegerMatrix, quantize_weights
from spacy_bioel.models.torch_io import quantize_model, weights_from_bytes, weights_to_bytes

RANDOM = np.random.default_rng(0)
TEXTS = [
    "Aspirin caused acute kidney injury (AKI) in 2 of 7 patients.",
    "",
    "Fever and cough, no aspirin. " * 30,
]


def draw(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(700, 384, 384), (1, 96, 288), (33, 1040, 64), (9, 1536, 70)])
def test_products_are_exact(monkeypatch, shape):
    n, width, n_outputs = shape
    weights = draw(n_outputs, width)
    # All at the largest value, where sums are the largest.
    rows = np.concatenate([draw(n, width) * 100, np.ones((1, width), np.float32)])
    matrix = IntegerMatrix.of(weights)
    found = matrix.times(rows)
    alone = np.concatenate([matrix.times(row[None]) for row in rows[-5:]])
    assert alone.tobytes() == found[-5:].tobytes()
    monkeypatch.setattr(integers, "packed", lambda numbers: numbers.astype(np.float64).T)
    monkeypatch.setattr(integers, "integer_products", np.matmul)
    integers._round_matrix.cache_clear()
    assert IntegerMatrix.of(weights).times(rows).tobytes() == found.tobytes()
    integers._round_matrix.cache_clear()


def test_products_are_close_to_those_of_floats():
    weights, rows = draw(128, 96), draw(50, 96)
    exact = rows @ weights.T
    assert np.abs(IntegerMatrix.of(weights).times(rows) - exact).max() < 0.02 * np.abs(exact).max()
    few = IntegerMatrix.of(weights[:6]).times(rows)  # few outputs: more bits
    assert np.abs(few - exact[:, :6]).max() < 0.01 * np.abs(exact).max()


@pytest.mark.parametrize("axis", [-1, 1])
def test_quantised_weights_are_quantised_to_the_same_numbers(axis):
    weights = draw(30, 20, 5) * np.exp(3 * draw(30, 1, 1))
    weights[3] = 0
    weights[4, 0] = 1e-38
    numbers, scales = quantize_weights(weights, axis=axis)
    again, scales_again = quantize_weights(numbers * scales, axis=axis)
    assert np.abs(numbers).max() == 127
    assert (again == numbers).all()
    assert (scales_again == scales)[np.abs(numbers).max(axis=axis, keepdims=True) > 0].all()
    assert np.abs(numbers * scales - weights).max() <= 0.5001 * scales.max()


def test_rows_of_zeros_and_of_tiny_numbers():
    rows = np.zeros((3, 8), np.float32)
    rows[1] = np.float32(1e-44)
    products = IntegerMatrix.of(np.zeros((70, 8), np.float32)).times(rows)
    assert (products == 0).all()
    assert np.isfinite(IntegerMatrix.of(draw(70, 8)).times(rows)).all()


# Detectors.


@pytest.fixture
def nlp():
    nlp = spacy.blank("en")
    spacy.util.fix_random_seed(0)
    detector = nlp.add_pipe("bioel_mentions", config={"threshold": 0.0})
    for label in ("Chemical", "Disease"):
        detector.add_label(label)
    nlp.initialize()
    return nlp


def found(nlp):
    detector = nlp.get_pipe("bioel_mentions")
    return detector.predict([nlp.make_doc(text) for text in TEXTS])


def test_a_quantised_detector_is_saved_as_whole_numbers_and_loads_the_same(nlp, tmp_path):
    before, floats = found(nlp), nlp.to_bytes()
    model = nlp.get_pipe("bioel_mentions").model
    quantize_model(model)
    after = found(nlp)
    assert after != before
    tensors = load(weights_to_bytes(model))
    assert {
        tensor.dtype.name: name.endswith(".scale")
        for name, tensor in tensors.items()
        if tensor.ndim > 1
    } == {"int8": False, "float32": True}
    assert len(nlp.to_bytes()) < 0.4 * len(floats)
    nlp.to_disk(tmp_path / "model")
    for copy in (spacy.load(tmp_path / "model"), pickle.loads(pickle.dumps(nlp))):
        assert found(copy) == after
        assert copy.get_pipe("bioel_mentions").model.attrs["quantized"]
    nlp.from_bytes(floats)
    assert found(nlp) == before


def test_training_continues_with_floats(nlp):
    detector = nlp.get_pipe("bioel_mentions")
    quantize_model(detector.model)
    doc = nlp.make_doc(TEXTS[0])
    gold = {"spans": {"bioel_gold": [(0, 7, "Chemical")]}}
    nlp.update([spacy.training.Example.from_dict(doc, gold)], sgd=nlp.create_optimizer())
    assert not detector.model.attrs["quantized"]
    assert not [name for name in load(weights_to_bytes(detector.model)) if "scale" in name]


def test_bad_weights(nlp):
    model = nlp.get_pipe("bioel_mentions").model
    embedding = next(node for node in model.walk() if node.has_param("E"))
    before = embedding.get_param("E").copy()
    embedding.set_param("E", np.full_like(before, np.inf))
    with pytest.raises(BioelError, match=r"\[B641\].*E contains infinity"):
        quantize_model(model)
    assert not model.attrs["quantized"]
    embedding.set_param("E", before)
    quantize_model(model)
    tensors = load(weights_to_bytes(model))
    scale = next(name for name in tensors if name.endswith("E.scale"))
    bias = next(name for name in tensors if name.endswith("start.bias"))
    for damaged in (
        {bias: np.full_like(tensors[bias], np.nan)},
        {scale: np.full_like(tensors[scale], 3e38)},
        {scale.removesuffix(".scale"): np.full_like(tensors[scale.removesuffix(".scale")], -128)},
        {scale: np.full_like(tensors[scale], np.nan)},
        {scale: -tensors[scale]},
        {scale: tensors[scale][:3]},
        {scale: np.zeros((5, *tensors[scale].shape), np.float32) + 1},
        {scale: tensors[scale].astype(np.int32)},
    ):
        with pytest.raises(BioelError, match=r"\[B041\]"):
            weights_from_bytes(model, save(tensors | damaged))
    with pytest.raises(BioelError, match=r"\[B041\].*scale is missing"):
        weights_from_bytes(model, save({k: v for k, v in tensors.items() if k != scale}))


LINKS = """
import json, sys, spacy, spacy_bioel
nlp = spacy.load(sys.argv[1])
docs = nlp.pipe(json.loads(sys.argv[2]))
detector = nlp.get_pipe("bioel_mentions")
print(json.dumps([[[s.start, s.end, s.label_, float(p).hex()] for s, p in
    zip(doc.spans["bioel"], doc.spans["bioel"].attrs["scores"])] for doc in docs]))
"""


@pytest.mark.slow
def test_the_same_mentions_with_other_libraries_and_threads(nlp, tmp_path):
    quantize_model(nlp.get_pipe("bioel_mentions").model)
    nlp.to_disk(tmp_path / "model")
    outputs = set()
    for environment in (
        {"OPENBLAS_NUM_THREADS": "1"},
        {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "2"},
        {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "X86_V4"},
    ):
        arguments = [LINKS, str(tmp_path / "model"), json.dumps(TEXTS)]
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert len(json.loads(outputs.pop())[0]) > 3
