"""Document transformer: windows of word pieces -> one vector per token, torch only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

# Word pieces encoded together, padding included. Large batches suit a GPU. A CPU is fastest with
# batches that fit its caches: all but short windows are encoded one by one, without padding.
_PIECES = {"cpu": 512, "cuda": 16384}


class DocumentTransformer(nn.Module):
    """Hugging Face encoder over windows; a token vector is the mean over its word pieces.

    backbone (PreTrainedModel): Its first output has shape (n_windows, length, width).
    learn_rate_scale (float): Factor on the learning rate of the backbone's weights.
    mixed_precision (bool): Train under bfloat16 autocast. Inference uses float32, for bfloat16
        vectors would depend on the rest of the batch.
    """

    def __init__(self, backbone: Any, *, learn_rate_scale: float, mixed_precision: bool) -> None:
        super().__init__()
        self.backbone = backbone
        self.learn_rate_scale = learn_rate_scale
        self.mixed_precision = mixed_precision

    def learn_rate_scales(self) -> dict[str, float]:
        """Factors by prefix of the parameter names; see `models.torch_io.AveragingShim`."""
        return {"backbone.": self.learn_rate_scale}

    def forward(
        self, ids: Tensor, lengths: Tensor, used: Tensor, piece: Tensor, token: Tensor, n: int
    ) -> Tensor:
        """Encode windows and average over tokens.

        ids (Tensor): Piece ids of all windows, concatenated. Shape (n_ids,).
        lengths (Tensor): Number of pieces of each window. Shape (n_windows,).
        used (Tensor): Positions in `ids` of the pieces of the documents, in document order.
            Shape (n_pieces,).
        piece, token (Tensor): Aligned pairs of a piece and a token. Shape (n_pairs,).
        n (int): Number of tokens.
        RETURNS (Tensor): Token vectors; zeros for a token without pieces. Shape (n, width).
        """
        width = self.backbone.config.hidden_size
        if not len(ids):
            return torch.zeros(n, width, device=ids.device)
        # index_select, because the gradient of [used][piece] is slow on a CPU.
        vectors = self._encode(ids, lengths).index_select(0, used[piece])  # (n_pairs, width)
        total = vectors.new_zeros(n, width).index_add(0, token, vectors)
        count = torch.bincount(token, minlength=n).clamp(min=1)
        return total / count[:, None]

    def _encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Last hidden states of all pieces of all windows. Shape (n_ids, width)."""
        starts = torch.cumsum(lengths, dim=0) - lengths
        order, states = [], []
        is_mixed = self.mixed_precision and self.training
        for part in _batches(lengths, max_pieces=_PIECES.get(ids.device.type, 512)):
            of_part = lengths[part]
            within = torch.arange(int(of_part.max()), device=ids.device)
            present = within < of_part[:, None]
            place = torch.where(present, starts[part][:, None] + within, 0)
            # Padding may be any piece: it is masked in attention and dropped from the output.
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=is_mixed):
                found = self.backbone(input_ids=ids[place], attention_mask=present.long())[0]
            order.append(place[present])
            states.append(found.flatten(0, 1).index_select(0, present.flatten().nonzero()[:, 0]))
        return torch.cat(states).float().index_select(0, torch.argsort(torch.cat(order)))


def _batches(lengths: Tensor, *, max_pieces: int) -> Iterator[Tensor]:
    """Indices of windows of similar length, batch by batch, to keep padding low."""
    order = torch.argsort(lengths, stable=True)
    sizes = lengths[order].tolist()
    first = 0
    for i in range(1, len(sizes) + 1):
        # The last window of a batch is the longest: all are padded to its length.
        if i == len(sizes) or sizes[i] * (i + 1 - first) > max_pieces:
            yield order[first:i]
            first = i
