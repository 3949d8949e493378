"""Part of the machine's arithmetic and memory bandwidth that encoder and search reach.

python -m benchmarks.run roofline KB takes names of a knowledge base. On one core, which other
programs should leave alone, in processor time; the best of several runs of each:

peak      matrix products of the size at which they are fastest, and a copy within memory
encoder   names, sorted by length as `bioel kb encode` sorts them: all additions and multiplications
          of its matrix products; what is fused into tables, shifts and activations do not count
search    exact, 256 queries: the products of queries and vectors
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import typer

from benchmarks.encoders import Names, sample_names, unit
from benchmarks.record import measurement, save
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.index import ExactIndex
from spacy_bioel.kb.vectors.quantized import quantize
from spacy_bioel.models.name_encoder import get_network
from spacy_bioel.pipeline.linker.starter import read_starter_encoder
from spacy_bioel.processor import use_one_thread

_SIZES = (256, 512, 1024, 2048)
_QUERIES = 256


def main(
    kb: Path,
    names: Annotated[int, typer.Option(help="That are encoded, and searched.")] = 16_384,
    repeats: Annotated[int, typer.Option()] = 5,
) -> None:
    use_one_thread()
    linker: Any = spacy.blank("en").add_pipe("bioel_linker", config={"mentions": "kb"})
    read_starter_encoder(linker.model)
    encode = Names(linker.model, fast=True)
    strings = sorted(sample_names(KnowledgeBase.open(kb), names), key=len)
    n_tokens = sum(map(len, linker.model.attrs["tokenizer"].encode_batch_fast(strings)))
    vectors = encode(strings)
    index = ExactIndex(quantize(vectors))
    queries = unit(np.random.default_rng(0).standard_normal((_QUERIES, vectors.shape[1])))

    memory = np.zeros(1 << 25, dtype=np.float32)
    other = np.ones_like(memory)
    peak = max(2 * size**3 / _best(_product(size), repeats) for size in _SIZES)
    bandwidth = 2 * memory.nbytes / _best(lambda: np.copyto(memory, other), repeats)
    seconds = _best(lambda: encode(strings), repeats)
    searching = _best(lambda: index.search(queries, 10), repeats)
    encoder = n_tokens * _per_token(get_network(linker.model)) / seconds
    search = 2 * queries.shape[0] * vectors.size / searching
    figures = [
        ("peak", "gigaflops_float32", peak / 1e9),
        ("peak", "gigabytes_per_second", bandwidth / 1e9),
        ("encoder", "gigaflops", encoder / 1e9),
        ("encoder", "of_peak", encoder / peak),
        ("encoder", "names_per_second", len(strings) / seconds),
        ("search", "gigaflops", search / 1e9),
        ("search", "of_peak_float32", search / peak),
        ("search", "gigabytes_per_second", vectors.size / searching / 1e9),  # a byte a number
    ]
    about = {"n": names, "tokens": n_tokens, "precision": "float32"}
    rows = [
        measurement("roofline", system, metric=metric, value=round(value, 3), **about)
        for system, metric, value in figures
    ]
    for row in rows:
        typer.echo(f"{row['system']:8} {row['metric']:22} {row['value']:>10,}")
    typer.echo(save("roofline", rows))


def _product(size: int) -> Callable[[], Any]:
    left, right = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float32)
    return lambda: left @ right


def _best(function: Callable[[], Any], repeats: int) -> float:
    """Processor seconds, after a first run that is not counted."""
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times[1:])


def _per_token(network: Any) -> int:
    """Additions and multiplications of the products that are left for each token."""
    macs = 0
    for block in network.blocks:
        macs += sum(convolution.weight.numel() for convolution in block.convolutions)
        macs += block.feed_forward[0].weight.numel() + block.feed_forward[3].weight.numel()
    return 2 * macs


if __name__ == "__main__":
    typer.run(main)
