"""What the linker learns from, and how: a class for each kind of model, see `make_training`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.training import Example

from spacy_bioel.models.bi_encoder import collective_loss
from spacy_bioel.models.cross_encoder import pairs_loss
from spacy_bioel.models.name_encoder import name_loss
from spacy_bioel.pipeline.contextual.cross_encoder import make_pairs
from spacy_bioel.pipeline.gold import gold_spans
from spacy_bioel.pipeline.linker.queries import Mentions, given_candidates, rank_mentions
from spacy_bioel.pipeline.linker.sampling import CandidateSampler, NamePool, NameSampler
from spacy_bioel.text.normalize import normalize_name

IntArray = NDArray[np.int64]


def gold_mentions(linker: Any, examples: Sequence[Example]) -> tuple[Mentions, list[str]]:
    """Those with one id, and the id of each."""
    docs = [example.predicted for example in examples]
    gold = [
        [g for g in gold_spans(example, key=linker.cfg["gold_key"]) if len(g.ids) == 1]
        for example in examples
    ]
    spans = [[doc[g.start : g.end] for g in found] for doc, found in zip(docs, gold, strict=True)]
    ids = [g.ids[0] for found in gold for g in found]
    return Mentions(docs, spans, [linker.queries(of_doc) for of_doc in spans]), ids


def training_strings(linker: Any, examples: Sequence[Example]) -> list[tuple[str, str]]:
    """Strings of the gold mentions, as written and with abbreviations written out, and ids."""
    mentions, ids = gold_mentions(linker, examples)
    spans = (span for of_doc in mentions.spans for span in of_doc)
    return [
        (string, concept_id)
        for span, whole, concept_id in zip(spans, mentions.strings, ids, strict=True)
        for string in sorted({normalize_name(span.text), whole} - {""})
    ]


def make_training(linker: Any) -> NameTraining:
    """Begin to train a linker (pipeline.linker.Linker) whose encoder of names is there."""
    kinds = {"dual_encoder": CollectiveTraining, "reranker": PairTraining}
    return kinds.get(linker.model.name, NameTraining)(linker)


class NameTraining:
    """Trains an encoder of names: those of one concept together, those of others apart."""

    def __init__(self, linker: Any) -> None:
        settings = linker.cfg["training"]
        self.linker = linker
        self.settings = settings
        self.ranker = linker.ranker
        self.kb = linker.kb
        self.ranker.pool = NamePool(self.kb, linker.memory, size=settings["pool_names"])
        self._sampler = NameSampler(
            self.kb,
            linker.memory,
            n_synonyms=settings["synonyms"],
            n_negatives=settings["negatives"],
            seed=settings["seed"],
        )
        self._updates = 0

    def update(self, examples: Sequence[Example]) -> float | None:
        """Add the gradients of one update. RETURNS (float | None): Its loss; None: no gradient."""
        if self._updates and self._updates % self.settings["refresh_every"] == 0:
            self.mine()
        self._updates += 1
        loss = self.learn(examples)
        self.ranker.encoder_changed()
        return loss

    def mine(self) -> None:
        """Look for new negatives with the model as it is now."""
        self.ranker.encoder_changed()  # an evaluation may have encoded with averaged weights
        self._sampler.mine(self.ranker.encode, self.ranker.names)

    def learn(self, examples: Sequence[Example]) -> float | None:
        names, concepts = self.draw(examples)
        if not names:
            return None
        vectors, backprop = self.linker.encoder.begin_update(names)
        loss, d_vectors = name_loss(vectors, concepts, loss=self.settings["loss"])
        backprop(d_vectors)
        return loss

    def draw(self, examples: Sequence[Example]) -> tuple[list[str], IntArray]:
        """Names, and their concept rows, around the gold mentions that the KB knows."""
        gold = training_strings(self.linker, examples)
        rows = self.kb.find_all([concept_id for _, concept_id in gold])
        known = [(s, int(row)) for (s, _), row in zip(gold, rows, strict=True) if row >= 0]
        return self._sampler.draw(known)


class CollectiveTraining(NameTraining):
    """Trains both sides of a dual encoder: names as above, and mentions towards names of theirs."""

    def __init__(self, linker: Any) -> None:
        super().__init__(linker)
        self._contrast = CandidateSampler(
            self.kb, n_candidates=self.settings["candidates"], seed=self.settings["seed"]
        )

    def mine(self) -> None:
        super().mine()
        self._contrast.mine(self.ranker.names)

    def learn(self, examples: Sequence[Example]) -> float:
        model = self.linker.model
        names, name_concepts = self.draw(examples)
        gold, ids = gold_mentions(self.linker, examples)
        strings, concepts = gold.strings, self.kb.find_all(ids)
        known = np.flatnonzero(concepts >= 0)
        known_strings = [strings[i] for i in known]
        rows = self._contrast.draw(known_strings, concepts[known])
        candidates = [normalize_name(name) for name in self.kb.names.take(rows)]
        texts = {text: i for i, text in enumerate(dict.fromkeys([*names, *strings, *candidates]))}
        of_strings = np.array([texts[text] for text in strings], dtype=np.int64)
        of_candidates = np.array([texts[text] for text in candidates], dtype=np.int64)
        found, backprop_names = self.linker.encoder.begin_update(list(texts))
        vectors: Any = found
        d_vectors: Any = model.ops.alloc2f(*vectors.shape)
        total = 0.0
        if names:  # they come first
            total, d_names = name_loss(
                vectors[: len(names)], name_concepts, loss=self.settings["loss"]
            )
            d_vectors[: len(names)] += d_names
        # Even without a mention: the pipe that the tokens come from waits for its gradient.
        inputs = (gold.docs, gold.token_ranges(), vectors[of_strings])
        mentions, backprop_mentions = model.begin_update(inputs)
        indptr, owners, _ = self.kb.concepts_of_names(rows)
        right = np.logical_or.reduceat(concepts[:, None] == owners, indptr[:-1], axis=1)
        value, d_mentions, d_candidates = collective_loss(mentions, vectors[of_candidates], right)
        model.ops.scatter_add(d_vectors, of_candidates, d_candidates)
        model.ops.scatter_add(d_vectors, of_strings, backprop_mentions(d_mentions))
        backprop_names(d_vectors)
        read = model.ops.to_numpy(mentions)
        self._contrast.remember(known_strings, concepts[known], read[known])
        return total + value


class PairTraining(NameTraining):
    """Trains a cross-encoder to tell the right candidate from others that the string is given.

    A few mentions of each update, `training.mentions`, with `training.candidates` each: reading
    all pairs would take hours. The encoder of names stays as it is.
    """

    def __init__(self, linker: Any) -> None:
        super().__init__(linker)
        self._generator = np.random.default_rng(self.settings["seed"])

    def update(self, examples: Sequence[Example]) -> float | None:
        return self.learn(examples)

    def learn(self, examples: Sequence[Example]) -> float | None:
        gold, ids = gold_mentions(self.linker, examples)
        rows = self.kb.find_all(ids)
        ranked = rank_mentions(self.ranker, gold, coherence=0.0)
        given = given_candidates(gold, ranked)
        known = np.flatnonzero(rows >= 0)
        n = min(len(known), self.settings["mentions"])
        chosen = np.sort(self._generator.choice(known, n, replace=False))
        if not n:
            return None
        owners, concepts = [], []
        for i, number in enumerate(chosen.tolist()):
            found = self.kb.find_all([c.id for c in given[number]])
            wrong = found[found != rows[number]][: self.settings["candidates"] - 1]
            owners += [i] * (1 + len(wrong))
            concepts += [int(rows[number]), *wrong.tolist()]
        owner, concept = np.array(owners, dtype=np.int64), np.array(concepts, dtype=np.int64)
        flat = [span for of_doc in gold.spans for span in of_doc]
        spans = [flat[number] for number in chosen.tolist()]
        model = self.linker.model
        context = model.get_ref("pairs").attrs["max_pieces"]
        pairs = make_pairs(self.kb, spans, owner, concept, context=context)
        logits, backprop = model.begin_update(pairs)
        loss, d_logits = pairs_loss(logits, owner, concept == rows[chosen][owner])
        backprop(d_logits)
        return loss
