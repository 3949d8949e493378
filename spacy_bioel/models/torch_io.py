"""Torch modules as thinc layers, and the parameters of a model as one safetensors file.

thinc's own `to_bytes` embeds `torch.save` blobs, which are pickles. Here each parameter of each
node, of thinc or torch, is a named tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
from spacy.tokens import Doc
from thinc.api import Model, Optimizer, PyTorchShim, torch2xp, xp2torch
from thinc.layers.pytorchwrapper import forward as pytorch_forward
from thinc.types import ArgsKwargs

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import Shapes, Weights

if TYPE_CHECKING:
    from torch import nn


def require_torch() -> None:
    """Check that torch is installed. RAISES BioelError: [B040] if it is not."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error


def _has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16; False under a PyTorch that does not report it."""
    import torch

    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16"))


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


def wrap_torch(module: nn.Module, *, convert_inputs: Callable, convert_outputs: Callable) -> Model:
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


def torch_layer(
    make: Callable[[], nn.Module],
    shapes: Shapes,
    *,
    convert_inputs: Callable,
    convert_outputs: Callable,
) -> Model:
    """A layer like that of `wrap_torch`, whose network is made when it is trained.

    Until then it has weights as arrays, which `weights_of` returns: inference needs no torch.

    make (Callable): Makes the network; can be pickled.
    shapes (Shapes): Of its weights; empty, if inference needs the network.
    """
    attrs = {"make": make, "shapes": shapes, "weights": None}
    attrs |= {"convert_inputs": convert_inputs, "convert_outputs": convert_outputs}
    layer: Model = Model("pytorch", _forward, attrs=attrs, dims={"nI": None, "nO": None})
    if not shapes:
        network_of(layer)
    return layer


def _forward(layer: Model, inputs: Any, is_train: bool) -> tuple[Any, Callable]:
    network_of(layer)
    return pytorch_forward(layer, inputs, is_train)


def network_of(layer: Model) -> Any:
    """The torch network of a layer, made at first use. RAISES BioelError: [B040] without torch."""
    if not layer.shims:
        require_torch()
        network = layer.attrs["make"]()
        if layer.attrs["weights"] is not None:
            _load(network, layer.attrs["weights"])
            layer.attrs["weights"] = None
        layer.shims.append(AveragingShim(network))
    shim: Any = layer.shims[0]
    return shim._model


def weights_of(layer: Model) -> Weights:
    """Weights of a layer with a torch network: arrays by name, which change as it learns."""
    if not layer.shims and layer.attrs["weights"] is not None:
        found: Weights = layer.attrs["weights"]
        return found
    return {name: t.detach().cpu().numpy() for name, t in network_of(layer).state_dict().items()}


def needs_torch(layer: Model) -> bool:
    """Whether a layer computes with torch in inference too."""
    return bool(layer.shims) and not layer.attrs.get("shapes")


def is_on_gpu(layer: Model) -> bool:
    """Whether the network of a layer is on a GPU, or would be if it were made."""
    if not layer.shims:
        return layer.ops.device_type == "gpu"
    shim: Any = layer.shims[0]
    return shim.device.type != "cpu"


def _load(network: nn.Module, weights: Weights) -> None:
    import torch

    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


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


_SHOWN = 500  # maximum characters of the reason in a message
# What loading may change in a layer of thinc, which has no other way to take it back.
_SLOTS = ("_layers", "_refs", "_dims", "_attrs", "_has_params", "_shims")


def _torch_layers(model: Model) -> Iterator[tuple[str, Model]]:
    """Layers with a torch network, made or not, and the prefix of their weights in a file."""
    for index, node in enumerate(model.walk()):
        if node.shims or "make" in node.attrs:
            yield f"{index}.torch.", node


def weights_to_bytes(model: Model) -> bytes:
    """All parameters of `model` in safetensors format."""
    tensors: dict[str, NDArray] = {}
    for index, node in enumerate(model.walk()):
        for name in node.param_names:
            if node.has_param(name):
                array = node.ops.to_numpy(node.get_param(name))
                tensors[f"{index}.{node.name}.{name}"] = np.ascontiguousarray(array)
    for prefix, node in _torch_layers(model):
        for name, array in weights_of(node).items():
            tensors[prefix + name] = np.ascontiguousarray(array)
    return save_bytes(tensors)


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


def weights_from_bytes(model: Model, data: bytes) -> None:
    """Load the output of `weights_to_bytes` into a model of the same architecture, in place.

    model (Model): An initialised model, whose parameters are overwritten.

    RAISES BioelError: [B041] when the tensors do not fit the model.
    """
    try:
        tensors = load_bytes(data)
        for index, node in enumerate(model.walk()):
            for name in node.param_names:
                if node.has_param(name):
                    _set_param(node, name, tensors.pop(f"{index}.{node.name}.{name}", None))
        for prefix, node in _torch_layers(model):
            keys = [key for key in tensors if key.startswith(prefix)]
            _set_weights(node, {key.removeprefix(prefix): tensors.pop(key) for key in keys})
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        # KeyError and TypeError: types that numpy or torch lacks, such as BF16 and U16.
        raise BioelError(Errors.B041.format(reason=str(error)[:_SHOWN])) from error
    if tensors:
        raise BioelError(Errors.B041.format(reason=f"no place for {sorted(tensors)[:3]}"))


@contextmanager
def unchanged_on_error(model: Model) -> Iterator[None]:
    """Give a model back its layers, sizes, attributes and weights when the block fails."""
    nodes = [
        (node, [copy(getattr(node, slot)) for slot in _SLOTS], _params(node))
        for node in model.walk()
    ]
    shims: list[Any] = [shim for node in model.walk() for shim in node.shims]
    networks = [(shim, dict(vars(shim)), _weights(shim._model)) for shim in shims]
    try:
        yield
    except BaseException:
        for node, contents, params in nodes:
            for name, value in params.items():
                node.set_param(name, value)
            for slot, content in zip(_SLOTS, contents, strict=True):
                setattr(node, slot, content)
        for shim, had, weights in networks:
            vars(shim).update(had)
            if weights:
                shim._model.load_state_dict(weights)
        raise


def _params(node: Model) -> dict[str, Any]:
    """Parameters of a layer; None stands for those that it has not made yet."""
    return {
        name: node.get_param(name) if node.has_param(name) else None for name in node.param_names
    }


def _weights(network: nn.Module) -> dict[str, Any]:
    """Copies of the weights of a torch module, or none of one that is not made yet."""
    state = {} if network is None else network.state_dict()
    return {name: tensor.clone() for name, tensor in state.items()}


def _set_weights(layer: Model, found: Weights) -> None:
    """Set the weights of a layer with a torch network."""
    if layer.shims:
        state: Any = layer.shims[0]
        shapes = {name: tuple(t.shape) for name, t in state._model.state_dict().items()}
        whole = {n for n, t in state._model.state_dict().items() if not t.is_floating_point()}
    else:
        shapes, whole = layer.attrs["shapes"], set()
    for name, shape in shapes.items():
        _check_array(name, found.get(name), shape, kind="iu" if name in whole else "f")
    if more := found.keys() - shapes.keys():
        raise ValueError(f"no place for {sorted(more)[:3]}")
    if layer.shims:
        _load(state._model, {name: array.copy() for name, array in found.items()})
    else:  # files may have them in half precision
        weights = {name: found[name].astype(np.float32, copy=False) for name in shapes}
        layer.attrs["weights"] = weights


def _set_param(node: Model, name: str, value: Any) -> None:
    before: Any = node.get_param(name)
    _check_array(f"{node.name}.{name}", value, before.shape, kind="f")
    # Files may have them in half precision.
    parameter: Any = node.ops.asarray(value.astype(before.dtype, copy=False))
    node.set_param(name, parameter)


def _check_array(name: str, found: Any, shape: tuple[int, ...], *, kind: str) -> None:
    """Check shape and kind of numbers: torch would load integers as weights without an error.

    RAISES ValueError: When they differ.
    """
    if (of := getattr(found, "shape", "no such tensor")) != shape:
        raise ValueError(f"{name}: expected shape {shape}, found {of}")
    if found.dtype.kind not in kind:
        raise ValueError(f"{name}: expected {'floats' if kind == 'f' else 'integers'}, "
                         f"found {found.dtype}")  # fmt: skip


# Name of the layer made by `spacy-bioel.Transformer.v1`.
DOCUMENT_TRANSFORMER = "document_transformer"

# Features are the bits of a lexicon mask, and one more: a short form that the document defines.
SHORT_FORM = 64
N_FEATURES = 65


@dataclass(frozen=True)
class MentionBatch:
    """Documents with their lexicon matches: the input of a mention detection model.

    Token indices refer to the concatenation of all documents.

    docs (list[Doc]): The documents, which may be empty.
    spans (NDArray[int64]): Matches of spans, (start, width - 1, feature). Shape
        (n_span_matches, 3).
    words (NDArray[int64]): Matches of single tokens, (token, feature). Shape (n_word_matches, 2).
    """

    docs: list[Doc]
    spans: NDArray[np.int64]
    words: NDArray[np.int64]


# Start token, end token (exclusive) and label index of each span of a batch; tokens are counted
# over the concatenated documents. Shape (n_spans, 3).
TokenSpans = NDArray[np.int64]

# Output of a network for the tokens of a batch. Shape (n_tokens, ...), by architecture.
Logits = NDArray[np.float32]
