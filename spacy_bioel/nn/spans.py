"""Scorers of spans and of tags, torch only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from spacy_bioel.nn.documents import TokenReader


class TagScorer(TokenReader):
    """Token vectors of a batch of documents -> one logit per token and tag, by one linear layer.

    n_tags (int): Number of mutually exclusive tags.
    settings: See `TokenReader`.
    """

    def __init__(self, *, n_tags: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.n_tags = n_tags
        self.output = nn.Linear(self.token_width, n_tags)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all tags.

        tokens, lengths, spans, words (Tensor): See `TokenReader.read`; `tokens` may be empty.
        RETURNS (Tensor): Logits. Shape (n_tokens, n_tags).
        """
        if not len(tokens):
            return tokens.new_zeros(0, self.n_tags)
        return self.output(self.read(tokens, lengths, spans, words))


# Start tokens whose spans are scored together: the sums stay in the processor's cache.
_BLOCK = 512
# Initial bias: nearly all spans are not mentions.
_START_BIAS = -4.0


class LinearSpanScorer(TokenReader):
    """Token vectors of a batch of documents -> one logit per span and label, without hidden layer.

    Equation 4 as published, for each label: w_s.h_i + w_e.h_j + sum of w_m.h_q over the tokens
    q = i..j, plus a bias. Lexicon matches enter through the token vectors h only.

    n_labels (int): Number of labels; each is an independent binary decision.
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
        """Score all spans; same arguments and logits as `SpanScorer.forward`."""
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
    """Token vectors of a batch of documents -> one logit per span and label.

    n_labels (int): Number of labels; each is an independent binary decision.
    hidden (int): Size of the hidden layer; its dropout is that of the token vectors.
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
        lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
        spans (Tensor): Lexicon matches as (start token, width - 1, feature). Shape (n, 3).
        words (Tensor): Lexicon matches of single tokens as (token, feature). Shape (m, 2).
        RETURNS (Tensor): Logits; [i, w] is the span of w + 1 tokens that starts at token i, and
            -inf if it ends outside its document. Shape (n_tokens, max_width, n_labels).
        """
        if not len(tokens):
            return tokens.new_zeros(0, self.max_width, self.n_labels)
        tokens = self.read(tokens, lengths, spans, words)
        # One matrix product; padding rows for spans that end after the last token.
        layers = (self.start, self.end, self.content)
        weight = torch.cat([layer.weight for layer in layers])
        tokens = functional.pad(tokens, (0, 0, 0, self.max_width - 1))
        starts, ends, content = functional.linear(tokens, weight).chunk(3, dim=1)
        starts = (starts + self.start.bias)[: 1 - self.max_width or None]
        blocks = [
            self._score_block(first, starts[first : first + _BLOCK], ends, content, spans)
            for first in range(0, len(starts), _BLOCK)
        ]
        begin = torch.arange(len(starts), device=tokens.device)[:, None]
        widths = torch.arange(self.max_width, device=tokens.device)
        outside = begin + widths >= _document_ends(lengths)[:, None]
        return torch.cat(blocks).masked_fill(outside[..., None], -torch.inf)

    def _score_block(
        self, first: int, starts: Tensor, ends: Tensor, content: Tensor, spans: Tensor
    ) -> Tensor:
        """Logits of the spans that start in one block, width by width.

        A running sum of the content grows by one token with the width. It is updated in place by
        slices that are in the processor's cache, without any gather.
        """
        n = len(starts)
        ends, content = (x[first : first + n + self.max_width - 1] for x in (ends, content))
        spans = spans[(spans[:, 0] >= first) & (spans[:, 0] < first + n)]
        total = torch.zeros_like(starts)
        logits = []
        for width in range(self.max_width):
            last = slice(width, width + n)
            total = total + content[last]
            hidden = starts + ends[last]
            hidden.add_(total, alpha=1 / (width + 1)).add_(self.width.weight[width])
            start, _, feature = spans[spans[:, 1] == width].unbind(1)
            hidden.index_add_(0, start - first, self.span_features(feature))
            logits.append(self.output(self.dropout(hidden.relu_())))
        return torch.stack(logits, dim=1)


def _prefix_sums(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, 2, ... rows; float64, because differences of them are taken.

    values (Tensor): Shape (n, d).
    RETURNS (Tensor): Shape (n + 1, d).
    """
    sums = torch.cumsum(values.double(), dim=0)
    return torch.cat([sums.new_zeros(1, sums.shape[1]), sums])


def _document_ends(lengths: Tensor) -> Tensor:
    """End of the document of each token. (n_docs,) -> (n_tokens,)."""
    return torch.repeat_interleave(torch.cumsum(lengths, dim=0), lengths)
