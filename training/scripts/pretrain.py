"""Pre-train a name encoder on the synonyms of knowledge bases and on training mentions.

Writes a folder for `initialize.components.bioel_linker.encoder`. To resume a run that was stopped,
repeat the command: the state is in OUT-checkpoint.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from pretraining import Run
from scipy.sparse import coo_array, csr_array
from spacy.util import load_config, registry
from spacy.vocab import Vocab
from synonyms import by_concept, join_names, names_of_kb, names_of_mentions
from thinc.api import get_torch_default_device
from tokenizers import Tokenizer
from torch.nn import functional as F
from train import find_transformer

from spacy_bioel.cli.console import GpuId
from spacy_bioel.corpus import read_docs
from spacy_bioel.doc import split_kb_id
from spacy_bioel.files import replacing_folder
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.name_encoder import (
    EncoderSource,
    NameEncoder,
    add_encoder,
    add_rescnn,
    encode_names,
    get_network,
    write_encoder,
)
from spacy_bioel.models.networks import info_nce_loss
from spacy_bioel.models.vocabulary import (
    RANDOM_SHARE,
    embedding_tables,
    flat_pieces,
    latent_vectors,
    piece_concepts,
    train_vocabulary,
)
from spacy_bioel.plugins.contextual.transformers import build_transformer_names_v1
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import DoubleArray, FloatArray, IntArray

_LOGGER = logging.getLogger("pretrain")
_N_NEIGHBOURS = 8
_PIECE_START = "\u2581"  # marks the first piece of a word
_RANDOM_SHARE_WITH_TEXTS = 0.125  # see `RANDOM_SHARE`
_CONTEXT_WIDTH = 5  # number of word pieces on each side that count as co-occurring
_SENTENCE_END = re.compile(r"(?<=[.;:])\s+")


class PieceRows:
    """Word pieces of all names in one flat array."""

    def __init__(self, tokenizer: Any, names: list[str]) -> None:
        encodings = tokenizer.encode_batch_fast(names, add_special_tokens=False)
        ids = [encoding.ids or [0] for encoding in encodings]
        self.lengths = np.array([len(row) for row in ids], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.flat = np.fromiter((i for row in ids for i in row), np.int64, self.lengths.sum())

    def take(self, rows: IntArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the concatenated piece ids of these names, and the number of pieces of each."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        nth = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = self.flat[np.repeat(self.starts[rows], lengths) + nth]
        return torch.from_numpy(ids), torch.from_numpy(lengths)


class Pretraining(Run):
    """Contrastive pre-training: two names of one concept are drawn together.

    names, concepts, sources: See `synonyms.Synonyms`.
    """

    def __init__(
        self, model: Any, names: list[str], concepts: IntArray, sources: IntArray, settings: dict
    ) -> None:
        scale = torch.nn.Parameter(torch.tensor(math.log(14.0), device=get_torch_default_device()))
        generator = np.random.default_rng(settings["seed"])
        super().__init__(get_network(model), settings, random=generator, scale=scale)
        self.log_scale, self.generator = scale, generator
        self.pieces = PieceRows(model.attrs["tokenizer"], names)
        self.order, self.starts = by_concept(concepts)
        self.counts = np.diff(self.starts)
        # Concepts with several names, and their cumulated probabilities.
        self.usable = np.flatnonzero(self.counts > 1)
        weights = np.array(settings["weights"])[np.minimum(sources, len(settings["weights"]) - 1)]
        weights = np.sqrt(self.counts[self.usable]) * weights[self.usable]
        self.cumulated = np.cumsum(weights / weights.sum())
        self.pool: IntArray | None = None
        self.neighbours = np.zeros((0, _N_NEIGHBOURS), dtype=np.int64)

    def run(self, checkpoint: Path) -> None:
        self.resume(checkpoint)
        losses: list[float] = []
        self.network.train()  # the network of an encoder starts in evaluation mode
        while self.step < self.settings["steps"]:
            if self.step and self.step % self.settings["refresh_every"] == 0:
                self.save(checkpoint)
                self._mine()
            concepts = self._draw()
            losses.append(self.take_step(partial(self._loss, concepts)))
            if self.step % 100 == 0:
                scale = float(self.log_scale.detach().exp())
                _LOGGER.info("%6d  loss %.3f  scale %.1f", self.step, np.mean(losses), scale)
                losses = []

    def _encode(self, rows: IntArray) -> torch.Tensor:
        precision = torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.settings["mixed_precision"]
        )
        ids, lengths = self.pieces.take(rows)
        with precision:
            vectors = self.network(ids.to(self.device), lengths.to(self.device))
        return F.normalize(vectors.float(), dim=1)

    def _draw_concepts(self, n: int) -> IntArray:
        return self.usable[np.searchsorted(self.cumulated, self.generator.random(n))]

    def _draw(self) -> IntArray:
        """Draw the concepts of a step; every other step adds concepts the encoder confuses."""
        n, confusable = self.settings["concepts"], self.settings["confusable"]
        if self.pool is None or self.step % 2:
            return np.unique(self._draw_concepts(n))
        seeds = self.generator.integers(0, len(self.pool), n // (1 + confusable))
        near = self.generator.permuted(self.neighbours[seeds], axis=1)[:, :confusable]
        return np.unique(self.pool[np.concatenate([seeds, near.ravel()])])

    def _loss(self, concepts: IntArray) -> torch.Tensor:
        counts = self.counts[concepts]
        first = self.generator.integers(0, counts)
        second = (first + 1 + self.generator.integers(0, counts - 1)) % counts
        names = [self.order[self.starts[concepts] + nth] for nth in (first, second)]
        labels = torch.arange(len(concepts), device=self.device).repeat(2)
        vectors = self._encode(np.concatenate(names))
        temperature = 1 / self.log_scale.exp().clamp(max=100)
        return info_nce_loss(vectors, labels, temperature=temperature)

    @torch.no_grad()
    def _mine(self) -> None:
        """Find the nearest concepts in a new pool, by one name of each concept."""
        self.network.eval()
        self.pool = np.unique(self._draw_concepts(self.settings["pool"]))
        nth = self.generator.integers(0, self.counts[self.pool])
        rows = self.order[self.starts[self.pool] + nth]
        by_length = np.argsort(self.pieces.lengths[rows], kind="stable")
        vectors = torch.empty(len(rows), 0)
        for start in range(0, len(rows), 512):
            part = by_length[start : start + 512]
            encoded = self._encode(rows[part])
            if not vectors.numel():
                vectors = encoded.new_empty(len(rows), encoded.shape[1])
            vectors[torch.from_numpy(part)] = encoded
        if self.settings["mixed_precision"]:
            vectors = vectors.bfloat16()
        neighbours = []
        n = min(_N_NEIGHBOURS, len(rows) - 1)
        for start in range(0, len(rows), 2048):
            cosines = vectors[start : start + 2048] @ vectors.T
            block_rows = torch.arange(len(cosines), device=self.device)
            cosines[block_rows, block_rows + start] = -1  # a name is not its own neighbour
            neighbours.append(cosines.topk(n, dim=1).indices.cpu().numpy())
        self.neighbours = np.concatenate(neighbours)
        self.network.train()


def read_mentions(paths: Iterable[Path], kbs: list[KnowledgeBase]) -> Iterator[tuple[str, str]]:
    """Yield string and id of the gold mentions with one id; retired ids are replaced."""
    for path in paths:
        for doc in read_docs(path, Vocab()):
            for span in doc.spans[GOLD_KEY]:
                ids = split_kb_id(span.kb_id_)
                if len(ids) == 1:
                    known = [kb for kb in kbs if kb.find(ids[0]) >= 0]
                    yield span.text, known[0].canonical(ids[0]) if known else ids[0]


def read_sentences(paths: Iterable[Path], kbs: Iterable[KnowledgeBase]) -> Iterator[str]:
    """Yield the normalised sentences of documents and of the definitions of concepts."""
    texts = (doc.text for path in paths for doc in read_docs(path, Vocab()))
    definitions = (kb.definition(row) for kb in kbs for row in range(len(kb)))
    for text in chain(texts, definitions):
        yield from filter(None, map(normalize_name, _SENTENCE_END.split(text)))


def piece_vectors(
    tokenizer: Tokenizer,
    names: Sequence[str],
    concepts: IntArray,
    texts: Sequence[str],
    *,
    width: int,
    encode: Callable[[Sequence[str]], FloatArray] | None,
) -> DoubleArray:
    """Return word piece embeddings without their random part. Shape (n_pieces, less than width).

    names, concepts: Normalised names, and the concept of each.
    texts (Sequence[str]): Normalised sentences. If there are any, half comes from co-occurrence.
    encode (Callable | None): Encodes word pieces as words with another encoder. If passed, half
        comes from its vectors.
    """
    n_latent = int(width * (1 - (_RANDOM_SHARE_WITH_TEXTS if texts else RANDOM_SHARE)))
    matrices: list[Any] = [piece_concepts(tokenizer, names, concepts)]
    matrices += [_piece_contexts(tokenizer, texts)] if texts else []
    shares = [1 / len(matrices)] * len(matrices)
    if encode is not None:
        vocabulary = tokenizer.get_vocab()
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        vectors = encode([piece.replace(_PIECE_START, " ").strip() or piece for piece in pieces])
        matrices = [vectors - vectors.mean(axis=0), *matrices]
        shares = [0.5, *(share / 2 for share in shares)]
    borders = (n_latent * np.cumsum([0, *shares])).astype(int)
    parts = []
    for matrix, size, share in zip(matrices, np.diff(borders), shares, strict=True):
        # The squared length of each part of an embedding is proportional to its share.
        parts.append(latent_vectors(matrix, size) * np.sqrt(share / shares[0]))
    return np.concatenate(parts, axis=1)


def _piece_contexts(tokenizer: Tokenizer, texts: Sequence[str]) -> csr_array:
    """Return the positive pointwise mutual information of nearby pieces. Sparse (n_pieces,
    n_pieces).

    Levy and Goldberg (2014), Neural Word Embedding as Implicit Matrix Factorization.
    """
    flat, text = flat_pieces(tokenizer, texts)
    first, second, weight = [], [], []
    for distance in range(1, _CONTEXT_WIDTH + 1):
        left = np.flatnonzero(text[:-distance] == text[distance:])
        first += [flat[left], flat[left + distance]]
        second += [flat[left + distance], flat[left]]
        weight.append(np.full(2 * len(left), 1 / distance, dtype=np.float32))
    n = tokenizer.get_vocab_size()
    cells = (np.concatenate(first), np.concatenate(second))
    counts = coo_array((np.concatenate(weight), cells), shape=(n, n)).tocsr().tocoo()
    total = np.asarray(counts.sum(axis=1)).ravel()
    smoothed = total**0.75 / (total**0.75).sum()
    information = np.log(counts.data / (total[counts.row] * smoothed[counts.col]))
    counts.data = np.maximum(information, 0).astype(np.float32)
    return counts.tocsr()


def read_transformer(path: str, kb: KnowledgeBase) -> NameEncoder:
    """Return a transformer that encodes each word piece as if it were a name."""
    model = build_transformer_names_v1(pooling="mean")
    embeddings = find_transformer(path)
    add_encoder(model, EncoderSource(kb, (), embeddings, vocabulary=0, width=0))
    return model


def main(
    out: Path,
    kb: Annotated[list[Path], typer.Option(help="Knowledge bases, one option each.")],
    mentions: Annotated[
        list[Path] | None, typer.Option(help="Training documents, .spacy, one option each.")
    ] = None,
    config: Annotated[Path, typer.Option()] = Path("training/configs/pretrain.cfg"),
    gpu_id: GpuId = -1,
) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = load_config(config)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    torch.manual_seed(settings["pretraining"]["seed"])
    opened = [KnowledgeBase.open(path) for path in kb]
    synonyms = join_names(
        [
            *(names_of_kb(one) for one in opened),
            *(names_of_mentions(read_mentions([path], opened)) for path in mentions or []),
        ]
    )
    concepts = np.array(synonyms.concepts, dtype=np.int64)
    _LOGGER.info("%d names of %d concepts", len(concepts), len(synonyms.sources))
    model = registry.resolve({"model": settings["model"]})["model"]
    vocabulary = settings["vocabulary"]
    transformer = read_transformer(vocabulary["path"], opened[0]) if vocabulary["path"] else None
    tokenizer = train_vocabulary(synonyms.names, size=vocabulary["size"])
    latent = piece_vectors(
        tokenizer,
        synonyms.names,
        concepts,
        list(read_sentences(mentions or [], opened)),
        width=vocabulary["width"],
        encode=partial(encode_names, transformer) if transformer else None,
    )
    sizes = {"width": vocabulary["width"], "max_tokens": model.attrs["max_tokens"]}
    add_rescnn(model, tokenizer, embedding_tables(latent, **sizes))
    run = Pretraining(
        model, synonyms.names, concepts, np.array(synonyms.sources), settings["pretraining"]
    )
    checkpoint = out.with_name(f"{out.name}-checkpoint")
    run.run(checkpoint)
    run.network.to("cpu")
    with replacing_folder(out) as folder:
        write_encoder(model, folder)
    shutil.rmtree(checkpoint, ignore_errors=True)
    _LOGGER.info("Wrote %s", out)


if __name__ == "__main__":
    typer.run(main)
