"""Networks around a Hugging Face network, in PyTorch: they read names, documents, and pairs of a
mention and a candidate, or write names.

`NameTransformer`: Liu et al. (2021), Self-Alignment Pretraining for Biomedical Entity
Representations (SapBERT), https://aclanthology.org/2021.naacl-main.334.

`CrossEncoder`: Wu et al. (2020), Scalable Zero-shot Entity Linking with Dense Entity Retrieval
(BLINK), https://aclanthology.org/2020.emnlp-main.519: it reads a mention in its context and a
candidate together, with a linear layer on the last hidden state of [CLS].

`Seq2Seq`: Yuan, Yuan and Yu (2022), Generative Biomedical Entity Linking via Knowledge Base-Guided
Pre-training and Synonyms-Aware Fine-tuning (GenBioEL), https://aclanthology.org/2022.naacl-main.296.
The decoder begins with a prompt, the mention and "is", and goes on with a name of the concept; only
the name and the end piece count in the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.models.networks import negative_log_likelihood

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Word pieces encoded together, padding included: bounds the memory. Of an encoder-decoder, those of
# training.
_PIECES, _SEQ2SEQ_PIECES = 4096, 8192
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


def ranking_loss(logits: Tensor, groups: Tensor, right: Tensor) -> Tensor:
    """Negative log of the total probability of the right candidates of a mention.

    Probabilities are a softmax over the candidates of the mention; with one right candidate the
    loss is cross-entropy. It is the mean over the mentions with a right candidate. Wu et al.
    (2020), https://aclanthology.org/2020.emnlp-main.519; several right candidates as in
    `models.networks.marginal_loss`.

    logits (Tensor): Logits of pairs of a mention and a candidate. Shape (n_pairs,).
    groups (Tensor): Index of the mention of each pair, in any order. Shape (n_pairs,).
    right (Tensor): Whether the candidate is right; bool. Shape (n_pairs,).
    """
    own = torch.unique(groups[right])[:, None] == groups  # (n_mentions, n_pairs)
    return negative_log_likelihood(torch.where(own, logits, -torch.inf), own & right)


class Seq2Seq(Pretrained):
    """Encoder-decoder with the loss of what it writes.

    backbone (PreTrainedModel): With a head over its word pieces.
    smoothing (float): Share of the probability that the loss spreads over all word pieces.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        learn_rate_scale: float = 1,
        mixed_precision: bool = False,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__(backbone, learn_rate_scale, mixed_precision)
        self.smoothing = smoothing
        # One tensor under several names is stored once.
        self.register_state_dict_post_hook(_without_ties)
        self.register_load_state_dict_pre_hook(_with_ties)  # type: ignore[no-untyped-call]

    def forward(
        self,
        sources: Tensor,
        source_lengths: Tensor,
        targets: Tensor,
        target_lengths: Tensor,
        prompt_lengths: Tensor,
    ) -> Tensor:
        """Losses of names, each the mean over its pieces and the end piece.

        sources (Tensor): Piece ids of mentions in their contexts, concatenated. Shape (n_pieces,).
        targets (Tensor): First piece of the decoder, prompt, name and end piece of each mention,
            concatenated. Shape (n_pieces,).
        source_lengths, target_lengths (Tensor): Number of pieces of each. Shape (n_mentions,).
        prompt_lengths (Tensor): First piece and prompt; at least 1. Shape (n_mentions,).
        RETURNS (Tensor): Shape (n_mentions,).
        """
        sources_at = torch.cumsum(source_lengths, dim=0) - source_lengths
        targets_at = torch.cumsum(target_lengths, dim=0) - target_lengths

        def losses(part: Tensor) -> Tensor:
            source, inside = places_of(sources_at[part], source_lengths[part])
            target, written = places_of(targets_at[part], target_lengths[part])
            ids = targets[target]
            places = torch.arange(ids.shape[1] - 1, device=ids.device)
            counts = written[:, 1:] & (places >= prompt_lengths[part, None] - 1)
            with _head_at(self.backbone, counts):
                logits = self.backbone(
                    input_ids=sources[source],
                    attention_mask=inside.long(),
                    decoder_input_ids=ids[:, :-1],
                    use_cache=False,
                ).logits
            of_pieces = F.cross_entropy(
                logits.float(),  # of the places that count alone
                ids[:, 1:][counts],
                label_smoothing=self.smoothing if self.training else 0.0,
                reduction="none",
            )
            rows = counts.nonzero()[:, 0]
            total = of_pieces.new_zeros(len(counts)).index_add(0, rows, of_pieces)
            return total / counts.sum(dim=1).clamp(min=1)

        if not len(source_lengths):
            return next(self.backbone.parameters()).flatten()[:0]  # so that it has a gradient too
        with self.precision(sources.device.type):
            return compute_in_batches(
                losses, batches(source_lengths + target_lengths, _SEQ2SEQ_PIECES)
            )


@contextmanager
def _head_at(backbone: PreTrainedModel, places: Tensor) -> Iterator[None]:
    """Compute logits at some places only: those of the prompt would take a third of the time."""
    head = backbone.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, inputs: (inputs[0][places],))
    try:
        yield
    finally:
        hook.remove()


def _tied(network: nn.Module) -> dict[str, str]:
    """From each further name of a tensor to its first."""
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for name, tensor in network.named_parameters(remove_duplicate=False):
        origin = first.setdefault(id(tensor), name)
        if origin != name:
            tied[name] = origin
    return tied


def _without_ties(network: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    for name in _tied(network):
        state.pop(prefix + name, None)


def _with_ties(network: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    for name, origin in _tied(network).items():
        if prefix + origin in state:
            state.setdefault(prefix + name, state[prefix + origin])
