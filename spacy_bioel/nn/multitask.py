"""Hierarchical multi-task network: token vectors -> tags, types, classes and mention vectors.

Zhu et al., Simple hierarchical multi-task neural end-to-end entity linking for biomedical text,
section 2.2. Widths, depth and dropout are not published. Differences from the paper: the output of
a level is normalised, the linking loss can also be taken over random and hard classes, and a
mention has a vector that is compared with names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.nn.encoders import MentionTower
from spacy_bioel.nn.losses import restricted_softmax_loss, weighted_mean
from spacy_bioel.nn.spans import ReaderSettings, TokenReader, mean_of_spans, run_lstm

MENTIONS, TYPES, LINKS = "mentions", "types", "links"  # from the lowest level to the highest
N_TAGS, OUTSIDE = 5, 0  # as `models.bio_tagger` numbers them
# Class and type of a token outside mentions, and class of a mention without a concept.
NIL = 0
UNKNOWN = -100  # a target that no loss is computed for
_MOSTLY = 3.0  # log-odds
_CHUNK = 1 << 22  # logits computed at a time where hard classes are looked for


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
    settings: See `TokenReader`, of which there is no `context` here.
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
        read = self.read(tokens, lengths, spans, words)
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
