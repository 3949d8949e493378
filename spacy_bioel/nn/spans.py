"""Scoring every span of a text: exhaustive enumeration up to L tokens, torch only.

The scorer extends equation 4 of Bhowmik, Stratos and de Melo (2021), Fast and effective
biomedical entity linking using a dual encoder, https://aclanthology.org/2021.louhi-1.4: start,
end and (by prefix sums) content of a span, with its width and knowledge-base matches, meet in one
hidden layer instead of being summed as single numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

# Spans are scored for at most this many start tokens at once: bounds memory on long documents.
_BLOCK = 4096


class SpanScorer(nn.Module):
    """Token vectors of a batch of documents -> one logit a span and label.

    width (int): Size of the token vectors.
    n_labels (int): Labels; each is an independent yes/no.
    max_width (int): L, the longest span in tokens.
    hidden (int): Size of the hidden layer of the span scorer.
    context (int): Size of a bidirectional LSTM that reads tokens and matches before; 0: none.
    n_features (int): Number of kinds of lexicon matches.
    dropout (float): On token vectors and on the hidden layer.
    """

    def __init__(
        self,
        *,
        width: int,
        n_labels: int,
        max_width: int,
        hidden: int,
        context: int,
        n_features: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.max_width = max_width
        self.n_labels = n_labels
        self.word_features = nn.Embedding(n_features, width)
        # For the first, the last and the other tokens of a match.
        self.token_features = nn.Embedding(3 * n_features, width)
        self.span_features = nn.Embedding(n_features, hidden)
        for features in (self.word_features, self.token_features, self.span_features):
            nn.init.zeros_(features.weight)
        self.context = (
            nn.LSTM(width, context, bidirectional=True, batch_first=True) if context else None
        )
        token_width = width + 2 * context
        self.start = nn.Linear(token_width, hidden)
        self.end = nn.Linear(token_width, hidden, bias=False)
        self.content = nn.Linear(token_width, hidden, bias=False)
        self.width = nn.Embedding(max_width, hidden)
        self.output = nn.Linear(hidden, n_labels)
        # Nearly all spans are not mentions: start there.
        nn.init.constant_(self.output.bias, -4.0)
        self.dropout = nn.Dropout(dropout)

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
        tokens = self._contextualize(tokens, lengths, spans, words)
        starts, ends = self.start(tokens), self.end(tokens)
        # float64, since the sums run over the whole batch and are then subtracted.
        sums = torch.cumsum(self.content(tokens).double(), dim=0)
        sums = torch.cat([sums.new_zeros(1, sums.shape[1]), sums])
        doc_ends = torch.repeat_interleave(torch.cumsum(lengths, dim=0), lengths)
        blocks = [
            self._score_block(first, starts, ends, sums, doc_ends, spans)
            for first in range(0, len(tokens), _BLOCK)
        ]
        return torch.cat(blocks)

    def _contextualize(
        self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor
    ) -> Tensor:
        """Add what the lexicon says of each token, then let an LSTM read each document."""
        tokens = tokens.index_add(0, words[:, 0], self.word_features(words[:, 1]))
        start, width, feature = spans.unbind(1)
        n_features = self.span_features.num_embeddings
        tokens = tokens.index_add(0, start, self.token_features(feature))
        tokens = tokens.index_add(0, start + width, self.token_features(feature + n_features))
        inside = self.token_features(feature + 2 * n_features)
        for offset in range(1, self.max_width - 1):
            within = offset < width
            tokens = tokens.index_add(0, (start + offset)[within], inside[within])
        tokens = self.dropout(tokens)
        if self.context is None:
            return tokens
        real = lengths[lengths > 0]
        padded = pad_sequence(list(tokens.split(real.tolist())), batch_first=True)
        packed = pack_padded_sequence(padded, real.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.context(packed)[0], batch_first=True)
        present = torch.arange(states.shape[1], device=real.device) < real[:, None]
        return torch.cat([tokens, self.dropout(states[present])], dim=1)

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
