"""Measure the names that a generative linker generates, alone and with the other evidence.

python -m benchmarks.run generative CORPUS --start FOLDER trains the linker only, from a folder of
training/scripts/pretrain_seq2seq.py, and evaluates on the development documents. Any id of a
mention is right; mentions whose ids the knowledge base lacks count as wrong. Systems:

generated: generated names only. strings: the same linker without generated names, with its default
weights. both: both combined, with five weights fitted on the other four of five folds.

--ablation NAME (of ABLATIONS) trains a variant on mentions only, and evaluates generated names on
the first 100 documents, as "ablation: NAME".
"""

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
from benchmarks.texts import KEY, blank, dev, only, weighed_by_folds
from spacy_bioel.corpus import read_docs
from spacy_bioel.entities.rule_set import RuleSet
from spacy_bioel.evaluation.fit import fit_fusion, gather_contextual_development, gold_docs
from spacy_bioel.evaluation.run import link_gold_mentions
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.models.torch_io import network_of
from spacy_bioel.plugins.contextual import generative as network
from spacy_bioel.plugins.contextual.constrained_decoding import build_trie
from spacy_bioel.types import AnnotatedText, Link

_BATCH_SIZE = 8  # documents
_N_ABLATION_DOCUMENTS = 100
ABLATIONS = ("mentions", "random target", "no prompt", "one name a concept", "no pre-training")


@question("generative", key=KEY)
def generative(
    corpus: str,
    start: Annotated[Path, typer.Option(help="A pre-trained encoder-decoder.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the trained pipeline.")] = None,
    updates: Annotated[int, typer.Option()] = 500,
    seed: SeedOption = 0,
    ablation: Annotated[str, typer.Option(help="One of ABLATIONS, instead.")] = "",
) -> Iterator[Row]:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    texts = only(dev(corpus), lambda text, mention: mention.ids)
    out = None if ablation else out
    if out is not None and (out / "meta.json").is_file():
        nlp = spacy.load(out)
        linker: Any = nlp.get_pipe("bioel_linker")
        linker.set_kb(f"kb/{corpus}")
    else:
        nlp = _make_pipeline(corpus, start, ablation)
        linker = nlp.get_pipe("bioel_linker")
        _train(nlp, corpus, updates=updates, seed=seed)
        if out is not None:
            linker.cfg["include_kb"] = False
            nlp.to_disk(out)
    if ablation == "one name a concept":
        linker.set_kb(linker.kb)  # ends training, which searches a pool of names
        rows = np.unique(linker.kb.preferred_rows(np.arange(len(linker.kb))))
        pieces = linker.model.get_ref("generator").attrs["pieces"]
        trie = build_trie(linker.kb, pieces.for_names, rows=rows)
        CandidateGenerator.trie = lambda self, pieces: trie  # type: ignore[method-assign]
    else:
        linker.encode_kb(linker.kb)
    before = {**linker.cfg, "evidence": dict(linker.cfg["evidence"])}
    only_generated = dict.fromkeys(before["evidence"], False) | {"generated": True}
    linker.cfg |= {"evidence": only_generated, "coherence": 0.0}
    rules = linker.entities
    linker.entities = RuleSet({k: v for k, v in rules.rules.items() if k != "composites"})
    if ablation:
        links = list(link_gold_mentions(nlp, linker, texts[:_N_ABLATION_DOCUMENTS]))
        about = {"system": f"ablation: {ablation}", "corpus": corpus, "split": "dev", "seed": seed}
        yield from (
            about | row for row in _measure(corpus, texts[:_N_ABLATION_DOCUMENTS], links, linker.kb)
        )
        return
    links_of = {"generated": list(link_gold_mentions(nlp, linker, texts))}
    linker.cfg.update(before)
    linker.entities = rules
    linker.cfg["evidence"]["generated"] = False
    links_of["strings"] = list(link_gold_mentions(nlp, linker, texts))
    linker.cfg["evidence"]["generated"] = True
    development = gather_contextual_development(nlp, gold_docs(nlp, texts))

    def fit(documents: list[int]) -> Fusion:
        return fit_fusion(development.for_documents(documents), n_hidden=0, l2=0.001)

    links_of["both"] = weighed_by_folds(nlp, linker, texts, fit, weights="rescoring", seed=seed)
    linker.rescoring = None
    for system, links in links_of.items():
        about = {"system": system, "corpus": corpus, "split": "dev", "seed": seed}
        yield from (about | row for row in _measure(corpus, texts, links, linker.kb))


def _make_pipeline(corpus: str, start: Path, ablation: str) -> Language:
    """Return a pipeline with only a generative linker, ready to be trained."""
    nlp = blank()
    generator = {
        "@architectures": "spacy-bioel.Seq2Seq.v1",
        "path": str(start),
        "max_pieces": 36,
        "prompt": ablation != "no prompt",
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
        "bioel_linker",
        config={**config, "training": {"mentions": 64, "synonyms": 0 if ablation else 32}},
    )
    examples = [Example(doc, doc) for doc in _train_docs(corpus, nlp)]
    linker.initialize(lambda: examples, nlp=nlp, encoder="starter")
    if ablation == "no pre-training":
        backbone = network_of(linker.model.get_ref("generator").get_ref("network")).backbone
        torch.manual_seed(0)
        backbone.load_state_dict(type(backbone)(backbone.config).state_dict())
    if ablation in ("random target", "one name a concept"):
        chance = np.random.default_rng(0)

        def targets(kb: Any, strings: object, concepts: Any) -> list[int]:
            names = [kb.names_of(row) for row in concepts.tolist()]
            return [chance.choice(n) if ablation == "random target" else n[0] for n in names]

        network.nearest_names = targets
    return nlp


def _train(nlp: Language, corpus: str, *, updates: int, seed: int) -> None:
    """Train the linker on the training documents, in random order."""
    linker: Any = nlp.get_pipe("bioel_linker")
    docs = _train_docs(corpus, nlp)
    rate = warmup_linear(5e-4, max(1, updates // 20), updates)
    optimizer = Adam(rate, L2=0.01, L2_is_weight_decay=True, grad_clip=1.0, use_averages=False)
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    order: list[int] = []
    for _ in range(updates):
        if len(order) < _BATCH_SIZE:
            order += chance.permutation(len(docs)).tolist()
        batch, order = order[:_BATCH_SIZE], order[_BATCH_SIZE:]
        linker.update([Example(docs[i], docs[i]) for i in batch], sgd=optimizer)
        optimizer.step_schedules()


def _train_docs(corpus: str, nlp: Language) -> list[Any]:
    return list(read_docs(Path("corpus") / corpus / "train.spacy", nlp.vocab))


def _measure(
    corpus: str, texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], kb: Any
) -> Iterator[Row]:
    """Yield recall@1 and recall@5, on all mentions and by subset."""
    parts = subsets(corpus, kb)
    seen = parts["seen string"]
    parts["unseen string"] = lambda text, mention: not seen(text, mention)
    for subset in ("", "seen string", "unseen string", "unseen concept"):
        for row in metric_rows(only(texts, parts[subset]), links, kb):
            if row["metric"] in ("recall@1", "recall@5"):
                yield row | {"subset": subset}
