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
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.evaluation.evaluate import evaluate_links
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
