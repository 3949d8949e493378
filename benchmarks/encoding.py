"""Names that each encoder encodes in a second, and links under the same search.

python -m benchmarks.run encoding KB CHECKPOINT: names of a knowledge base, and the checkpoint of
MiniLM-L6, whose word pieces all transformers here read. In one run, from strings to unit vectors:

rescnn           the package's encoder, as it links
rescnn_float32   the network that is trained
bert             of the shape of BERT-base, float32, padded batches of 64: as people run it
bert_best        the same at its best here: float32, bfloat16 or int8 (dynamic quantisation), padded
                 or names of one length together, whichever is fastest
minilm, minilm_best

Times are the best of `repeats`, on the clock, with all cores. Linked: a query is encoded and
searched exactly among `searched` vectors of its encoder's size (for transformers random ones:
encoding so many would take an hour, and does not matter for the time of the search).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import torch
import typer
from numpy.typing import NDArray

from benchmarks.encoders import (
    Encode,
    Names,
    Packed,
    Padded,
    bert_base,
    int8,
    load_backbone,
    sample_names,
    unit,
)
from benchmarks.record import measurement, save
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.index import ExactIndex
from spacy_bioel.kb.vectors.quantized import quantize
from spacy_bioel.pipeline.linker.starter import read_starter_encoder

_FEW = 256  # names that the slow ones encode


def main(
    kb: Path,
    checkpoint: Path,
    names: Annotated[int, typer.Option(help="That the fast ones encode.")] = 8192,
    searched: Annotated[int, typer.Option(help="Vectors that are searched.")] = 80_000,
    repeats: Annotated[int, typer.Option()] = 3,
) -> None:
    strings = sample_names(KnowledgeBase.open(kb), names)
    rates: dict[str, float] = {}
    linked: dict[str, float] = {}
    for system, (encode, n) in make_encoders(checkpoint, strings).items():
        queries = encode(strings[:n])
        index = ExactIndex(quantize(_random(searched, queries.shape[1])))
        best = min(_seconds(encode, strings[:n]) for _ in range(repeats))
        rates[system] = n / best
        searching = min(_seconds(index.search, queries, 10) for _ in range(repeats))
        linked[system] = n / (best + searching)
        typer.echo(f"{system}: {rates[system]:,.0f} names/s, {linked[system]:,.0f} linked/s")
    about = {"n": names, "searched": searched, "threads": torch.get_num_threads()}
    rows = []
    for system in rates:
        figures = {
            "names_per_second": rates[system],
            "mentions_per_second": linked[system],
            "ratio": rates["rescnn"] / rates[system],
            "ratio_linked": linked["rescnn"] / linked[system],
        }
        if system == "rescnn":
            # The paper's speed-up: over BERT-base, each at its best here.
            figures["ratio"] = rates["rescnn"] / rates["bert_best"]
            figures["ratio_linked"] = linked["rescnn"] / linked["bert_best"]
            figures["ratio_over_float32"] = rates["rescnn"] / rates["bert"]
        rows += [
            measurement("encoding", system, metric=metric, value=round(value, 2), **about)
            for metric, value in figures.items()
        ]
    typer.echo(save("encoding", rows))


def make_encoders(checkpoint: Path, strings: Sequence[str]) -> dict[str, tuple[Encode, int]]:
    """Encoders, each with the number of names that it is given."""
    linker: Any = spacy.blank("en").add_pipe("bioel_linker", config={"mentions": "kb"})
    read_starter_encoder(linker.model)
    minilm, tokenizer = load_backbone(checkpoint)
    found: dict[str, tuple[Encode, int]] = {
        "rescnn": (Names(linker.model, fast=True), len(strings)),
        "rescnn_float32": (Names(linker.model, fast=False), len(strings)),
    }
    for name, backbone, n in (
        ("minilm", minilm, 4 * _FEW),
        ("bert", bert_base(tokenizer), _FEW),
    ):
        found[name] = Padded(backbone, tokenizer), n
        ways: list[Encode] = [
            kind(change(deepcopy(backbone)), tokenizer)
            for kind in (Padded, Packed)
            for change in (torch.nn.Module.float, torch.nn.Module.bfloat16, int8)
        ]
        found[f"{name}_best"] = min(ways, key=lambda way: _seconds(way, strings[:_FEW])), n
    return found


def _seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Seconds on the clock, after a first call that is not counted."""
    function(*arguments)
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _random(n: int, dim: int) -> NDArray[np.float32]:
    return unit(np.random.default_rng(0).standard_normal((n, dim), dtype=np.float32))


if __name__ == "__main__":
    typer.run(main)
