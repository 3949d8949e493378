"""A transformer that reads documents: windows of word pieces -> one vector a token, torch only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

# Pieces that are read together, pads included. A GPU wants many; a CPU is fastest with what fits
# its caches, so that all but short windows are read alone there, and nothing of them is padded.
_PIECES = {"cpu": 512, "cuda": 16384}


class DocumentTransformer(nn.Module):
    """A Hugging Face encoder over windows, and the mean of the pieces of each token.

    backbone (PreTrainedModel): Its first output has shape (n_windows, length, width).
    learn_rate_scale (float): Part of the learning rate of the training that its weights take.
    mixed_precision (bool): Multiply matrices in bfloat16, in training only: predictions would
        depend on what else is in the batch.
    """

    def __init__(self, backbone: Any, *, learn_rate_scale: float, mixed_precision: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.learn_rate_scale = learn_rate_scale
        self.mixed_precision = mixed_precision

    def learn_rate_scales(self) -> dict[str, float]:
        """By the beginning of the names of parameters; see `models.torch_io.AveragingShim`."""
        return {"backbone.": self.learn_rate_scale}

    def forward(
        self, ids: Tensor, lengths: Tensor, used: Tensor, piece: Tensor, token: Tensor, n: int
    ) -> Tensor:
        """Vectors of all tokens.

        ids (Tensor): Piece ids of all windows, one after the other. Shape (n_ids,).
        lengths (Tensor): Pieces of each window. Shape (n_windows,).
        used (Tensor): Which of `ids` stand for the pieces of the documents, in their order.
            Shape (n_pieces,).
        piece, token (Tensor): Pairs of a piece and a token that it is part of. Shape (n_pairs,).
        n (int): Number of tokens.
        RETURNS (Tensor): Zeros for a token without pieces. Shape (n, width).
        """
        width = self.backbone.config.hidden_size
        if not len(ids):
            return torch.zeros(n, width, device=ids.device)
        # Not by [used][piece], whose gradient is slow on a CPU.
        vectors = self._read(ids, lengths).index_select(0, used[piece])  # (n_pairs, width)
        total = vectors.new_zeros(n, width).index_add(0, token, vectors)
        count = torch.bincount(token, minlength=n).clamp(min=1)
        return total / count[:, None]

    def _read(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Last hidden state of every piece of every window. Shape (n_ids, width)."""
        starts = torch.cumsum(lengths, dim=0) - lengths
        order, states = [], []
        is_mixed = self.mixed_precision and self.training
        for part in _alike(lengths, most=_PIECES.get(ids.device.type, 512)):
            of_part = lengths[part]
            within = torch.arange(int(of_part.max()), device=ids.device)
            present = within < of_part[:, None]
            place = torch.where(present, starts[part][:, None] + within, 0)
            # A pad is any piece: nothing looks at it, and it is not used.
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=is_mixed):
                found = self.backbone(input_ids=ids[place], attention_mask=present.long())[0]
            order.append(place[present])
            states.append(found.flatten(0, 1).index_select(0, present.flatten().nonzero()[:, 0]))
        return torch.cat(states).float().index_select(0, torch.argsort(torch.cat(order)))


def _alike(lengths: Tensor, *, most: int) -> Iterator[Tensor]:
    """Numbers of windows that are read together: of like length, so that little is padded."""
    order = torch.argsort(lengths, stable=True)
    sizes = lengths[order].tolist()
    first = 0
    for i in range(1, len(sizes) + 1):
        # The longest comes last, so that all are padded to it.
        if i == len(sizes) or sizes[i] * (i + 1 - first) > most:
            yield order[first:i]
            first = i
