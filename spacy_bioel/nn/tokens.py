"""Token features of mention detectors: vectors, lexicon matches and an LSTM, torch only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class TokenReader(nn.Module):
    """Base class of the mention detectors: adds lexicon matches and an LSTM to token vectors.

    Embeddings of lexicon matches are initialised to zero.

    width (int): Size of the token vectors.
    max_width (int): L, the longest lexicon match in tokens.
    context (int): Size of a bidirectional LSTM over tokens with matches; 0: no LSTM.
    n_features (int): Number of kinds of lexicon matches.
    dropout (float): Dropout on token vectors.
    """

    def __init__(
        self, *, width: int, max_width: int, context: int, n_features: int, dropout: float
    ) -> None:
        super().__init__()
        self.max_width = max_width
        self.n_features = n_features
        self.word_features = nn.Embedding(n_features, width)
        # One embedding each for the first, the last and the inner tokens of a match.
        self.token_features = nn.Embedding(3 * n_features, width)
        for features in (self.word_features, self.token_features):
            nn.init.zeros_(features.weight)
        self.context = (
            nn.LSTM(width, context, bidirectional=True, batch_first=True) if context else None
        )
        self.token_width = width + 2 * context
        self.dropout = nn.Dropout(dropout)

    def read(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Add the embeddings of lexicon matches to the tokens, then run the LSTM, if any.

        tokens (Tensor): Token vectors of all documents, concatenated; at least one token.
            Shape (n_tokens, width).
        lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
        spans (Tensor): Lexicon matches as (start token, width - 1, feature). Shape (n, 3).
        words (Tensor): Lexicon matches of single tokens as (token, feature). Shape (m, 2).
        RETURNS (Tensor): Shape (n_tokens, width + 2 * context).
        """
        tokens = tokens.index_add(0, words[:, 0], self.word_features(words[:, 1]))
        start, width, feature = spans.unbind(1)
        tokens.index_add_(0, start, self.token_features(feature))
        tokens.index_add_(0, start + width, self.token_features(feature + self.n_features))
        inside = self.token_features(feature + 2 * self.n_features)
        for offset in range(1, self.max_width - 1):
            within = offset < width
            tokens.index_add_(0, (start + offset)[within], inside[within])
        tokens = self.dropout(tokens)
        if self.context is None:
            return tokens
        return torch.cat([tokens, self.dropout(run_lstm(self.context, tokens, lengths))], dim=1)


def run_lstm(lstm: nn.LSTM, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Run a bidirectional LSTM over each document.

    tokens (Tensor): Vectors of all tokens, concatenated; at least one. Shape (n_tokens, width).
    lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
    RETURNS (Tensor): Shape (n_tokens, 2 * hidden).
    """
    real = lengths[lengths > 0]
    padded = pad_sequence(list(tokens.split(real.tolist())), batch_first=True)
    packed = pack_padded_sequence(padded, real.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
    return states[torch.arange(states.shape[1], device=real.device) < real[:, None]]


def mean_of_spans(tokens: Tensor, spans: Tensor) -> Tensor:
    """Mean vector of the tokens of each span.

    Summed span by span: differences of prefix sums would depend on the batch.

    tokens (Tensor): Shape (n_tokens, width).
    spans (Tensor): Start and end token (exclusive) of each span. Shape (n_spans, 2).
    RETURNS (Tensor): Shape (n_spans, width).
    """
    start, end = spans.unbind(1)
    length = end - start
    within = torch.arange(int(length.sum()), device=tokens.device)
    within = within - torch.repeat_interleave(torch.cumsum(length, 0) - length, length)
    inside = torch.repeat_interleave(start, length) + within
    owner = torch.repeat_interleave(torch.arange(len(spans), device=tokens.device), length)
    total = tokens.new_zeros(len(spans), tokens.shape[1])
    return total.index_add(0, owner, tokens.index_select(0, inside)) / length[:, None]
