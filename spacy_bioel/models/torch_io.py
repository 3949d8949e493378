"""Wrap torch modules as thinc layers, and store model parameters in one safetensors file.

thinc's own `to_bytes` embeds the output of `torch.save`, a pickle. Here each parameter of each
thinc or torch layer is saved as a named tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
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
    use_ops,
    xp2torch,
)
from thinc.types import ArgsKwargs, FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.integers import LARGEST, quantize_weights
from spacy_bioel.models.inference import Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_SCALE = ".scale"  # suffix of the key for an integer matrix's scales
_MAX_REASON_LENGTH = 500
_MAKING_NETWORK = Lock()  # held while a network is created, because threads may share a model


def require_torch() -> None:
    """Check that torch is installed. RAISES BioelError: [B040] if it is not."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error


class AveragingShim(PyTorchShim):
    """PyTorchShim with weight averaging, and a separate learning rate for a pretrained backbone.

    The network is in evaluation mode except in `begin_update`. thinc's own shim switches modes for
    each prediction, so a second thread might predict with dropout.

    thinc's optimizer stores averages under (shim id, name), but thinc's own shim looks up strings,
    so averaged thinc layers would be evaluated together with unaveraged torch layers.

    A module may define `learn_rate_scale`, a factor on the learning rate of its `backbone`.
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
        # Shims and thinc layers may share an id, so the name must match too.
        averaged = {
            name: xp2torch(value, device=self.device)
            for (id, name), value in params.items()
            if id == self.id and name in state
        }
        backup = {name: state[name].clone() for name in averaged}
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
            lr_scale = scale if key[1].startswith("backbone.") else 1.0
            return optimizer(key, weights, gradient, lr_scale=lr_scale)

        super().finish_update(update)  # type: ignore[arg-type]  # the shim only calls it


def torch_layer(
    network: nn.Module | None = None,
    *,
    make: Callable[[], nn.Module] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Model:
    """Build a thinc layer that runs a torch network, with arrays as input and output.

    The layer is called with the network's arguments, but with arrays instead of tensors. Its
    callback takes the gradient of the output, or of each output, and returns the gradients of the
    float inputs.

    network (torch.nn.Module | None): The network. None: it is created for training. Until then, the
        layer stores weights as arrays (see `weights_of`), and inference does not need torch.
    make (Callable): Creates the network; can be pickled.
    shapes (Mapping): Shapes of the network's weights; empty if inference needs the network.
    """
    attrs = {"make": make, "shapes": shapes or {}, "weights": None}
    shims: list[Any] = [] if network is None else [AveragingShim(network)]
    layer: Model = Model("pytorch", run_network, attrs=attrs, shims=shims)
    if not shapes:
        network_of(layer)
    return layer


def run_network(layer: Model, inputs: Sequence[Any], is_train: bool) -> tuple[Any, Callable]:
    """Run the forward pass of a `torch_layer`."""
    network_of(layer)
    tensors = to_tensors(inputs, device_of(layer), learn=is_train)
    output, backprop = layer.shims[0](ArgsKwargs(args=tuple(tensors), kwargs={}), is_train)
    is_single = not isinstance(output, tuple)
    outputs = (output,) if is_single else output
    arrays = tuple(torch2xp(tensor.detach()) for tensor in outputs)

    def backprop_arrays(gradients: FloatsXd | tuple[FloatsXd, ...]) -> list[FloatsXd]:
        learnt, learnt_gradients = [], []
        pairs: Any = zip(outputs, (gradients,) if is_single else gradients, strict=True)
        for tensor, gradient in pairs:
            if tensor.requires_grad:
                learnt.append(tensor)
                learnt_gradients.append(xp2torch(gradient, device=tensor.device))
        if learnt:
            kwargs = {"grad_tensors": tuple(learnt_gradients)}
            backprop(ArgsKwargs(args=(tuple(learnt),), kwargs=kwargs))
        return _gradients(tensors)

    return arrays[0] if is_single else arrays, backprop_arrays


def to_tensors(inputs: Sequence[Any], device: torch.device, *, learn: bool = False) -> list[Any]:
    """Convert any arrays among a network's inputs to tensors.

    learn (bool): Whether gradients are computed for float tensors.
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
    """Return each tensor's gradient as an array; zeros if the tensor does not affect the loss."""
    learnt = [x for x in tensors if hasattr(x, "dtype") and x.requires_grad]
    return [torch2xp(x.new_zeros(x.shape) if x.grad is None else x.grad) for x in learnt]


def loss_and_gradients(
    compute: Callable[..., Tensor], *inputs: FloatsXd | NDArray, **settings: float
) -> tuple[Any, ...]:
    """Compute a loss and its gradients.

    compute (Callable): Loss function of tensors, such as a loss function in `models.networks`.
    inputs (arrays): Arguments of the loss.
    RETURNS (tuple): The loss, and its gradient with respect to each float input.
    """
    tensors = to_tensors(inputs, get_torch_default_device(), learn=True)
    loss = compute(*tensors, **settings)
    loss.backward()
    return float(loss.detach()), *_gradients(tensors)


def set_layer(model: Model, layer: Model, *, ref: str = "network") -> None:
    """Add a layer to a model, replacing any layer with the same name."""
    before = model.maybe_get_ref(ref)
    model.layers[:] = [*(other for other in model.layers if other is not before), layer]
    model.set_ref(ref, layer)


def network_of(layer: Model) -> Any:
    """Return a layer's torch network, created on first use. RAISES BioelError: [B040]."""
    with _MAKING_NETWORK:
        if not layer.shims:
            require_torch()
            network = layer.attrs["make"]()
            if layer.attrs["weights"] is not None:
                set_arrays(network, layer.attrs["weights"])
                layer.attrs["weights"] = None
            with use_ops(layer.ops.name):  # this thread's current ops may be for another device
                layer.shims.append(AveragingShim(network))
    return layer.shims[0]._model


def device_of(layer: Model) -> torch.device:
    """Return the device of a layer's torch network. The network must already exist."""
    shim: Any = layer.shims[0]
    return shim.device


def weights_of(layer: Model) -> Weights:
    """Return a `torch_layer`'s weights as arrays by name; training may modify them in place."""
    if not layer.shims and layer.attrs["weights"] is not None:
        return layer.attrs["weights"]
    return arrays_of(network_of(layer))


def needs_torch(layer: Model) -> bool:
    """Return whether a layer needs torch for inference."""
    return bool(layer.shims) and not layer.attrs.get("shapes")


def is_on_gpu(model: Model) -> bool:
    """Return whether a model's arrays and its torch networks are on a GPU."""
    return model.ops.device_type == "gpu"


def arrays_of(network: nn.Module) -> dict[str, NDArray]:
    """Return a torch network's weights as arrays; on a CPU, training modifies them in place."""
    state = network.state_dict()
    return {name: t.detach().cpu().contiguous().numpy() for name, t in state.items()}


def set_arrays(network: nn.Module, weights: Weights) -> None:
    """Set a torch network's weights. RAISES RuntimeError: If the weights do not fit."""
    import torch

    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


def _thinc_parameters(model: Model) -> Iterator[tuple[str, Model, str]]:
    """Yield the file key, layer and name of each thinc parameter."""
    for index, node in enumerate(model.walk()):
        for name in node.param_names:
            if node.has_param(name):
                yield f"{index}.{node.name}.{name}", node, name


def _torch_layers(model: Model) -> Iterator[tuple[str, Model]]:
    """Yield each torch network's file key prefix and layer, even if the network does not exist."""
    for index, node in enumerate(model.walk()):
        if node.shims or "make" in node.attrs:
            yield f"{index}.torch.", node


def weights_to_bytes(model: Model) -> bytes:
    """Serialise all of a model's parameters in safetensors format."""
    tensors = {
        key: node.ops.to_numpy(node.get_param(name)) for key, node, name in _thinc_parameters(model)
    }
    for prefix, node in _torch_layers(model):
        tensors |= {prefix + name: array for name, array in weights_of(node).items()}
    if model.attrs.get("quantized"):
        tensors = _quantized(tensors)
    # Arrays must be contiguous, because safetensors ignores strides.
    return save_bytes({key: np.ascontiguousarray(array) for key, array in tensors.items()})


def _quantized(tensors: Weights) -> dict[str, NDArray]:
    """Replace each matrix with an 8-bit integer matrix and its scales.

    RAISES BioelError: [B641] if a weight is not a finite number.
    """
    stored: dict[str, NDArray] = {}
    for key, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise BioelError(Errors.B641.format(key=key))
        if tensor.ndim > 1:
            # The last axis of a convolution is its window.
            numbers, scales = quantize_weights(tensor, axis=1 if ".torch." in key else -1)
            stored |= {key: numbers.astype(np.int8), key + _SCALE: scales}
        else:
            stored[key] = tensor
    return stored


def _dequantized(tensors: dict[str, NDArray]) -> dict[str, NDArray]:
    """Multiply 8-bit integers by their scales. RAISES ValueError: If either is invalid."""
    for key in [key for key, tensor in tensors.items() if tensor.dtype == np.int8]:
        numbers, scales = tensors[key], tensors.pop(key + _SCALE, None)
        if scales is None:
            raise ValueError(f"{key}{_SCALE} is missing")
        pairs = zip(scales.shape, numbers.shape, strict=False)
        if scales.ndim != numbers.ndim or any(n not in (1, size) for n, size in pairs):
            raise ValueError(f"{key}{_SCALE}: {scales.shape} does not fit {numbers.shape}")
        if (numbers < -LARGEST).any() or not (scales > 0).all():
            raise ValueError(f"{key}: expected numbers from -127 to 127, and positive scales")
        with np.errstate(over="ignore"):  # infinity is reported below
            tensors[key] = numbers * scales.astype(np.float32)
    for key, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise ValueError(f"{key}: contains infinity or NaN")
    return tensors


def quantize_model(model: Model) -> None:
    """Round a model's matrices to 8-bit integers, both for `weights_to_bytes` and for inference.

    RAISES BioelError: [B641] if a weight is not a finite number.
    """
    model.attrs["quantized"] = True
    try:
        weights_from_bytes(model, weights_to_bytes(model))
    except BioelError:
        model.attrs["quantized"] = False
        raise


def weights_from_bytes(model: Model, data: bytes) -> None:
    """Load the output of `weights_to_bytes` into a model of the same architecture, in place.

    RAISES BioelError: [B041] if the tensors do not fit the model.
    """
    try:
        tensors = load_bytes(data)
        quantized = "quantized" in model.attrs and any(key.endswith(_SCALE) for key in tensors)
        if quantized:
            tensors = _dequantized(tensors)
        _check_tensors(tensors, model)
        for key, node, name in _thinc_parameters(model):
            before: Any = node.get_param(name)
            ops: Any = node.ops
            node.set_param(name, ops.asarray(tensors[key].astype(before.dtype, copy=False)))
        for prefix, node in _torch_layers(model):
            weights = {
                k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)
            }
            if node.shims or is_on_gpu(node):
                set_arrays(network_of(node), {name: x.copy() for name, x in weights.items()})
            else:
                node.attrs["weights"] = {
                    name: x.astype(np.float32, copy=False) for name, x in weights.items()
                }
        if "quantized" in model.attrs:
            model.attrs["quantized"] = quantized
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        # NumPy and torch raise KeyError or TypeError for unsupported types, such as BF16 and U16.
        raise BioelError(Errors.B041.format(reason=str(error)[:_MAX_REASON_LENGTH])) from error


def _check_tensors(tensors: Weights, model: Model) -> None:
    """Check the names, shapes and types of a file's tensors. Half precision is accepted; integer
    weights are not, although torch allows them. RAISES ValueError: If the tensors do not fit."""
    expected: dict[str, tuple[Sequence[int], str]] = {}
    for key, node, name in _thinc_parameters(model):
        parameter: Any = node.get_param(name)
        expected[key] = parameter.shape, "f"
    for prefix, node in _torch_layers(model):
        if node.shims:
            for name, tensor in network_of(node).state_dict().items():
                kinds = "f" if tensor.is_floating_point() else "iu"
                expected[prefix + name] = tuple(tensor.shape), kinds
        else:
            expected |= {prefix + name: (s, "f") for name, s in node.attrs["shapes"].items()}
    for key, (shape, kinds) in expected.items():
        if key not in tensors:
            raise ValueError(f"{key}: expected shape {shape}, found no such tensor")
        if tensors[key].shape != shape:
            raise ValueError(f"{key}: expected shape {shape}, found {tensors[key].shape}")
        if (dtype := tensors[key].dtype).kind not in kinds:
            number_type = "floats" if kinds == "f" else "integers"
            raise ValueError(f"{key}: expected {number_type}, found {dtype}")
    if unexpected := tensors.keys() - expected.keys():
        raise ValueError(f"unexpected tensors {sorted(unexpected)[:3]}")


@contextmanager
def reading_part(file: str) -> Iterator[None]:
    """Convert errors raised while reading a saved model's file to [B240].

    RAISES BioelError: [B240] with the file name; errors with a code, and KeyError for a missing
        file, propagate unchanged.
    """
    try:
        yield
    except (BioelError, KeyError):
        raise
    except Exception as error:  # tokenizers raises plain `Exception`
        reason = str(error)[:_MAX_REASON_LENGTH]
        raise BioelError(Errors.B240.format(file=file, error=reason)) from error
