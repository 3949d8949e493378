"""PyTorch networks and losses for the light linker and the detectors.

`models.inference` runs these networks in NumPy.

`ResCNN` is a small convolutional encoder for names and mention strings: Lai, Ji and Zhai (2021),
BERT might be Overkill: A Tiny but Effective Biomedical Entity Linker based on Residual
Convolutional Neural Networks, https://aclanthology.org/2021.findings-emnlp.140. Unlike the
published network, it does not pad batches, so vectors do not depend on padding. The tokens of all
names are concatenated, a convolution is a matrix product whose columns are shifted and summed, and
masks prevent shifts from one name into another.

`SpanScorer` and `TagScorer` score spans and tags from token vectors and gazetteer matches. Name
encoder losses are scalars, and 0 if there is nothing to learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.models.inference import START_BIAS, STARTS_PER_BLOCK


class FrozenEmbeddings(nn.Module):
    """Frozen BERT embedding layer: word + position + token type embeddings, then LayerNorm.

    words (Tensor): Embeddings; integers are multiples of `scale`. Shape (vocabulary, width).
    scale (Tensor | None): Factor of each row of `words`. Shape (vocabulary, 1).
    positions (Tensor): Position embeddings, from position 0; all zero if positions are not used.
        Shape (max_length, width).
    token_type (Tensor): Token type embedding, added to every token. Shape (width,).
    norm_weight, norm_bias (Tensor): Parameters of the LayerNorm. Shape (width,).
    """

    words: Tensor
    scale: Tensor | None
    positions: Tensor
    token_type: Tensor
    norm_weight: Tensor
    norm_bias: Tensor

    def __init__(self, *, scale: Tensor | None = None, **tables: Tensor) -> None:
        super().__init__()
        # Register the tables as buffers, so that no optimizer updates them. The buffers are not
        # persistent, because the tables are saved in their own file.
        for name, table in (tables | {"scale": scale}).items():
            self.register_buffer(name, table, persistent=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens. ids, positions: shape (n_tokens,). RETURNS: shape (n_tokens, width)."""
        words = self.words[ids] if self.scale is None else self.words[ids] * self.scale[ids]
        summed = words + self.positions[positions] + self.token_type
        width = self.words.shape[1:]
        return self.dropout(
            F.layer_norm(summed, width, self.norm_weight, self.norm_bias, eps=1e-12)
        )


class EncodingBlock(nn.Module):
    """Parallel convolutions of several widths, a feed-forward network, and a skip connection."""

    def __init__(self, dim: int, filters: int, widths: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(dim, filters, width, padding=width // 2) for width in widths
        )
        concatenated = filters * len(widths)
        hidden = (concatenated + dim) // 2
        self.feed_forward = nn.Sequential(
            nn.Linear(concatenated, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, dim)
        )

    def forward(self, x: Tensor, neighbours: list[Tensor]) -> Tensor:
        """Apply the block. Shape (n_tokens, dim).

        x (Tensor): Shape (n_tokens, dim).
        neighbours (list[Tensor]): For each offset, from the lowest to the highest: whether the
            token at that offset is in the same name. Shape (n_tokens, 1) each.
        """
        # One matrix product computes all taps of all filters. Shifting its columns afterwards
        # copies far less than gathering every token's neighbours first.
        convolutions = cast(list[nn.Conv1d], list(self.convolutions))
        taps = torch.cat([c.weight.permute(2, 0, 1).flatten(0, 1) for c in convolutions])
        reach = len(neighbours) // 2
        products = F.pad(F.linear(x, taps), (0, 0, reach, reach))
        features, column = [], 0
        for convolution in convolutions:
            bias, width = cast(Tensor, convolution.bias), convolution.kernel_size[0]
            summed = bias.to(products.dtype)
            for shift in range(reach - width // 2, reach + width // 2 + 1):
                tap = products[shift : shift + len(x), column : column + convolution.out_channels]
                if shift == reach:
                    summed = summed + tap
                else:
                    summed = torch.addcmul(summed, tap, neighbours[shift])
                column += convolution.out_channels
            features.append(torch.relu(summed))
        return x + self.feed_forward(torch.cat(features, dim=1))  # (n_tokens, dim)


class ResCNN(nn.Module):
    """Encodes the token ids of names as one vector per name.

    embeddings (FrozenEmbeddings): The token embeddings.
    dim (int): Size of the vectors and of the residual stream.
    blocks (int): Number of encoding blocks.
    filters (int): Number of convolution filters of each width.
    widths (Sequence[int]): Odd filter widths.
    pooling (str): "max", or "attention": self-attention pooling.
    dropout (float): Dropout on hidden layers.
    """

    def __init__(
        self,
        embeddings: FrozenEmbeddings,
        *,
        dim: int = 256,
        blocks: int = 4,
        filters: int = 100,
        widths: Sequence[int] = (1, 3, 5),
        pooling: str = "max",
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.widths = widths
        self.project = nn.Linear(embeddings.words.shape[1], dim)  # a convolution of width 1
        self.blocks = nn.ModuleList(
            EncodingBlock(dim, filters, widths, dropout) for _ in range(blocks)
        )
        self.attention: nn.Module | None = None
        if pooling == "attention":
            self.attention = nn.Sequential(
                nn.Linear(dim, dim // 2), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim // 2, 1)
            )

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode names.

        ids (Tensor): Token ids of all names, concatenated. Shape (n_tokens,).
        lengths (Tensor): Number of tokens of each name; at least 1. Shape (n_names,).
        RETURNS (Tensor): Vectors, not normalised. Shape (n_names, dim).
        """
        name = torch.repeat_interleave(lengths)
        starts = torch.cumsum(lengths, dim=0) - lengths
        positions = torch.arange(len(name), device=lengths.device) - starts[name]
        x = self.project(self.embeddings(ids, positions))
        reach = max(self.widths) // 2
        shifted = [positions + offset for offset in range(-reach, reach + 1)]
        masks = [((at >= 0) & (at < lengths[name]))[:, None].to(x.dtype) for at in shifted]
        for block in self.blocks:
            x = block(x, masks)
        if self.attention is None:
            return torch.segment_reduce(x, "max", lengths=lengths)
        scores = self.attention(x)  # (n_tokens, 1)
        highest = torch.segment_reduce(scores.detach(), "max", lengths=lengths)[name]
        weights = torch.exp(scores - highest)
        summed = x.new_zeros(len(lengths), x.shape[1]).index_add(0, name, weights * x)
        return summed / weights.new_zeros(len(lengths), 1).index_add(0, name, weights)


class TokenReader(nn.Module):
    """Base class for detector networks that adds gazetteer matches to token vectors.

    width (int): Size of the token vectors.
    max_width (int): Maximum length of gazetteer matches and of spans, in tokens.
    n_features (int): Number of kinds of gazetteer matches.
    dropout (float): Dropout on token vectors.
    """

    def __init__(self, *, width: int, max_width: int, n_features: int, dropout: float) -> None:
        super().__init__()
        self.max_width = max_width
        self.n_features = n_features
        self.word_features = nn.Embedding(n_features, width)
        # Each feature has one embedding for the first token of a match, one for the last token, and
        # one for the tokens in between.
        self.token_features = nn.Embedding(3 * n_features, width)
        for features in (self.word_features, self.token_features):
            nn.init.zeros_(features.weight)
        self.dropout = nn.Dropout(dropout)

    def read(self, tokens: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Add the embeddings of gazetteer matches to the token vectors.

        tokens (Tensor): Vectors of all tokens. Shape (n_tokens, width).
        spans (Tensor): Gazetteer matches as (start token, width - 1, feature). Shape (n, 3).
        words (Tensor): Gazetteer matches of single tokens as (token, feature). Shape (m, 2).
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
    """Linear layer that computes one logit per token and BIO tag for a batch of documents.

    n_labels (int): Number of labels, each with the tags B and I. A token has only one tag.
    """

    def __init__(self, *, n_labels: int, width: int, **settings: Any) -> None:
        super().__init__(width=width, **settings)
        self.output = nn.Linear(width, 2 * n_labels + 1)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all tags.

        tokens, spans, words (Tensor): See `TokenReader.read`; `tokens` may be empty.
        lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
        RETURNS (Tensor): Logits. Shape (n_tokens, n_tags).
        """
        return self.output(self.read(tokens, spans, words))


class SpanScorer(TokenReader):
    """Network that computes one logit per span and label for a batch of documents.

    n_labels (int): Number of labels; each is an independent binary decision.
    hidden (int): Size of the hidden layer, with the same dropout as the token vectors. 0: score
        each label by equation 4 of Bhowmik et al. (2021): w_s.h_i + w_e.h_j + sum of w_m.h_q over
        the tokens q = i..j, plus a bias. Gazetteer matches then only change the token vectors h.
    """

    def __init__(self, *, n_labels: int, width: int, hidden: int, **settings: Any) -> None:
        super().__init__(width=width, **settings)
        self.n_labels, self.hidden, size = n_labels, hidden, hidden or n_labels
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
        nn.init.constant_(last.bias, START_BIAS)

    def forward(self, tokens: Tensor, lengths: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Score all spans.

        tokens, spans, words (Tensor): See `TokenReader.read`; `tokens` may be empty.
        lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
        RETURNS (Tensor): Logits; [i, w] is for the span of w + 1 tokens that starts at token i,
            -inf if the span ends outside its document. Shape (n_tokens, max_width, n_labels).
        """
        if not len(tokens):
            return tokens.new_zeros(0, self.max_width, self.n_labels)
        tokens = self.read(tokens, spans, words)
        widths = torch.arange(self.max_width, device=tokens.device)
        begin = torch.arange(len(tokens), device=tokens.device)[:, None]
        if self.hidden:
            logits = self._hidden_logits(tokens, spans)
        else:
            end = (begin + widths).clamp(max=len(tokens) - 1)  # (n_tokens, max_width).
            # Sums over the first 0, 1, ... tokens, in float64 because they are subtracted.
            sums = F.pad(torch.cumsum(self.content(tokens).double(), dim=0), (0, 0, 1, 0))
            content = (sums[end + 1] - sums[begin]).to(tokens.dtype)
            logits = self.start(tokens)[:, None] + self.end(tokens)[end] + content
        n_left = torch.repeat_interleave(torch.cumsum(lengths, dim=0), lengths)[:, None] - begin
        return logits.masked_fill((widths >= n_left)[..., None], -torch.inf)

    def _hidden_logits(self, tokens: Tensor, spans: Tensor) -> Tensor:
        """Score spans with the hidden layer in blocks, after one matrix product for all tokens.

        For each width, one more token is added to a running sum of the content. Slices of this
        sum stay in the CPU cache, and no vectors need to be gathered.
        """
        weight = torch.cat([layer.weight for layer in (self.start, self.end, self.content)])
        tokens = F.pad(tokens, (0, 0, 0, self.max_width - 1))  # padding after the last token
        starts, ends, content = F.linear(tokens, weight).chunk(3, dim=1)
        starts = (starts + self.start.bias)[: 1 - self.max_width or None]
        blocks = []
        for low in range(0, len(starts), STARTS_PER_BLOCK):
            block_starts = starts[low : low + STARTS_PER_BLOCK]
            n = len(block_starts)
            reached = slice(low, low + n + self.max_width - 1)
            block_ends, block_content = ends[reached], content[reached]
            inside = spans[(spans[:, 0] >= low) & (spans[:, 0] < low + n)]
            total = torch.zeros_like(block_starts)
            logits = []
            for width in range(self.max_width):
                last_tokens = slice(width, width + n)
                total = total + block_content[last_tokens]
                hidden = block_starts + block_ends[last_tokens]
                hidden.add_(total, alpha=1 / (width + 1)).add_(self.width.weight[width])
                start, _, feature = inside[inside[:, 1] == width].unbind(1)
                hidden.index_add_(0, start - low, self.span_features(feature))
                logits.append(self.output(self.dropout(hidden.relu_())))
            blocks.append(torch.stack(logits, dim=1))
        return torch.cat(blocks)


def multi_similarity_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Compute the Multi-Similarity loss over the pairs that the Multi-Similarity miner selects.

    The loss raises the cosine between vectors with the same label and lowers all other cosines;
    each pair is weighted by its difficulty. The loss is averaged over all vectors; a vector without
    pairs counts as 0. Wang et al. (2019), https://arxiv.org/abs/1904.06627; settings from Lai, Ji
    and Zhai (2021).

    vectors (Tensor): Vectors of mentions and names. Shape (n, dim).
    labels (Tensor): Concept of each vector. Shape (n,).
    """
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    pairs = MultiSimilarityMiner(epsilon=0.2)(vectors, labels)
    return MultiSimilarityLoss(alpha=2.0, beta=50.0, base=0.5)(vectors, labels, pairs)


def info_nce_loss(vectors: Tensor, labels: Tensor, *, temperature: float | Tensor = 0.05) -> Tensor:
    """Compute the InfoNCE loss, which compares each positive with all vectors with other labels.

    Positives of the same vector do not compete with each other. The loss is averaged over all
    positive pairs. Khosla et al. (2020), https://arxiv.org/abs/2004.11362.

    vectors, labels (Tensor): See `multi_similarity_loss`.
    temperature (float | Tensor): Divisor of the cosines.
    """
    unit = F.normalize(vectors, dim=1)
    logits = unit @ unit.T / temperature
    same = labels[:, None] == labels[None, :]
    negatives = torch.logsumexp(logits.masked_fill(same, -torch.inf), dim=1)
    # Modify a copy of `same`, because the backward pass needs the original.
    pairs = same.clone().fill_diagonal_(False).nonzero(as_tuple=True)
    losses = F.softplus(negatives[pairs[0]] - logits[pairs])
    return losses.sum() / max(1, len(losses))


def marginal_loss(vectors: Tensor, labels: Tensor, *, temperature: float = 0.05) -> Tensor:
    """Compute the negative log of the positives' total probability among all other vectors.

    One close synonym is enough, whereas `info_nce_loss` requires all synonyms to be close. The loss
    is averaged over the vectors with a positive. The candidates are the names in the batch. Sung et
    al. (2020), Biomedical Entity Representations with Synonym Marginalization,
    https://aclanthology.org/2020.acl-main.335.

    vectors, labels (Tensor): See `multi_similarity_loss`.
    """
    unit = F.normalize(vectors, dim=1)
    is_itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    is_positive = (labels[:, None] == labels[None, :]) & ~is_itself
    logits = (unit @ unit.T / temperature).masked_fill(is_itself, -torch.inf)
    return negative_log_likelihood(logits, is_positive)


def negative_log_likelihood(logits: Tensor, is_positive: Tensor) -> Tensor:
    """Compute the negative log of the positives' total probability in each row, averaged over the
    rows with a positive."""
    has_positive = is_positive.any(dim=1)
    logits, is_positive = logits[has_positive], is_positive[has_positive]
    positive = torch.logsumexp(logits.masked_fill(~is_positive, -torch.inf), dim=1)
    return (torch.logsumexp(logits, dim=1) - positive).sum() / max(1, len(logits))
