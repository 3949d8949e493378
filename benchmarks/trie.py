"""Cost of the trie of names, and the speed of writing names with it.

python -m benchmarks.run trie CORPUS --start FOLDER: the trie of all names of kb/CORPUS by the word
pieces of an encoder-decoder is built, written and opened; then names are written about the mentions
of some development documents, and again by a reference: nested dictionaries, one mention at a time,
no cache, the same beams. Both in one run, on one thread, in seconds of the processor, which another
process on the machine does not lengthen as much; the names have to be the same.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.generative import with_ids
from benchmarks.record import Row, question
from benchmarks.texts import blank
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.trie import build_trie, open_trie, write_trie
from spacy_bioel.models.marked import Marked, MarkedPieces
from spacy_bioel.models.name_encoder import EncoderSource, add_encoder, get_network
from spacy_bioel.models.seq2seq import build_seq2seq_v1
from spacy_bioel.models.writing import write_about
from spacy_bioel.pipeline.contextual.seq2seq import mark
from spacy_bioel.pipeline.gold import with_gold_mentions
from spacy_bioel.text.normalize import normalize_name, normalize_names

_END = -1  # key of the name rows of a node


@question("trie")
def trie(
    corpus: str,
    start: Annotated[Path, typer.Option(help="An encoder-decoder, pre-trained or fine-tuned.")],
    mentions: Annotated[int, typer.Option(help="That names are written about.")] = 1000,
    slowly: Annotated[int, typer.Option(help="Of them, by the reference too.")] = 100,
) -> Iterator[Row]:
    torch.set_num_threads(1)
    kb = KnowledgeBase.open(f"kb/{corpus}")
    model = build_seq2seq_v1(path=str(start), max_pieces=36)
    add_encoder(model, EncoderSource(kb, (), None, 0, 0))
    pieces: MarkedPieces = model.attrs["pieces"]
    before, began = _peak(), time.perf_counter()
    made = build_trie(kb, pieces.writable)
    built, extra = time.perf_counter() - began, _peak() - before
    # Under a fingerprint of its own, which leaves the trie of a pipeline alone.
    fingerprint = "be" * 8
    write_trie(kb, pieces.writable, fingerprint=fingerprint)
    again, began = KnowledgeBase.open(f"kb/{corpus}"), time.perf_counter()
    mapped = open_trie(again, fingerprint=fingerprint)
    opened = time.perf_counter() - began
    marked = read_mentions(corpus, pieces, mentions)
    began = time.process_time()
    written, _ = write_about(model, mapped, marked)
    ours = len(marked) / (time.process_time() - began)
    found = [written.leaf[written.mention == i].tolist() for i in range(len(marked))]
    nested, nested_extra = nested_trie(kb, pieces)
    began = time.process_time()
    reference = [write_slowly(model, nested, mention, beams=5) for mention in marked[:slowly]]
    theirs = len(reference) / (time.process_time() - began)
    found = found[:slowly]
    ours_names = [
        [set(mapped.names_of(np.array([leaf]))[1].tolist()) for leaf in of] for of in found
    ]
    same = sum(a == b for a, b in zip(ours_names, reference, strict=True))
    best = sum(a[:1] == b[:1] for a, b in zip(ours_names, reference, strict=True))
    figures = {
        "names": kb.n_names,
        "nodes": len(made),
        "left_out": made.left_out,
        "built_s": round(built, 1),
        "built_extra_mb": round(extra),
        "file_mb": round(made.n_bytes / 1e6, 1),
        "opened_s": round(opened, 4),
        "mentions": len(marked),
        "mentions_of_reference": len(reference),
        "mentions_per_s": round(ours, 1),
        "reference_mentions_per_s": round(theirs, 2),
        "reference_mb": round(nested_extra),
        "times_as_fast": round(ours / theirs, 1),
        "same_best_name": best,
        "same_names_in_order": same,
    }
    for path in (Path(f"kb/{corpus}") / "tries").glob(f"{fingerprint}.*"):
        shutil.rmtree(path)
    times = figures["times_as_fast"]
    about = {"system": "arrays", "corpus": corpus}
    yield {**about, **figures, "metric": "times_as_fast", "value": times}


def read_mentions(corpus: str, pieces: MarkedPieces, n: int) -> list[Marked]:
    """The first n gold mentions of the development documents, in their contexts."""
    nlp = blank()
    marked: list[Marked] = []
    for text in with_ids(corpus):
        doc = with_gold_mentions(nlp.make_doc(text.text), text)
        spans = list(doc.spans["bioel"])
        strings = [normalize_name(span.text) for span in spans]
        marked += mark(spans, strings, context=pieces.max_pieces)
        if len(marked) >= n:
            break
    return marked[:n]


def nested_trie(kb: KnowledgeBase, pieces: MarkedPieces) -> tuple[dict[int, Any], float]:
    """Names as nested dictionaries, and the megabytes that they take."""
    before = _peak()
    root: dict[int, Any] = {}
    for start in range(0, kb.n_names, 1 << 14):
        rows = range(start, min(start + (1 << 14), kb.n_names))
        for row, name in zip(
            rows, pieces.writable(normalize_names(kb.names.take(rows))), strict=True
        ):
            node = root
            for piece in name or ():
                node = node.setdefault(piece, {})
            if name:
                node.setdefault(_END, set()).add(row)
    return root, _peak() - before


@torch.inference_mode()
def write_slowly(
    model: Any, root: dict[int, Any], mention: Marked, *, beams: int
) -> list[set[int]]:
    """Name rows of each name that is written about a mention, the best first."""
    pieces: MarkedPieces = model.attrs["pieces"]
    backbone = get_network(model).backbone
    source = torch.from_numpy(pieces.sources([mention]).flat)[None]
    encoded = backbone.get_encoder()(input_ids=source)[0]
    prompt = pieces.prompts([mention])[0]
    live: list[tuple[float, list[int], dict[int, Any]]] = [(0.0, [], root)]
    done: list[tuple[float, set[int]]] = []
    while live:
        ids = torch.tensor([prompt + path for _, path, _ in live])
        made = backbone(
            encoder_outputs=(encoded.expand(len(live), -1, -1),),
            decoder_input_ids=ids,
            use_cache=False,
        )
        logs = torch.log_softmax(made.logits[:, -1].float(), dim=-1)
        longer = [
            (total + float(logs[beam, piece]), path + [piece], node[piece])
            for beam, (total, path, node) in enumerate(live)
            for piece in sorted(node)
            if piece != _END
        ]
        longer.sort(key=lambda one: -one[0])
        longer = longer[: beams - len(done)]
        done += [(t / len(p), node[_END]) for t, p, node in longer if _END in node]
        live = [one for one in longer if _END not in one[2]]
    done.sort(key=lambda one: -one[0])
    return [rows for _, rows in done[:beams]]


def _peak() -> float:
    """Greatest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
