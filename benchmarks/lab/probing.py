"""Probing: how much an encoder of names needs the order of word pieces, and attention from afar.

Lai, Ji and Zhai (2021), BERT might be Overkill: A Tiny but Effective Biomedical Entity Linker
based on Residual Convolutional Neural Networks, https://aclanthology.org/2021.findings-emnlp.140,
table 1. The encoder is as it was trained; only its input, or its attention, is changed, for
mentions and names of the knowledge base alike. Dense search alone is measured, without other
evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language

from benchmarks.lab.attention import attention_layers, restricted_attention
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.index import ExactIndex
from spacy_bioel.kb.vectors.quantized import quantize
from spacy_bioel.models.name_encoder import NameEncoder, encode_pieces, get_network, piece_ids
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText

_BLOCK = 4096  # names between two reports of progress


@dataclass(frozen=True, slots=True)
class Perturbation:
    """One row of the table.

    block (int): Blocks of so many word pieces are shuffled; 0: none.
    window (int): Tokens that a token may attend to, itself in the middle; 0: all.
    cls_open (bool): In which of two ways [CLS] is an exception. True: it attends to all and is
        attended to by all, in every layer (the paper's code). False: it attends to all in the
        last layer only (the paper's text).
    """

    name: str
    block: int = 0
    window: int = 0
    cls_open: bool = False


PERTURBATIONS = (
    Perturbation("unperturbed"),
    Perturbation("shuffle_unigram", block=1),
    Perturbation("shuffle_bigram", block=2),
    Perturbation("shuffle_trigram", block=3),
    Perturbation("window_3_paper", window=3),
    Perturbation("window_3_code", window=3, cls_open=True),
    Perturbation("window_5_paper", window=5),
    Perturbation("window_5_code", window=5, cls_open=True),
)


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of one perturbation.

    correct (int | None): Mentions whose nearest name is one of a gold concept; None where the
        encoder has no attention to restrict.
    n (int): Gold mentions.
    """

    perturbation: str
    correct: int | None
    n: int

    @property
    def accuracy(self) -> float | None:
        """A percentage."""
        return None if self.correct is None else 100.0 * self.correct / self.n


def shuffle_blocks(
    pieces: Sequence[int], *, block: int, generator: np.random.Generator
) -> list[int]:
    """Cut word pieces into blocks of `block`, the last maybe shorter, and permute the blocks.

    pieces (Sequence[int]): Of one name, without special pieces.
    """
    blocks = [pieces[start : start + block] for start in range(0, len(pieces), block)]
    return [piece for i in generator.permutation(len(blocks)) for piece in blocks[i]]


def window_mask(length: int, last: bool, *, window: int, cls_open: bool) -> NDArray[np.bool_]:
    """True where a token (row) may attend to a token (column); [CLS] is token 0.

    last (bool): This is the last layer.
    window, cls_open: See `Perturbation`.
    RETURNS (NDArray[bool]): Shape (length, length).
    """
    places = np.arange(length)
    allowed = np.abs(places[:, None] - places) <= window // 2
    if cls_open or last:
        allowed[0] = True
    if cls_open:
        allowed[:, 0] = True
    return allowed


def gold_queries(
    nlp: Language, linker: Linker, texts: Iterable[AnnotatedText]
) -> tuple[list[str], list[frozenset[int]]]:
    """Strings that the linker looks up for the gold mentions that have ids, and their concepts.

    RETURNS (tuple): Normalised strings, and concept rows of each; none where the knowledge base
        does not know the ids.
    RAISES ValueError: When the knowledge base knows no id of any gold mention.
    """
    queries: list[str] = []
    gold: list[frozenset[int]] = []
    for text in texts:
        doc = nlp.make_doc(text.text)
        mentions = [mention for mention in text.mentions if mention.ids]
        spans = [
            doc.char_span(mention.start, mention.end, mention.label, alignment_mode="expand")
            for mention in mentions
        ]
        strings = iter(linker.queries([span for span in spans if span is not None]))
        for span, mention in zip(spans, mentions, strict=True):
            queries.append(next(strings).whole if span is not None else "")
            rows = linker.kb.find_all(list(mention.ids))
            gold.append(frozenset(rows[rows >= 0].tolist()))
    if not any(gold):
        raise ValueError(
            f"None of the {len(queries)} gold mentions has an id of {linker.kb.where}. If the ids "
            "lack a prefix, give --prefix, e.g. --prefix MESH; otherwise give another --kb."
        )
    return queries, gold


def probe(
    linker: Linker,
    queries: Sequence[str],
    gold: Sequence[frozenset[int]],
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[Probed]:
    """Accuracy of the nearest name under each perturbation.

    A query is right if its nearest name is a name of any of its gold concepts.

    queries (Sequence[str]), gold (Sequence): From `gold_queries`.
    seed (int): Of the shuffles; every name and every mention has a draw of its own.
    progress (Callable | None): Is told the number of strings after each batch.
    RETURNS (list[Probed]): In the order of `PERTURBATIONS`.
    RAISES ValueError: without a trained encoder.
    """
    if not linker.has_encoder:
        raise ValueError(f"{linker.name} has no encoder of names")
    names = [normalize_name(name) for name in linker.kb.names]
    found = []
    for perturbation in PERTURBATIONS:
        correct = None
        if not perturbation.window or attention_layers(get_network(linker.model)):
            nearest = _nearest(linker.model, names, queries, perturbation, seed, progress)
            correct = _n_correct(linker.kb, nearest, gold)
        found.append(Probed(perturbation.name, correct, len(queries)))
    return found


def _nearest(
    model: NameEncoder,
    names: Sequence[str],
    queries: Sequence[str],
    perturbation: Perturbation,
    seed: int,
    progress: Callable[[int], None] | None,
) -> NDArray[np.int64]:
    """Row of the nearest name of each query; -1 for an empty one. Shape (n_queries,)."""
    generator = np.random.default_rng([seed, perturbation.block])
    strings = [*names, *queries]
    vectors = np.zeros((len(strings), model.get_dim("nO")), dtype=np.float32)
    with _restricted(model, perturbation):
        for start in range(0, len(strings), _BLOCK):
            block = strings[start : start + _BLOCK]
            batches = list(_shuffled_batches(model, block, perturbation.block, generator))
            vectors[start : start + _BLOCK] = encode_pieces(model, batches)
            if progress is not None:
                progress(len(block))
    index = ExactIndex(quantize(vectors[: len(names)]))
    rows = index.search(vectors[len(names) :], 1)[0][:, 0]
    return np.where([query != "" for query in queries], rows, -1)


def _restricted(model: NameEncoder, perturbation: Perturbation) -> AbstractContextManager[None]:
    if not perturbation.window:
        return nullcontext()
    mask = partial(window_mask, window=perturbation.window, cls_open=perturbation.cls_open)
    return restricted_attention(get_network(model), mask)


def _shuffled_batches(
    model: NameEncoder, names: Sequence[str], block: int, generator: np.random.Generator
) -> Iterator[list[list[int]]]:
    """Word pieces of names, shuffled in one order of names; special pieces stay where they are.

    block (int): See `Perturbation`.
    """
    first, last = len(model.attrs["prefix"]), len(model.attrs["suffix"])
    size = model.attrs["batch_size"]
    for start in range(0, len(names), size):
        batch = piece_ids(model, names[start : start + size])
        if block:
            for ids in batch:
                inner = slice(first, len(ids) - last)
                ids[inner] = shuffle_blocks(ids[inner], block=block, generator=generator)
        yield batch


def _n_correct(kb: KnowledgeBase, names: NDArray[np.int64], gold: Sequence[frozenset[int]]) -> int:
    """Queries whose nearest name is one of a gold concept. names: shape (n_queries,)."""
    indptr, concepts, _ = kb.concepts_of_names(names)
    return sum(
        not rows.isdisjoint(concepts[indptr[i] : indptr[i + 1]].tolist())
        for i, rows in enumerate(gold)
    )
