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
from torch.nn import functional

from spacy_bioel.nn.tokens import TokenReader

# Start tokens whose spans are scored together: what is added up stays in the processor's cache.
_BLOCK = 512
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
        # In one product; rows after the last token, for spans that would end there.
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
        """Logits of the spans that start in one block, one width after the other.

        Slices of tokens are added in place, while they are in the processor's cache, to a sum
        that grows by one token with the width; nothing is gathered.
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
    """Sums of the first 0, 1, 2, ... rows, float64: they run over the whole batch and are then
    subtracted. (n, d) -> (n + 1, d)."""
    sums = torch.cumsum(values.double(), dim=0)
    return torch.cat([sums.new_zeros(1, sums.shape[1]), sums])


def _document_ends(lengths: Tensor) -> Tensor:
    """Of each token, where its document ends. (n_docs,) -> (n_tokens,)."""
    return torch.repeat_interleave(torch.cumsum(lengths, dim=0), lengths)
