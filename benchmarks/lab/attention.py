"""Restricted attention of a transformer that encodes names, by hooks in its layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

# (length, is last layer) -> True where a token (row) may look at a token (column). Shape
# (length, length); every token may look at itself.
Attention = Callable[[int, bool], NDArray[np.bool_]]


def attention_layers(network: nn.Module) -> list[nn.Module]:
    """Layers of the network's backbone that take a mask, in order; none if it has no such layers.

    network (Module): A network of names, e.g. `nn.encoders.NameTransformer`.
    """
    backbone: Any = getattr(network, "backbone", None)
    if backbone is None:
        return []
    n = backbone.config.num_hidden_layers
    for module in backbone.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n:
            takes_mask = "attention_mask" in inspect.signature(module[0].forward).parameters
            return list(module) if takes_mask else []
    return []


@contextmanager
def restricted_attention(network: nn.Module, attention: Attention) -> Iterator[None]:
    """Give each layer a mask of its own, for as long as the context lasts.

    A mask follows from the length of what a layer is given, so that threads may share the network.
    """
    layers = attention_layers(network)
    with ExitStack() as hooks:
        for layer in layers:
            hook = partial(_set_mask, attention=attention, last=layer is layers[-1])
            hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _set_mask(
    layer: nn.Module, args: tuple, kwargs: dict[str, Any], *, attention: Attention, last: bool
) -> tuple[tuple, dict[str, Any]]:
    """Arguments of the layer with this additive mask, by position or by name.

    The first argument is the hidden states, shape (n_names, length, dim).
    """
    bound = inspect.signature(layer.forward).bind(*args, **kwargs)
    states = next(iter(bound.arguments.values()))
    length = states.shape[1]
    allowed = torch.from_numpy(attention(length, last))
    mask = torch.zeros(1, 1, length, length).masked_fill(~allowed, -torch.inf)
    bound.arguments["attention_mask"] = mask.to(states.device)
    return bound.args, bound.kwargs
