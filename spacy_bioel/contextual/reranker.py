"""Cross-encoder: a transformer that scores a mention in its context together with a candidate.

Training starts from a Hugging Face checkpoint. Configuration, word pieces and weights are saved
with the pipe, so that loading a pipeline does not need the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

from spacy_bioel.contextual.rescoring import ContextualRescorer, PairScores, contextual_model, weigh
from spacy_bioel.contextual.transformers import (
    checkpoint_kind,
    in_context,
    misfit,
    pieces_of,
    read_checkpoint,
    set_backbone,
    special_pieces,
    split_room,
)
from spacy_bioel.entities import Mentions
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator, LinkerState
from spacy_bioel.linking.rescoring import Given
from spacy_bioel.linking.training import NameTraining, gold_mentions
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Pieces, pieces_model
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.settings import TrainingSettings
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Pair(NamedTuple):
    """A mention in its context, and the name of one of its candidates."""

    left: str
    mention: str
    right: str
    candidate: str


PairScorer = Model[Sequence[Pair], Floats1d]

# Word pieces not used in pretraining, which mark the mention; BERT has them, others may not.
_UNUSED = ("[unused1]", "[unused2]")
# Pairs tokenised at once: bounds the memory.
_PAIRS = 1024


@dataclass(frozen=True)
class PairPieces:
    """Encodes pairs as [CLS] left [Ms] mention [Me] right [SEP] candidate [SEP].

    The context is cut first. If mention and candidate alone exceed the room, `split_room` splits it
    between them, and they lose their ends.

    tokenizer (Tokenizer): Without padding or truncation.
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
        """Number of pieces available to the texts of a pair."""
        return self.max_pieces - len(self.prefix) - 2 * len(self.suffix) - len(self.markers)

    def __call__(self, pairs: Sequence[Pair]) -> tuple[IntArray, IntArray, IntArray]:
        """Piece ids of all pairs, concatenated, and the segment of each, 0 for the context and
        1 for the candidate, shape (n_pieces,); the length of each pair, shape (n_pairs,)."""
        # Contexts and candidates repeat from pair to pair: each text is tokenised once.
        pieces = pieces_of(self.tokenizer, (text for pair in pairs for text in pair))
        parts = []
        for left, mention, right, candidate in (map(pieces.__getitem__, pair) for pair in pairs):
            n, n_candidate = split_room(self.room, len(mention), len(candidate))
            marked = [self.markers[0], *mention[:n], self.markers[1]]
            room = self.room - n_candidate + len(self.markers)
            text = in_context(left, marked, right, room)
            parts.append([*self.prefix, *text, *self.suffix])
            parts.append([*candidate[:n_candidate], *self.suffix])
        ids, lengths = Pieces.of_rows(parts)
        segments = np.repeat(np.arange(len(parts)) % 2, lengths)
        return ids, segments, lengths.reshape(-1, 2).sum(axis=1)


def build_cross_encoder_v1(
    *,
    path: str | None = None,
    max_pieces: int = 128,
    learn_rate_scale: float = 1.0,
    mixed_precision: bool = False,
) -> PairScorer:
    """Registered as `spacy-bioel.CrossEncoder.v1`; see `contextual.networks` for the paper.

    `PairPieces` defines the input of a pair, and its truncation.

    path (str | None): Folder of a Hugging Face checkpoint with safetensors weights, or its id on
        the hub. It is read by `add_encoder`.
    max_pieces (int): Maximum number of word pieces of a pair, special ones included.
    learn_rate_scale (float): Factor on the learning rate of the checkpoint's weights; the new
        layer uses the full learning rate.
    mixed_precision (bool): Train under bfloat16 autocast, on a GPU, and on a CPU that has bfloat16.
    RETURNS (Model[Sequence[Pair], Floats1d]): A model from pairs to logits, which are comparable
        among the candidates of one mention. `add_encoder` adds its torch part.
    """
    settings = {"learn_rate_scale": learn_rate_scale, "mixed_precision": mixed_precision}
    return pieces_model(
        "cross_encoder",
        _KIND,
        settings,
        forward=_forward,
        extra="transformers",
        path=path,
        max_pieces=max_pieces,
    )


def build_reranker_v1(names: NameEncoder, pairs: PairScorer) -> Model:
    """Registered as `spacy-bioel.Reranker.v1`: candidate generation and reranking, as in BLINK.

    Wu et al. (2020), https://aclanthology.org/2020.emnlp-main.519.

    names (NameEncoder): Name encoder for dense search, one of the linker's sources of evidence. It
        generates candidates, and is not trained further.
    pairs (PairScorer): The cross-encoder, `spacy-bioel.CrossEncoder.v1`.
    """
    return contextual_model("reranker", RerankerRescorer, {"names": names, "pairs": pairs})


def _make(model: PairScorer, source: EncoderSource) -> None:
    """Load the checkpoint and add a new linear layer on top.

    RAISES BioelError: [B159] no checkpoint is named; those of `read_checkpoint` and `_add`.
    """
    if model.attrs["path"] is None:
        raise BioelError(Errors.B159)
    folder, backbone, tokenizer = read_checkpoint(
        model.attrs["path"], max_pieces=model.attrs["max_pieces"]
    )
    if _unused(tokenizer) is None:
        n_rows = backbone.config.vocab_size
        backbone.resize_token_embeddings(n_rows + len(_UNUSED), mean_resizing=False)
    _add(model, tokenizer, backbone, folder)


def _unused(tokenizer: Tokenizer) -> tuple[int, int] | None:
    first, second = (tokenizer.token_to_id(piece) for piece in _UNUSED)
    return None if first is None or second is None else (first, second)


def _add(
    model: PairScorer, tokenizer: Tokenizer, backbone: PreTrainedModel, folder: Path | None
) -> None:
    """Set word pieces and network. RAISES BioelError: [B154] no special pieces, or no room."""
    from spacy_bioel.contextual.networks import CrossEncoder

    prefix, suffix = special_pieces(tokenizer)
    if not (prefix and suffix):
        raise misfit(folder, "no special pieces around a text", "some, such as [CLS] and [SEP]")
    n_rows = backbone.config.vocab_size
    markers = _unused(tokenizer) or (n_rows - 2, n_rows - 1)  # the rows added to the embeddings
    pieces = PairPieces(tokenizer, prefix, suffix, markers, model.attrs["max_pieces"])
    if pieces.room < 2:
        least = f"at least {pieces.max_pieces - pieces.room + 2}"
        raise misfit(folder, f"max_pieces = {pieces.max_pieces}", least)
    set_backbone(model, tokenizer, CrossEncoder(backbone, **model.attrs["settings"]))
    model.attrs["pieces"] = pieces


_KIND = checkpoint_kind(_make, _add)


def score_pairs(model: PairScorer, pairs: Sequence[Pair]) -> NDArray[np.float32]:
    """Logits of pairs of any number of mentions, those of a mention together: equal texts within a
    batch are tokenised once. Shape (n_pairs,)."""
    batches = [pairs[start : start + _PAIRS] for start in range(0, len(pairs), _PAIRS)]
    scores = [model.ops.to_numpy(model.predict(batch)) for batch in batches]
    return np.concatenate([np.zeros(0, np.float32), *scores])


def _forward(
    model: PairScorer, pairs: Sequence[Pair], is_train: bool
) -> tuple[Floats1d, Callable[[Floats1d], list]]:
    return model.get_ref("network")(model.attrs["pieces"](pairs), is_train)


def make_pairs(
    kb: KnowledgeBase, spans: Sequence[Span], owner: IntArray, concept: IntArray, *, context: int
) -> list[Pair]:
    """Mentions in their contexts, each with its concepts.

    owner, concept (IntArray): Number of the mention among `spans`, concept row. Shape (n_pairs,).
    context (int): Tokens before and after a mention. The model takes what fits of them.
    """
    before = [span.doc[max(0, span.start - context) : span.start].text for span in spans]
    after = [span.doc[span.end : span.end + context].text for span in spans]
    texts = [span.text for span in spans]
    return [
        Pair(before[i], texts[i], after[i], kb.preferred_name(row))
        for i, row in zip(owner.tolist(), concept.tolist(), strict=True)
    ]


class Training(NameTraining):
    """Trains a cross-encoder to tell the right candidate from others that the string is given.

    A few mentions of each update, `training.mentions`, with `training.candidates` each: reading
    all pairs would take hours. The encoder of names stays as it is.
    """

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        super().__init__(model, state, settings)
        self._candidates = CandidateGenerator(replace(state, pool=self.pool_of(state)))

    def update(self, examples: Sequence[Example]) -> float | None:
        from spacy_bioel.contextual.networks import ranking_loss

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
            found = self.kb.find_all([c.id for c in ranked[gold.strings[number], ""]])
            wrong = found[found != rows[number]][: self.settings.candidates - 1]
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


class RerankerRescorer(ContextualRescorer):
    proposes = False
    training = Training
    layer = "pairs"
    prefix = "pairs."

    def read(self, generator: CandidateGenerator, mentions: Mentions, given: Given) -> PairScores:
        """Pairs: the candidates of the strings, no others."""
        kb, spans = generator.kb, mentions.spans

        def logit(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
            context = self.reader.attrs["max_pieces"]  # a token is a piece at least
            pairs = make_pairs(kb, spans, mention, concept, context=context)
            return score_pairs(self.reader, pairs)

        return weigh(kb, given, logit, temperature=1.0)
