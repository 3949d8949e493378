"""Documents, pipelines and metrics that several benchmarks share."""

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language

from benchmarks.record import Row, figures
from spacy_bioel.corpus import read_texts
from spacy_bioel.evaluation.evaluate import evaluate_links
from spacy_bioel.evaluation.fit import document_folds
from spacy_bioel.evaluation.run import link_gold_mentions
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Link, Mention

# Fields that identify a row of accuracy.
KEY = ("corpus", "system", "protocol", "subset", "metric", "seed")
CANDIDATES = 10


def dev(corpus: str) -> list[AnnotatedText]:
    """Return the development documents that the project has converted."""
    return list(read_texts(dev_file(corpus)))


def dev_file(corpus: str) -> Path:
    return Path("corpus") / corpus / "dev.jsonl"


def blank() -> Language:
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    return spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})


def python(*arguments: object) -> None:
    subprocess.run([sys.executable, *map(str, arguments)], check=True)


def only(
    texts: Sequence[AnnotatedText], belongs: Callable[[AnnotatedText, Mention], object]
) -> list[AnnotatedText]:
    """Return the documents with some of their mentions."""
    return [replace(t, mentions=tuple(m for m in t.mentions if belongs(t, m))) for t in texts]


def mention_strings(text: AnnotatedText) -> list[str]:
    """Return the normalised strings of mentions, without empty ones."""
    return list(filter(None, (normalize_name(text.text[m.start : m.end]) for m in text.mentions)))


def weighed_by_folds(
    nlp: Language,
    linker: Any,
    texts: Sequence[AnnotatedText],
    fit: Callable[[list[int]], Fusion],
    *,
    weights: str = "fusion",
    seed: int,
) -> list[list[Link]]:
    """Link gold mentions with weights that were fitted on the documents of the other folds.

    fit (Callable): Fits weights on the documents at these positions.
    weights (str): The attribute of the linker that holds them.
    """
    links: list[list[Link]] = [[] for _ in texts]
    for fold in document_folds(len(texts), seed=seed):
        setattr(linker, weights, fit(fold.fitting.tolist()))
        held_out = fold.held_out.tolist()
        fold_links = link_gold_mentions(nlp, linker, [texts[i] for i in held_out])
        for i, doc_links in zip(held_out, fold_links, strict=True):
            links[i] = doc_links
    return links


def scored(
    texts: Sequence[AnnotatedText],
    links: Sequence[Sequence[Link]],
    kb: KnowledgeBase | None,
    wanted: dict[str, Collection[str]],
    /,
    **fields: Any,
) -> Iterator[Row]:
    """Yield the metrics of links over all labels.

    wanted (dict): Metrics by protocol.
    """
    found = evaluate_links(
        texts,
        links,
        protocols=list(wanted),
        canonical=kb.canonical if kb is not None else str,
        max_candidates=CANDIDATES,
        per_label=False,
    )
    for row in found:
        if row.metric in wanted[row.protocol] and row.n:
            yield {"protocol": row.protocol, "subset": "", **figures(row), **fields}
