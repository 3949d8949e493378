"""Reading with a generative linker: names are written about each mention in its context."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import Model

from spacy_bioel.errors import Warnings
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.trie import build_trie, write_trie
from spacy_bioel.models.marked import Marked, MarkedPieces
from spacy_bioel.pipeline.contextual.weighing import Reading, nearest_names, weigh
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.searches import needs_no_folder
from spacy_bioel.pipeline.linker.training import NameTraining, gold_mentions
from spacy_bioel.text.normalize import normalize_name, normalize_names
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]
PROPOSES = True
EVIDENCE = "generated"
# Of mean log-probabilities: the least that counts as written, and the divisor.
_FLOOR, _TEMPERATURE = -4.0, 0.25


def mark(spans: Sequence[Span], strings: Sequence[str], *, context: int) -> list[Marked]:
    """Mentions in their contexts, normalised.

    strings (Sequence[str]): Normalised strings of the mentions, abbreviations written out.
    context (int): Tokens before and after a mention. The model takes what fits of them.
    """
    return [
        Marked(
            normalize_name(span.doc[max(0, span.start - context) : span.start].text),
            string,
            normalize_name(span.doc[span.end : span.end + context].text),
        )
        for span, string in zip(spans, strings, strict=True)
    ]


def read(
    model: Model[Any, Any],
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
) -> Reading:
    """Pairs to weigh: the candidates of the strings, and the concepts whose names are written.

    A name of several concepts proposes all of them: what their strings say decides.
    """
    kb = generator.kb
    owner, concept, score = generate(model, generator, mentions)
    pairs = owner * len(kb) + concept

    def likeness(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
        wanted = mention * len(kb) + concept
        if not len(pairs):
            return np.full(len(wanted), _FLOOR)
        at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        return np.where(pairs[at] == wanted, score[at], _FLOOR)

    return weigh(
        kb,
        given,
        likeness,
        owner,
        concept,
        temperature=_TEMPERATURE,
        evidence=EVIDENCE,
        reads_given=False,
    )


def generate(
    model: Model[Any, Any], generator: CandidateGenerator, mentions: Mentions
) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
    """Concepts of the names that are written about mentions, of types that their labels may have.

    RETURNS (tuple): Number of the mention, concept row, and logarithm of the sum over its names of
        exp(mean log-probability), not below a floor; sorted by mention and concept. Shape (n,).
    """
    from spacy_bioel.models.writing import write_about  # which needs torch

    kb, writer = generator.kb, model.get_ref("generator")
    pieces: MarkedPieces = writer.attrs["pieces"]
    trie = generator.trie(pieces)
    marked = mark(mentions.spans, mentions.strings, context=pieces.max_pieces)
    written, n_cut = write_about(writer, trie, marked)
    if n_cut:
        about = {"n": n_cut, "of": len(marked), "room": pieces.room}
        warnings.warn(Warnings.W280.format(**about), stacklevel=2)
    indptr, rows = trie.names_of(written.leaf)
    name = np.repeat(np.arange(len(written.leaf)), np.diff(indptr))
    indptr, concept, _ = kb.concepts_of_names(rows)
    name = np.repeat(name, np.diff(indptr))
    # Names of one leaf that share a concept are one name.
    once = np.unique(name * len(kb) + concept)
    name, concept = once // len(kb), once % len(kb)
    owner = written.mention[name]
    may = generator.allowed(concept, mentions.labels, owner)
    keys, place = np.unique((owner * len(kb) + concept)[may], return_inverse=True)
    total = np.bincount(place, np.exp(written.score[name][may].astype(np.float64)), len(keys))
    score = np.maximum(np.log(np.maximum(total, np.exp(_FLOOR))), _FLOOR)
    return keys // len(kb), keys % len(kb), score


def prepare(model: Model[Any, Any], kb: KnowledgeBase) -> None:
    """Write the trie of a knowledge base, unless it is small, and say what is left out."""
    pieces: MarkedPieces = model.get_ref("generator").attrs["pieces"]
    if needs_no_folder(kb) or kb.path is None:
        trie = build_trie(kb, pieces.writable)
    else:
        trie = write_trie(kb, pieces.writable, fingerprint=pieces.fingerprint)
    if trie.left_out:
        about = {"n": trie.left_out, "of": kb.n_names, "nameless": trie.nameless}
        warnings.warn(Warnings.W281.format(path=kb.where, **about), stacklevel=2)


class Training(NameTraining):
    """Trains an encoder-decoder to write, about a mention, the name of its concept that is most
    like it. The encoder of names stays as it is.

    A few mentions of each update, `training.mentions`, and as many other names as
    `training.synonyms` in the contexts of these: half of them are to be copied, half to be called
    by any name of their concept. Without them, names that training does not mention are forgotten.
    """

    def update(self, examples: Sequence[Example]) -> float | None:
        return self.learn(examples)

    def draw_names(self, contexts: Sequence[Marked]) -> tuple[list[Marked], list[str]]:
        """Names of the pool in the contexts of mentions, and what is to be written about each."""
        n = self.settings.synonyms
        rows = self._random.choice(self.pool.rows, n)
        indptr, concepts, _ = self.kb.concepts_of_names(rows)
        targets = [
            row if self._random.random() < 0.5 else self._random.choice(self.kb.names_of(concept))
            for row, concept in zip(rows, concepts[indptr[:-1]].tolist(), strict=True)
        ]
        strings, names = (normalize_names(self.kb.names.take(of)) for of in (rows, targets))
        places = self._random.integers(len(contexts), size=n).tolist()
        found = [
            contexts[place]._replace(mention=string)
            for place, string in zip(places, strings, strict=True)
        ]
        return found, names

    def learn(self, examples: Sequence[Example]) -> float | None:
        gold, ids = gold_mentions(examples, self.state.settings)
        rows, strings = self.kb.find_all(ids), gold.strings
        known = np.flatnonzero(rows >= 0)
        n = min(len(known), self.settings.mentions)
        chosen = self._random.choice(known, n, replace=False).tolist()
        if not chosen:
            return None
        own = [strings[i] for i in chosen]
        context = self.model.get_ref("generator").attrs["max_pieces"]
        marked = mark([gold.spans[i] for i in chosen], own, context=context)
        nearest = nearest_names(self.kb, own, rows[chosen])
        names = normalize_names(self.kb.names.take(nearest))
        others, their_names = self.draw_names(marked)
        losses, backprop = self.model.begin_update((marked + others, names + their_names))
        backprop(losses * 0 + 1 / len(losses))  # of their mean
        return float(losses.mean())
