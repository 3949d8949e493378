"""Names that a generative linker writes about gold mentions, and their worth beside the evidence.

python -m benchmarks.run generative CORPUS --start FOLDER trains the linker alone, from a folder of
training/scripts/pretrain_seq2seq.py, and measures on the development documents, any id of a mention
being right; mentions whose ids the knowledge base lacks count as wrong. Systems:

generated: names that were written, nothing else. strings: the same linker without them, with its
default weights. both: the two, weighed (five numbers) by the documents of four folds of five.

--ablation NAME trains a variant for --updates, all alike, on the same mentions, and measures the
names of the first 100 documents: another target in training (random), no prompt, one name a
concept, no pre-training. Their baseline is `mentions`; all but
`mentions and names`, which is the linker's own way, train on mentions alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from benchmarks.record import add, measurement
from spacy_bioel.corpus import read_docs, read_texts
from spacy_bioel.kb.words.trie import build_trie
from spacy_bioel.models.name_encoder import get_network
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.development import gather_reading, gold_docs
from spacy_bioel.tuning.fusion import fit_fusion
from spacy_bioel.types import AnnotatedText, Link

KEY = ("corpus", "system", "protocol", "subset", "metric", "seed")
_DOCUMENTS = 8  # of an update
_ABLATED = 100  # documents that ablations are measured on


@dataclass(frozen=True)
class Variant:
    """A way to train or to write.

    target (str): Which name is to be written: "nearest", "random" or, with one name a concept,
        "preferred"; names that may be written are then these alone.
    prompt (bool): Begin with the mention.
    starts (bool): Start from pre-training.
    names (bool): Show other names than those of mentions in training.
    """

    target: str = "nearest"
    prompt: bool = True
    starts: bool = True
    names: bool = False


VARIANTS = {
    "mentions and names": Variant(names=True),
    "mentions": Variant(),
    "random target": Variant(target="random"),
    "no prompt": Variant(prompt=False),
    "one name a concept": Variant(target="preferred"),
    "no pre-training": Variant(starts=False),
}


def main(
    corpus: str,
    start: Annotated[Path, typer.Option(help="A pre-trained encoder-decoder.")],
    out: Annotated[Path | None, typer.Option(help="Where to save the trained pipeline.")] = None,
    updates: Annotated[int, typer.Option()] = 500,
    learn_rate: Annotated[float, typer.Option()] = 5e-4,
    seed: Annotated[int, typer.Option()] = 0,
    ablation: Annotated[list[str] | None, typer.Option(help="Of VARIANTS, instead.")] = None,
) -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    about = {"corpus": corpus, "split": "dev", "seed": seed, "protocol": "gold_any"}
    texts = with_ids(corpus)
    rows: list[dict[str, Any]] = []

    def record(system: str, found: Sequence[Sequence[Link]], of: Sequence[AnnotatedText]) -> None:
        measured = list(measure(corpus, of, found, linker.kb))
        rows.extend(measurement("generative", system, **about, **row) for row in measured)
        typer.echo(f"{system}: {[(r['subset'], r['metric'], r['value']) for r in measured]}")
        add("generative", rows, key=KEY)

    for name in ablation or ["mentions and names"]:
        variant = VARIANTS[name]
        if out is not None and (out / "meta.json").is_file() and not ablation:
            nlp = spacy.load(out)
            linker: Any = nlp.get_pipe("bioel_linker")
            linker.set_kb(f"kb/{corpus}")
        else:
            began = time.monotonic()
            nlp = make_pipeline(corpus, start, variant)
            linker = nlp.get_pipe("bioel_linker")
            train(nlp, corpus, updates=updates, learn_rate=learn_rate, seed=seed)
            typer.echo(f"{name}: trained for {time.monotonic() - began:.0f} s")
            if out is not None and not ablation:
                linker.cfg["include_kb"] = False
                nlp.to_disk(out)
        if variant.target == "preferred":
            write_preferred_names(linker)
        else:
            linker.encode_kb(linker.kb)
        if ablation:
            with writing_alone(linker):
                record(
                    f"ablation: {name}",
                    list(link_given(nlp, linker, texts[:_ABLATED])),
                    texts[:_ABLATED],
                )
            continue
        with writing_alone(linker):
            began = time.monotonic()
            found = list(link_given(nlp, linker, texts))
            seconds = time.monotonic() - began
            n = sum(len(text.mentions) for text in texts)
            typer.echo(f"{n / seconds:.0f} mentions a second")
        record("generated", found, texts)
        linker.cfg["evidence"]["generated"] = False
        record("strings", list(link_given(nlp, linker, texts)), texts)
        linker.cfg["evidence"]["generated"] = True
        record("both", cross_fitted(nlp, linker, texts, seed=seed), texts)


def make_pipeline(corpus: str, start: Path, variant: Variant) -> Language:
    """A pipeline with a generative linker only, ready to be trained."""
    nlp = spacy.blank(
        "en", config={"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}
    )
    generator = {
        "@architectures": "spacy-bioel.Seq2Seq.v1",
        "path": str(start),
        "max_pieces": 36,
        "prompt": variant.prompt,
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
    if not variant.starts:
        network = get_network(linker.model.get_ref("generator"))
        torch.manual_seed(0)
        new = type(network.backbone)(network.backbone.config)
        network.backbone.load_state_dict(new.state_dict())
    training: Any = linker._training
    if not variant.names:
        training.settings = replace(training.settings, synonyms=0)
    if variant.target != "nearest":
        chance = np.random.default_rng(0)

        def targets(strings: Sequence[str], concepts: Any) -> list[str]:
            of_each = [linker.kb.names_of(row) for row in concepts.tolist()]
            is_random = variant.target == "random"
            rows = [chance.choice(names) if is_random else names[0] for names in of_each]
            return [normalize_name(name) for name in linker.kb.names.take(rows)]

        training.targets = targets
    return nlp


def train(nlp: Language, corpus: str, *, updates: int, learn_rate: float, seed: int) -> None:
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


def with_ids(corpus: str) -> list[AnnotatedText]:
    """The development documents with the mentions that have an id."""
    return [
        replace(text, mentions=tuple(m for m in text.mentions if m.ids))
        for text in read_texts(Path("corpus") / corpus / "dev.jsonl")
    ]


class writing_alone:
    """A context in which links come from what is written, and nothing else."""

    def __init__(self, linker: Any) -> None:
        self._linker = linker
        self._before = {**linker.cfg, "evidence": dict(linker.cfg["evidence"])}

    def __enter__(self) -> None:
        cfg = self._linker.cfg
        cfg["evidence"] = dict.fromkeys(cfg["evidence"], False) | {"generated": True}
        cfg["composites"], cfg["coherence"] = False, 0.0

    def __exit__(self, *_: object) -> None:
        self._linker.cfg.update(self._before)


def write_preferred_names(linker: Any) -> None:
    """Let the preferred names of concepts be written, no others."""
    kb = linker.kb
    linker.set_kb(kb)  # ends the training
    pieces = linker.model.get_ref("generator").attrs["pieces"]
    rows = np.unique(kb.preferred_rows(np.arange(len(kb))))
    trie = build_trie(kb, pieces.writable, rows=rows)
    linker.generator.trie = lambda _: trie


def measure(
    corpus: str, texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], kb: Any
) -> Iterator[dict[str, Any]]:
    """Recall at 1 and 5 of all mentions and of parts of them."""
    parts: dict[str, Callable[..., bool]] = dict(subsets(corpus, kb))
    seen = parts["seen string"]
    parts["unseen string"] = lambda string, mention: not seen(string, mention)
    for subset in ("", "seen string", "unseen string", "unseen concept"):
        belongs = parts[subset]
        part = [
            replace(t, mentions=tuple(m for m in t.mentions if belongs(t.text[m.start : m.end], m)))
            for t in texts
        ]
        for row in metric_rows(part, links, kb):
            if row["metric"] in ("recall@1", "recall@5"):
                yield {"subset": subset, **row}


def cross_fitted(
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


if __name__ == "__main__":
    typer.run(main)
