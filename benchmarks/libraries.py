"""Compare libraries that could replace our own code: `python -m benchmarks.run libraries`.

`pip install usearch marisa-trie bioc curated-transformers requests` first; missing ones are left
out. Each does the work of our code on one thread: on the bundled MeSH, on random vectors, on a
corpus in PubTator format (--corpus FILE), and with a BERT (--checkpoint FOLDER).
"""

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from benchmarks.record import Row, question
from spacy_bioel.io.pubtator import read_pubtator
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.kb.vectors import ExactIndex, quantize
from spacy_bioel.text.normalize import normalize_names

Figures = Iterator[tuple[str, str, float]]  # system, metric, value
N_VECTORS, DIM, N_QUERIES = 168_000, 256, 500


def per_second(n: int, work: Callable[[], object], *, runs: int = 3) -> float:
    """Return the items done in a second, in the fastest of some runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return n / min(times)


def peak(work: Callable[[], object]) -> int:
    """Return the peak bytes of Python objects during a call."""
    tracemalloc.start()
    work()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak_bytes


def search() -> Figures:
    """Measure exact vector search: queries a second, and bytes."""
    from usearch.index import search as usearch_search

    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((N_VECTORS, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[:N_QUERIES]
    index = ExactIndex(quantize(vectors))
    yield "ours", "queries a second", per_second(N_QUERIES, lambda: index.search(queries, 32))
    kept = index.vectors
    yield "ours", "bytes", kept.codes.nbytes + kept.fine.nbytes + kept.scales.nbytes
    small = np.rint(vectors * 127).astype(np.int8)
    for name, rows in {"float32": vectors, "int8": small}.items():
        few = rows[:50]
        found = per_second(
            50, lambda few=few, rows=rows: usearch_search(rows, few, 32, exact=True, threads=1)
        )
        yield f"usearch, {name}", "queries a second", found
        yield f"usearch, {name}", "bytes", rows.nbytes


def lookup() -> Figures:
    """Measure exact lookup of names: strings a second, and bytes."""
    import marisa_trie

    kb = starter_kb()
    names = normalize_names(list(kb.names))
    asked = [*names[::2], *(f"{name}x" for name in names[1::2])]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "names.marisa"
        marisa_trie.Trie(names).save(str(path))
        trie = marisa_trie.Trie().mmap(str(path))
        found = per_second(len(asked), lambda: [trie.get(name, -1) for name in asked])
        yield "marisa-trie", "strings a second", found
        yield "marisa-trie", "bytes", path.stat().st_size
    yield "ours", "strings a second", per_second(len(asked), lambda: kb.lookup_names(asked))
    yield "ours", "bytes", kb.name_keys.nbytes + kb.name_key_rows.nbytes


def formats(corpus: Path) -> Figures:
    """Measure reading of a corpus: documents a second, and peak bytes."""
    from bioc import pubtator

    def read() -> list[Any]:
        with corpus.open(encoding="utf8") as file:
            return pubtator.load(file)

    def ours() -> list[Any]:
        return list(read_pubtator(corpus))

    for name, work in {"ours": ours, "bioc": read}.items():
        yield name, "bytes", peak(work)
        yield name, "documents a second", per_second(len(read()), work)


def encoder(checkpoint: Path) -> Figures:
    """Measure forward passes of a BERT on texts of 40 pieces: texts a second."""
    import torch
    from curated_transformers.layers import AttentionMask
    from curated_transformers.models import BERTEncoder
    from transformers import AutoModel

    torch.set_num_threads(1)
    pieces = torch.randint(1000, 20_000, (64, 40), generator=torch.Generator().manual_seed(0))
    theirs = BERTEncoder.from_hf_config(
        hf_config=json.loads((checkpoint / "config.json").read_text())
    )
    mask = AttentionMask(torch.ones_like(pieces, dtype=torch.bool))
    ours = AutoModel.from_pretrained(str(checkpoint), add_pooling_layer=False).eval()
    theirs.eval()
    with torch.inference_mode():
        found = per_second(64, lambda: ours(pieces, attention_mask=mask.bool_mask[:, 0, 0].long()))
        yield "transformers", "texts a second", found
        yield "curated-transformers", "texts a second", per_second(64, lambda: theirs(pieces, mask))


@question("libraries", key=("question", "system", "metric"))
def libraries(
    corpus: Annotated[Path | None, typer.Option(help="In PubTator format.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder of a BERT.")] = None,
) -> Iterator[Row]:
    questions = {"search": search(), "lookup": lookup()}
    if corpus is not None:
        questions["formats"] = formats(corpus)
    if checkpoint is not None:
        questions["encoder"] = encoder(checkpoint)
    for asked, measured in questions.items():
        try:
            with threadpool_limits(1):
                rows = list(measured)
        except ImportError as missing:
            typer.echo(f"{asked}: {missing}")
            continue
        for system, metric, value in rows:
            yield {"question": asked, "system": system, "metric": metric, "value": round(value)}
