"""Torch modules as thinc layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import (
    Model,
    Optimizer,
    PyTorchShim,
    get_torch_default_device,
    torch2xp,
    xp2torch,
)
from thinc.types import ArgsKwargs, FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def require_torch() -> None:
    """Check that torch is installed. RAISES BioelError: [B040] if it is not."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error


class AveragingShim(PyTorchShim):
    """PyTorchShim with weight averaging, and a learning rate of its own for a pretrained part.

    The network is in evaluation mode except within `begin_update`. thinc's own shim switches modes
    at each prediction, so that a second thread may predict with dropout.

    thinc's optimizer stores averages by (shim id, name), but thinc's own shim looks for string
    keys: it would evaluate averaged thinc layers together with torch layers that are not averaged.

    A module may have a `learn_rate_scale`: a factor on the learning rate of its `backbone`.
    """

    def __init__(self, model: nn.Module | None, config: dict[str, Any] | None = None) -> None:
        super().__init__(model, config)
        if model is not None:
            model.eval()

    def predict(self, inputs: ArgsKwargs) -> Tensor | tuple[Tensor, ...]:
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
        backup = {name: state[name].clone() for name in own}
        averaged = {name: xp2torch(value, device=self.device) for name, value in own.items()}
        self._model.load_state_dict(averaged, strict=False)
        try:
            yield
        finally:
            self._model.load_state_dict(backup, strict=False)

    def finish_update(self, optimizer: Optimizer) -> None:
        scale = getattr(self._model, "learn_rate_scale", 1.0)

        def update(
            key: tuple[int, str], weights: FloatsXd, gradient: FloatsXd
        ) -> tuple[FloatsXd, FloatsXd]:
            of_this = scale if key[1].startswith("backbone.") else 1.0
            return optimizer(key, weights, gradient, lr_scale=of_this)

        super().finish_update(update)  # type: ignore[arg-type]  # the shim only calls it


def torch_layer(
    network: nn.Module | None = None,
    *,
    make: Callable[[], nn.Module] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Model:
    """A layer that computes with a torch network, from arrays to its output or outputs as arrays.

    It is called with a sequence of arrays, and other arguments of the network. Its callback takes
    the gradient of the output, or of each output, and returns those of the arrays of floats.

    network (torch.nn.Module | None): None: it is made when it is trained. Until then the layer has
        weights as arrays, which `weights_of` returns: inference needs no torch.
    make (Callable): Makes the network; can be pickled.
    shapes (Mapping): Of its weights; empty, if inference needs the network.
    """
    attrs = {"make": make, "shapes": shapes or {}, "weights": None}
    shims: list[Any] = [] if network is None else [AveragingShim(network)]
    layer: Model = Model("pytorch", run_network, attrs=attrs, shims=shims)
    if not shapes:
        network_of(layer)
    return layer


def run_network(layer: Model, inputs: Sequence[Any], is_train: bool) -> tuple[Any, Callable]:
    """The forward function of `torch_layer`."""
    network_of(layer)
    tensors = to_tensors(inputs, device_of(layer), learn=is_train)
    output, backprop = layer.shims[0](ArgsKwargs(args=tuple(tensors), kwargs={}), is_train)
    is_one = not isinstance(output, tuple)
    outputs = (output,) if is_one else output
    arrays = tuple(torch2xp(tensor.detach()) for tensor in outputs)

    def backprop_arrays(gradients: FloatsXd | tuple[FloatsXd, ...]) -> list[FloatsXd]:
        pairs: Any = zip(outputs, (gradients,) if is_one else gradients, strict=True)
        learnt = [(tensor, d) for tensor, d in pairs if tensor.requires_grad]
        if learnt:
            given = tuple(xp2torch(d, device=tensor.device) for tensor, d in learnt)
            args = (tuple(tensor for tensor, _ in learnt),)
            backprop(ArgsKwargs(args=args, kwargs={"grad_tensors": given}))
        return _gradients(tensors)

    return arrays[0] if is_one else arrays, backprop_arrays


def to_tensors(inputs: Sequence[Any], device: torch.device, *, learn: bool = False) -> list[Any]:
    """Inputs of a network: arrays as tensors, all else as it is.

    learn (bool): Whether those of floats have a gradient.
    """
    import torch

    tensors = []
    for value in inputs:
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value).to(device)
        elif hasattr(value, "dtype"):
            value = xp2torch(value, device=device)
        is_learnt = learn and hasattr(value, "dtype") and value.is_floating_point()
        tensors.append(value.requires_grad_() if is_learnt else value)
    return tensors


def _gradients(tensors: Sequence[Any]) -> list[Any]:
    """Gradients of the tensors that have one, as arrays; zeros where nothing was to learn."""
    learnt = [x for x in tensors if hasattr(x, "dtype") and x.requires_grad]
    return [torch2xp(x.new_zeros(x.shape) if x.grad is None else x.grad) for x in learnt]


def loss_and_gradients(
    name: str, *inputs: FloatsXd | NDArray, **settings: float
) -> tuple[Any, ...]:
    """Compute a loss, and its gradients.

    name (str): A function of `nn.losses`.
    inputs (arrays): Its arguments.
    RETURNS (tuple): The loss, and its gradient with respect to each input of floats.
    """
    from spacy_bioel.nn import losses

    tensors = to_tensors(inputs, get_torch_default_device(), learn=True)
    loss: Tensor = getattr(losses, name)(*tensors, **settings)
    loss.backward()
    return float(loss.detach()), *_gradients(tensors)


def set_layer(model: Model, layer: Model, *, ref: str = "network") -> None:
    """Set a layer of a model, in the place of an earlier one of this name."""
    before = model.maybe_get_ref(ref)
    model.layers[:] = [*(other for other in model.layers if other is not before), layer]
    model.set_ref(ref, layer)


def network_of(layer: Model) -> Any:
    """The torch network of a layer, made at first use. RAISES BioelError: [B040] without torch."""
    if not layer.shims:
        require_torch()
        network = layer.attrs["make"]()
        if layer.attrs["weights"] is not None:
            set_arrays(network, layer.attrs["weights"])
            layer.attrs["weights"] = None
        layer.shims.append(AveragingShim(network))
    shim: Any = layer.shims[0]
    return shim._model


def device_of(layer: Model) -> torch.device:
    """The device of the torch network of a layer, once it is made."""
    shim: Any = layer.shims[0]
    device: torch.device = shim.device
    return device


def weights_of(layer: Model) -> Weights:
    """Weights of a layer with a torch network: arrays by name, which change as it learns."""
    if not layer.shims and layer.attrs["weights"] is not None:
        found: Weights = layer.attrs["weights"]
        return found
    return arrays_of(network_of(layer))


def needs_torch(layer: Model) -> bool:
    """Whether a layer computes with torch in inference too."""
    return bool(layer.shims) and not layer.attrs.get("shapes")


def is_on_gpu(layer: Model) -> bool:
    """Whether the network of a layer is on a GPU, or would be if it were made."""
    return device_of(layer).type != "cpu" if layer.shims else layer.ops.device_type == "gpu"


def arrays_of(network: nn.Module) -> dict[str, NDArray]:
    """Weights of a torch network as arrays, which change with it on a CPU."""
    state = network.state_dict()
    return {name: t.detach().cpu().contiguous().numpy() for name, t in state.items()}


def set_arrays(network: nn.Module, weights: Weights) -> None:
    """Set the weights of a torch network. RAISES RuntimeError: When they do not fit."""
    import torch

    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


# Name of the layer made by `spacy-bioel.Transformer.v1`.
DOCUMENT_TRANSFORMER = "document_transformer"
