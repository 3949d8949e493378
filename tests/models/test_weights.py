from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load, save
from spacy.ml.models.tok2vec import (
    MaxoutWindowEncoder,
    MultiHashEmbed,
    build_Tok2Vec_model,
)
from thinc.api import Model

from spacy_bioel.errors import BioelError
from spacy_bioel.models.detector import add_scorer
from spacy_bioel.models.span_enumerator import build_span_enumerator_v1
from spacy_bioel.models.torch_io import weights_from_bytes, weights_to_bytes


def make_model(*, width: int = 8, n_labels: int = 2) -> Model:
    embed = MultiHashEmbed(width=width, attrs=["NORM"], rows=[20], include_static_vectors=False)
    encode = MaxoutWindowEncoder(width=width, window_size=1, maxout_pieces=2, depth=1)
    model = build_span_enumerator_v1(build_Tok2Vec_model(embed, encode), max_width=3, hidden=4)
    model.get_ref("tok2vec").initialize()
    add_scorer(model, n_labels=n_labels)
    return model


def test_round_trip() -> None:
    saved, loaded = weights_to_bytes(make_model()), make_model()
    assert weights_to_bytes(loaded) != saved
    weights_from_bytes(loaded, saved)
    assert weights_to_bytes(loaded) == saved


def test_every_parameter_has_a_readable_name() -> None:
    names = list(load(weights_to_bytes(make_model())))
    assert any(name.endswith(".hashembed.E") for name in names)
    assert any(name.endswith(".torch.output.bias") for name in names)


def without(data: bytes, ending: str) -> bytes:
    return save({name: t for name, t in load(data).items() if not name.endswith(ending)})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: weights_to_bytes(make_model(width=10)), "expected shape"),
        (lambda: weights_to_bytes(make_model(n_labels=3)), "expected shape"),
        (lambda: without(weights_to_bytes(make_model()), ".hashembed.E"), "no such tensor"),
        (lambda: without(weights_to_bytes(make_model()), ".output.bias"), "no such tensor"),
        (
            lambda: save(load(weights_to_bytes(make_model())) | {"9.x": np.ones(1, "f")}),
            "no place for",
        ),
        (lambda: weights_to_bytes(make_model())[:100], ""),
        (lambda: b"", ""),
    ],
    ids=["width", "labels", "no thinc", "no torch", "too many", "cut", "empty"],
)
def test_foreign_weights(data, reason: str) -> None:
    with pytest.raises(BioelError, match=rf"(?s)\[B041\].*{reason}"):
        weights_from_bytes(make_model(), data())


def test_numbers_that_numpy_has_not() -> None:
    saved = weights_to_bytes(make_model())
    size = int.from_bytes(saved[:8], "little")
    header = saved[8 : 8 + size].replace(b'"F32"', b'"U32"')
    with pytest.raises(BioelError, match=r"\[B041\]"):
        weights_from_bytes(make_model(), saved[:8] + header + saved[8 + size :])
