"""Names that a generative linker writes about gold mentions, and their worth beside the evidence.

python -m benchmarks.run generative CORPUS --start FOLDER trains the linker alone, from a folder of
training/scripts/pretrain_seq2seq.py, and measures on the development documents, any id of a mention
being right; mentions whose ids the knowledge base lacks count as wrong. Systems:

generated: names that were written, nothing else. strings: the same linker without them, with its
default weights. both: the two, weighed (five numbers) by the documents of four folds of five.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import torch
import typer
from spacy.language import Language
from spacy.training import Example
from thinc.api import Adam
from thinc.schedules import warmup_linear

from benchmarks.linking import metric_rows, subsets
from benchmarks.record import Row, SeedOption, question
from benchmarks.texts import KEY, blank, dev, only
from spacy_bioel.corpus import read_docs
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.development import gather_reading, gold_docs
from spacy_bioel.tuning.fusion import fit_fusion
from spacy_bioel.types import AnnotatedText, Link

_DOCUMENTS = 8  # of an update


@question("generative", key=KEY)
def generative(
    corpus: str,
    start: Annotated[Path, typer.Option(help="A pre-trained encoder-decoder.")],
    out: Annotated[Path | None, typer.Option(help="Where to save the trained pipeline.")] = None,
    updates: Annotated[int, typer.Option()] = 500,
    learn_rate: Annotated[float, typer.Option()] = 5e-4,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    texts = only(dev(corpus), lambda text, mention: mention.ids)
    if out is not None and (out / "meta.json").is_file():
        nlp = spacy.load(out)
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.set_kb(f"kb/{corpus}")
    else:
        nlp = _make_pipeline(corpus, start)
        linker = nlp.get_pipe("bioel_linker")
        _train(nlp, corpus, updates=updates, learn_rate=learn_rate, seed=seed)
        if out is not None:
            linker.cfg["include_kb"] = False
            nlp.to_disk(out)
    linker.encode_kb(linker.kb)
    before = {**linker.cfg, "evidence": dict(linker.cfg["evidence"])}
    written = dict.fromkeys(before["evidence"], False) | {"generated": True}
    linker.cfg |= {"evidence": written, "composites": False, "coherence": 0.0}
    found = {"generated": list(link_given(nlp, linker, texts))}
    linker.cfg.update(before)
    linker.cfg["evidence"]["generated"] = False
    found["strings"] = list(link_given(nlp, linker, texts))
    linker.cfg["evidence"]["generated"] = True
    found["both"] = _cross_fitted(nlp, linker, texts, seed=seed)
    for system, links in found.items():
        about = {"system": system, "corpus": corpus, "split": "dev", "seed": seed}
        yield from (about | row for row in _measure(corpus, texts, links, linker.kb))


def _make_pipeline(corpus: str, start: Path) -> Language:
    """A pipeline with a generative linker only, ready to be trained."""
    nlp = blank()
    generator = {
        "@architectures": "spacy-bioel.Seq2Seq.v1",
        "path": str(start),
        "max_pieces": 36,
    }
    names = {
        "@architectures": "spacy-bioel.ResCNN.v1",
        **{"dim": 192, "blocks": 3, "filters": 96, "widths": [1, 3, 5], "pooling": "max"},
        **{"dropout": 0.2, "max_tokens": 25},
    }
    model = {
        "@architectures": "spacy-bioel.GenerativeLinker.v1",
        "names": names,
        "generator": generator,
    }
    config = {"kb": f"kb/{corpus}", "model": model, "mentions": "spans", "max_candidates": 10}
    linker: Any = nlp.add_pipe(
        "bioel_linker", config={**config, "training": {"mentions": 64, "synonyms": 32}}
    )
    examples = [Example(doc, doc) for doc in _train_docs(corpus, nlp)]
    linker.initialize(lambda: examples, nlp=nlp, encoder="starter")
    return nlp


def _train(nlp: Language, corpus: str, *, updates: int, learn_rate: float, seed: int) -> None:
    """Train the linker on the training documents, in random order."""
    linker: Any = nlp.get_pipe("bioel_linker")
    docs = _train_docs(corpus, nlp)
    rate = warmup_linear(learn_rate, max(1, updates // 20), updates)
    optimizer = Adam(rate, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0, use_averages=False)
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    order: list[int] = []
    losses: list[float] = []
    for step in range(updates):
        if len(order) < _DOCUMENTS:
            order += chance.permutation(len(docs)).tolist()
        batch, order = order[:_DOCUMENTS], order[_DOCUMENTS:]
        found = linker.update([Example(docs[i], docs[i]) for i in batch], sgd=optimizer)
        optimizer.step_schedules()
        losses.append(found["bioel_linker"])
        if (step + 1) % 25 == 0:
            typer.echo(f"{step + 1:5} loss {np.mean(losses[-25:]):.3f}")


def _train_docs(corpus: str, nlp: Language) -> list[Any]:
    return list(read_docs(Path("corpus") / corpus / "train.spacy", nlp.vocab))


def _measure(
    corpus: str, texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], kb: Any
) -> Iterator[Row]:
    """Yield recall at 1 and 5 of all mentions and of parts of them."""
    parts = subsets(corpus, kb)
    seen = parts["seen string"]
    parts["unseen string"] = lambda text, mention: not seen(text, mention)
    for subset in ("", "seen string", "unseen string", "unseen concept"):
        for row in metric_rows(only(texts, parts[subset]), links, kb):
            if row["metric"] in ("recall@1", "recall@5"):
                yield row | {"subset": subset}


def _cross_fitted(
    nlp: Language, linker: Any, texts: Sequence[AnnotatedText], *, seed: int
) -> list[list[Link]]:
    """Links, strings and what is written being weighed by the documents of the other folds."""
    development = gather_reading(nlp, gold_docs(nlp, texts))
    links: list[list[Link]] = [[] for _ in texts]
    for fold in document_folds(len(texts), seed=seed):
        others = development.of_documents(fold.fitting.tolist())
        linker.reading = fit_fusion(others, n_hidden=0, l2=0.001)
        held_out = fold.held_out.tolist()
        found = link_given(nlp, linker, [texts[i] for i in held_out])
        for i, of_doc in zip(held_out, found, strict=True):
            links[i] = of_doc
    linker.reading = None
    return links
