"""Accuracy of linking given mentions, by our linker and by the systems it is compared with.

python -m benchmarks.run linking CORPUS... measures on the development documents of corpora that
the project has converted, with a knowledge base (steps fetch, convert and kb). Two protocols, both
with "any id" as right, NIL ignored, and without the mentions whose ids the knowledge base does not
know, as BioSyn has them: `biosyn`, where training strings may be used, and `base`, names only.

The weights of our linker's evidence start from those fitted on the development documents of
another corpus (PRIORS; none in common), are fitted on four fifths of the corpus's own and measured
on the rest, in turn. Floors have nothing to fit: their ranking is one similarity.

python -m benchmarks.run phrases askapatient --data FOLDER measures bare phrases of social media by
recall@1: each fold is fetched, converted, trained on (training/configs/phrases.cfg) and measured on
its test phrases. Checkpoint and weights are chosen on its validation phrases.
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
from benchmarks.texts import CANDIDATES, KEY, blank, dev, only, python, scored
from spacy_bioel.corpus import read_docs, read_texts
from spacy_bioel.doc import split_kb_id
from spacy_bioel.evaluation.fit import (
    document_folds,
    fit_fusion,
    fit_nearest,
    gather_development,
    gold_docs,
    pool,
)
from spacy_bioel.evaluation.run import link_given
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import EVIDENCE, FEATURES, default_fusion
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Link, Mention

ENCODER = "spacy_bioel/assets/encoder"
MOST_FITTED = 5000  # mentions that weights are fitted on; more change nothing but the time
# Where the weights of a corpus start from; others from nothing.
PRIORS = {
    "ncbi_disease": "bc5cdr_disease",
    "bc5cdr_disease": "ncbi_disease",
    "bc5cdr_chemical": "ncbi_disease",
    "bc5cdr": "ncbi_disease",
}
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


_SPARSE, _DENSE = ("ngram", "alias_ngram"), ("dense", "alias_dense")
SYSTEMS = {
    "exact": System(("exact", "alias_table"), (("exact", "alias_table"),)),
    "tfidf": System(("ngram", "alias_table"), (_SPARSE,), "spacy-bioel.Tfidf.v1"),
    "bm25": System(("ngram", "alias_table"), (_SPARSE,), "spacy-bioel.BM25.v1"),
    "dense": System(("dense", "alias_table"), (_DENSE,)),
    "biosyn": System(("ngram", "dense", "alias_table"), (_SPARSE, _DENSE), "spacy-bioel.Tfidf.v1"),
    "lexical": System(("exact", "alias_table", "ngram", "prior")),
    "rescnn": System(EVIDENCE),
}


@question("linking", key=(*KEY, "fold"))
def linking(
    corpora: list[str],
    system: Annotated[list[str] | None, typer.Option(help="Of SYSTEMS; all by default.")] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder of an encoder, or of a trained pipeline.")
    ] = ENCODER,
    name: Annotated[str, typer.Option(help="What to call the systems with that encoder.")] = "",
    seed: SeedOption = 0,
) -> Iterator[Row]:
    for corpus in corpora:
        for chosen in system or SYSTEMS:
            is_neural = "dense" in SYSTEMS[chosen].evidence
            called = f"{name}_{chosen}" if name and is_neural else chosen
            for protocol in ("biosyn", "base"):
                about = {"system": called, "corpus": corpus, "split": "dev", "seed": seed}
                for row in measure(corpus, SYSTEMS[chosen], protocol, encoder=encoder, seed=seed):
                    yield {**about, **row, "protocol": protocol}


def measure(
    corpus: str, chosen: System, protocol: str, *, encoder: str, seed: int
) -> Iterator[Row]:
    """Yield metrics of one system, on all mentions and on parts of them."""
    nlp, linker = make_pipeline(corpus, chosen, encoder=encoder, uses_training=protocol == "biosyn")
    texts = known_texts(corpus, linker.kb)
    links: Sequence[Sequence[Link]]
    if chosen.ranks_by:
        linker.fusion = Similarity(chosen.ranks_by)
        links = list(link_given(nlp, linker, texts))
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
    """Return accuracy and recall of the links, any id of a mention being right."""
    found = scored(texts, links, kb, {"gold_any": _METRICS})
    return [row | {"metric": _METRICS[row["metric"]]} for row in found]


@question("linking", key=(*KEY, "fold"))
def phrases(
    corpus: str,
    data: Annotated[Path, typer.Option()],
    folds: Annotated[int, typer.Option()] = 10,
    seed: SeedOption = 0,
) -> Iterator[Row]:
    scripts, folder = "training/scripts", Path("corpus") / corpus
    for fold in range(folds):
        corpora = f"{scripts}/corpora.py"
        python(corpora, "fetch", corpus, "--data", data, "--fold", fold)
        for split in ("train", "dev", "test"):
            python(corpora, "convert", corpus, split)
        python(corpora, "kb", corpus)
        model = Path("models") / f"{corpus}_linker_{fold}"
        if not (model / "model-best").is_dir():  # a run that was stopped goes on
            config = "training/configs/phrases.cfg"
            python(f"{scripts}/train.py", corpus, config, model, "--seed", seed)
        test = list(read_texts(folder / "test.jsonl"))
        for system in ("exact", "tfidf", "bm25", "lexical", "rescnn"):
            chosen, encoder = SYSTEMS[system], str(model / "model-best")
            nlp, linker = make_pipeline(corpus, chosen, encoder=encoder, uses_training=True)
            if chosen.ranks_by:
                linker.fusion = Similarity(chosen.ranks_by)
            else:
                gathered = gather_development(linker, gold_docs(nlp, dev(corpus)))
                linker.fusion = fit_nearest(gathered, [default_fusion(), None])
            about = {"system": system, "corpus": corpus, "split": "test", "fold": fold}
            for row in metric_rows(test, list(link_given(nlp, linker, test)), linker.kb):
                if row["metric"] in ("recall@1", "recall@5"):
                    yield {**about, **row, "seed": seed, "protocol": "biosyn"}


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
    nlp = blank()
    config = {
        "kb": f"kb/{corpus}",
        "ngram_search": {"@misc": system.spelling},
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
    linker.encode_kb(linker.kb)  # ends the training, which searches a pool of names
    return nlp, linker


def known_texts(corpus: str, kb: KnowledgeBase) -> list[AnnotatedText]:
    """Return the development documents without mentions none of whose ids the kb has."""
    return only(dev(corpus), lambda t, m: m.ids and (kb.find_all(list(m.ids)) >= 0).any())


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


def subsets(corpus: str, kb: KnowledgeBase) -> dict[str, Callable[[AnnotatedText, Mention], bool]]:
    """Return parts of the mentions by name: whether a mention of a document belongs to it."""
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
