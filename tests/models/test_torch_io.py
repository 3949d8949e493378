"""A torch network in a thinc model learns as thinc layers do, and its weights come back."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from spacy.ml.models.tok2vec import MaxoutWindowEncoder, MultiHashEmbed, build_Tok2Vec_model
from thinc.api import SGD, Adam, Linear, Model

from spacy_bioel.errors import BioelError
from spacy_bioel.mentions.model import add_scorer, build_span_enumerator_v1
from spacy_bioel.models.torch_io import (
    torch_layer,
    weights_from_bytes,
    weights_to_bytes,
)

ONE = np.ones((1, 1), "f")


def forward(model: Model, x: np.ndarray, is_train: bool) -> tuple[np.ndarray, Callable]:
    first, second = model.layers
    y, backprop_first = first(x, is_train)
    z, backprop_second = second((y,), is_train)
    return z, lambda d: backprop_first(backprop_second(d)[0])


def make_model() -> Model:
    """Two layers that compute x * 2 * 3, one of thinc and one of torch."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 3.0)
    first = Linear(1, 1)
    first.initialize(X=ONE, Y=ONE)
    first.set_param("W", 2 * ONE)
    return Model("both", forward, layers=[first, torch_layer(module)])


def predict(model: Model) -> float:
    return float(model.predict(ONE)[0, 0])


def test_averages_reach_both_kinds_of_layers_and_leave_them():
    model, optimizer = make_model(), Adam(0.1, use_averages=True)
    for _ in range(3):
        _, backprop = model.begin_update(ONE)
        backprop(ONE)
        model.finish_update(optimizer)
        optimizer.step_schedules()
    trained = predict(model)
    assert len(optimizer.averages) == 3  # W and b of thinc, weight of torch
    averages = {
        key: np.full_like(value, 5.0 if value.ndim == 2 else 0.0)
        for key, value in optimizer.averages.items()
    }
    with model.use_params(averages):
        assert predict(model) == 25.0
    assert predict(model) == trained != 25.0


def test_weights_come_back_after_an_error():
    model = make_model()
    shim = model.layers[1].shims[0]
    with (
        pytest.raises(RuntimeError, match="stop"),
        model.use_params({(shim.id, "weight"): 7 * ONE}),
    ):
        assert predict(model) == 14.0
        raise RuntimeError("stop")
    assert predict(model) == 6.0
    # A layer may have the same id as a shim.
    with model.use_params({(shim.id, "gain"): 0 * ONE}):
        assert predict(model) == 6.0


class SlowAndFast(torch.nn.Module):
    """Sum of two linear layers of one input, with all parameters 1."""

    learn_rate_scale = 0.25

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.fast = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        for parameter in self.parameters():
            torch.nn.init.ones_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.backbone(x) + self.fast(x)


def test_a_pretrained_part_learns_at_its_own_rate():
    network = SlowAndFast()
    model = torch_layer(network)
    _, backprop = model.begin_update((ONE,))
    backprop(ONE)  # each gradient is 1
    model.finish_update(SGD(0.5))
    assert {name: p.item() for name, p in network.named_parameters()} == {
        "backbone.weight": 0.875, "backbone.bias": 0.875, "fast.weight": 0.5, "fast.bias": 0.5,
    }  # fmt: skip
    assert all(float(p.grad) == 0.0 for p in network.parameters())


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor, y: torch.Tensor, what: str) -> tuple:
        return x * n, (x * x).sum() if what == "square" else y.detach()


def test_gradients_of_several_outputs_and_inputs():
    layer, x = torch_layer(Two()), np.array([1.0, 2.0], "f")
    (product, square), backprop = layer.begin_update((x, np.array([3, 4]), x, "square"))
    assert (product.tolist(), float(square)) == ([3.0, 8.0], 5.0)
    d_x, d_y = backprop((np.ones(2, "f"), np.array(10, "f")))
    # Integers have no gradient; that of an input without effect is 0.
    assert (d_x.tolist(), d_y.tolist()) == ([23.0, 44.0], [0.0, 0.0])
    _, backprop = layer.begin_update((x, np.array([3, 4]), x, "none"))
    assert backprop((np.ones(2, "f"), np.ones(2, "f")))[0].tolist() == [3.0, 4.0]


# Files.


def make_detector(*, width: int = 8, n_labels: int = 2) -> Model:
    embed = MultiHashEmbed(width=width, attrs=["NORM"], rows=[20], include_static_vectors=False)
    encode = MaxoutWindowEncoder(width=width, window_size=1, maxout_pieces=2, depth=1)
    model = build_span_enumerator_v1(build_Tok2Vec_model(embed, encode), max_width=3, hidden=4)
    model.get_ref("tok2vec").initialize()
    add_scorer(model, n_labels=n_labels)
    return model


def test_round_trip_by_readable_names():
    saved, loaded = weights_to_bytes(make_detector()), make_detector()
    assert weights_to_bytes(loaded) != saved
    weights_from_bytes(loaded, saved)
    assert weights_to_bytes(loaded) == saved
    assert {"15.hashembed.E", "2.torch.output.bias"} <= load(saved).keys()


def test_weights_that_are_not_contiguous():
    network = torch.nn.Linear(2, 3, bias=False)
    network.weight.data = torch.arange(6.0).reshape(2, 3).T
    saved = weights_to_bytes(torch_layer(network))
    assert load(saved)["0.torch.weight"].tolist() == [[0, 3], [1, 4], [2, 5]]


def changed(**changes: np.ndarray | None) -> bytes:
    """Return the weights of a detector without the tensors with these endings, or with others."""
    tensors = load(weights_to_bytes(make_detector()))
    for ending, new in changes.items():
        name = next((n for n in tensors if n.endswith(f".{ending}")), f"9.{ending}")
        tensors.pop(name, None)
        tensors |= {} if new is None else {name: new}
    return save(tensors)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: weights_to_bytes(make_detector(width=10)), "expected shape"),
        (lambda: changed(E=None), "no such tensor"),
        (lambda: changed(E=np.ones((20, 8), int)), "expected floats"),
        (lambda: changed(x=np.ones(1, "f")), "unexpected tensors"),
        (lambda: weights_to_bytes(make_detector())[:100], ""),
        (lambda: b"", ""),
        # A type of numbers that NumPy lacks.
        (lambda: weights_to_bytes(make_detector()).replace(b'"F32"', b'"U32"'), ""),
    ],
    ids=["width", "missing", "integers", "too many", "cut", "empty", "U32"],
)
def test_weights_that_do_not_fit(data, reason):
    with pytest.raises(BioelError, match=rf"(?s)\[B041\].*{reason}"):
        weights_from_bytes(make_detector(), data())
