"""Generative linking: an encoder-decoder reads a mention in its context and writes a name.

The decoder begins with a prompt, the mention and "is", and goes on with a name of the concept; only
the name and the end piece count in the loss. Yuan, Yuan and Yu (2022), Generative Biomedical Entity
Linking via Knowledge Base-Guided Pre-training and Synonyms-Aware Fine-tuning (GenBioEL),
https://aclanthology.org/2022.naacl-main.296.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_bioel.contextual.networks import Pretrained, batches, compute_in_batches, places_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Word pieces that are read together in training, padding included: bounds the memory.
_PIECES = 8192


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
            return compute_in_batches(losses, batches(source_lengths + target_lengths, _PIECES))


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
