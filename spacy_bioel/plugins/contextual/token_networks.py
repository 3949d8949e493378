"""PyTorch networks over token vectors, and their losses.

`MentionTower` encodes all mentions in a batch of documents in one pass: Bhowmik, Stratos and de
Melo (2021), Fast and effective biomedical entity linking using a dual encoder,
https://aclanthology.org/2021.louhi-1.4. Unlike in the paper, vectors are compared by cosine, and
the mention vector can be added to the name encoder's vector for the mention's string.

`Multitask` computes tags, types, classes and mention vectors from token vectors: Zhu et al., Simple
hierarchical multi-task neural end-to-end entity linking for biomedical text, section 2.2. The paper
does not give widths, depth or dropout. Unlike in the paper, each level's output is normalised,
the linking loss can include random and hard classes, and mentions have vectors that are compared
with name vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from spacy_bioel.models.networks import TokenReader, negative_log_likelihood


class MentionTower(nn.Module):
    """Linear layer over a mention's token vectors: the first and last, or the mean of all.

    width (int): Size of the token vectors.
    dim (int): Size of the name vectors.
    pooling (str): "ends": the first and last token, concatenated; "mean": the mean of all tokens.
    from_words (bool): Add the output to the vector of the mention's string. The layer is
        initialised to zero, so that an untrained tower is equivalent to the dense search.
    """

    def __init__(self, *, width: int, dim: int, pooling: str, from_words: bool) -> None:
        super().__init__()
        self.pooling = pooling
        self.from_words = from_words
        self.project = nn.Linear(2 * width if pooling == "ends" else width, dim)
        if from_words:
            nn.init.zeros_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, tokens: Tensor, spans: Tensor, strings: Tensor) -> Tensor:
        """Encode mentions.

        tokens, spans (Tensor): See `mean_of_spans`.
        strings (Tensor): Vectors of the mentions' strings. Shape (n_mentions, dim).
        RETURNS (Tensor): Unit vectors. Shape (n_mentions, dim).
        """
        if self.pooling == "ends":
            start, end = spans.unbind(1)
            ends = [tokens.index_select(0, start), tokens.index_select(0, end - 1)]
            vectors = self.project(torch.cat(ends, dim=1))
        else:
            vectors = self.project(mean_of_spans(tokens, spans))
        if self.from_words:
            vectors = F.normalize(strings, dim=1) + vectors
        return F.normalize(vectors, dim=1)


def collective_loss(
    mentions: Tensor, names: Tensor, right: Tensor, *, temperature: float
) -> Tensor:
    """Return the loss: -log(total probability of a mention's correct candidates).

    Probabilities are computed over all candidates in the batch, random and mined. The loss is
    averaged over the mentions that have a correct candidate. Bhowmik, Stratos and de Melo (2021),
    https://aclanthology.org/2021.louhi-1.4, with cosines.

    mentions (Tensor): Unit vectors of the mentions. Shape (n_mentions, dim).
    names (Tensor): Vectors of the candidates. Shape (n_candidates, dim).
    right (Tensor): Whether a candidate is correct; bool. Shape (n_mentions, n_candidates).
    """
    return negative_log_likelihood(mentions @ F.normalize(names, dim=1).T / temperature, right)


# Task names, from the network's lowest level to its highest.
MENTION_TASK, TYPE_TASK, LINK_TASK = "mentions", "types", "links"
N_TAGS, OUTSIDE = 5, 0  # number of BILOU tags, and index of the tag O, as in `mentions.model`.
# Class and type of a token outside mentions, and class of a mention without a concept.
NIL_CLASS = 0
UNKNOWN_CLASS = -100  # class or type that the losses ignore
_OUTSIDE_BIAS = 3.0
_LOGITS_PER_CHUNK = 1 << 22  # limits memory use in the search for hard classes


def run_lstm(lstm: nn.LSTM, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Run a bidirectional LSTM over each sentence, and return its states: (n_tokens, width).

    lengths (Tensor): Number of tokens of each sentence. Shape (n_sentences,).
    """
    lengths = lengths[lengths > 0]
    padded = pad_sequence(list(tokens.split(lengths.tolist())), batch_first=True)
    packed = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
    return states[torch.arange(states.shape[1], device=lengths.device) < lengths[:, None]]


class Multitask(TokenReader):
    """Network with one level for each task, from mention recognition to linking.

    Each level of the hierarchy is a bidirectional LSTM over the token vectors, concatenated with
    the output of the level below. Without a hierarchy, all tasks use the token vectors.

    tasks (Sequence[str]): "mentions", "types" and "links", or some of them, in this order.
    per_token (bool): Classify each token ("PT"); else the mean of a mention's tokens ("PE").
    hidden (int): Size of each direction of a level's LSTM; 0: no hierarchy.
    layers (int): Number of LSTM layers.
    n_types, n_classes (int): Number of types and classes, including NIL, the first.
    nil_weight (float): Weight of the NIL class and type in the losses.
    hard (int): Number of hard classes for each token or mention: the wrong classes with the highest
        logits.
    dim (int): Size of the name vectors; 0: mentions have no vectors.
    settings: See `TokenReader`.
    """

    def __init__(
        self,
        *,
        tasks: Sequence[str],
        per_token: bool,
        hidden: int,
        layers: int,
        n_types: int,
        n_classes: int,
        nil_weight: float,
        hard: int,
        dim: int,
        width: int,
        **settings: Any,
    ) -> None:
        super().__init__(width=width, **settings)
        self.tasks = tasks
        self.per_token = per_token
        self.nil_weight = nil_weight
        self.hard = hard
        self.levels = nn.ModuleDict()
        size = width
        lstm_dropout = self.dropout.p if layers > 1 else 0.0
        for task in tasks if hidden else ():
            self.levels[task] = nn.LSTM(
                size, hidden, layers, dropout=lstm_dropout, bidirectional=True, batch_first=True
            )
            size = width + 2 * hidden
        self.size = size = 2 * hidden if hidden else width
        self.tags = nn.Linear(size, N_TAGS) if MENTION_TASK in tasks else None
        self.types = nn.Linear(size, n_types) if TYPE_TASK in tasks else None
        self.classes = nn.Embedding(n_classes, size)
        nn.init.normal_(self.classes.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(n_classes))
        # Most tokens are outside mentions. Without this bias, an untrained network would predict
        # thousands of mentions.
        with torch.no_grad():
            if self.tags is not None:
                self.tags.bias[OUTSIDE] = _OUTSIDE_BIAS
            if per_token:
                self.bias[NIL_CLASS] = _OUTSIDE_BIAS
        self.tower = (
            MentionTower(width=size, dim=dim, pooling="mean", from_words=True) if dim else None
        )

    def states(
        self,
        tokens: Tensor,
        lengths: Tensor,
        spans: Tensor,
        words: Tensor,
        *,
        last: str | None = None,
    ) -> dict[str, Tensor]:
        """Return the token vectors at each task's level.

        tokens, spans, words (Tensor): See `TokenReader.read`.
        lengths (Tensor): Number of tokens in each sentence; no LSTM state crosses sentences.
        last (str | None): The highest level that is needed; None: all levels.
        RETURNS (dict): Shape (n_tokens, size) each.
        """
        token_vectors = self.read(tokens, spans, words)
        if not self.levels:
            return dict.fromkeys(self.tasks, token_vectors)
        states: dict[str, Tensor] = {}
        inputs = token_vectors
        for task, lstm in self.levels.items():
            assert isinstance(lstm, nn.LSTM)
            # Normalise states to the token vectors' variance, because a new LSTM has small states
            # and each class occurs in few batches. Without this, per-token models still predicted
            # no mentions after 200 updates (BC5CDR, seed 0).
            normed = F.layer_norm(run_lstm(lstm, inputs, lengths), (self.size,))
            states[task] = self.dropout(normed)
            if task == last:
                break
            inputs = torch.cat([token_vectors, states[task]], dim=1)
        return states

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        spans: Tensor,
        words: Tensor,
        strings: Tensor,
        mentions: Tensor,
        tags: Tensor,
        types: Tensor,
        classes: Tensor,
        others: Tensor,
        task: str | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the mention vectors, and the loss of one task or of all tasks.

        If tasks are trained one at a time, only linking trains the token vectors. Tokens and
        mentions are numbered across all documents.

        tokens, lengths, spans, words (Tensor): See `states`.
        strings (Tensor): Vectors of the mentions' strings. Shape (n_mentions, dim).
        mentions (Tensor): Start and end token (exclusive) of each mention. Shape (n_mentions, 2).
        tags (Tensor): BILOU tag of each token. Shape (n_tokens,).
        types, classes (Tensor): Target of each token if `per_token`, else of each mention, or
            UNKNOWN_CLASS. Shape (n_tokens,) or (n_mentions,).
        others (Tensor): Additional random classes. Shape (m,).
        task (str | None): The one task to train, as in Sanh et al. (2019); None: all tasks.
        RETURNS (tuple): Unit vectors of the mentions, shape (n_mentions, dim), or `strings` if
            these vectors are not trained; and the loss.
        """
        if task in (MENTION_TASK, TYPE_TASK):
            tokens = tokens.detach()
        states = self.states(tokens, lengths, spans, words, last=task)
        trained = [name for name in self.tasks if task in (None, name)]

        def units(name: str) -> Tensor:  # vectors that types and classes are predicted from
            return states[name] if self.per_token else mean_of_spans(states[name], mentions)

        losses = []
        if MENTION_TASK in trained:
            # Divide by the number of mention tokens, because a mean over all tokens would be tiny:
            # it gave spaCy's CNN a mention F1 of 35, not 69, after 150 updates on BC5CDR.
            total = F.cross_entropy(self.tag_logits(states), tags, reduction="sum")
            losses.append(total / (tags != OUTSIDE).sum().clamp(min=1))
        if TYPE_TASK in trained:
            losses.append(self._types_loss(units(TYPE_TASK), types))
        vectors = strings.detach()
        if LINK_TASK in trained:
            losses.append(self._links_loss(units(LINK_TASK), classes, others))
            if self.tower is not None:
                vectors = self.mention_vectors(states, mentions, strings)
        return vectors, torch.stack(losses).sum()

    # Methods that predict from the output of `states`; `spans` are the `mentions` of `forward`.

    def tag_logits(self, states: dict[str, Tensor]) -> Tensor:
        """Return the BILOU tag logits for each token. Shape (n_tokens, 5)."""
        assert self.tags is not None
        return self.tags(states[MENTION_TASK])

    def type_logits(self, states: dict[str, Tensor], spans: Tensor) -> Tensor:
        """Return the type logits for each mention, NIL first. Shape (n_mentions, n_types)."""
        assert self.types is not None
        return self.types(mean_of_spans(states[TYPE_TASK], spans))

    def class_logits(self, states: dict[str, Tensor], spans: Tensor | None = None) -> Tensor:
        """Return class logits, NIL first, for each mention or, if `spans` is None, each token.
        The layer is linear, so a mention's logits are its tokens' mean. Shape (n, n_classes).
        """
        tokens = states[LINK_TASK]
        return self._logits(tokens if spans is None else mean_of_spans(tokens, spans))

    def mention_vectors(self, states: dict[str, Tensor], spans: Tensor, strings: Tensor) -> Tensor:
        """Return unit mention vectors to compare with name vectors. Shape (n_mentions, dim)."""
        assert self.tower is not None
        return self.tower(states[LINK_TASK], spans, strings)

    def _logits(self, units: Tensor) -> Tensor:
        return units @ self.classes.weight.T + self.bias

    def _types_loss(self, units: Tensor, types: Tensor) -> Tensor:
        assert self.types is not None
        known = types != UNKNOWN_CLASS
        losses = F.cross_entropy(self.types(units)[known], types[known], reduction="none")
        return weighted_mean(losses, self._weight(types[known]))

    def _links_loss(self, units: Tensor, classes: Tensor, others: Tensor) -> Tensor:
        known = classes != UNKNOWN_CLASS
        units, target = units[known], classes[known]
        others = torch.cat([others, self._hard_classes(units, target)])
        weight = self._weight(target)
        return restricted_softmax_loss(
            units, self.classes, self.bias, target, weight=weight, others=others
        )

    def _weight(self, target: Tensor) -> Tensor:
        return torch.where(target == NIL_CLASS, self.nil_weight, 1.0)

    @torch.no_grad()
    def _hard_classes(self, units: Tensor, target: Tensor) -> Tensor:
        """Return the classes whose logits are among the highest for at least one vector."""
        if not self.hard:
            return target[:0]
        units = units[target != NIL_CLASS].detach()
        n = max(1, _LOGITS_PER_CHUNK // len(self.bias))
        k = min(self.hard + 1, len(self.bias))  # one extra, in case the correct class is among them
        classes = [self._logits(chunk).topk(k).indices.flatten() for chunk in units.split(n)]
        return torch.cat([target[:0], *classes]).unique()


def mean_of_spans(tokens: Tensor, spans: Tensor) -> Tensor:
    """Return the mean token vector of each span.

    Each span is summed separately, because differences of cumulative sums would depend on the rest
    of the batch.

    tokens (Tensor): Shape (n_tokens, width).
    spans (Tensor): Start and end token (exclusive) of each span. Shape (n_spans, 2).
    RETURNS (Tensor): Shape (n_spans, width).
    """
    start, end = spans.unbind(1)
    length = end - start
    owner = torch.repeat_interleave(length)
    within = torch.arange(len(owner), device=tokens.device)
    inside = within + (start - torch.cumsum(length, 0) + length)[owner]
    total = tokens.new_zeros(len(spans), tokens.shape[1])
    return total.index_add(0, owner, tokens.index_select(0, inside)) / length[:, None]


def restricted_softmax_loss(
    states: Tensor,
    classes: Callable[[Tensor], Tensor],
    bias: Tensor,
    target: Tensor,
    *,
    weight: Tensor,
    others: Tensor,
) -> Tensor:
    """Return the cross-entropy, restricted to the classes in the batch and additional classes.

    Only the logits of these classes are computed, so time and memory do not grow with the total
    number of classes. The loss is the weighted mean: dividing by the size of a padded batch, as
    published, would scale the loss by the padding. Zhu et al., Simple hierarchical multi-task
    neural end-to-end entity linking for biomedical text, section 3.1, with the classes in the batch
    only.

    states (Tensor): Vectors of tokens or mentions. Shape (n, dim).
    classes (Callable): Returns the vectors of classes, such as an embedding: (m,) to (m, dim).
    bias (Tensor): Bias of all classes. Shape (n_classes,).
    target, weight (Tensor): Class and weight of each vector. Shape (n,).
    others (Tensor): Additional classes; any that are also in `target` have no effect. Shape (m,).
    """
    present, index = torch.unique(torch.cat([target, others]), return_inverse=True)
    logits = states @ classes(present).T + bias[present]
    losses = F.cross_entropy(logits, index[: len(target)], reduction="none")
    return weighted_mean(losses, weight)


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    return (losses * weight).sum() / weight.sum().clamp(min=1e-12)
