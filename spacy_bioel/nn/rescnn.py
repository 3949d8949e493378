"""ResCNN, a small convolutional encoder of names and mention strings.

Lai, Ji and Zhai (2021), BERT might be Overkill: A Tiny but Effective Biomedical Entity Linker
based on Residual Convolutional Neural Networks, https://aclanthology.org/2021.findings-emnlp.140.

One difference from the published network, whose vectors depend on the padding of the batch: no
padding. The tokens of all names are concatenated, a convolution is a matrix product whose columns
are shifted and summed, and masks keep a shift within its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FrozenEmbeddings(nn.Module):
    """Frozen embedding layer of a BERT: word + position + token type embeddings, then LayerNorm.

    words (Tensor): Word embeddings; integers are multiples of `scale`. Shape (vocabulary, width).
    scale (Tensor | None): Factor of each row of `words`. Shape (vocabulary, 1).
    positions (Tensor): Position embeddings, from position 0; all zero if positions are not used.
        Shape (max_length, width).
    token_type (Tensor): Token type embedding, added to every token. Shape (width,).
    norm_weight, norm_bias (Tensor): Parameters of the LayerNorm. Shape (width,).
    """

    words: Tensor
    scale: Tensor | None
    positions: Tensor
    token_type: Tensor
    norm_weight: Tensor
    norm_bias: Tensor

    def __init__(self, *, scale: Tensor | None = None, **tables: Tensor) -> None:
        super().__init__()
        # Buffers, not parameters, so that no optimizer updates them. Not persistent: they are
        # stored in a file of their own, apart from the trained weights.
        for name, table in (tables | {"scale": scale}).items():
            self.register_buffer(name, table, persistent=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens. ids, positions: shape (n_tokens,). RETURNS (Tensor): (n_tokens, width)."""
        words = self.words[ids] if self.scale is None else self.words[ids] * self.scale[ids]
        summed = words + self.positions[positions] + self.token_type
        width = self.words.shape[1:]
        return self.dropout(
            F.layer_norm(summed, width, self.norm_weight, self.norm_bias, eps=1e-12)
        )


class EncodingBlock(nn.Module):
    """Parallel convolutions of several widths -> feed-forward -> residual."""

    def __init__(self, dim: int, filters: int, widths: Sequence[int], dropout: float) -> None:
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
        """Apply the block.

        x (Tensor): Shape (n_tokens, dim).
        neighbours (list[Tensor]): Whether the token at each offset, from the lowest to the highest,
            is of the same name. Shape (n_tokens, 1) each.
        """
        # One matrix product computes all taps of all filters; shifting its columns afterwards
        # copies far less than gathering the neighbours of every token beforehand.
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
    """Token ids of names -> one vector per name.

    embeddings (FrozenEmbeddings): The token embeddings.
    dim (int): Size of the vectors and of the residual stream.
    blocks (int): Number of encoding blocks.
    filters (int): Number of convolution filters of each width.
    widths (Sequence[int]): Odd filter widths.
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
        widths: Sequence[int] = (1, 3, 5),
        pooling: str = "max",
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.widths = widths
        self.project = nn.Linear(embeddings.words.shape[1], dim)  # a convolution of width 1
        self.blocks = nn.ModuleList(
            EncodingBlock(dim, filters, widths, dropout) for _ in range(blocks)
        )
        self.attention: nn.Module | None = None
        if pooling == "attention":
            self.attention = nn.Sequential(
                nn.Linear(dim, dim // 2), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim // 2, 1)
            )

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode names.

        ids (Tensor): Token ids of all names, concatenated. Shape (n_tokens,).
        lengths (Tensor): Number of tokens of each name; at least 1. Shape (n_names,).
        RETURNS (Tensor): Vectors, not normalised. Shape (n_names, dim).
        """
        owner = torch.repeat_interleave(lengths)
        starts = torch.cumsum(lengths, dim=0) - lengths
        positions = torch.arange(len(owner), device=lengths.device) - starts[owner]
        x = self.project(self.embeddings(ids, positions))
        reach = max(self.widths) // 2
        shifted = [positions + offset for offset in range(-reach, reach + 1)]
        masks = [((at >= 0) & (at < lengths[owner]))[:, None].to(x.dtype) for at in shifted]
        for block in self.blocks:
            x = block(x, masks)
        if self.attention is None:
            return torch.segment_reduce(x, "max", lengths=lengths)
        scores = self.attention(x)  # (n_tokens, 1)
        highest = torch.segment_reduce(scores.detach(), "max", lengths=lengths)[owner]
        weights = torch.exp(scores - highest)
        summed = x.new_zeros(len(lengths), x.shape[1]).index_add(0, owner, weights * x)
        return summed / weights.new_zeros(len(lengths), 1).index_add(0, owner, weights)
