"""Networks that read names, documents, mentions and pairs of mention and candidate, torch only.

`NameTransformer`: Liu et al. (2021), Self-Alignment Pretraining for Biomedical Entity
Representations (SapBERT), https://aclanthology.org/2021.naacl-main.334.

`MentionTower`: Bhowmik, Stratos and de Melo (2021), Fast and effective biomedical entity linking
using a dual encoder, https://aclanthology.org/2021.louhi-1.4: all mentions of a batch of documents
are encoded in one pass. Two differences from the paper: vectors are compared by cosine, and the
mention vector can be added to the name encoder's vector of the mention's own string.

`CrossEncoder`: Wu et al. (2020), Scalable Zero-shot Entity Linking with Dense Entity Retrieval
(BLINK), https://aclanthology.org/2020.emnlp-main.519: it reads a mention in its context and a
candidate together, with a linear layer on the last hidden state of [CLS].

Hierarchical multi-task network: token vectors -> tags, types, classes and mention vectors.

Zhu et al., Simple hierarchical multi-task neural end-to-end entity linking for biomedical text,
section 2.2. Widths, depth and dropout are not published. Differences from the paper: the output of
a level is normalised, the linking loss can also be taken over random and hard classes, and a
mention has a vector that is compared with names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from spacy_bioel.contextual.losses import restricted_softmax_loss, weighted_mean
from spacy_bioel.models.networks import ReaderSettings, TokenReader

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Word pieces encoded together, padding included: bounds the memory.
_PIECES = 4096
# Of windows of documents: a CPU is fastest with batches that fit its caches, where all but short
# windows are encoded one by one, without padding.
_WINDOW_PIECES = {"cpu": 512, "cuda": 16384}


class Pretrained(nn.Module):
    """Base class of networks around a Hugging Face network.

    backbone (PreTrainedModel): Its first output has shape (n_rows, length, width).
    learn_rate_scale (float): Factor on the learning rate of the backbone; layers on top of it
        learn at the full rate. See `models.torch_io.AveragingShim`.
    mixed_precision (bool): Train under bfloat16 autocast where that is faster. Inference uses
        float32, for bfloat16 results would depend on the rest of the batch.
    """

    def __init__(
        self, backbone: PreTrainedModel, learn_rate_scale: float = 1, mixed_precision: bool = False
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.learn_rate_scale = learn_rate_scale
        self.mixed_precision = mixed_precision

    def precision(self, kind: str) -> torch.autocast:
        """Context of a computation. kind (str): Of device."""
        is_mixed = self.mixed_precision and self.training and (kind != "cpu" or has_bfloat16())
        return torch.autocast(kind, torch.bfloat16, enabled=is_mixed)


def has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16, without which an update takes four times as long;
    False under a PyTorch that does not report it."""
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16"))


def batches(lengths: Tensor, most: int) -> Iterator[Tensor]:
    """Numbers of rows that are read together, the longest first: as many as have `most` pieces,
    padding included."""
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes, start = lengths[order].tolist(), 0
    while start < len(sizes):
        end = start + max(1, most // sizes[start])
        yield order[start:end]
        start = end


def compute_in_batches(compute: Callable[[Tensor], Tensor], parts: Iterable[Tensor]) -> Tensor:
    """Results of all rows, in their order, from those of parts: numbers of their rows."""
    parts = list(parts)
    return torch.cat(list(map(compute, parts)))[torch.argsort(torch.cat(parts))]


def places_of(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the pieces of rows that are padded at the end with their first piece, and where
    they are not. Attention is told of the latter: any piece will do.

    starts, lengths (Tensor): First place and number of pieces of each row. Shape (n,).
    RETURNS (tuple): Places, and False at padding. Shape (n, longest) each.
    """
    within = torch.arange(int(lengths.max()), device=lengths.device)
    inside = within < lengths[:, None]
    return starts[:, None] + torch.where(inside, within, 0), inside


class NameTransformer(nn.Module):
    """Token ids of names -> one vector per name.

    No padding, as in `models.networks`: names with equally many tokens are encoded together.

    backbone (PreTrainedModel): Its first output has shape (n_names, length, dim).
    pooling (str): "cls": the first token; "mean": the mean of all tokens, special ones included.
    """

    def __init__(self, backbone: PreTrainedModel, *, pooling: str) -> None:
        super().__init__()
        self.backbone = backbone
        self.pooling = pooling

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode names.

        ids (Tensor): Token ids of all names, special ones included. Shape (n_tokens,).
        lengths (Tensor): Number of tokens of each name; at least 1. Shape (n_names,).
        RETURNS (Tensor): Vectors, not normalised. Shape (n_names, dim).
        """
        starts = torch.cumsum(lengths, dim=0) - lengths

        def encode(part: Tensor) -> Tensor:
            states: Tensor = self.backbone(
                input_ids=ids[places_of(starts[part], lengths[part])[0]]
            )[0]
            return states[:, 0] if self.pooling == "cls" else states.mean(dim=1)

        parts = [
            part
            for length in torch.unique(lengths).tolist()
            for part in (lengths == length).nonzero()[:, 0].split(max(1, _PIECES // length))
        ]
        return compute_in_batches(encode, parts)


class DocumentTransformer(Pretrained):
    """Encoder over windows; a token vector is the mean over its word pieces."""

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
        starts, kind = torch.cumsum(lengths, dim=0) - lengths, ids.device.type
        order, states = [], []
        for part in batches(lengths, _WINDOW_PIECES.get(kind, 512)):
            places, inside = places_of(starts[part], lengths[part])
            with self.precision(kind):
                found = self.backbone(input_ids=ids[places], attention_mask=inside.long())[0]
            order.append(places[inside])
            states.append(found.flatten(0, 1).index_select(0, inside.flatten().nonzero()[:, 0]))
        return torch.cat(states).float().index_select(0, torch.argsort(torch.cat(order)))


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


class CrossEncoder(Pretrained):
    """Encoder with a linear layer on its first token.

    A logit depends on the other pairs of its batch by rounding only, below 1e-5.
    """

    def __init__(
        self, backbone: PreTrainedModel, learn_rate_scale: float = 1, mixed_precision: bool = False
    ) -> None:
        super().__init__(backbone, learn_rate_scale, mixed_precision)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(backbone.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        # 0 or 1 in networks without segment embeddings.
        self.has_segments = getattr(backbone.config, "type_vocab_size", 0) > 1
        self.pad = getattr(backbone.config, "pad_token_id", None) or 0

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> Tensor:
        """Score pairs.

        ids (Tensor): Piece ids of all pairs, special ones included. Shape (n_pieces,).
        segments (Tensor): 0 for pieces of the context, 1 for pieces of the candidate; ignored
            by a backbone without segment embeddings. Shape (n_pieces,).
        lengths (Tensor): Number of pieces of each pair; at least 1. Shape (n_pairs,).
        RETURNS (Tensor): Logits. Shape (n_pairs,).
        """
        starts = torch.cumsum(lengths, dim=0) - lengths

        def score(part: Tensor) -> Tensor:
            places, inside = places_of(starts[part], lengths[part])
            # RoBERTa counts positions by its pad.
            inputs = {"input_ids": ids[places].where(inside, self.pad)}
            if self.has_segments:
                inputs["token_type_ids"] = segments[places].where(inside, 0)
            first = self.backbone(attention_mask=inside.long(), **inputs)[0][:, 0]
            return self.head(self.dropout(first))[:, 0].float()

        with self.precision(ids.device.type):
            return compute_in_batches(score, batches(lengths, _PIECES))


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
