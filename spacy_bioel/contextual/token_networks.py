"""Networks over the token vectors of documents, in PyTorch, and their losses.

`MentionTower`: Bhowmik, Stratos and de Melo (2021), Fast and effective biomedical entity linking
using a dual encoder, https://aclanthology.org/2021.louhi-1.4: all mentions of a batch of documents
are encoded in one pass. Two differences from the paper: vectors are compared by cosine, and the
mention vector can be added to the name encoder's vector of the mention's own string.

`Multitask`, from token vectors to tags, types, classes and mention vectors: Zhu et al., Simple
hierarchical multi-task neural end-to-end entity linking for biomedical text, section 2.2. Widths,
depth and dropout are not published. Differences from the paper: the output of a level is
normalised, the linking loss can also be taken over random and hard classes, and a mention has a
vector that is compared with names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from spacy_bioel.models.networks import ReaderSettings, TokenReader, negative_log_likelihood


class MentionTower(nn.Module):
    """Linear layer over the ends, or the mean, of a mention's token vectors.

    width (int): Size of the token vectors.
    dim (int): Size of the vectors of names.
    pooling (str): "ends": the first and the last token, side by side; "mean": of all tokens.
    from_words (bool): Add the output to the vector of the mention's string. The layer is
        initialised to zero, so that an untrained tower is a dense search by name.
    """

    def __init__(self, *, width: int, dim: int, pooling: str, from_words: bool) -> None:
        super().__init__()
        self.pooling = pooling
        self.from_words = from_words
        self.project = nn.Linear(2 * width if pooling == "ends" else width, dim)
        if from_words:
            nn.init.zeros_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, tokens: Tensor, spans: Tensor, words: Tensor) -> Tensor:
        """Encode mentions.

        tokens, spans (Tensor): See `mean_of_spans`.
        words (Tensor): Vectors of the strings of the mentions. Shape (n_mentions, dim).
        RETURNS (Tensor): Unit vectors. Shape (n_mentions, dim).
        """
        if self.pooling == "ends":
            start, end = spans.unbind(1)
            ends = [tokens.index_select(0, start), tokens.index_select(0, end - 1)]
            read = self.project(torch.cat(ends, dim=1))
        else:
            read = self.project(mean_of_spans(tokens, spans))
        if self.from_words:
            read = F.normalize(words, dim=1) + read
        return F.normalize(read, dim=1)


def collective_loss(
    mentions: Tensor, names: Tensor, right: Tensor, *, temperature: float
) -> Tensor:
    """Negative log of the probability of a mention's right candidates among those of the batch.

    All mentions of a batch share their candidates, both sampled and mined. The loss is the mean
    over the mentions with a right candidate. Bhowmik, Stratos and de Melo (2021),
    https://aclanthology.org/2021.louhi-1.4, with cosines.

    mentions (Tensor): Unit vectors. Shape (n_mentions, dim).
    names (Tensor): Vectors of the candidates. Shape (n_candidates, dim).
    right (Tensor): Whether a candidate is right; bool. Shape (n_mentions, n_candidates).
    """
    return negative_log_likelihood(mentions @ F.normalize(names, dim=1).T / temperature, right)


MENTIONS, TYPES, LINKS = "mentions", "types", "links"  # from the lowest level to the highest
N_TAGS, OUTSIDE = 5, 0  # as `mentions.model` numbers them
# Class and type of a token outside mentions, and class of a mention without a concept.
NIL = 0
UNKNOWN = -100  # a target that no loss is computed for
_MOSTLY = 3.0  # log-odds
_CHUNK = 1 << 22  # logits computed at a time where hard classes are looked for


def run_lstm(lstm: nn.LSTM, tokens: Tensor, lengths: Tensor) -> Tensor:
    """States of a bidirectional LSTM over each document.

    lengths (Tensor): Number of tokens of each document. Shape (n_docs,).
    """
    real = lengths[lengths > 0]
    padded = pad_sequence(list(tokens.split(real.tolist())), batch_first=True)
    packed = pack_padded_sequence(padded, real.cpu(), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
    return states[torch.arange(states.shape[1], device=real.device) < real[:, None]]


class Multitask(TokenReader):
    """One level a task, from mention recognition to linking.

    A level of the hierarchy is a bidirectional LSTM over the token vectors beside the output of
    the level below. Without hierarchy all tasks read the token vectors.

    tasks (Sequence[str]): "mentions", "types" and "links", or some of them, in this order.
    per_token (bool): Classify each token ("PT"); else the mean of a mention's tokens ("PE").
    hidden (int): Size of each direction of the LSTM of a level; 0: no hierarchy.
    layers (int): Layers of the LSTM.
    n_types, n_classes (int): With NIL, which comes first.
    nil_weight (float): Weight of the class and type NIL in the losses.
    hard (int): Hard classes for each token or mention: those of the highest logits but the right.
    dim (int): Size of the vectors of names; 0: mentions have no vectors.
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
        **settings: Unpack[ReaderSettings],
    ) -> None:
        super().__init__(**settings)
        width = settings["width"]
        self.tasks = tasks
        self.per_token = per_token
        self.nil_weight = nil_weight
        self.hard = hard
        self.levels = nn.ModuleDict()
        size = width
        for task in tasks if hidden else ():
            between = self.dropout.p if layers > 1 else 0.0
            self.levels[task] = nn.LSTM(
                size, hidden, layers, dropout=between, bidirectional=True, batch_first=True
            )
            size = width + 2 * hidden
        self.size = size = 2 * hidden if hidden else width
        self.tags = nn.Linear(size, N_TAGS) if MENTIONS in tasks else None
        self.types = nn.Linear(size, n_types) if TYPES in tasks else None
        self.classes = nn.Embedding(n_classes, size)
        nn.init.normal_(self.classes.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(n_classes))
        # Most tokens are in no mention: otherwise a new network finds thousands of them.
        with torch.no_grad():
            if self.tags is not None:
                self.tags.bias[OUTSIDE] = _MOSTLY
            if per_token:
                self.bias[NIL] = _MOSTLY
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
        """Vectors of the tokens at the level of each task.

        tokens, spans, words (Tensor): See `TokenReader.read`.
        lengths (Tensor): Number of tokens of each sentence; no state passes from one to the next.
        last (str | None): The highest level that is needed; None: all.
        RETURNS (dict): Shape (n_tokens, size) each.
        """
        read = self.read(tokens, spans, words)
        if not self.levels:
            return dict.fromkeys(self.tasks, read)
        found: dict[str, Tensor] = {}
        level = read
        for task, lstm in self.levels.items():
            assert isinstance(lstm, nn.LSTM)
            # Of unit variance, as token vectors are: a class is in few batches, and with the small
            # states of a new LSTM nothing was found per token after 200 updates (BC5CDR, seed 0).
            normed = F.layer_norm(run_lstm(lstm, level, lengths), (self.size,))
            found[task] = self.dropout(normed)
            if task == last:
                break
            level = torch.cat([read, found[task]], dim=1)
        return found

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
        """Learn one task, or the sum of all.

        Where one task is learnt, the token vectors learn from linking alone. Tokens and mentions
        are counted over all documents.

        tokens, lengths, spans, words (Tensor): See `states`.
        strings (Tensor): Vectors of the mentions' strings. Shape (n_mentions, dim).
        mentions (Tensor): Start and end token (exclusive) of each mention. Shape (n_mentions, 2).
        tags (Tensor): BILOU tag of each token. Shape (n_tokens,).
        types, classes (Tensor): Of each token or each mention, whichever is classified, or UNKNOWN.
            Shape (n_tokens,) or (n_mentions,).
        others (Tensor): Random classes to tell the right ones from. Shape (m,).
        task (str | None): The one task to learn, as in Sanh et al. (2019); None: the sum of all.
        RETURNS (tuple): Unit vectors of the mentions, shape (n_mentions, dim), or `strings` where
            these are not learnt; and the loss.
        """
        if task in (MENTIONS, TYPES):
            tokens = tokens.detach()
        states = self.states(tokens, lengths, spans, words, last=task)
        learnt = [name for name in self.tasks if task in (None, name)]
        # Vectors that types and classes are predicted from.
        units = {
            name: states[name] if self.per_token else mean_of_spans(states[name], mentions)
            for name in learnt
            if name != MENTIONS
        }
        losses = []
        if MENTIONS in learnt:
            # A mean over all tokens would be next to nothing beside the losses of mentions: spaCy's
            # CNN found mentions with an F1 of 35 instead of 69 after 150 updates on BC5CDR.
            total = F.cross_entropy(self.tag_logits(states), tags, reduction="sum")
            losses.append(total / (tags != OUTSIDE).sum().clamp(min=1))
        if TYPES in learnt:
            losses.append(self._types_loss(units[TYPES], types))
        vectors = strings.detach()
        if LINKS in learnt:
            losses.append(self._links_loss(units[LINKS], classes, others))
            if self.tower is not None:
                vectors = self.mention_vectors(states, mentions, strings)
        return vectors, torch.stack(losses).sum()

    # Inference, from the states of the levels. places (Tensor): See `mentions` of `forward`.

    def tag_logits(self, states: dict[str, Tensor]) -> Tensor:
        """Logits of the BILOU tags of each token. Shape (n_tokens, 5)."""
        assert self.tags is not None
        return self.tags(states[MENTIONS])

    def type_logits(self, states: dict[str, Tensor], places: Tensor) -> Tensor:
        """Logits of the types of each mention, NIL first. Shape (n_mentions, n_types)."""
        assert self.types is not None
        return self.types(mean_of_spans(states[TYPES], places))

    def class_logits(self, states: dict[str, Tensor], places: Tensor | None = None) -> Tensor:
        """Logits of all classes, NIL first, of each mention or, without places, of each token: of a
        linear layer, so that a mention's are the mean of its tokens'. Shape (n, n_classes)."""
        tokens = states[LINKS]
        return self._logits(tokens if places is None else mean_of_spans(tokens, places))

    def mention_vectors(self, states: dict[str, Tensor], places: Tensor, strings: Tensor) -> Tensor:
        """Unit vectors of mentions, to be compared with those of names. Shape (n_mentions, dim)."""
        assert self.tower is not None
        return self.tower(states[LINKS], places, strings)

    def _logits(self, units: Tensor) -> Tensor:
        return units @ self.classes.weight.T + self.bias

    def _types_loss(self, units: Tensor, types: Tensor) -> Tensor:
        assert self.types is not None
        known = types != UNKNOWN
        losses = F.cross_entropy(self.types(units)[known], types[known], reduction="none")
        return weighted_mean(losses, self._weight(types[known]))

    def _links_loss(self, units: Tensor, classes: Tensor, others: Tensor) -> Tensor:
        known = classes != UNKNOWN
        units, target = units[known], classes[known]
        others = torch.cat([others, self._hard_classes(units, target)])
        weight = self._weight(target)
        return restricted_softmax_loss(
            units, self.classes, self.bias, target, weight=weight, others=others
        )

    def _weight(self, target: Tensor) -> Tensor:
        return torch.where(target == NIL, self.nil_weight, 1.0)

    @torch.no_grad()
    def _hard_classes(self, units: Tensor, target: Tensor) -> Tensor:
        """Classes of the highest logits; in parts, for a memory that the classes do not fill."""
        if not self.hard:
            return target[:0]
        meant = units[target != NIL].detach()
        n = max(1, _CHUNK // len(self.bias))
        k = min(self.hard + 1, len(self.bias))  # the right one may be among them
        found = [self._logits(part).topk(k).indices.flatten() for part in meant.split(n)]
        return torch.cat([target[:0], *found]).unique()


def mean_of_spans(tokens: Tensor, spans: Tensor) -> Tensor:
    """Mean vector of the tokens of each span.

    Summed span by span: differences of prefix sums would depend on the batch.

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
    """Cross-entropy over the classes that occur in the batch, and a sample of others.

    Logits of no other classes are computed, so that time and memory do not grow with their number.
    The loss is the weighted mean: dividing by the size of a padded batch, as published, would
    let padding scale the loss. Zhu et al., Simple hierarchical multi-task neural end-to-end entity
    linking for biomedical text, section 3.1, whose classes are those of the batch alone.

    states (Tensor): Vectors of tokens or mentions. Shape (n, dim).
    classes (Callable): From classes to their vectors, (m,) to (m, dim), as an embedding is.
    bias (Tensor): Of all classes. Shape (n_classes,).
    target, weight (Tensor): Class and weight of each vector. Shape (n,).
    others (Tensor): Further classes to tell the right ones from; any that are right for a vector
        of the batch change nothing. Shape (m,).
    """
    present, place = torch.unique(torch.cat([target, others]), return_inverse=True)
    logits = states @ classes(present).T + bias[present]
    losses = F.cross_entropy(logits, place[: len(target)], reduction="none")
    return weighted_mean(losses, weight)


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    return (losses * weight).sum() / weight.sum().clamp(min=1e-12)
