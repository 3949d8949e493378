from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from thinc.api import SGD, Adam, ArgsKwargs, Linear, Model, chain, torch2xp, xp2torch

from spacy_bioel.errors import BioelError
from spacy_bioel.models.torch_io import (
    require_torch,
    wrap_torch,
)


def to_torch(model: Model, x: np.ndarray, is_train: bool) -> tuple:
    args = (xp2torch(x, requires_grad=is_train),)
    return ArgsKwargs(args=args, kwargs={}), lambda d: torch2xp(d.args[0])


def from_torch(model: Model, inputs_outputs: tuple, is_train: bool) -> tuple:
    _, y = inputs_outputs

    def backprop(dy: np.ndarray) -> ArgsKwargs:
        return ArgsKwargs(args=((y,),), kwargs={"grad_tensors": (xp2torch(dy),)})

    return torch2xp(y), backprop


def make_model() -> Model:
    """Two layers that compute x * 2 * 3, one of thinc and one of torch."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 3.0)
    first = Linear(1, 1)
    first.initialize(X=np.ones((1, 1), "f"), Y=np.ones((1, 1), "f"))
    first.set_param("W", np.full((1, 1), 2.0, "f"))
    return chain(first, wrap_torch(module, convert_inputs=to_torch, convert_outputs=from_torch))


def predict(model: Model) -> float:
    return float(model.predict(np.ones((1, 1), "f"))[0, 0])


def test_averages_reach_both_kinds_of_layers_and_leave_them() -> None:
    model, optimizer = make_model(), Adam(0.1, use_averages=True)
    for _ in range(3):
        _, backprop = model.begin_update(np.ones((1, 1), "f"))
        backprop(np.ones((1, 1), "f"))
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


def test_weights_come_back_after_an_error() -> None:
    model = make_model()
    shim = model.layers[1].shims[0]
    with (
        pytest.raises(RuntimeError, match="stop"),
        model.use_params({(shim.id, "weight"): np.full((1, 1), 7.0, "f")}),
    ):
        assert predict(model) == 14.0
        raise RuntimeError("stop")
    assert predict(model) == 6.0


def test_averages_of_other_layers_are_not_taken() -> None:
    model = make_model()
    # Layers and shims are counted apart, so that a layer may have the number of the shim.
    with model.use_params({(model.layers[1].shims[0].id, "gain"): np.zeros((1, 1), "f")}):
        assert predict(model) == 6.0


class SlowAndFast(torch.nn.Module):
    """Two linear layers of one input, side by side, all of whose parameters are 1."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.fast = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        for parameter in self.parameters():
            torch.nn.init.ones_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.slow(x) + self.fast(x)


class Scaled(SlowAndFast):
    def learn_rate_scales(self) -> dict[str, float]:
        return {"slow.bias": 0.0, "slow.": 0.25}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (SlowAndFast, {"slow.weight": 0.5, "slow.bias": 0.5, "fast.weight": 0.5, "fast.bias": 0.5}),
        (Scaled, {"slow.weight": 0.875, "slow.bias": 1.0, "fast.weight": 0.5, "fast.bias": 0.5}),
    ],
)
def test_a_module_says_how_fast_its_parts_learn(module: type, expected: dict) -> None:
    network = module()
    model = wrap_torch(network, convert_inputs=to_torch, convert_outputs=from_torch)
    _, backprop = model.begin_update(np.ones((1, 1), "f"))
    backprop(np.ones((1, 1), "f"))  # each gradient is 1
    model.finish_update(SGD(0.5))
    assert {name: p.item() for name, p in network.named_parameters()} == expected
    assert all(float(p.grad) == 0.0 for p in network.parameters())


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    # For this call alone: what ends a test may need torch, pytest-randomly does.
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        with pytest.raises(BioelError, match=r"\[B040\].*pip install 'spacy-bioel.train.'"):
            require_torch()
