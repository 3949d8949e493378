"""Networks that read mentions in context: bi-encoder and cross-encoder, torch only.

Bhowmik, Stratos and de Melo (2021), Fast and effective biomedical entity linking using a dual
encoder, https://aclanthology.org/2021.louhi-1.4: all mentions of a batch of documents are encoded
in one pass. Two differences from the paper: vectors are compared by cosine, and the mention vector
can be added to the name encoder's vector of the mention's own string.

Wu et al. (2020), Scalable Zero-shot Entity Linking with Dense Entity Retrieval (BLINK),
https://aclanthology.org/2020.emnlp-main.519: the cross-encoder reads a mention in its context and a
candidate together, with a linear layer on the last hidden state of [CLS].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.nn.documents import mean_of_spans


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


# Word pieces encoded together, padding included: bounds the memory.
_TOKENS = 4096


class CrossEncoder(nn.Module):
    """Hugging Face encoder with a linear layer on its first token.

    A logit depends on the other pairs of its batch by rounding only, below 1e-5.

    backbone (PreTrainedModel): Its first output has shape (n_pairs, length, dim).
    dropout (float): Before the linear layer, in training.
    learn_rate_scale (float): Factor on the learning rate of the backbone; the new linear layer
        uses the full learning rate.
    mixed_precision (bool): Train under bfloat16 autocast. Inference uses float32, for bfloat16
        logits would depend on the rest of the batch. Weights and logits are float32.
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
        # 0 or 1 in networks without segment embeddings.
        self.has_segments = getattr(backbone.config, "type_vocab_size", 0) > 1
        self.pad = getattr(backbone.config, "pad_token_id", None) or 0

    def learn_rate_scales(self) -> dict[str, float]:
        return {"backbone.": self.learn_rate_scale}

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> Tensor:
        """Score pairs.

        ids (Tensor): Piece ids of all pairs, special pieces included, concatenated. Shape
            (n_pieces,).
        segments (Tensor): 0 for pieces of the context, 1 for pieces of the candidate; ignored
            by a backbone without segment embeddings. Shape (n_pieces,).
        lengths (Tensor): Number of pieces of each pair; at least 1. Shape (n_pairs,).
        RETURNS (Tensor): Logits in the order of the pairs. Shape (n_pairs,).
        """
        starts = torch.cumsum(lengths, dim=0) - lengths
        order = torch.argsort(lengths, descending=True)
        sizes = lengths[order].tolist()
        # An empty slice of a parameter, so that an empty batch has a gradient too.
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
        """Score padded pairs, (n, longest); `inside` is False at padding. RETURNS (Tensor): (n,)"""
        inputs = {"input_ids": ids.where(inside, self.pad), "attention_mask": inside.long()}
        if self.has_segments:
            inputs["token_type_ids"] = segments.where(inside, 0)
        first = self.backbone(**inputs)[0][:, 0]
        return self.head(self.dropout(first))[:, 0].float()


def _batches(lengths: list[int]) -> Iterator[slice]:
    """Batches of pairs padded to one length. lengths (list[int]): In descending order."""
    start = 0
    while start < len(lengths):
        end = start + max(1, _TOKENS // lengths[start])
        yield slice(start, end)
        start = end
