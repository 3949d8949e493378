"""Train the name encoder: sample synonyms and hard negatives, and update the weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.batch import Batch
from spacy_bioel.doc import gold_spans
from spacy_bioel.errors import Warnings
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vectors import EncodeNames
from spacy_bioel.linking.candidates import LinkerState
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.searches import (
    EncodedNames,
    FrozenEncoder,
    NamePool,
    NameSearch,
    needs_no_folder,
)
from spacy_bioel.linking.starter import ENCODER
from spacy_bioel.models.name_encoder import (
    EncoderSource,
    add_encoder,
    name_encoder_of,
    read_encoder,
)
from spacy_bioel.models.torch_io import loss_and_gradients
from spacy_bioel.settings import LinkerSettings, TrainingSettings
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import IntArray

if TYPE_CHECKING:
    from spacy_bioel.linking.rescoring import Rescorer

_MAX_NEGATIVES = 10  # max. hard negatives stored per training string


class NameSampler:
    """Draws names for training, deterministically for a given seed.

    settings (TrainingSettings): Number of `synonyms` (pairs of names for the same concept) in each
        update, and of `negatives` (hard negatives) for each mention.
    """

    def __init__(
        self, kb: KnowledgeBase, alias_table: AliasTable, settings: TrainingSettings
    ) -> None:
        self.kb, self.alias_table, self.settings = kb, alias_table, settings
        self._generator = np.random.default_rng(settings.seed)
        self._with_synonyms = np.flatnonzero(np.diff(kb.concept_offsets) > 1)
        self._mined: dict[str, IntArray] = {}

    def mine(self, encode: EncodeNames, search: NameSearch) -> None:
        """Find hard negatives for each training string: the nearest names of other concepts."""
        strings, right = self.alias_table.names, self.alias_table.concepts(self.kb)
        rows, _ = search.search(encode(strings), 2 * _MAX_NEGATIVES)
        for number, (start, end) in enumerate(pairwise(right.offsets.tolist())):
            gold = set(right.concepts[start:end].tolist())
            self._mined[strings[number]] = without(self.kb, rows[number], gold)[:_MAX_NEGATIVES]

    def draw(self, mentions: Sequence[tuple[str, int]]) -> tuple[list[str], IntArray]:
        """Draw strings and their concepts for one update.

        mentions (Sequence): Normalised string and concept row of each mention.
        RETURNS (tuple): Distinct strings, and the concept row of each, shape (n,). A string drawn
            for two concepts keeps only the first; otherwise the loss would push it away
            from itself.
        """
        drawn: dict[str, int] = {}
        choice = self._generator.choice

        def add(row: int, concept: int) -> None:
            drawn.setdefault(normalize_name(self.kb.name(int(row))), int(concept))

        for mention, concept in dict.fromkeys(mentions):
            drawn.setdefault(mention, concept)
            add(choice(self.kb.names_of(concept)), concept)
            if len(mined := self._mined.get(mention, ())):
                for row in choice(mined, self.settings.negatives):
                    add(row, self.kb.concepts_of_names(np.array([row]))[1][0])
        if len(self._with_synonyms):
            for concept in choice(self._with_synonyms, self.settings.synonyms).tolist():
                for row in choice(self.kb.names_of(concept), 2, replace=False):
                    add(row, concept)
        return list(drawn), np.fromiter(drawn.values(), dtype=np.int64, count=len(drawn))


def without(kb: KnowledgeBase, rows: IntArray, concepts: set[int]) -> IntArray:
    """Remove the given concepts' names, and the -1 padding, from name rows."""
    indptr, owners, _ = kb.concepts_of_names(rows)
    is_right = [
        row < 0 or not concepts.isdisjoint(owners[start:end].tolist())
        for row, start, end in zip(rows.tolist(), indptr, indptr[1:], strict=False)
    ]
    kept: IntArray = rows[~np.array(is_right, dtype=bool)].astype(np.int64)
    return kept


def gold_mentions(
    examples: Sequence[Example], settings: LinkerSettings, *, with_all: bool = False
) -> tuple[Batch, list[str]]:
    """Return the gold mentions that have exactly one id, along with those ids.

    with_all (bool): Also return mentions with no id or several ids, with "" as their id.
    """
    docs = [example.predicted for example in examples]
    spans, ids = [], []
    for doc, example in zip(docs, examples, strict=True):
        gold = gold_spans(example, key=settings.gold_key)
        wanted = [g for g in gold if with_all or len(g.ids) == 1]
        spans.append([doc[g.start : g.end] for g in wanted])
        ids += [g.ids[0] if len(g.ids) == 1 else "" for g in wanted]
    return Batch.of(docs, spans, settings), ids


def training_strings(
    examples: Sequence[Example], settings: LinkerSettings
) -> list[tuple[str, str]]:
    """Return (string, id) pairs for gold mentions, as written and with abbreviations expanded."""
    mentions, ids = gold_mentions(examples, settings)
    return [
        (string, concept_id)
        for span, whole, concept_id in zip(mentions.spans, mentions.strings, ids, strict=True)
        for string in sorted({normalize_name(span.text), whole} - {""})
    ]


def make_networks(
    model: Model[Any, Any],
    rescorer: Rescorer | None,
    kb: KnowledgeBase,
    get_examples: Callable[[], Iterable[Example]],
    *,
    gold_key: str,
    encoder: str | None,
    **arguments: Any,
) -> None:
    """Build a linker's networks: a name encoder and, for a contextual model, a contextual network.

    encoder (str | None): Folder of an encoder to start from (see training/scripts/pretrain.py), or
        "starter" for the bundled encoder. The name encoder then ignores the arguments below,
        which are passed to `EncoderSource`.
    more_names (Sequence[str]): Strings of the training mentions.
    embeddings (str | None): Hugging Face model directory with word pieces and embeddings, which
        are frozen; None: make them from the knowledge base names. For a transformer encoder: its
        checkpoint, unless the encoder settings specify one.
    vocabulary, width (int): Number of word pieces, and size of their embeddings.
    """

    def read_texts() -> list[str]:
        return [normalize_name(x.reference.text) for x in get_examples()]

    source = EncoderSource(kb, read_texts=read_texts, **arguments)
    if encoder is not None:
        folder = ENCODER if encoder == "starter" else Path(encoder)
        read_encoder(name_encoder_of(model), folder)
    else:
        add_encoder(name_encoder_of(model), source)
    if rescorer:
        rescorer.collect(get_examples(), kb, gold_key=gold_key)
        rescorer.add_network(source)


class NameTraining:
    """Trains a name encoder so that only names for the same concept get similar vectors.

    model (Model): The linker's model, whose name encoder already has a network.
    state (LinkerState): The linker's state when training begins; its frozen encoder is not used.
    """

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        self.model, self.encoder = model, name_encoder_of(model)
        self.state, self.kb, self.settings = state, state.kb, settings
        self.pool = NamePool(self.kb, state.alias_table.ids, size=settings.pool_names)
        self._sampler = NameSampler(self.kb, state.alias_table, settings)
        self._random = np.random.default_rng(settings.seed)  # used by contextual models
        self._updates = 0

    def update(self, examples: Sequence[Example]) -> float | None:
        """Accumulate a batch's gradients. RETURNS (float | None): The loss, if any."""
        if self._updates and self._updates % self.settings.refresh_every == 0:
            encoder = FrozenEncoder.of(self.encoder)
            self.mine(encoder, self.pool.encoded(encoder.encode))
        self._updates += 1
        return self.learn(examples)

    def pool_of(self, state: LinkerState) -> NamePool | None:
        """Return the names to link development documents against, or None for all names.

        Encoding all names of a large knowledge base at each evaluation would take longer than the
        training.
        """
        if needs_no_folder(state.kb):
            return None
        n, total = len(self.pool.names), state.kb.n_names
        if n < total:
            warnings.warn(Warnings.W273.format(n=n, of=total, path=state.kb.where), stacklevel=2)
        return self.pool

    def mine(self, encoder: FrozenEncoder, names: EncodedNames) -> None:
        """Find new hard negatives with the current encoder.

        names (EncodedNames): The encoded names of the pool.
        """
        self._sampler.mine(encoder.encode, names)

    def learn(self, examples: Sequence[Example]) -> float | None:
        """Accumulate a batch's gradients, and return its loss."""
        names, concepts = self.draw(examples)
        if not names:
            return None
        vectors, backprop = self.encoder.begin_update(names)
        loss, d_vectors = self.loss_of_names(vectors, concepts)
        backprop(d_vectors)
        return float(loss)

    def loss_of_names(self, vectors: Any, concepts: IntArray) -> tuple[Any, ...]:
        """Compute the configured loss for name vectors, and its gradient."""
        from spacy_bioel.models import networks

        loss = getattr(networks, f"{self.settings.loss}_loss")
        return loss_and_gradients(loss, vectors, concepts)

    def draw(self, examples: Sequence[Example]) -> tuple[list[str], IntArray]:
        """Draw names and their concept rows for gold mentions of concepts in the KB."""
        gold = training_strings(examples, self.state.settings)
        rows = self.kb.find_all([concept_id for _, concept_id in gold])
        known = [(s, int(row)) for (s, _), row in zip(gold, rows, strict=True) if row >= 0]
        return self._sampler.draw(known)
