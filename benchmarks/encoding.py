"""Measure the speed of name encoders, alone and with the same vector search.

python -m benchmarks.run encoding KB CHECKPOINT: names of a knowledge base, and the checkpoint of
MiniLM-L6, whose word pieces all transformers here use. In one run, from strings to unit vectors:

rescnn           the starter's encoder, as used for linking
rescnn_float32   the same network as it is trained
bert             BERT-base, float32, padded batches of 64: the usual way to run it
bert_best        the fastest of float32, bfloat16 and int8 (dynamic quantisation), with padding or
                 with names grouped by length
minilm, minilm_best

Times are wall time with all cores, the best of three. Linked: a query is encoded and searched
exactly among 80,000 vectors of the same size (random ones: the values do not affect the search, and
transformers would take an hour to encode as many names).

python -m benchmarks.run roofline KB: the share of the peak of one idle core that encoder and search
reach, in processor time:

peak      matrix products of the fastest size, and a copy within memory
encoder   names sorted by length, as in `bioel kb encode`: operations of the matrix products;
          operations fused into tables, shifts and activations are not counted
search    exact, 256 queries: products of queries and vectors
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import spacy
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModel, BertConfig, BertModel

from benchmarks.record import Row, question, rows_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vectors import ExactIndex, quantize
from spacy_bioel.linking.starter import read_starter_encoder
from spacy_bioel.models.name_encoder import (
    NameEncoder,
    encode_names,
    get_network,
    infer_by_torch,
    inference_of,
)
from spacy_bioel.parallel import use_one_thread
from spacy_bioel.plugins.contextual.networks import NameTransformer
from spacy_bioel.text.normalize import normalize_name

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
_BATCH = 64
_N_FEW_NAMES = 256  # for the slow encoders
_N_QUERIES, _N_SEARCHED = 256, 80_000


@question("encoding")
def encoding(kb: Path, checkpoint: Path) -> Iterator[Row]:
    strings = sample_names(KnowledgeBase.open(kb), 8192)
    rates: dict[str, float] = {}
    linked: dict[str, float] = {}
    for system, (encode, n) in _make_encoders(checkpoint, strings).items():
        queries = encode(strings[:n])
        random = np.random.default_rng(0).standard_normal((_N_SEARCHED, queries.shape[1]))
        index = ExactIndex(quantize(unit(random)))
        best = _best(time.perf_counter, 3, encode, strings[:n])
        rates[system] = n / best
        searching = _best(time.perf_counter, 3, index.search, queries, 10)
        linked[system] = n / (best + searching)
    about = {"n": len(strings), "searched": _N_SEARCHED, "threads": torch.get_num_threads()}
    for system in rates:
        # The speed-up reported in the paper: over BERT-base, both in their fastest form.
        other = "bert_best" if system == "rescnn" else system
        values = {
            "names_per_second": rates[system],
            "mentions_per_second": linked[system],
            "ratio": rates["rescnn"] / rates[other],
            "ratio_linked": linked["rescnn"] / linked[other],
        }
        if system == "rescnn":
            values["ratio_over_float32"] = rates["rescnn"] / rates["bert"]
        yield from rows_of(system, values, **about)


@question("roofline")
def roofline(kb: Path, names: int = 16_384) -> Iterator[Row]:
    use_one_thread()
    chance = np.random.default_rng(0)
    model = _starter_model()
    encode = Names(model, fast=True)
    strings = sorted(sample_names(KnowledgeBase.open(kb), names), key=len)
    n_tokens = sum(map(len, model.attrs["tokenizer"].encode_batch_fast(strings)))
    vectors = encode(strings)
    index = ExactIndex(quantize(vectors))
    queries = unit(chance.standard_normal((_N_QUERIES, vectors.shape[1])))

    def best(function: Callable, *arguments: Any) -> float:
        return _best(time.process_time, 5, function, *arguments)

    peak = 0.0
    for size in (256, 512, 1024, 2048):
        left, right = chance.standard_normal((2, size, size)).astype(np.float32)
        peak = max(peak, 2 * size**3 / best(np.matmul, left, right))
    memory = np.zeros(1 << 25, dtype=np.float32)
    bandwidth = 2 * memory.nbytes / best(np.copyto, memory, np.ones_like(memory))
    encoding, searching = best(encode, strings), best(index.search, queries, 10)
    # Weights of the matrix products that remain for each token.
    weights = sum(
        layer.weight.numel()
        for block in get_network(model).blocks
        for layer in (*block.convolutions, block.feed_forward[0], block.feed_forward[3])
    )
    encoder = 2 * n_tokens * weights / encoding
    search = 2 * _N_QUERIES * vectors.size / searching
    figures = {
        "peak": {"gigaflops_float32": peak / 1e9, "gigabytes_per_second": bandwidth / 1e9},
        "encoder": {
            "gigaflops": encoder / 1e9,
            "of_peak": encoder / peak,
            "names_per_second": len(strings) / encoding,
        },
        "search": {
            "gigaflops": search / 1e9,
            "of_peak_float32": search / peak,
            "gigabytes_per_second": vectors.size / searching / 1e9,  # a byte a number
        },
    }
    for system, values in figures.items():
        about = {"n": names, "tokens": n_tokens, "precision": "float32"}
        yield from rows_of(system, values, digits=3, **about)


def sample_names(kb: KnowledgeBase, n: int) -> list[str]:
    """Return random normalised names of a knowledge base, drawn with seed 0."""
    rows = np.random.default_rng(0).choice(kb.n_names, min(n, kb.n_names), replace=False)
    return [normalize_name(name) for name in kb.names.take(rows)]


def unit(vectors: NDArray) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(norms, 1e-12)).astype(np.float32)


def _best(clock: Callable[[], float], repeats: int, function: Callable, *arguments: Any) -> float:
    """Return the seconds of the fastest run, after one run to warm up."""
    times = []
    for _ in range(repeats + 1):
        start = clock()
        function(*arguments)
        times.append(clock() - start)
    return min(times[1:])


class Names:
    """Our encoder. fast (bool): Inference as in linking; else the network as it is trained."""

    def __init__(self, model: NameEncoder, *, fast: bool) -> None:
        self.model = model
        network = get_network(model)
        by_torch = infer_by_torch(network, next(network.parameters()).device)
        self.infer = inference_of(model) if fast else by_torch

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        return encode_names(self.model, names, infer=self.infer)


class Padded:
    """A transformer run as usual: padded batches in the order of the names."""

    def __init__(self, backbone: Any, tokenizer: Tokenizer) -> None:
        self.backbone = backbone.eval()
        self.tokenizer = _copy(tokenizer)
        self.tokenizer.enable_padding()

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(names), _BATCH):
                pieces = self.tokenizer.encode_batch(list(names[start : start + _BATCH]))
                ids = torch.tensor([piece.ids for piece in pieces])
                mask = torch.tensor([piece.attention_mask for piece in pieces])
                hidden = self.backbone(input_ids=ids, attention_mask=mask)[0]
                vectors.append(hidden[:, 0].float().numpy())
        return unit(np.concatenate(vectors))


class Packed:
    """A transformer that gets names of equal length together, without padding."""

    def __init__(self, backbone: Any, tokenizer: Tokenizer) -> None:
        self.network = NameTransformer(backbone.eval(), pooling="cls")
        self.tokenizer = _copy(tokenizer)
        self.tokenizer.no_padding()

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        pieces = [piece.ids for piece in self.tokenizer.encode_batch_fast(list(names))]
        ids = torch.tensor([piece for name in pieces for piece in name])
        with torch.inference_mode():
            vectors = self.network(ids, torch.tensor([len(name) for name in pieces]))
        return unit(vectors.float().numpy())


def _copy(tokenizer: Tokenizer) -> Tokenizer:
    copied = Tokenizer.from_str(tokenizer.to_str())
    copied.enable_truncation(25)
    return copied


def _starter_model() -> NameEncoder:
    linker: Any = spacy.blank("en").add_pipe("bioel_linker", config={"mentions": "dictionary"})
    read_starter_encoder(linker.model)
    return linker.model


def _make_encoders(checkpoint: Path, strings: Sequence[str]) -> dict[str, tuple[Encode, int]]:
    """Return encoders, each with the number of names that it is measured on."""
    model = _starter_model()
    minilm = AutoModel.from_pretrained(checkpoint, add_pooling_layer=False)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    torch.manual_seed(0)  # random weights are as fast as trained ones
    shape = BertConfig(vocab_size=tokenizer.get_vocab_size())
    bert = BertModel(shape, add_pooling_layer=False)

    def int8(backbone: Any) -> Any:
        linear = {torch.nn.Linear}
        return torch.ao.quantization.quantize_dynamic(backbone, linear, dtype=torch.qint8)

    encoders: dict[str, tuple[Encode, int]] = {
        "rescnn": (Names(model, fast=True), len(strings)),
        "rescnn_float32": (Names(model, fast=False), len(strings)),
    }
    for name, backbone, n in (("minilm", minilm, 4 * _N_FEW_NAMES), ("bert", bert, _N_FEW_NAMES)):
        encoders[name] = Padded(backbone, tokenizer), n
        variants: list[Encode] = [
            batching(change(deepcopy(backbone)), tokenizer)
            for batching in (Padded, Packed)
            for change in (torch.nn.Module.float, torch.nn.Module.bfloat16, int8)
        ]
        times = [
            _best(time.perf_counter, 1, variant, strings[:_N_FEW_NAMES]) for variant in variants
        ]
        fastest = variants[times.index(min(times))]
        encoders[f"{name}_best"] = fastest, n
    return encoders
