"""Transformer as a name encoder: token ids of names -> one vector per name.

Liu et al. (2021), Self-Alignment Pretraining for Biomedical Entity Representations (SapBERT),
https://aclanthology.org/2021.naacl-main.334: the last hidden state of [CLS], or the mean of all.

No padding, as in `nn.rescnn`: names with equally many tokens are encoded together, without a mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Tokens encoded together: bounds the memory, and fits the caches of a processor.
_TOKENS = 4096


class NameTransformer(nn.Module):
    """Hugging Face encoder with a pooling.

    backbone (PreTrainedModel): Its first output has shape (n_names, length, dim).
    pooling (str): "cls": the first token; "mean": the mean of all tokens, special ones included.
    """

    def __init__(self, backbone: Any, *, pooling: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.pooling = pooling

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode names.

        ids (Tensor): Token ids of all names, special ones included, concatenated. Shape
            (n_tokens,).
        lengths (Tensor): Number of tokens of each name; at least 1. Shape (n_names,).
        RETURNS (Tensor): Vectors, not normalised. Shape (n_names, dim).
        """
        starts = torch.cumsum(lengths, dim=0) - lengths
        order, vectors = [], []
        for length in torch.unique(lengths).tolist():
            within = torch.arange(length, device=ids.device)
            same = (lengths == length).nonzero()[:, 0]
            for part in same.split(max(1, _TOKENS // length)):
                order.append(part)
                vectors.append(self._encode(ids[starts[part][:, None] + within]))
        return torch.cat(vectors)[torch.argsort(torch.cat(order))]

    def _encode(self, tokens: Tensor) -> Tensor:
        """Encode names of one length. tokens (Tensor): (n, length). RETURNS (Tensor): (n, dim)."""
        states = self.backbone(input_ids=tokens)[0]  # (n, length, dim)
        return states[:, 0] if self.pooling == "cls" else states.mean(dim=1)
