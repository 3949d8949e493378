"""The parameters of a model as one safetensors file.

thinc's own `to_bytes` embeds `torch.save` blobs, which are pickles. Here each parameter of each
node, of thinc or torch, is a named tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
from thinc.api import Model

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.inference import Weights
from spacy_bioel.models.torch_io import network_of, set_arrays, weights_of

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
