"""A transformer as an encoder of names: token ids of names -> one vector a name.

Liu et al. (2021), Self-Alignment Pretraining for Biomedical Entity Representations (SapBERT),
https://aclanthology.org/2021.naacl-main.334: the last hidden state of [CLS], or the mean of all.

Nothing is padded here either: names of equally many tokens are encoded together, so that there is
no mask to apply and no work on pads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

# Tokens that are encoded together: bounds the memory, and is small enough for a processor's caches.
_TOKENS = 4096

# (length, is last layer) -> True where a token (row) may look at a token (column). Shape
# (length, length); every token may look at itself.
Attention = Callable[[int, bool], NDArray[np.bool_]]


class NameTransformer(nn.Module):
    """A Hugging Face encoder and a pooling.

    backbone (PreTrainedModel): Its first output has shape (n_names, length, dim).
    pooling (str): "cls": the first token; "mean": of all tokens, the special ones too.
    """

    def __init__(self, backbone: Any, *, pooling: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.pooling = pooling

    def forward(
        self, ids: Tensor, lengths: Tensor, *, attention: Attention | None = None
    ) -> Tensor:
        """Encode names.

        ids (Tensor): Token ids of all names, special ones too, one after the other. Shape
            (n_tokens,).
        lengths (Tensor): Tokens of each name; at least 1. Shape (n_names,).
        attention (Attention | None): Restricts who may look at whom; None: no restriction.
        RETURNS (Tensor): Not normalised. Shape (n_names, dim).
        """
        starts = torch.cumsum(lengths, dim=0) - lengths
        order, vectors = [], []
        for length in torch.unique(lengths).tolist():
            within = torch.arange(length, device=ids.device)
            same = (lengths == length).nonzero()[:, 0]
            with self._restricted(length, attention):
                for part in same.split(max(1, _TOKENS // length)):
                    order.append(part)
                    vectors.append(self._encode(ids[starts[part][:, None] + within]))
        return torch.cat(vectors)[torch.argsort(torch.cat(order))]

    def _encode(self, tokens: Tensor) -> Tensor:
        """tokens (Tensor): (n, length). RETURNS (Tensor): (n, dim)."""
        states = self.backbone(input_ids=tokens)[0]  # (n, length, dim)
        return states[:, 0] if self.pooling == "cls" else states.mean(dim=1)

    def attention_layers(self) -> list[nn.Module]:
        """The layers whose attention can be restricted, in order; none if they are not found."""
        n = self.backbone.config.num_hidden_layers
        for module in self.backbone.modules():
            if isinstance(module, nn.ModuleList) and len(module) == n:
                takes_mask = "attention_mask" in inspect.signature(module[0].forward).parameters
                return list(module) if takes_mask else []
        return []

    @contextmanager
    def _restricted(self, length: int, attention: Attention | None) -> Iterator[None]:
        """While names of this length are encoded, give each layer its own mask."""
        with ExitStack() as hooks:
            if attention is not None:
                layers = self.attention_layers()
                for i, layer in enumerate(layers):
                    allowed = torch.from_numpy(attention(length, i == len(layers) - 1))
                    scores = torch.zeros(1, 1, length, length).masked_fill(~allowed, -torch.inf)
                    hook = _mask_setter(scores.to(next(layer.parameters()).device))
                    hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
            yield


def _mask_setter(mask: Tensor) -> Callable[[nn.Module, tuple, dict], tuple[tuple, dict]]:
    """A hook that calls the layer with this additive mask, by position or by name."""

    def set_mask(layer: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        bound = inspect.signature(layer.forward).bind(*args, **kwargs)
        bound.arguments["attention_mask"] = mask
        return bound.args, bound.kwargs

    return set_mask
