"""ResCNN, the tiny encoder of names and mentions, all of it in this file.

Lai, Ji and Zhai (2021), BERT might be Overkill: A Tiny but Effective Biomedical Entity Linker
based on Residual Convolutional Neural Networks, https://aclanthology.org/2021.findings-emnlp.140.

One difference from the published network: padding is masked after every layer and before pooling,
so that the vector of a name does not depend on the batch it is in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FrozenEmbeddings(nn.Module):
    """The embedding layer of a BERT: word + position + token type, then LayerNorm; never trained.

    words (Tensor): Shape (vocabulary, width).
    positions (Tensor): Added by position from 0; zero rows where there are none to use. Shape
        (max_length, width).
    token_type (Tensor): Added to every token. Shape (width,).
    norm_weight, norm_bias (Tensor): Of the LayerNorm. Shape (width,).
    """

    words: Tensor
    positions: Tensor
    token_type: Tensor
    norm_weight: Tensor
    norm_bias: Tensor

    def __init__(
        self,
        *,
        words: Tensor,
        positions: Tensor,
        token_type: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        # Buffers, not parameters: an optimizer never sees them. Not persistent: they are stored
        # once, apart from what is trained.
        self.register_buffer("words", words, persistent=False)
        self.register_buffer("positions", positions, persistent=False)
        self.register_buffer("token_type", token_type, persistent=False)
        self.register_buffer("norm_weight", norm_weight, persistent=False)
        self.register_buffer("norm_bias", norm_bias, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def tables(self) -> dict[str, Tensor]:
        """What the constructor takes, by name."""
        return dict(self.named_buffers())

    @property
    def size(self) -> int:
        return self.words.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        """ids (Tensor): Shape (batch, length). RETURNS (Tensor): (batch, length, width)."""
        summed = F.embedding(ids, self.words) + self.positions[: ids.shape[1]] + self.token_type
        normed = F.layer_norm(
            summed, (self.size,), self.norm_weight, self.norm_bias, eps=1e-12
        )
        return self.dropout(normed)


class EncodingBlock(nn.Module):
    """Parallel convolutions of several widths -> feed-forward -> residual."""

    def __init__(self, *, dim: int, filters: int, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(dim, filters, width, padding=width // 2) for width in widths
        )
        concatenated = filters * len(widths)
        hidden = (concatenated + dim) // 2
        self.feed_forward = nn.Sequential(
            nn.Linear(concatenated, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, dim)
        )

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        """x (Tensor): (batch, length, dim). present (Tensor): 1 on tokens, (batch, length, 1)."""
        channels = x.transpose(1, 2)  # (batch, dim, length)
        features = [torch.relu(convolution(channels)) for convolution in self.convolutions]
        merged = torch.cat(features, dim=1).transpose(1, 2)  # (batch, length, filters * widths)
        return (x + self.feed_forward(merged)) * present


class ResCNN(nn.Module):
    """Token ids of names -> one vector a name.

    embeddings (FrozenEmbeddings): The token embeddings.
    dim (int): Size of the vectors and of all residual streams.
    blocks (int): Encoding blocks.
    filters (int): Convolution filters of each width.
    widths (list[int]): Odd filter widths.
    pooling (str): "max", or "attention": self-attention pooling.
    dropout (float): On hidden layers.
    """

    def __init__(
        self,
        embeddings: FrozenEmbeddings,
        *,
        dim: int = 256,
        blocks: int = 4,
        filters: int = 100,
        widths: list[int] | None = None,
        pooling: str = "max",
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.project = nn.Linear(embeddings.size, dim)  # a convolution of width 1
        self.blocks = nn.ModuleList(
            EncodingBlock(dim=dim, filters=filters, widths=widths or [1, 3, 5], dropout=dropout)
            for _ in range(blocks)
        )
        self.attention = (
            nn.Sequential(
                nn.Linear(dim, dim // 2), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim // 2, 1)
            )
            if pooling == "attention"
            else None
        )

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode names.

        ids (Tensor): Token ids, padded with anything. Shape (batch, length).
        lengths (Tensor): Tokens of each name; at least 1. Shape (batch,).
        RETURNS (Tensor): Not normalised. Shape (batch, dim).
        """
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]  # (batch, length)
        present = mask[..., None].to(self.project.weight.dtype)
        x = self.project(self.embeddings(ids)) * present  # (batch, length, dim)
        for block in self.blocks:
            x = block(x, present)
        if self.attention is None:
            return x.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        scores = self.attention(x).masked_fill(~mask[..., None], -torch.inf)
        return (torch.softmax(scores, dim=1) * x).sum(dim=1)
