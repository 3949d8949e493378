"""Accuracy of linking given mentions, by our linker and by the systems it is compared with.

python -m benchmarks.linking CORPUS... measures on the development documents of corpora that the
project has converted, with a knowledge base (steps fetch, convert and kb). Two protocols, both
with "any id" as right, NIL ignored, and without the mentions whose ids the knowledge base does not
know, as BioSyn has them: `biosyn`, where training strings may be used, and `base`, names only.

The weights of our linker's evidence start from those fitted on the development documents of
another corpus (PRIORS; none in common), are fitted on four fifths of the corpus's own and measured
on the rest, in turn. Floors have nothing to fit: their ranking is one similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import typer
from spacy.language import Language
from spacy.training import Example
from spacy.vocab import Vocab

from benchmarks.record import add, figures, measurement
from spacy_bioel.corpus import read_docs, read_texts
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.gold import GOLD_KEY, split_ids
from spacy_bioel.pipeline.linker.evidence import EVIDENCE, FEATURES
from spacy_bioel.pipeline.linker.fusion import Fusion
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.tuning.choosing import document_folds
from spacy_bioel.tuning.development import gather_development, gold_docs, pool
from spacy_bioel.tuning.fusion import fit_fusion
from spacy_bioel.types import AnnotatedText, Link, Mention

CANDIDATES = 10
MOST_FITTED = 5000  # mentions that weights are fitted on; more change nothing but the time
# Where the weights of a corpus start from; others from nothing.
PRIORS = {
    "ncbi_disease": "bc5cdr_disease",
    "bc5cdr_disease": "ncbi_disease",
    "bc5cdr_chemical": "ncbi_disease",
    "bc5cdr": "ncbi_disease",
}
# Fields that tell one row of results from another.
KEY = ("corpus", "system", "protocol", "subset", "metric", "seed", "fold")
# Metrics of the protocols `biosyn` and `base`, by those of `gold_any`. They know no NIL.
_METRICS = {
    "accuracy@1_nil_ignored": "accuracy@1",
    "recall@1": "recall@1",
    "recall@5": "recall@5",
    "recall@10": "recall@10",
}


@dataclass(frozen=True)
class System:
    """A way to link.

    evidence (tuple): Evidence that it uses, of `evidence.EVIDENCE`.
    ranks_by (tuple): Similarities that it ranks by, as groups: the greatest of a group, those of
        names and of training strings, and the sum of the groups. None: fitted weights.
    spelling (str): Its spelling search.
    """

    evidence: tuple[str, ...]
    ranks_by: tuple[tuple[str, ...], ...] = ()
    spelling: str = "spacy-bioel.Ngrams.v1"


_SPARSE, _DENSE = ("sparse", "recalled"), ("dense", "recalled_dense")
SYSTEMS = {
    "exact": System(("exact", "memory"), (("exact", "memory"),)),
    "tfidf": System(("sparse", "memory"), (_SPARSE,), "spacy-bioel.Tfidf.v1"),
    "bm25": System(("sparse", "memory"), (_SPARSE,), "spacy-bioel.BM25.v1"),
    "dense": System(("dense", "memory"), (_DENSE,)),
    "biosyn": System(("sparse", "dense", "memory"), (_SPARSE, _DENSE), "spacy-bioel.Tfidf.v1"),
    "lexical": System(("exact", "memory", "sparse", "prior")),
    "rescnn": System(EVIDENCE),
}


def main(
    corpora: list[str],
    system: Annotated[list[str] | None, typer.Option(help="Of SYSTEMS; all by default.")] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder of an encoder, or of a trained pipeline.")
    ] = "spacy_bioel/assets/encoder",
    name: Annotated[str, typer.Option(help="What to call the systems with that encoder.")] = "",
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    rows = []
    for corpus in corpora:
        for chosen in system or SYSTEMS:
            for protocol in ("biosyn", "base"):
                found = measure(corpus, chosen, protocol, encoder=encoder, seed=seed)
                is_neural = "dense" in SYSTEMS[chosen].evidence
                called = f"{name}_{chosen}" if name and is_neural else chosen
                rows += [
                    measurement("linking", called, corpus=corpus, split="dev", seed=seed, **row)
                    for row in found
                ]
                typer.echo(f"{corpus} {called} {protocol} {found[0]['value']} {found[2]['value']}")
    typer.echo(add("linking", rows, key=KEY))


def measure(
    corpus: str, system: str, protocol: str, *, encoder: str, seed: int
) -> list[dict[str, Any]]:
    """Metrics of one system, on all mentions and on parts of them."""
    chosen = SYSTEMS[system]
    nlp, linker = make_pipeline(corpus, chosen, encoder=encoder, uses_training=protocol == "biosyn")
    texts = known_texts(corpus, linker.kb)
    links: Sequence[Sequence[Link]]
    if chosen.ranks_by:
        linker.fusion = Similarity(chosen.ranks_by)
        links = list(link_given(nlp, linker, texts))
    else:
        prior = fit_prior(PRIORS[corpus], chosen, encoder=encoder) if corpus in PRIORS else None
        links = cross_fitted(nlp, linker, texts, seed=seed, prior=prior)
    n_gold = sum(len(text.mentions) for text in read_texts(_dev(corpus)))
    n_dropped = n_gold - sum(len(text.mentions) for text in texts)
    rows = []
    for subset, belongs in subsets(corpus, linker.kb).items():
        part = [
            replace(t, mentions=tuple(m for m in t.mentions if belongs(t.text[m.start : m.end], m)))
            for t in texts
        ]
        rows += [
            {"protocol": protocol, "subset": subset, **row, "not_in_kb": n_dropped}
            for row in metric_rows(part, links, linker.kb)
        ]
    return rows


def metric_rows(
    texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], kb: KnowledgeBase
) -> list[dict[str, Any]]:
    """Accuracy and recall of the links, any id of a mention being right; none without mentions."""
    found = evaluate(
        texts,
        links,
        protocols=["gold_any"],
        canonical=kb.canonical,
        max_candidates=CANDIDATES,
        per_label=False,
    )
    return [
        figures(one) | {"metric": _METRICS[one.metric]}
        for one in found
        if one.metric in _METRICS and one.n
    ]


class Similarity:
    """Ranks by similarities alone (see `System.ranks_by`), in the place of a `Fusion`."""

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self.groups = [[FEATURES.index(name) for name in group] for group in groups]

    def scores(self, features: np.ndarray) -> np.ndarray:
        greatest = [features[:, columns].max(axis=1) for columns in self.groups]
        return np.sum(greatest, axis=0, dtype=float)

    def to_json(self) -> dict[str, Any]:
        """Weights to save with a pipeline, whose size is measured: none."""
        return {}


def make_pipeline(
    corpus: str, system: System, *, encoder: str, uses_training: bool
) -> tuple[Language, Any]:
    """A pipeline with a linker only, which has mention statistics of training if it may."""
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    config = {
        "kb": f"kb/{corpus}",
        "spelling": {"@misc": system.spelling},
        "evidence": {name: name in system.evidence for name in EVIDENCE},
        "composites": not system.ranks_by,
        "coherence": 0.0 if system.ranks_by else 1.0,
        "max_candidates": CANDIDATES,
    }
    linker: Any = nlp.add_pipe("bioel_linker", config=config)
    trained = Path(encoder) / "bioel_linker"
    train = list(read_docs(Path("corpus") / corpus / "train.spacy", nlp.vocab))
    documents = train if uses_training else [nlp.make_doc("No mention here")]
    examples = [Example(doc, doc) for doc in documents]
    if trained.is_dir():
        source = spacy.load(encoder).get_pipe("bioel_linker")
        linker.model = source.model  # type: ignore[attr-defined]
        linker.count_mentions(examples)
    else:
        linker.initialize(lambda: examples, nlp=nlp, encoder=encoder)
    linker.encode_kb(linker.kb)  # ends the training, which searches a pool of names
    return nlp, linker


def _dev(corpus: str) -> Path:
    return Path("corpus") / corpus / "dev.jsonl"


def known_texts(corpus: str, kb: KnowledgeBase) -> list[AnnotatedText]:
    """The development documents without mentions none of whose ids the knowledge base has."""
    return [
        replace(
            text,
            mentions=tuple(
                m for m in text.mentions if m.ids and (kb.find_all(list(m.ids)) >= 0).any()
            ),
        )
        for text in read_texts(_dev(corpus))
    ]


@cache
def fit_prior(corpus: str, system: System, *, encoder: str) -> Fusion:
    """Weights from the development documents of another corpus, by both protocols."""
    parts = []
    for uses_training in (True, False):
        nlp, linker = make_pipeline(corpus, system, encoder=encoder, uses_training=uses_training)
        parts.append(gather_development(linker, gold_docs(nlp, known_texts(corpus, linker.kb))))
    return fit_fusion(pool(parts))


def cross_fitted(
    nlp: Language,
    linker: Any,
    texts: Sequence[AnnotatedText],
    *,
    seed: int,
    prior: Fusion | None,
) -> list[list[Link]]:
    """Links of each document, the weights fitted on documents of the other folds."""
    folds = [fold.held_out.tolist() for fold in document_folds(len(texts), seed=seed)]
    docs = gold_docs(nlp, texts)
    parts = [gather_development(linker, [docs[i] for i in held_out]) for held_out in folds]
    links: list[list[Link]] = [[] for _ in texts]
    for number, held_out in enumerate(folds):
        others = pool(parts[:number] + parts[number + 1 :])
        fitting = np.random.default_rng(seed).permutation(len(others))[:MOST_FITTED]
        linker.fusion = fit_fusion(others.take(fitting), prior=prior)
        found = link_given(nlp, linker, [texts[i] for i in held_out])
        for i, doc_links in zip(held_out, found, strict=True):
            links[i] = doc_links
    return links


def subsets(corpus: str, kb: KnowledgeBase) -> dict[str, Callable[[str, Mention], bool]]:
    """Parts of the mentions, by name: whether a string with its mention belongs to it."""
    strings: set[str] = set()
    ids: set[str] = set()
    for doc in read_docs(Path("corpus") / corpus / "train.spacy", Vocab()):
        for span in doc.spans[GOLD_KEY]:
            strings.add(normalize_name(span.text))
            ids |= {kb.canonical(i) for i in split_ids(span.kb_id_)}

    def seen(string: str) -> bool:
        return normalize_name(string) in strings

    def seen_concept(mention: Mention) -> bool:
        return bool(ids & {kb.canonical(i) for i in mention.ids})

    def ambiguous(string: str) -> bool:
        rows = kb.lookup_names([normalize_name(string)])
        return len(kb.concepts_of_names(rows)[1]) > 1

    return {
        "": lambda string, mention: True,
        "seen string": lambda string, mention: seen(string),
        "unseen string, seen concept": lambda s, m: not seen(s) and seen_concept(m),
        "unseen concept": lambda s, m: not seen(s) and not seen_concept(m),
        "one word": lambda s, m: len(normalize_name(s).split()) == 1,
        "two words": lambda s, m: len(normalize_name(s).split()) == 2,
        "three or more words": lambda s, m: len(normalize_name(s).split()) > 2,
        "ambiguous name": lambda s, m: ambiguous(s),
    }


if __name__ == "__main__":
    typer.run(main)
