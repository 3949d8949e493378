"""Torch modules as thinc layers.

The parameters of a model as one safetensors file.

thinc's own `to_bytes` embeds `torch.save` blobs, which are pickles. Here each parameter of each
node, of thinc or torch, is a named tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
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
    compute: Callable[..., Tensor], *inputs: FloatsXd | NDArray, **settings: float
) -> tuple[Any, ...]:
    """Compute a loss, and its gradients.

    compute (Callable): The loss as a function of tensors, such as those of `models.networks`.
    inputs (arrays): Its arguments.
    RETURNS (tuple): The loss, and its gradient with respect to each input of floats.
    """
    tensors = to_tensors(inputs, get_torch_default_device(), learn=True)
    loss = compute(*tensors, **settings)
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


_SHOWN = 500  # maximum characters of the reason in a message
# What loading may change in a layer of thinc, which has no other way to take it back.
_SLOTS = ("_layers", "_refs", "_dims", "_attrs", "_has_params", "_shims")


def _parameters(model: Model) -> Iterator[tuple[str, Model, str]]:
    """Parameters of the layers of thinc: key in a file, layer, and name."""
    for index, node in enumerate(model.walk()):
        for name in node.param_names:
            if node.has_param(name):
                yield f"{index}.{node.name}.{name}", node, name


def _torch_layers(model: Model) -> Iterator[tuple[str, Model]]:
    """Layers with a torch network, made or not, and the prefix of their weights in a file."""
    for index, node in enumerate(model.walk()):
        if node.shims or "make" in node.attrs:
            yield f"{index}.torch.", node


def weights_to_bytes(model: Model) -> bytes:
    """All parameters of `model` in safetensors format."""
    tensors = {
        key: node.ops.to_numpy(node.get_param(name)) for key, node, name in _parameters(model)
    }
    for prefix, node in _torch_layers(model):
        tensors |= {prefix + name: array for name, array in weights_of(node).items()}
    # safetensors reads the memory of an array as it lies there.
    return save_bytes({key: np.ascontiguousarray(array) for key, array in tensors.items()})


def weights_from_bytes(model: Model, data: bytes) -> None:
    """Load the output of `weights_to_bytes` into a model of the same architecture, in place.

    RAISES BioelError: [B041] when the tensors do not fit the model.
    """
    try:
        tensors = load_bytes(data)
        _check(tensors, model)
        for key, node, name in _parameters(model):
            before: Any = node.get_param(name)
            ops: Any = node.ops
            node.set_param(name, ops.asarray(tensors[key].astype(before.dtype, copy=False)))
        for prefix, node in _torch_layers(model):
            own = {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}
            if node.shims:
                set_arrays(network_of(node), {name: array.copy() for name, array in own.items()})
            else:
                node.attrs["weights"] = {
                    name: own[name].astype(np.float32, copy=False) for name in node.attrs["shapes"]
                }
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        # KeyError and TypeError: types that numpy or torch lacks, such as BF16 and U16.
        raise BioelError(Errors.B041.format(reason=str(error)[:_SHOWN])) from error


def _check(tensors: Weights, model: Model) -> None:
    """Check the tensors of a file, which may be in half precision: their names, shapes, and kinds
    of numbers, for torch would load integers as weights. RAISES ValueError: When they differ."""
    expected: dict[str, tuple[Sequence[int], str]] = {}
    for key, node, name in _parameters(model):
        parameter: Any = node.get_param(name)
        expected[key] = parameter.shape, "f"
    for prefix, node in _torch_layers(model):
        if not node.shims:
            expected |= {prefix + n: (shape, "f") for n, shape in node.attrs["shapes"].items()}
            continue
        for name, tensor in network_of(node).state_dict().items():
            kinds = "f" if tensor.is_floating_point() else "iu"
            expected[prefix + name] = tuple(tensor.shape), kinds
    for key, (shape, kinds) in expected.items():
        if (of := getattr(tensors.get(key), "shape", "no such tensor")) != shape:
            raise ValueError(f"{key}: expected shape {shape}, found {of}")
        if (found := tensors[key].dtype).kind not in kinds:
            needed = "floats" if kinds == "f" else "integers"
            raise ValueError(f"{key}: expected {needed}, found {found}")
    if more := tensors.keys() - expected.keys():
        raise ValueError(f"no place for {sorted(more)[:3]}")


@contextmanager
def reading_part(file: str) -> Iterator[None]:
    """Turn any error of reading a damaged file of a saved model into [B240].

    RAISES BioelError: [B240] naming the file; coded errors and missing files (KeyError) pass.
    """
    try:
        yield
    except (BioelError, KeyError):
        raise
    except Exception as error:  # readers raise various exceptions, tokenizers bare ones
        reason = str(error)[:_SHOWN]
        raise BioelError(Errors.B240.format(file=file, error=reason)) from error


@contextmanager
def unchanged_on_error(model: Model) -> Iterator[None]:
    """Give a model back its layers, sizes, attributes and weights when the block fails."""
    nodes = [
        (
            node,
            {slot: copy(getattr(node, slot)) for slot in _SLOTS},
            {n: node.get_param(n) if node.has_param(n) else None for n in node.param_names},
        )
        for node in model.walk()
    ]
    shims: list[Any] = [shim for node in model.walk() for shim in node.shims]
    states = [{} if shim._model is None else shim._model.state_dict() for shim in shims]
    networks = [
        (shim, dict(vars(shim)), {name: tensor.clone() for name, tensor in state.items()})
        for shim, state in zip(shims, states, strict=True)
    ]
    try:
        yield
    except BaseException:
        for node, contents, params in nodes:
            for name, value in params.items():
                node.set_param(name, value)
            for slot, content in contents.items():
                setattr(node, slot, content)
        for shim, had, weights in networks:
            vars(shim).update(had)
            if weights:
                shim._model.load_state_dict(weights)
        raise
