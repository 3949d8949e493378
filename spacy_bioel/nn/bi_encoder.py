"""The mention side of a dual encoder: token vectors of documents -> one vector a mention.

Bhowmik, Stratos and de Melo (2021), Fast and effective biomedical entity linking using a dual
encoder, https://aclanthology.org/2021.louhi-1.4. All mentions of a batch of documents are encoded
in one pass ("collective"). Other than there, vectors are compared by cosine, and the vector of the
mention's own words, as the names are encoded, can be where the mention starts from.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MentionTower(nn.Module):
    """A linear layer over the ends, or the mean, of a mention.

    width (int): Size of the token vectors.
    dim (int): Size of the vectors of names.
    pooling (str): "ends": the first and the last token, side by side; "mean": of all tokens.
    from_words (bool): What is read in the document is added to the vector of the mention's words,
        and is nothing before training: then the tower starts as a search by name.
    """

    def __init__(self, *, width: int, dim: int, pooling: str, from_words: bool) -> None:
        super().__init__()
        self.pooling = pooling
        self.from_words = from_words
        self.project = nn.Linear(2 * width if pooling == "ends" else width, dim)
        if from_words:
            nn.init.zeros_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, tokens: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Encode mentions.

        tokens (Tensor): Token vectors of all documents, one after the other. Shape (n, width).
        spans (Tensor): First token, and the one after the last, of each mention. Shape
            (n_mentions, 2).
        words (Tensor): Vectors of the strings of the mentions. Shape (n_mentions, dim).
        RETURNS (Tensor): Unit vectors. Shape (n_mentions, dim).
        """
        start, end = spans.unbind(1)
        if self.pooling == "ends":
            ends = [tokens.index_select(0, start), tokens.index_select(0, end - 1)]
            read = self.project(torch.cat(ends, dim=1))
        else:
            # Each mention's tokens, so that its vector does not depend on others of the batch.
            width = end - start
            within = torch.arange(int(width.sum()), device=tokens.device)
            within = within - torch.repeat_interleave(torch.cumsum(width, 0) - width, width)
            inside = torch.repeat_interleave(start, width) + within
            owner = torch.repeat_interleave(torch.arange(len(spans), device=width.device), width)
            total = tokens.new_zeros(len(spans), tokens.shape[1])
            total = total.index_add(0, owner, tokens.index_select(0, inside))
            read = self.project(total / width[:, None])
        if self.from_words:
            read = F.normalize(words, dim=1) + read
        return F.normalize(read, dim=1)
