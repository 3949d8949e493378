"""Scorers of spans and of tags over token vectors and lexicon matches, torch only."""

from __future__ import annotations

from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

# Start tokens whose spans are scored together: the sums stay in the processor's cache.
_BLOCK = 512
# Initial bias: nearly all spans are not mentions.
_START_BIAS = -4.0


class ReaderSettings(TypedDict):
    """Arguments of `TokenReader`."""

    width: int
    max_width: int
    n_features: int
    dropout: float


class TokenReader(nn.Module):
    """Base class of the mention detectors: adds lexicon matches to token vectors.

    Embeddings of lexicon matches are initialised to zero.

    width (int): Size of the token vectors.
    max_width (int): L, the longest lexicon match, and the longest span, in tokens.
    n_features (int): Number of kinds of lexicon matches.
    dropout (float): Dropout on token vectors.
    """

    def __init__(self, *, width: int, max_width: int, n_features: int, dropout: float) -> None:
        super().__init__()
        self.max_width = max_width
        self.n_features = n_features
        self.word_features = nn.Embedding(n_features, width)
        # One embedding each for the first, the last and the inner tokens of a match.
        self.token_features = nn.Embedding(3 * n_features, width)
        for features in (self.word_features, self.token_features):
            nn.init.zeros_(features.weight)
        self.dropout = nn.Dropout(dropout)

    def read(self, tokens: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Add the embeddings of lexicon matches to the tokens.

        tokens (Tensor): Vectors of the tokens of all documents; at least one. (n_tokens, width).
        spans (Tensor): Lexicon matches as (start token, width - 1, feature). Shape (n, 3).
        words (Tensor): Lexicon matches of single tokens as (token, feature). Shape (m, 2).
        RETURNS (Tensor): Shape (n_tokens, width).
        """
        tokens = tokens.index_add(0, words[:, 0], self.word_features(words[:, 1]))
        start, width, feature = spans.unbind(1)
        tokens.index_add_(0, start, self.token_features(feature))
        tokens.index_add_(0, start + width, self.token_features(feature + self.n_features))
        inside = self.token_features(feature + 2 * self.n_features)
        for offset in range(1, self.max_width - 1):
            within = offset < width
            tokens.index_add_(0, (start + offset)[within], inside[within])
        return self.dropout(tokens)


class TagScorer(TokenReader):
    """Token vectors of a batch of documents -> one logit per token and BIO tag, by a linear layer.

    n_labels (int): Number of labels; each has two tags beside O, which exclude one another.
    """

    def __init__(self, *, n_labels: int, **settings: Unpack[ReaderSettings]) -> None:
        super().__init__(**settings)
        self.output = nn.Linear(settings["width"], 2 * n_labels + 1)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all tags.

        tokens, spans, words (Tensor): See `TokenReader.read`; `tokens` may be empty.
        lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
        RETURNS (Tensor): Logits. Shape (n_tokens, n_tags).
        """
        if not len(tokens):
            return tokens.new_zeros(0, self.output.out_features)
        return self.output(self.read(tokens, spans, words))


class SpanScorer(TokenReader):
    """Token vectors of a batch of documents -> one logit per span and label.

    n_labels (int): Number of labels; each is an independent binary decision.
    hidden (int): Size of the hidden layer; its dropout is that of the token vectors. 0: equation 4
        of Bhowmik et al. (2021) as published, for each label: w_s.h_i + w_e.h_j + sum of w_m.h_q
        over the tokens q = i..j, plus a bias; lexicon matches enter through the token vectors h.
    """

    def __init__(self, *, n_labels: int, hidden: int, **settings: Unpack[ReaderSettings]) -> None:
        super().__init__(**settings)
        self.n_labels, self.hidden = n_labels, hidden
        width, size = settings["width"], hidden or n_labels
        if hidden:
            self.span_features = nn.Embedding(self.n_features, hidden)
            nn.init.zeros_(self.span_features.weight)
        self.start = nn.Linear(width, size)
        self.end = nn.Linear(width, size, bias=False)
        self.content = nn.Linear(width, size, bias=False)
        last = self.start
        if hidden:
            self.width = nn.Embedding(self.max_width, hidden)
            last = self.output = nn.Linear(hidden, n_labels)
        nn.init.constant_(last.bias, _START_BIAS)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all spans.

        tokens, spans, words (Tensor): See `TokenReader.read`; `tokens` may be empty.
        lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
        RETURNS (Tensor): Logits; [i, w] is the span of w + 1 tokens that starts at token i, and
            -inf if it ends outside its document. Shape (n_tokens, max_width, n_labels).
        """
        if not len(tokens):
            return tokens.new_zeros(0, self.max_width, self.n_labels)
        tokens = self.read(tokens, spans, words)
        widths = torch.arange(self.max_width, device=tokens.device)
        begin = torch.arange(len(tokens), device=tokens.device)[:, None]
        if self.hidden:
            logits = self._score(tokens, spans)
        else:
            end = (begin + widths).clamp(max=len(tokens) - 1)  # (n_tokens, max_width)
            # Sums of the first 0, 1, ... tokens; float64, because differences of them are taken.
            sums = functional.pad(torch.cumsum(self.content(tokens).double(), dim=0), (0, 0, 1, 0))
            content = (sums[end + 1] - sums[begin]).to(tokens.dtype)
            logits = self.start(tokens)[:, None] + self.end(tokens)[end] + content
        left = torch.repeat_interleave(torch.cumsum(lengths, dim=0), lengths)[:, None] - begin
        return logits.masked_fill((widths >= left)[..., None], -torch.inf)

    def _score(self, tokens: Tensor, spans: Tensor) -> Tensor:
        # One matrix product; padding rows for spans that end after the last token.
        weight = torch.cat([layer.weight for layer in (self.start, self.end, self.content)])
        tokens = functional.pad(tokens, (0, 0, 0, self.max_width - 1))
        starts, ends, content = functional.linear(tokens, weight).chunk(3, dim=1)
        starts = (starts + self.start.bias)[: 1 - self.max_width or None]
        blocks = [
            self._score_block(first, starts[first : first + _BLOCK], ends, content, spans)
            for first in range(0, len(starts), _BLOCK)
        ]
        return torch.cat(blocks)

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
