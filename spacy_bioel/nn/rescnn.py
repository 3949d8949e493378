"""ResCNN, the tiny encoder of names and mentions, all of it in this file.

Lai, Ji and Zhai (2021), BERT might be Overkill: A Tiny but Effective Biomedical Entity Linker
based on Residual Convolutional Neural Networks, https://aclanthology.org/2021.findings-emnlp.140.

One difference from the published network, whose vectors change with the batch that a name is in:
here nothing is padded. The tokens of all names stand in one long row, a convolution is a matrix
product whose columns are shifted and summed, and a shift never crosses from one name to the next.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FrozenEmbeddings(nn.Module):
    """The embedding layer of a BERT: word + position + token type, then LayerNorm; never trained.

    words (Tensor): Of any type; integers are steps of `scale`. Shape (vocabulary, width).
    scale (Tensor | None): What the row of each word is multiplied by. Shape (vocabulary, 1).
    positions (Tensor): Added by position from 0; zero rows where there are none to use. Shape
        (max_length, width).
    token_type (Tensor): Added to every token. Shape (width,).
    norm_weight, norm_bias (Tensor): Of the LayerNorm. Shape (width,).
    """

    words: Tensor
    scale: Tensor | None
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
        scale: Tensor | None = None,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        # Buffers, not parameters: an optimizer never sees them. Not persistent: they are stored
        # once, apart from what is trained.
        self.register_buffer("words", words, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
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

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids, positions (Tensor): Shape (n_tokens,). RETURNS (Tensor): (n_tokens, width)."""
        words = self.words[ids] if self.scale is None else self.words[ids] * self.scale[ids]
        summed = words + self.positions[positions] + self.token_type
        normed = F.layer_norm(summed, (self.size,), self.norm_weight, self.norm_bias, eps=1e-12)
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

    def forward(self, x: Tensor, neighbours: list[Tensor]) -> Tensor:
        """x (Tensor): (n_tokens, dim). neighbours: see `_neighbour_masks`."""
        # All taps of all filters are one matrix product; its columns are shifted afterwards, which
        # copies far less than gathering the neighbours of every token before it.
        convolutions = cast(list[nn.Conv1d], list(self.convolutions))
        taps = torch.cat([c.weight.permute(2, 0, 1).flatten(0, 1) for c in convolutions])
        reach = len(neighbours) // 2
        products = F.pad(F.linear(x, taps), (0, 0, reach, reach))
        features, column = [], 0
        for convolution in convolutions:
            bias, width = cast(Tensor, convolution.bias), convolution.kernel_size[0]
            summed = bias.to(products.dtype)
            for at in range(reach - width // 2, reach + width // 2 + 1):
                tap = products[at : at + len(x), column : column + convolution.out_channels]
                summed = summed + tap if at == reach else torch.addcmul(summed, tap, neighbours[at])
                column += convolution.out_channels
            features.append(torch.relu(summed))
        return x + self.feed_forward(torch.cat(features, dim=1))  # (n_tokens, dim)


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
        self.widths = widths or [1, 3, 5]
        self.project = nn.Linear(embeddings.size, dim)  # a convolution of width 1
        self.blocks = nn.ModuleList(
            EncodingBlock(dim=dim, filters=filters, widths=self.widths, dropout=dropout)
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

        ids (Tensor): Token ids of all names, one after the other. Shape (n_tokens,).
        lengths (Tensor): Tokens of each name; at least 1. Shape (n_names,).
        RETURNS (Tensor): Not normalised. Shape (n_names, dim).
        """
        owner, positions = locate(lengths)
        x = self.embed(ids, positions)
        neighbours = _neighbour_masks(positions, lengths[owner], reach=max(self.widths) // 2)
        masks = [mask.to(x.dtype) for mask in neighbours]
        for block in self.blocks:
            x = block(x, masks)
        return self.pool(x, lengths, owner)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """What stands before the first block. Shape (n_tokens, dim)."""
        return self.project(self.embeddings(ids, positions))

    def pool(self, x: Tensor, lengths: Tensor, owner: Tensor) -> Tensor:
        """From tokens, shape (n_tokens, dim), to names, shape (n_names, dim)."""
        if self.attention is None:
            return torch.segment_reduce(x, "max", lengths=lengths)
        scores = self.attention(x)  # (n_tokens, 1)
        highest = torch.segment_reduce(scores.detach(), "max", lengths=lengths)[owner]
        weights = torch.exp(scores - highest)
        summed = x.new_zeros(len(lengths), x.shape[1]).index_add(0, owner, weights * x)
        return summed / weights.new_zeros(len(lengths), 1).index_add(0, owner, weights)


def locate(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """For each token: the number of its name, and its position there. Shape (n_tokens,) each."""
    owner = torch.repeat_interleave(lengths)
    starts = torch.cumsum(lengths, dim=0) - lengths
    return owner, torch.arange(len(owner), device=lengths.device) - starts[owner]


def _neighbour_masks(positions: Tensor, lengths: Tensor, *, reach: int) -> list[Tensor]:
    """For each offset from -reach to reach: is the token at that offset in the same name?

    positions (Tensor): Of each token within its name. Shape (n_tokens,).
    lengths (Tensor): Of the name of each token. Shape (n_tokens,).
    RETURNS (list[Tensor]): Booleans of shape (n_tokens, 1).
    """
    there = [positions + offset for offset in range(-reach, reach + 1)]
    return [((at >= 0) & (at < lengths))[:, None] for at in there]
