"""Inference in NumPy equals the torch networks, and runs without torch."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from spacy.ml.models.tok2vec import (
    MaxoutWindowEncoder,
    MishWindowEncoder,
    MultiHashEmbed,
    build_Tok2Vec_model,
)
from spacy.tokens import Doc
from thinc.api import Model, fix_random_seed, with_array

from spacy_bioel.models import inference
from spacy_bioel.models.inference import token_vectors
from spacy_bioel.models.networks import FrozenEmbeddings, ResCNN, SpanScorer, TagScorer

# Detectors.

SIZES = {"width": 7, "max_width": 4, "n_features": 5, "n_labels": 2}
LENGTHS = np.array([300, 0, 1, 600])
TOKENS = np.random.default_rng(0).standard_normal((901, 7)).astype(np.float32)
# (first token, width - 1, feature), some of the same span.
SPANS = np.array([[0, 2, 1], [0, 2, 4], [0, 2, 1], [511, 3, 0], [512, 1, 3], [900, 0, 2]])
MATCHED = np.array([[1, 0], [1, 3], [600, 4]])


def shapes_of(network: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize(
    ("make", "infer", "sizes"),
    [
        (SpanScorer, inference.span_logits, {"hidden": 6}),
        (SpanScorer, inference.span_logits, {"hidden": 0}),
        (TagScorer, inference.tag_logits, {}),
    ],
    ids=["spans", "linear", "tags"],
)
@pytest.mark.parametrize("n_matches", [9, 0])
def test_detectors(make, infer, sizes, n_matches):
    sizes = SIZES | sizes
    network, shapes = make(dropout=0.2, **sizes), inference.detector_shapes(**sizes)
    torch.manual_seed(0)
    for parameter in network.eval().parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    assert shapes_of(network) == shapes
    inputs = (TOKENS, LENGTHS, SPANS[:n_matches], MATCHED[:n_matches])
    with torch.inference_mode():
        expected = network(*map(torch.from_numpy, inputs)).numpy()
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    found = infer(weights, *inputs, max_width=4)
    assert (np.isfinite(found) == np.isfinite(expected)).all()
    inside = np.isfinite(expected)
    assert np.abs(found[inside] - expected[inside]).max() < 1e-5 * np.abs(expected[inside]).max()


# Names.


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


@pytest.mark.parametrize("lengths", [[1, 4, 2, 9, 1, 3, 25, 1], [1]], ids=len)
@pytest.mark.parametrize(
    "settings",
    [{}, {"pooling": "attention"}, {"positions": True}, {"widths": [3, 7, 1]}],
    ids=str,
)
def test_rescnn(settings, lengths):
    network, draw = make_rescnn(**settings), np.random.default_rng(1)
    pieces = [draw.integers(0, 50, n).tolist() for n in lengths]
    with torch.inference_mode():
        expected = network(torch.tensor(sum(pieces, [])), torch.tensor(lengths)).numpy()
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    tables = {name: tensor.numpy() for name, tensor in network.embeddings.named_buffers()}
    fast = inference.NumpyResCNN(weights, tables, widths=network.widths)
    assert np.abs(fast(pieces) - expected).max() < 1e-5
    alone = np.concatenate([fast([name]) for name in pieces])
    assert alone.shape == (len(lengths), 16)
    assert np.abs(alone - expected).max() < 1e-5
    shapes = inference.rescnn_shapes(
        **{"dim": 16, "blocks": 3, "filters": 8, "widths": [1, 3, 5], "pooling": "max"} | settings,
        width=24,
    )
    assert shapes_of(network) == shapes


# Tokens.

NLP = spacy.blank("en")
WORDS = "Aspirin caused acute kidney injury ( AKI ) in 2 of 7 patients . AKI was severe .".split()
TEXTS = (WORDS, [], ["fever"], WORDS * 200, WORDS[::-1])
DOCS = [Doc(NLP.vocab, words=words) for words in TEXTS]


def make_tok2vec(encode: Any = MaxoutWindowEncoder, **settings: int) -> Model:
    fix_random_seed(0)
    attrs = ["NORM", "PREFIX", "SHAPE"]
    embed = MultiHashEmbed(16, attrs, rows=[200, 100, 50], include_static_vectors=False)
    tok2vec = build_Tok2Vec_model(embed, encode(16, **({"window_size": 2, "depth": 3} | settings)))
    tok2vec.initialize(X=DOCS)
    for layer in tok2vec.walk():
        # Parameters that start at 0 or 1 are made random.
        for name in ("b", "G"):
            if layer.has_param(name):
                shape = layer.get_param(name).shape
                layer.set_param(name, np.random.normal(0.5, 0.3, shape).astype("float32"))
    return tok2vec


def reference(tok2vec: Model) -> np.ndarray:
    vectors = tok2vec.predict(DOCS)
    return np.concatenate([v[: len(doc)] for v, doc in zip(vectors, DOCS, strict=True)])


@pytest.mark.parametrize("pieces", [1, 3])
def test_vectors_are_those_of_thinc(pieces):
    tok2vec = make_tok2vec(maxout_pieces=pieces)
    found = token_vectors(tok2vec, DOCS)
    assert found.shape == (len(WORDS) * 202 + 1, 16)
    assert inference._numpy_functions(tok2vec) is not None
    assert np.abs(found - reference(tok2vec)).max() < 1e-5
    alone = np.concatenate([token_vectors(tok2vec, [doc]) for doc in DOCS])
    assert np.abs(found - alone).max() < 1e-5
    assert token_vectors(tok2vec, DOCS[1:2]).shape == (0, 16)
    # Changes of weights have an effect at once.
    maxout = next(layer for layer in tok2vec.layers[1].walk() if layer.name == "maxout")
    maxout.set_param("W", -maxout.get_param("W"))
    changed = token_vectors(tok2vec, DOCS)
    assert np.abs(changed - found).max() > 0.01
    assert np.abs(changed - reference(tok2vec)).max() < 1e-5


def doubled(layer: Model, inputs: Any, is_train: bool) -> Any:
    return 2 * inputs, lambda gradient: 2 * gradient


def with_another_dropout(tok2vec: Model) -> None:
    """Replace a layer by one with the same name."""
    for parent in tok2vec.layers[1].walk():
        names = [layer.name for layer in parent.layers]
        if "dropout" in names:
            parent.layers[names.index("dropout")] = Model("dropout", doubled)


def with_one_more_layer(tok2vec: Model) -> None:
    tok2vec.layers.append(with_array(Model("double", doubled)))


@pytest.mark.parametrize("change", [None, with_another_dropout, with_one_more_layer])
def test_other_architectures_run_their_own_predict(change):
    if change is None:
        tok2vec = make_tok2vec(MishWindowEncoder)
    else:
        tok2vec = make_tok2vec(maxout_pieces=3)
        change(tok2vec)
    assert inference._numpy_functions(tok2vec) is None
    assert np.array_equal(token_vectors(tok2vec, DOCS), reference(tok2vec))


# None prevents the import, as if torch were not installed.
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


def test_the_starter_links_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    printed, error = done.stdout.splitlines(), done.stderr.strip().splitlines()[-1]
    assert printed == ["['MESH:D009270', 'MESH:D007022', 'NCBITaxon:10116']", "True"]
    assert error.startswith("ModuleNotFoundError")
