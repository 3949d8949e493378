"""Scoring every span of a text: exhaustive enumeration up to L tokens, torch only.

Equation 4 of Bhowmik, Stratos and de Melo (2021), Fast and effective biomedical entity linking
using a dual encoder, https://aclanthology.org/2021.louhi-1.4, as published and in a larger form:
start, end and (by prefix sums) content of a span, with its width and knowledge-base matches, meet
in one hidden layer instead of being summed as single numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from spacy_bioel.nn.tokens import TokenReader

# Spans are scored for at most this many start tokens at once: bounds memory on long documents.
_BLOCK = 4096
# Nearly all spans are not mentions: scores start there.
_START_BIAS = -4.0


class LinearSpanScorer(TokenReader):
    """Token vectors of a batch of documents -> one logit a span and label, without a hidden layer.

    Equation 4 as published, one for each label: w_s.h_i + w_e.h_j + sum of w_m.h_q over the tokens
    q = i..j, with a bias. Lexicon matches reach it through the token vectors h alone.

    n_labels (int): Labels; each is an independent yes/no.
    settings: See `TokenReader`; max_width is L, the longest span in tokens.
    """

    def __init__(self, *, n_labels: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.n_labels = n_labels
        self.start = nn.Linear(self.token_width, n_labels)
        self.end = nn.Linear(self.token_width, n_labels, bias=False)
        self.content = nn.Linear(self.token_width, n_labels, bias=False)
        nn.init.constant_(self.start.bias, _START_BIAS)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all spans; arguments and logits are those of `SpanScorer.forward`."""
        if not len(tokens):
            return tokens.new_zeros(0, self.max_width, self.n_labels)
        tokens = self.read(tokens, lengths, spans, words)
        begin = torch.arange(len(tokens), device=tokens.device)[:, None]  # (n_tokens, 1)
        widths = torch.arange(self.max_width, device=tokens.device)  # (max_width,)
        end = (begin + widths).clamp(max=len(tokens) - 1)  # (n_tokens, max_width)
        sums = _prefix_sums(self.content(tokens))
        content = (sums[end + 1] - sums[begin]).to(tokens.dtype)
        logits = self.start(tokens)[:, None] + self.end(tokens)[end] + content
        outside = begin + widths >= _document_ends(lengths)[:, None]
        return logits.masked_fill(outside[..., None], -torch.inf)


class SpanScorer(TokenReader):
    """Token vectors of a batch of documents -> one logit a span and label.

    n_labels (int): Labels; each is an independent yes/no.
    hidden (int): Size of the hidden layer of the span scorer; it has the dropout of the tokens.
    settings: See `TokenReader`; max_width is L, the longest span in tokens.
    """

    def __init__(self, *, n_labels: int, hidden: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.n_labels = n_labels
        self.span_features = nn.Embedding(self.n_features, hidden)
        nn.init.zeros_(self.span_features.weight)
        self.start = nn.Linear(self.token_width, hidden)
        self.end = nn.Linear(self.token_width, hidden, bias=False)
        self.content = nn.Linear(self.token_width, hidden, bias=False)
        self.width = nn.Embedding(self.max_width, hidden)
        self.output = nn.Linear(hidden, n_labels)
        nn.init.constant_(self.output.bias, _START_BIAS)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all spans.

        tokens (Tensor): Token vectors of all documents, concatenated. Shape (n_tokens, width).
        lengths (Tensor): Tokens of each document. Shape (n_docs,).
        spans (Tensor): Lexicon matches as (start token, width - 1, feature). Shape (n, 3).
        words (Tensor): Lexicon matches of single tokens as (token, feature). Shape (m, 2).
        RETURNS (Tensor): Logits; [i, w] is the span of w + 1 tokens that starts at token i, and
            -inf where it would leave its document. Shape (n_tokens, max_width, n_labels).
        """
        if not len(tokens):
            return tokens.new_zeros(0, self.max_width, self.n_labels)
        tokens = self.read(tokens, lengths, spans, words)
        starts, ends = self.start(tokens), self.end(tokens)
        sums = _prefix_sums(self.content(tokens))
        doc_ends = _document_ends(lengths)
        blocks = [
            self._score_block(first, starts, ends, sums, doc_ends, spans)
            for first in range(0, len(tokens), _BLOCK)
        ]
        return torch.cat(blocks)

    def _score_block(
        self,
        first: int,
        starts: Tensor,
        ends: Tensor,
        sums: Tensor,
        doc_ends: Tensor,
        spans: Tensor,
    ) -> Tensor:
        last = min(first + _BLOCK, len(starts))
        begin = torch.arange(first, last, device=starts.device)[:, None]  # (block, 1)
        widths = torch.arange(self.max_width, device=starts.device)  # (max_width,)
        end = (begin + widths).clamp(max=len(starts) - 1)  # (block, max_width)
        content = (sums[end + 1] - sums[begin]) / (end - begin + 1)[..., None]
        hidden = (
            starts[first:last, None] + ends[end] + content.to(starts.dtype) + self.width(widths)
        )
        here = (spans[:, 0] >= first) & (spans[:, 0] < last)
        start, width, feature = spans[here].unbind(1)
        flat = hidden.reshape(-1, hidden.shape[-1])
        flat = flat.index_add(
            0, (start - first) * self.max_width + width, self.span_features(feature)
        )
        logits = self.output(self.dropout(torch.relu(flat))).reshape(*end.shape, self.n_labels)
        outside = begin + widths >= doc_ends[first:last, None]
        return logits.masked_fill(outside[..., None], -torch.inf)


def _prefix_sums(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, 2, ... rows, float64: they run over the whole batch and are then
    subtracted. (n, d) -> (n + 1, d)."""
    sums = torch.cumsum(values.double(), dim=0)
    return torch.cat([sums.new_zeros(1, sums.shape[1]), sums])


def _document_ends(lengths: Tensor) -> Tensor:
    """Of each token, where its document ends. (n_docs,) -> (n_tokens,)."""
    return torch.repeat_interleave(torch.cumsum(lengths, dim=0), lengths)
