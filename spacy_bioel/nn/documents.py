"""Token features of mention detectors: vectors, lexicon matches and an LSTM, torch only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
