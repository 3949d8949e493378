"""Cross-encoder: a transformer that scores a mention in context together with a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats1d
from tokenizers import Tokenizer

from spacy_bioel.batch import Batch
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator, LinkerState
from spacy_bioel.linking.training import NameTraining, gold_mentions
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Pieces, pieces_model
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.plugins.contextual.errors import ContextualErrors
from spacy_bioel.plugins.contextual.rescoring import (
    PairScores,
    WordPieceRescorer,
    contextual_model,
    rescore_pairs,
)
from spacy_bioel.plugins.contextual.transformers import (
    checkpoint_kind,
    fit_context,
    misfit,
    pieces_of,
    read_checkpoint,
    set_backbone,
    special_pieces,
    split_room,
)
from spacy_bioel.settings import TrainingSettings
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class RerankerPair(NamedTuple):
    """A mention in context, and the name of one of its candidates."""

    left: str
    mention: str
    right: str
    candidate: str


PairScorer = Model[Sequence[RerankerPair], Floats1d]

# Word pieces that mark the mention. Pretraining does not use them, and some checkpoints lack them.
_UNUSED_PIECES = ("[unused1]", "[unused2]")
_PAIRS_PER_BATCH = 1024  # pairs tokenised at once; limits memory use


@dataclass(frozen=True)
class PairPieces:
    """Converts pairs to pieces as [CLS] left [Ms] mention [Me] right [SEP] candidate [SEP].

    The context is cut first. If the mention and the candidate do not fit even without context,
    `split_room` divides the room between them, and each is truncated at the end.

    tokenizer (Tokenizer): Does not pad or truncate.
    prefix, suffix (list[int]): Ids of the special pieces before and after a text.
    markers (tuple[int, int]): Ids of the marker pieces before and after the mention.
    max_pieces (int): Maximum length of a pair, special pieces and markers included.
    """

    tokenizer: Tokenizer
    prefix: list[int]
    suffix: list[int]
    markers: tuple[int, int]
    max_pieces: int

    @property
    def room(self) -> int:
        """Number of pieces left for the texts in a pair."""
        return self.max_pieces - len(self.prefix) - 2 * len(self.suffix) - len(self.markers)

    def __call__(self, pairs: Sequence[RerankerPair]) -> tuple[IntArray, IntArray, IntArray]:
        """Return the pairs' concatenated piece ids and segments (0: context, 1: candidate), both of
        shape (n_pieces,), and the length of each pair, of shape (n_pairs,)."""
        # Many pairs share a context or a candidate, so each distinct text is tokenised only once.
        pieces_by_text = pieces_of(self.tokenizer, (text for pair in pairs for text in pair))
        segments_of_pairs = []
        for pair in pairs:
            left, mention, right, candidate = (pieces_by_text[text] for text in pair)
            n, n_candidate = split_room(self.room, len(mention), len(candidate))
            marked = [self.markers[0], *mention[:n], self.markers[1]]
            room = self.room - n_candidate + len(self.markers)
            context = fit_context(left, marked, right, room)
            segments_of_pairs.append([*self.prefix, *context, *self.suffix])
            segments_of_pairs.append([*candidate[:n_candidate], *self.suffix])
        ids, lengths = Pieces.of_rows(segments_of_pairs)
        segments = np.repeat(np.arange(len(segments_of_pairs)) % 2, lengths)
        return ids, segments, lengths.reshape(-1, 2).sum(axis=1)


def build_cross_encoder_v1(
    *,
    path: str | None = None,
    max_pieces: int = 128,
    learn_rate_scale: float = 1.0,
    mixed_precision: bool = False,
) -> PairScorer:
    """Registered as `spacy-bioel.CrossEncoder.v1`; see `contextual.networks` for the paper.

    `PairPieces` defines the input for a pair, and how it is truncated.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub. `add_encoder` loads it.
    max_pieces (int): Maximum number of word pieces in a pair, including special ones.
    learn_rate_scale (float): Factor on the learning rate of the checkpoint's weights; the new
        layer uses the full learning rate.
    mixed_precision (bool): Train with bfloat16 autocast on a GPU, or on a CPU that supports it.
    RETURNS (Model[Sequence[RerankerPair], Floats1d]): A model that computes the logits of pairs,
        comparable among the candidates of one mention. `add_encoder` adds its network.
    """
    settings = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    return pieces_model(
        "cross_encoder",
        _CROSS_ENCODER_KIND,
        settings,
        extra="transformers",
        path=path,
        max_pieces=max_pieces,
    )


def build_reranker_v1(names: NameEncoder, pairs: PairScorer) -> Model:
    """Registered as `spacy-bioel.Reranker.v1`: candidate generation and reranking, as in BLINK.

    Wu et al. (2020), https://aclanthology.org/2020.emnlp-main.519.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence. It
        is not trained further.
    pairs (PairScorer): The cross-encoder, `spacy-bioel.CrossEncoder.v1`.
    """
    return contextual_model("reranker", RerankerRescorer, {"names": names, "pairs": pairs})


def _make_cross_encoder(model: PairScorer, source: EncoderSource) -> None:
    """Load the checkpoint and add a linear layer. RAISES BioelError: [B159] if no path is set."""
    if model.attrs["path"] is None:
        raise BioelError(ContextualErrors.B159)
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"]
    )
    if _marker_ids(tokenizer) is None:
        n_rows = backbone.config.vocab_size
        backbone.resize_token_embeddings(n_rows + len(_UNUSED_PIECES), mean_resizing=False)
    _set_cross_encoder(model, tokenizer, backbone, folder)


def _marker_ids(tokenizer: Tokenizer) -> tuple[int, int] | None:
    before, after = (tokenizer.token_to_id(piece) for piece in _UNUSED_PIECES)
    return None if before is None or after is None else (before, after)


def _set_cross_encoder(
    model: PairScorer, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set the tokenizer and the network. RAISES BioelError: [B154] if a pair cannot fit."""
    from spacy_bioel.plugins.contextual.networks import CrossEncoder

    prefix, suffix = special_pieces(tokenizer)
    if not (prefix and suffix):
        raise misfit(folder, "no special pieces around a text", "some, such as [CLS] and [SEP]")
    n_rows = backbone.config.vocab_size
    markers = _marker_ids(tokenizer) or (n_rows - 2, n_rows - 1)  # the rows added to the embeddings
    pieces = PairPieces(tokenizer, prefix, suffix, markers, model.attrs["max_pieces"])
    if pieces.room < 2:
        expected = f"at least {pieces.max_pieces - pieces.room + 2}"
        raise misfit(folder, f"max_pieces = {pieces.max_pieces}", expected)
    set_backbone(model, tokenizer, CrossEncoder(backbone, **model.attrs["settings"]))
    model.attrs["pieces"] = pieces


_CROSS_ENCODER_KIND = checkpoint_kind(_make_cross_encoder, _set_cross_encoder)


def score_pairs(model: PairScorer, pairs: Sequence[RerankerPair]) -> NDArray[np.float32]:
    """Return the logit of each pair. Shape (n_pairs,).

    Pairs with the same mention should be adjacent, because identical texts in a batch are
    tokenised only once.
    """
    scores = [np.zeros(0, np.float32)]
    for start in range(0, len(pairs), _PAIRS_PER_BATCH):
        batch = pairs[start : start + _PAIRS_PER_BATCH]
        scores.append(model.ops.to_numpy(model.predict(batch)))
    return np.concatenate(scores)


def make_pairs(
    kb: KnowledgeBase, spans: Sequence[Span], owner: IntArray, concept: IntArray, *, context: int
) -> list[RerankerPair]:
    """Pair mentions in context with concepts' preferred names.

    owner, concept (IntArray): Mention index in `spans`, and concept row. Shape (n_pairs,).
    context (int): Number of tokens before and after a mention; the model trims them to fit.
    """
    before = [span.doc[max(0, span.start - context) : span.start].text for span in spans]
    after = [span.doc[span.end : span.end + context].text for span in spans]
    texts = [span.text for span in spans]
    return [
        RerankerPair(before[i], texts[i], after[i], kb.preferred_name(row))
        for i, row in zip(owner.tolist(), concept.tolist(), strict=True)
    ]


class RerankerTraining(NameTraining):
    """Trains a cross-encoder to score the correct candidate above a string's other candidates.

    Each update uses `training.mentions` mentions with `training.candidates` candidates each,
    because training on all pairs would take hours. The name encoder is not trained.
    """

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        super().__init__(model, state, settings)
        self._candidates = CandidateGenerator(replace(state, pool=self.pool_of(state)))

    def update(self, examples: Sequence[Example]) -> float | None:
        from spacy_bioel.plugins.contextual.networks import ranking_loss

        gold, ids = gold_mentions(examples, self.state.settings)
        rows = self.kb.find_all(ids)
        ranked = self._candidates.rank([(string, "") for string in dict.fromkeys(gold.strings)])
        known = np.flatnonzero(rows >= 0)
        n = min(len(known), self.settings.mentions)
        chosen = np.sort(self._random.choice(known, n, replace=False))
        if not n:
            return None
        owners, concepts = [], []
        for i, number in enumerate(chosen.tolist()):
            candidates = self.kb.find_all([c.id for c in ranked[gold.strings[number], ""]])
            wrong = candidates[candidates != rows[number]][: self.settings.candidates - 1]
            owners += [i] * (1 + len(wrong))
            concepts += [int(rows[number]), *wrong.tolist()]
        owner, concept = np.array(owners, dtype=np.int64), np.array(concepts, dtype=np.int64)
        spans = [gold.spans[number] for number in chosen.tolist()]
        model = self.model
        context = model.get_ref("pairs").attrs["max_pieces"]
        pairs = make_pairs(self.kb, spans, owner, concept, context=context)
        logits, backprop = model.begin_update(pairs)
        right = concept == rows[chosen][owner]
        loss, d_logits = loss_and_gradients(ranking_loss, logits, owner, right)
        backprop(d_logits)
        return float(loss)


class RerankerRescorer(WordPieceRescorer):
    """Rescores candidates with a cross-encoder."""

    proposes = False
    training = RerankerTraining
    layer_name = "pairs"
    prefix = "pairs."

    def score(self, generator: CandidateGenerator, batch: Batch) -> PairScores:
        """Score the string candidates in context; no other concepts are proposed."""
        kb, spans = generator.kb, batch.spans

        def logit(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
            context = self.contextual_layer.attrs["max_pieces"]  # tokens have at least one piece
            pairs = make_pairs(kb, spans, mention, concept, context=context)
            return score_pairs(self.contextual_layer, pairs)

        return rescore_pairs(kb, batch.candidates, logit, temperature=1.0)
