"""Mention side of a bi-encoder: token vectors of documents -> one vector per mention.

Bhowmik, Stratos and de Melo (2021), Fast and effective biomedical entity linking using a dual
encoder, https://aclanthology.org/2021.louhi-1.4. All mentions of a batch of documents are encoded
in one pass ("collective"). Two differences from the paper: vectors are compared by cosine, and the
mention vector can be added to the name encoder's vector of the mention's own string.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.nn.tokens import mean_of_spans


class MentionTower(nn.Module):
    """Linear layer over the ends, or the mean, of a mention's token vectors.

    width (int): Size of the token vectors.
    dim (int): Size of the vectors of names.
    pooling (str): "ends": the first and the last token, side by side; "mean": of all tokens.
    from_words (bool): Add the output to the vector of the mention's string. The layer is
        initialised to zero, so that an untrained tower is a dense search by name.
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
        spans (Tensor): Start token and end token (exclusive) of each mention. Shape
            (n_mentions, 2).
        words (Tensor): Vectors of the strings of the mentions. Shape (n_mentions, dim).
        RETURNS (Tensor): Unit vectors. Shape (n_mentions, dim).
        """
        start, end = spans.unbind(1)
        if self.pooling == "ends":
            ends = [tokens.index_select(0, start), tokens.index_select(0, end - 1)]
            read = self.project(torch.cat(ends, dim=1))
        else:
            read = self.project(mean_of_spans(tokens, spans))
        if self.from_words:
            read = F.normalize(words, dim=1) + read
        return F.normalize(read, dim=1)
