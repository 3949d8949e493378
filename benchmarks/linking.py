"""Measure the accuracy of linking given mentions, for our linker and for baselines.

python -m benchmarks.run linking CORPUS... evaluates on the development documents of corpora that
the project has converted, with a knowledge base (steps fetch, convert and kb). There are two
protocols, `biosyn`, which may use training strings, and `base`, which uses names only. As in
BioSyn, any gold id counts as right, NIL is ignored, and mentions whose ids the knowledge base lacks
are left out.

The weights of our linker start from those fitted on the development documents of another corpus
(PRIORS; without common documents), and are fitted and evaluated by five-fold cross-validation.
Baselines rank by one similarity, without weights.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import spacy
import typer
from spacy.language import Language
from spacy.training import Example
from spacy.vocab import Vocab

import benchmarks.spelling  # noqa: F401 - registers searches
from benchmarks.record import Row, SeedOption, question
from benchmarks.texts import CANDIDATES, KEY, blank, dev, only, scored
from spacy_bioel.corpus import read_docs
from spacy_bioel.doc import split_kb_id
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import EVIDENCE, FEATURES
from spacy_bioel.linking.given import link_gold_mentions
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.plugins.evaluation.fit import (
    document_folds,
    fit_fusion,
    gather_development,
    gold_docs,
    merge_development,
)
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Link, Mention

ENCODER = "spacy_bioel/assets/encoder"
MAX_FITTED = 5000  # mentions to fit weights on; more of them only take longer
# Corpus -> corpus whose weights its own start from.
PRIORS = {
    "ncbi_disease": "bc5cdr_disease",
    "bc5cdr_disease": "ncbi_disease",
    "bc5cdr_chemical": "ncbi_disease",
    "bc5cdr": "ncbi_disease",
}
# Metric of `gold_any` -> metric of the protocols `biosyn` and `base`, which ignore NIL.
_METRICS = {
    "accuracy@1_nil_ignored": "accuracy@1",
    "recall@1": "recall@1",
    "recall@5": "recall@5",
    "recall@10": "recall@10",
}


@dataclass(frozen=True)
class System:
    """A linking system.

    evidence (tuple): The evidence it uses, of `evidence.EVIDENCE`.
    ranks_by (tuple): Groups of similarities, of names and of training strings. The system ranks by
        the sum over groups of the greatest in a group. (): fitted weights.
    ngram_search (str): Its n-gram search.
    """

    evidence: tuple[str, ...]
    ranks_by: tuple[tuple[str, ...], ...] = ()
    ngram_search: str = "spacy-bioel.Ngrams.v1"


_NGRAM, _DENSE = ("ngram", "alias_ngram"), ("dense", "alias_dense")
SYSTEMS = {
    "exact": System(("exact", "alias_table"), (("exact", "alias_table"),)),
    "tfidf": System(("ngram", "alias_table"), (_NGRAM,), "spacy-bioel.Tfidf.v1"),
    "bm25": System(("ngram", "alias_table"), (_NGRAM,), "spacy-bioel.BM25.v1"),
    "dense": System(("dense", "alias_table"), (_DENSE,)),
    "biosyn": System(("ngram", "dense", "alias_table"), (_NGRAM, _DENSE), "spacy-bioel.Tfidf.v1"),
    "lexical": System(("exact", "alias_table", "ngram", "prior")),
    "rescnn": System(EVIDENCE),
}


@question("linking", key=(*KEY, "fold"))
def linking(
    corpora: list[str],
    system: Annotated[list[str] | None, typer.Option(help="One of SYSTEMS; default: all.")] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder of an encoder or of a trained pipeline.")
    ] = ENCODER,
    name: Annotated[str, typer.Option(help="Name of the systems with that encoder.")] = "",
    seed: SeedOption = 0,
) -> Iterator[Row]:
    for corpus in corpora:
        for chosen in system or SYSTEMS:
            is_neural = "dense" in SYSTEMS[chosen].evidence
            system_name = f"{name}_{chosen}" if name and is_neural else chosen
            for protocol in ("biosyn", "base"):
                about = {"system": system_name, "corpus": corpus, "split": "dev", "seed": seed}
                for row in measure(corpus, SYSTEMS[chosen], protocol, encoder=encoder, seed=seed):
                    yield {**about, **row, "protocol": protocol}


def measure(
    corpus: str, chosen: System, protocol: str, *, encoder: str, seed: int
) -> Iterator[Row]:
    """Yield the metrics of one system, on all mentions and by subset."""
    nlp, linker = make_pipeline(corpus, chosen, encoder=encoder, uses_training=protocol == "biosyn")
    texts = known_texts(corpus, linker.kb)
    links: Sequence[Sequence[Link]]
    if chosen.ranks_by:
        linker.fusion = Similarity(chosen.ranks_by)
        links = list(link_gold_mentions(nlp, linker, texts))
    else:
        prior = fit_prior(PRIORS[corpus], chosen, encoder=encoder) if corpus in PRIORS else None
        links = cross_fitted(nlp, linker, texts, seed=seed, prior=prior)
    n_dropped = sum(len(t.mentions) for t in dev(corpus)) - sum(len(t.mentions) for t in texts)
    for subset, belongs in subsets(corpus, linker.kb).items():
        for row in metric_rows(only(texts, belongs), links, linker.kb):
            yield row | {"subset": subset, "not_in_kb": n_dropped}


def metric_rows(
    texts: Sequence[AnnotatedText], links: Sequence[Sequence[Link]], kb: KnowledgeBase
) -> list[Row]:
    """Return accuracy and recall of the links, with any gold id right."""
    found = scored(texts, links, kb, {"gold_any": _METRICS})
    return [row | {"metric": _METRICS[row["metric"]]} for row in found]


class Similarity:
    """Ranking by similarities only, instead of a `Fusion`; see `System.ranks_by`."""

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self.groups = [[FEATURES.index(name) for name in group] for group in groups]

    def scores(self, features: np.ndarray) -> np.ndarray:
        greatest = [features[:, columns].max(axis=1) for columns in self.groups]
        return np.sum(greatest, axis=0, dtype=float)

    def to_json(self) -> dict[str, Any]:
        """Return no weights; a pipeline is saved to measure its size."""
        return {}


def make_pipeline(
    corpus: str, system: System, *, encoder: str, uses_training: bool
) -> tuple[Language, Any]:
    """Return a pipeline with a linker only, with or without an alias table of training."""
    nlp = blank()
    config = {
        "kb": f"kb/{corpus}",
        "ngram_search": {"@misc": system.ngram_search},
        "evidence": {name: name in system.evidence for name in EVIDENCE},
        "entities": {"composites": None} if system.ranks_by else {},
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
    linker.encode_kb(linker.kb)  # ends training, which searches a pool of names
    return nlp, linker


def known_texts(corpus: str, kb: KnowledgeBase) -> list[AnnotatedText]:
    """Return the development documents without the mentions whose ids the KB lacks."""
    return only(dev(corpus), lambda t, m: m.ids and (kb.find_all(list(m.ids)) >= 0).any())


@cache
def fit_prior(corpus: str, system: System, *, encoder: str) -> Fusion:
    """Fit weights on the development documents of another corpus, under both protocols."""
    parts = []
    for uses_training in (True, False):
        nlp, linker = make_pipeline(corpus, system, encoder=encoder, uses_training=uses_training)
        parts.append(gather_development(linker, gold_docs(nlp, known_texts(corpus, linker.kb))))
    return fit_fusion(merge_development(parts))


def cross_fitted(
    nlp: Language,
    linker: Any,
    texts: Sequence[AnnotatedText],
    *,
    seed: int,
    prior: Fusion | None,
) -> list[list[Link]]:
    """Link each document with weights that were fitted on the documents of the other folds."""
    folds = [fold.held_out.tolist() for fold in document_folds(len(texts), seed=seed)]
    docs = gold_docs(nlp, texts)
    parts = [gather_development(linker, [docs[i] for i in held_out]) for held_out in folds]
    links: list[list[Link]] = [[] for _ in texts]
    for number, held_out in enumerate(folds):
        others = merge_development(parts[:number] + parts[number + 1 :])
        fitting = np.random.default_rng(seed).permutation(len(others))[:MAX_FITTED]
        linker.fusion = fit_fusion(others.take(fitting), prior=prior)
        fold_links = link_gold_mentions(nlp, linker, [texts[i] for i in held_out])
        for i, doc_links in zip(held_out, fold_links, strict=True):
            links[i] = doc_links
    return links


def subsets(corpus: str, kb: KnowledgeBase) -> dict[str, Callable[[AnnotatedText, Mention], bool]]:
    """Return subsets of mentions: functions that tell whether a mention belongs to one."""
    strings: set[str] = set()
    ids: set[str] = set()
    for doc in read_docs(Path("corpus") / corpus / "train.spacy", Vocab()):
        for span in doc.spans[GOLD_KEY]:
            strings.add(normalize_name(span.text))
            ids |= {kb.canonical(i) for i in split_kb_id(span.kb_id_)}

    def string(text: AnnotatedText, mention: Mention) -> str:
        return normalize_name(text.text[mention.start : mention.end])

    def seen_concept(mention: Mention) -> bool:
        return bool(ids & {kb.canonical(i) for i in mention.ids})

    def n_words(text: AnnotatedText, mention: Mention) -> int:
        return len(string(text, mention).split())

    def ambiguous(text: AnnotatedText, mention: Mention) -> bool:
        return len(kb.concepts_of_names(kb.lookup_names([string(text, mention)]))[1]) > 1

    return {
        "": lambda t, m: True,
        "seen string": lambda t, m: string(t, m) in strings,
        "unseen string, seen concept": lambda t, m: string(t, m) not in strings and seen_concept(m),
        "unseen concept": lambda t, m: string(t, m) not in strings and not seen_concept(m),
        "one word": lambda t, m: n_words(t, m) == 1,
        "two words": lambda t, m: n_words(t, m) == 2,
        "three or more words": lambda t, m: n_words(t, m) > 2,
        "ambiguous name": ambiguous,
    }
