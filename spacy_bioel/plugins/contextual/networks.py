"""PyTorch networks built on a Hugging Face backbone.

`NameTransformer` encodes names: Liu et al. (2021), Self-Alignment Pretraining for Biomedical Entity
Representations (SapBERT), https://aclanthology.org/2021.naacl-main.334.

`CrossEncoder` scores a mention in context together with a candidate, using a linear layer on the
last hidden state of [CLS]: Wu et al. (2020), Scalable Zero-shot Entity Linking with Dense Entity
Retrieval (BLINK), https://aclanthology.org/2020.emnlp-main.519.

`Seq2Seq` generates names: Yuan, Yuan and Yu (2022), Generative Biomedical Entity Linking via
Knowledge Base-Guided Pre-training and Synonyms-Aware Fine-tuning (GenBioEL),
https://aclanthology.org/2022.naacl-main.296. The decoder starts with a prompt, the mention and
"is", and continues with a name of the concept. Only the name and the end piece count in the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.models.networks import negative_log_likelihood
from spacy_bioel.parallel import in_halves

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Maximum number of word pieces in a batch, with padding; for `Seq2Seq`, only used in training.
_PIECES_PER_BATCH, _SEQ2SEQ_PIECES_PER_BATCH = 4096, 8192
# Word pieces in a batch of document windows. A CPU is fastest with batches that fit in its caches,
# so all windows except short ones are encoded one by one, without padding.
_WINDOW_PIECES_PER_BATCH = {"cpu": 512, "cuda": 16384}


class Pretrained(nn.Module):
    """Base class for networks built on a Hugging Face backbone.

    backbone (PreTrainedModel): Its first output has shape (n_rows, length, width).
    learn_rate_scale (float): Factor on the learning rate of the backbone; layers on top of it
        use the full rate. See `models.torch_io.AveragingShim`.
    mixed_precision (bool): Train under bfloat16 autocast if that is faster. Inference uses
        float32, because bfloat16 results would depend on the rest of the batch.
    """

    def __init__(
        self, backbone: PreTrainedModel, learn_rate_scale: float = 1, mixed_precision: bool = False
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.learn_rate_scale = learn_rate_scale
        self.mixed_precision = mixed_precision

    def autocast(self, device_type: str) -> torch.autocast:
        """Return the autocast context for a device type and the current mode."""
        is_supported = device_type != "cpu" or has_bfloat16()
        is_mixed = self.mixed_precision and self.training and is_supported
        return torch.autocast(device_type, torch.bfloat16, enabled=is_mixed)


def has_bfloat16() -> bool:
    """Return whether the processor supports bfloat16 multiplication; False if PyTorch does not
    report this. Without support, an update under autocast takes four times as long."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def batches_by_length(lengths: Tensor, max_pieces: int) -> Iterator[Tensor]:
    """Yield batches of row numbers, longest rows first, of up to `max_pieces` padded pieces."""
    order = torch.argsort(lengths, descending=True, stable=True)
    sorted_lengths, start = lengths[order].tolist(), 0
    while start < len(sorted_lengths):
        end = start + max(1, max_pieces // sorted_lengths[start])
        yield order[start:end]
        start = end


def compute_in_batches(compute: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> Tensor:
    """Compute results for batches of row numbers, and return them in row order.

    If a batch is too large for a GPU, it is halved.
    """
    batches = list(batches)
    results = [part for batch in batches for part in in_halves(compute, batch)]
    return torch.cat(results)[torch.argsort(torch.cat(batches))]


def padded_positions(lengths: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return a padded table of the piece positions in a batch of rows, and its attention mask.

    Rows are padded with the position of their first piece. Any piece would do, because the mask
    hides the padding.

    lengths (Tensor): Number of pieces of each row; rows are concatenated. Shape (n,).
    batch (Tensor): Numbers of the rows in the batch. Shape (n_batch,).
    RETURNS (tuple): Positions, and False at padding. Shape (n_batch, longest) each.
    """
    starts = torch.cumsum(lengths, dim=0) - lengths
    lengths = lengths[batch]
    within = torch.arange(int(lengths.max()), device=lengths.device)
    inside = within < lengths[:, None]
    return starts[batch, None] + torch.where(inside, within, 0), inside


class NameTransformer(nn.Module):
    """Encodes each name's token ids as one vector.

    Names with the same number of tokens are encoded together, so that there is no padding.

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

        def encode(batch: Tensor) -> Tensor:
            positions, _ = padded_positions(lengths, batch)
            states: Tensor = self.backbone(input_ids=ids[positions])[0]
            return states[:, 0] if self.pooling == "cls" else states.mean(dim=1)

        batches: list[Tensor] = []
        for length in torch.unique(lengths).tolist():
            rows = (lengths == length).nonzero()[:, 0]
            batches += rows.split(max(1, _PIECES_PER_BATCH // length))
        return compute_in_batches(encode, batches)


class DocumentTransformer(Pretrained):
    """Encodes document windows; a token's vector is the mean of its word pieces' vectors."""

    def forward(
        self, ids: Tensor, lengths: Tensor, used: Tensor, piece: Tensor, token: Tensor, n: int
    ) -> Tensor:
        """Encode windows, and average each token's piece vectors.

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
        # Use index_select, because the gradient of `[used[piece]]` is slow on a CPU.
        vectors = self._encode(ids, lengths).index_select(0, used[piece])  # (n_pairs, width)
        total = vectors.new_zeros(n, width).index_add(0, token, vectors)
        count = torch.bincount(token, minlength=n).clamp(min=1)
        return total / count[:, None]

    def _encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the last hidden states of all pieces in all windows. Shape (n_ids, width)."""
        device_type = ids.device.type

        def encode(batch: Tensor) -> tuple[Tensor, Tensor]:
            positions, inside = padded_positions(lengths, batch)
            with self.autocast(device_type):
                hidden = self.backbone(input_ids=ids[positions], attention_mask=inside.long())[0]
            states = hidden.flatten(0, 1).index_select(0, inside.flatten().nonzero()[:, 0])
            return positions[inside], states

        batches = batches_by_length(lengths, _WINDOW_PIECES_PER_BATCH.get(device_type, 512))
        parts = [part for batch in batches for part in in_halves(encode, batch)]
        order, states = map(torch.cat, zip(*parts, strict=True))
        return states.float().index_select(0, torch.argsort(order))


class CrossEncoder(Pretrained):
    """Transformer encoder with a linear layer on its first token.

    The other pairs in a batch affect a logit only through rounding errors of less than 1e-5.
    """

    def __init__(self, backbone: PreTrainedModel, **settings: Any) -> None:
        super().__init__(backbone, **settings)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(backbone.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        # type_vocab_size is 0 or 1 in networks without segment embeddings.
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

        def score(batch: Tensor) -> Tensor:
            positions, inside = padded_positions(lengths, batch)
            # RoBERTa identifies padding by its piece id when it computes positions.
            inputs = {"input_ids": ids[positions].where(inside, self.pad)}
            if self.has_segments:
                inputs["token_type_ids"] = segments[positions].where(inside, 0)
            first = self.backbone(attention_mask=inside.long(), **inputs)[0][:, 0]
            return self.head(self.dropout(first))[:, 0].float()

        with self.autocast(ids.device.type):
            return compute_in_batches(score, batches_by_length(lengths, _PIECES_PER_BATCH))


def ranking_loss(logits: Tensor, groups: Tensor, right: Tensor) -> Tensor:
    """Return the loss: -log(total probability of a mention's correct candidates).

    Probabilities are a softmax over a mention's candidates, so with one correct candidate the loss
    is cross-entropy. The loss is averaged over the mentions that have a correct candidate. Wu et
    al. (2020), https://aclanthology.org/2020.emnlp-main.519; several correct candidates are handled
    as in `models.networks.marginal_loss`.

    logits (Tensor): Logits of (mention, candidate) pairs. Shape (n_pairs,).
    groups (Tensor): Mention index of each pair, in any order. Shape (n_pairs,).
    right (Tensor): Whether the candidate is correct; bool. Shape (n_pairs,).
    """
    is_candidate = torch.unique(groups[right])[:, None] == groups  # (n_mentions, n_pairs)
    return negative_log_likelihood(
        torch.where(is_candidate, logits, -torch.inf), is_candidate & right
    )


class Seq2Seq(Pretrained):
    """Encoder-decoder that computes the loss of generating a target name for each mention.

    backbone (PreTrainedModel): Encoder-decoder with a head over its word pieces.
    smoothing (float): Label smoothing in training.
    """

    def __init__(
        self, backbone: PreTrainedModel, *, smoothing: float = 0.1, **settings: Any
    ) -> None:
        super().__init__(backbone, **settings)
        self.smoothing = smoothing
        # Save a tensor only once, even if it is shared under several names.
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
        """Return each name's loss: the mean over its pieces, including the end piece.

        sources (Tensor): Piece ids of mentions in their contexts, concatenated. Shape (n_pieces,).
        targets (Tensor): First piece of the decoder, prompt, name and end piece of each mention,
            concatenated. Shape (n_pieces,).
        source_lengths, target_lengths (Tensor): Pieces in each source, target. Shape (n_mentions,).
        prompt_lengths (Tensor): Number of pieces in the prompt, with the first piece; at least 1.
            Shape (n_mentions,).
        RETURNS (Tensor): Shape (n_mentions,).
        """

        def losses(batch: Tensor) -> Tensor:
            source, inside = padded_positions(source_lengths, batch)
            target, inside_target = padded_positions(target_lengths, batch)
            ids = targets[target]
            positions = torch.arange(ids.shape[1] - 1, device=ids.device)
            counts = inside_target[:, 1:] & (positions >= prompt_lengths[batch, None] - 1)
            # Compute only the logits that count: prompts would take a third of the time.
            head = self.backbone.get_output_embeddings()
            with head.register_forward_pre_hook(lambda _, inputs: (inputs[0][counts],)):
                logits = self.backbone(
                    input_ids=sources[source],
                    attention_mask=inside.long(),
                    decoder_input_ids=ids[:, :-1],
                    use_cache=False,
                ).logits
            piece_losses = F.cross_entropy(
                logits.float(),
                ids[:, 1:][counts],
                label_smoothing=self.smoothing if self.training else 0.0,
                reduction="none",
            )
            rows = counts.nonzero()[:, 0]
            total = piece_losses.new_zeros(len(counts)).index_add(0, rows, piece_losses)
            return total / counts.sum(dim=1).clamp(min=1)

        if not len(source_lengths):
            # Return an empty slice of a parameter, so that backpropagation still works.
            return next(self.backbone.parameters()).flatten()[:0]
        batches = batches_by_length(source_lengths + target_lengths, _SEQ2SEQ_PIECES_PER_BATCH)
        with self.autocast(sources.device.type):
            return compute_in_batches(losses, batches)


def _tied_names(network: nn.Module) -> dict[str, str]:
    """Map each additional name of a shared tensor to the tensor's first name."""
    first: dict[int, str] = {}
    return {
        name: first[id(tensor)]
        for name, tensor in network.named_parameters(remove_duplicate=False)
        if first.setdefault(id(tensor), name) != name
    }


def _without_ties(network: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    for name in _tied_names(network):
        state.pop(prefix + name, None)


def _with_ties(network: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    for name, first in _tied_names(network).items():
        if prefix + first in state:
            state.setdefault(prefix + name, state[prefix + first])
