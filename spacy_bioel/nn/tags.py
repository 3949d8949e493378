"""Tag scorer: one logit per token and tag, torch only."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from spacy_bioel.nn.tokens import TokenReader


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
