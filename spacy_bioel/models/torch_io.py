"""Wrapper of torch modules as thinc layers, shared by all models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from thinc.api import Model, Optimizer, PyTorchShim, torch2xp, xp2torch
from thinc.layers.pytorchwrapper import forward as pytorch_forward
from thinc.types import ArgsKwargs

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.processor import processor_has

BFLOAT16_VARIABLE = "SPACY_BIOEL_BFLOAT16"


def require_torch() -> None:
    """Check that torch is installed. RAISES BioelError: [B040] if it is not."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error


def dtype_to_predict_with() -> Any:
    """Type of matrix products in inference: float32, so that links are the same on each processor.

    With `SPACY_BIOEL_BFLOAT16=1` in the environment it is bfloat16 where the processor has it.
    """
    import torch

    is_wanted = os.environ.get(BFLOAT16_VARIABLE) == "1" and _has_bfloat16()
    return torch.bfloat16 if is_wanted else torch.float32


def _has_bfloat16() -> bool:
    return processor_has("avx512_bf16", "amx_bf16")


def may_mix_precision() -> bool:
    """Whether training under bfloat16 autocast is faster here: on a GPU, or where the processor
    multiplies bfloat16 itself. Elsewhere an update takes four times as long."""
    from thinc.api import get_torch_default_device

    return get_torch_default_device().type != "cpu" or _has_bfloat16()


def with_usable_precision(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a network, with `mixed_precision` only where it is asked for and faster."""
    is_mixed = settings["mixed_precision"] and may_mix_precision()
    return {**settings, "mixed_precision": is_mixed}


class AveragingShim(PyTorchShim):
    """PyTorchShim with weight averaging and learning rates per parameter group.

    The network is in evaluation mode except within `begin_update`. thinc's own shim switches modes
    at each prediction, so that a second thread may predict with dropout.

    thinc's optimizer stores averages by (shim id, name), but thinc's own shim looks for string
    keys: it would evaluate averaged thinc layers together with torch layers that are not averaged.

    A module may have a method `learn_rate_scales() -> dict[str, float]`: factors on the learning
    rate by prefix of the parameter names. The first matching prefix applies.
    """

    def __init__(self, model: Any, config: Any = None) -> None:
        super().__init__(model, config)
        if model is not None:
            model.eval()

    def predict(self, inputs: ArgsKwargs) -> Any:
        import torch

        with torch.no_grad():
            return self._model(*inputs.args, **inputs.kwargs)

    def begin_update(self, inputs: ArgsKwargs) -> tuple[Any, Callable]:
        try:
            return super().begin_update(inputs)  # switches to training mode
        finally:
            self._model.eval()

    @contextmanager
    def use_params(self, params: dict) -> Iterator[None]:
        state = self._model.state_dict()
        # Ids of shims and of thinc layers overlap, so the name is needed too.
        own = {
            name: value for (id_, name), value in params.items() if id_ == self.id and name in state
        }
        if not own:
            yield
            return
        backup = {name: state[name].clone() for name in own}
        averaged = {name: xp2torch(value, device=self.device) for name, value in own.items()}
        self._model.load_state_dict(averaged, strict=False)
        try:
            yield
        finally:
            self._model.load_state_dict(backup, strict=False)

    def finish_update(self, optimizer: Optimizer) -> None:
        scales: dict[str, float] = getattr(self._model, "learn_rate_scales", dict)()

        def update(key: tuple[int, str], weights: Any, gradient: Any) -> tuple[Any, Any]:
            matching = (scale for prefix, scale in scales.items() if key[1].startswith(prefix))
            return optimizer(key, weights, gradient, lr_scale=next(matching, 1.0))

        super().finish_update(update)  # type: ignore[arg-type]  # the shim only calls it


def wrap_torch(module: Any, *, convert_inputs: Callable, convert_outputs: Callable) -> Model:
    """Wrap a torch module as thinc's PyTorchWrapper_v3 does, but with an `AveragingShim`.

    module (torch.nn.Module): The network.
    convert_inputs, convert_outputs (Callable): Module-level functions, so that the model can be
        pickled for `nlp.pipe(n_process=2)` under spawn.
    """
    return Model(
        "pytorch",
        pytorch_forward,
        attrs={"convert_inputs": convert_inputs, "convert_outputs": convert_outputs},
        shims=[AveragingShim(module)],
        dims={"nI": None, "nO": None},
    )


def arrays_to_torch(
    wrapper: Model, arrays: Sequence[Any], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], list]]:
    """Convert numpy arrays that have no gradient; a `convert_inputs` for `wrap_torch`."""
    import torch

    shim: Any = wrapper.shims[0]
    tensors = tuple(torch.from_numpy(array).to(shim.device) for array in arrays)
    return ArgsKwargs(args=tensors, kwargs={}), lambda d_args: []


def output_from_torch(
    wrapper: Model, inputs_output: tuple[Any, Any], is_train: bool
) -> tuple[Any, Callable[[Any], ArgsKwargs]]:
    """Convert the output of a network with one output; a `convert_outputs` for `wrap_torch`."""
    _, output = inputs_output

    def backprop(d_output: Any) -> ArgsKwargs:
        return ArgsKwargs(args=((output,),), kwargs={"grad_tensors": (xp2torch(d_output),)})

    return torch2xp(output.detach()), backprop
