"""Parameters of a thinc model as one safetensors file: no pickle, memory-mapped, inspectable.

thinc's own `to_bytes` embeds `torch.save` blobs, which are pickles. Here each parameter of each
node, of thinc or torch, is a named tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
from thinc.api import Model

from spacy_bioel.errors import BioelError, Errors

_SHOWN = 500  # maximum characters of the reason in a message
# What loading may change in a layer of thinc, which has no other way to take it back.
_SLOTS = ("_layers", "_refs", "_dims", "_attrs", "_has_params")


def _torch_shims(model: Model) -> Iterator[tuple[int, Any]]:
    for index, node in enumerate(model.walk()):
        for shim in node.shims:
            yield index, shim


def weights_to_bytes(model: Model) -> bytes:
    """All parameters of `model` in safetensors format."""
    tensors: dict[str, NDArray] = {}
    for index, node in enumerate(model.walk()):
        for name in node.param_names:
            if node.has_param(name):
                array = node.ops.to_numpy(node.get_param(name))
                tensors[f"{index}.{node.name}.{name}"] = np.ascontiguousarray(array)
    for index, shim in _torch_shims(model):
        for name, tensor in shim._model.state_dict().items():
            tensors[f"{index}.torch.{name}"] = tensor.detach().cpu().contiguous().numpy()
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
    import torch

    try:
        tensors = load_bytes(data)
        for index, node in enumerate(model.walk()):
            for name in node.param_names:
                if node.has_param(name):
                    _set_param(node, name, tensors.pop(f"{index}.{node.name}.{name}", None))
        for index, shim in _torch_shims(model):
            prefix = f"{index}.torch."
            state = {
                key.removeprefix(prefix): torch.from_numpy(tensors.pop(key).copy())
                for key in list(tensors)
                if key.startswith(prefix)
            }
            _check_types(shim._model.state_dict(), state)
            shim._model.load_state_dict(state)
    except (SafetensorError, RuntimeError, ValueError, TypeError, KeyError) as error:
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
    networks = [(shim, dict(vars(shim)), _weights(shim._model)) for _, shim in _torch_shims(model)]
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


def _weights(network: Any) -> dict[str, Any]:
    """Copies of the weights of a torch module, or none of one that is not made yet."""
    state = {} if network is None else network.state_dict()
    return {name: tensor.clone() for name, tensor in state.items()}


def _check_types(expected: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Compare types of tensors: torch would load integers as weights without an error.

    RAISES ValueError: When integers are found in place of floats, or the reverse.
    """
    for name in expected.keys() & state.keys():
        if expected[name].is_floating_point() != state[name].is_floating_point():
            raise ValueError(f"{name}: expected {expected[name].dtype}, found {state[name].dtype}")


def _set_param(node: Model, name: str, value: Any) -> None:
    before: Any = node.get_param(name)
    expected, found = before.shape, getattr(value, "shape", "no such tensor")
    if found != expected:
        raise ValueError(f"{node.name}.{name}: expected shape {expected}, found {found}")
    if value.dtype.kind != "f":
        raise ValueError(f"{node.name}.{name}: expected floats, found {value.dtype}")
    # Files may have them in half precision.
    parameter: Any = node.ops.asarray(value.astype(before.dtype, copy=False))
    node.set_param(name, parameter)
