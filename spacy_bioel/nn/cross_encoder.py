"""A cross-encoder: piece ids of a mention in its sentence and of a candidate -> one logit a pair.

The transformer sees both texts at once, so each word of the one can look at each of the other.
Wu et al. (2020), Scalable Zero-shot Entity Linking with Dense Entity Retrieval (BLINK),
https://aclanthology.org/2020.emnlp-main.519, with a linear layer on the last state of [CLS].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

# Tokens that are encoded together, pads included: bounds the memory.
_TOKENS = 4096


class CrossEncoder(nn.Module):
    """A Hugging Face encoder and a linear layer on its first token.

    A logit does not depend on the other pairs of the batch, but for rounding: below 1e-5.

    backbone (PreTrainedModel): Its first output has shape (n_pairs, length, dim).
    dropout (float): In training, before the linear layer.
    learn_rate_scale (float): Part of the learning rate that the backbone takes, against the new
        linear layer.
    mixed_precision (bool): Compute in bfloat16 what bears it, in training only: predictions would
        depend on what else is in the batch. Weights and logits stay float32.
    """

    def __init__(
        self,
        backbone: Any,
        *,
        dropout: float = 0.1,
        learn_rate_scale: float = 1.0,
        mixed_precision: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(backbone.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.learn_rate_scale = learn_rate_scale
        self.mixed_precision = mixed_precision
        # 0 or 1 in networks that tell no segments apart.
        self.has_segments = getattr(backbone.config, "type_vocab_size", 0) > 1
        self.pad = getattr(backbone.config, "pad_token_id", None) or 0

    def learn_rate_scales(self) -> dict[str, float]:
        return {"backbone.": self.learn_rate_scale}

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> Tensor:
        """Score pairs.

        ids (Tensor): Piece ids of all pairs, special ones too, one after the other. Shape
            (n_pieces,).
        segments (Tensor): 0 for pieces of the context, 1 for those of the candidate; left out
            where the backbone tells no segments apart. Shape (n_pieces,).
        lengths (Tensor): Pieces of each pair; at least 1. Shape (n_pairs,).
        RETURNS (Tensor): Logits in the order given. Shape (n_pairs,).
        """
        starts = torch.cumsum(lengths, dim=0) - lengths
        order = torch.argsort(lengths, descending=True)
        sizes = lengths[order].tolist()
        # An empty slice of a parameter: no pairs at all have a gradient, too.
        logits = [self.head.bias[:0]]
        is_mixed = self.mixed_precision and self.training
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=is_mixed):
            for batch in _batches(sizes):
                part = order[batch]
                within = torch.arange(sizes[batch.start], device=ids.device)
                inside = within < lengths[part, None]  # (n, longest)
                places = torch.where(inside, starts[part, None] + within, 0)
                logits.append(self._score(ids[places], segments[places], inside))
        return torch.cat(logits)[torch.argsort(order)]

    def _score(self, ids: Tensor, segments: Tensor, inside: Tensor) -> Tensor:
        """All of shape (n, longest); what is not inside is a pad. RETURNS (Tensor): (n,)."""
        inputs = {"input_ids": ids.where(inside, self.pad), "attention_mask": inside.long()}
        if self.has_segments:
            inputs["token_type_ids"] = segments.where(inside, 0)
        first = self.backbone(**inputs)[0][:, 0]
        return self.head(self.dropout(first))[:, 0].float()


def _batches(lengths: list[int]) -> Iterator[slice]:
    """Pairs to be padded together. lengths (list[int]): Longest first."""
    start = 0
    while start < len(lengths):
        end = start + max(1, _TOKENS // lengths[start])
        yield slice(start, end)
        start = end
