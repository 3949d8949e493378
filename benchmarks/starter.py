"""Accuracy of a pipeline of six types on the development fifths of several corpora.

python -m benchmarks.starter MODEL a+b+c --system light measures on the development documents of the
corpora below, which the project has fetched (`project run corpus . --vars.corpus biored`, ...).
Labels that a corpus does not annotate are left out on both sides, and so are documents that the
mixture has for training, of another corpus.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.language import Language

from benchmarks.record import add, figures, measurement
from spacy_bioel.corpus import declared, read_texts
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.pipeline.loading import find_linker, load_model
from spacy_bioel.pipeline.measuring import link_given, link_open
from spacy_bioel.scoring.evaluation import evaluate
from spacy_bioel.types import VARIANT, AnnotatedText

SCRIPTS = Path("training") / "scripts"
CORPORA = (
    "biored", "nlm_gene", "gnormplus", "s800", "linnaeus", "tmvar3", "bioid_figures", "bc5cdr",
    "ncbi_disease",
)  # fmt: skip
LINKED = {"Disease", "Chemical", "Gene", "Species"}
METRICS = {"accuracy@1_nil_ignored": "accuracy@1", "recall@10": "recall@10"}
KEY = ("corpus", "system", "protocol", "subset", "metric", "seed")


def main(
    model: Annotated[str, typer.Argument(help='A pipeline, or "starter".')],
    mixture: Annotated[str, typer.Argument(help="Mixture of corpora that it was trained on.")],
    corpus: Annotated[list[str] | None, typer.Option(help="Of CORPORA; all by default.")] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(help="Mixture of another pipeline that is measured on the same documents."),
    ] = None,
    system: Annotated[str, typer.Option(help="What to call it in the results.")] = "light",
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    nlp = load_model(model)
    protocols = ["mention", "end_to_end"] if find_linker(nlp) else ["mention"]
    sys.path.insert(0, str(SCRIPTS))
    from mixtures import beginning

    trained = {
        beginning(text)
        for folder in (mixture, *(beside or ()))
        for text in read_texts(Path("assets") / folder / "train.jsonl")
    }
    rows = []
    for name in corpus or CORPORA:
        texts = [text for text in development_texts(name) if beginning(text) not in trained]
        for row in measure(nlp, texts, protocols):
            about = {"corpus": name, "split": "dev", "seed": seed}
            rows.append(measurement("starter", system, **about, **row))
            shown = f"{row['protocol']} {row['subset'] or 'all'} {row['metric']} {row['value']}"
            typer.echo(f"{name} {shown}")
    typer.echo(add("starter", rows, key=KEY))


def development_texts(corpus: str) -> list[AnnotatedText]:
    """Documents with what the corpus annotates."""
    sys.path.insert(0, str(SCRIPTS))
    from specs import find_split, load_spec

    spec, path = load_spec(corpus), find_split(corpus, "dev")
    texts = read_texts(path, prefix=spec["prefix"])
    return [declared(text, spec["annotates"], path=path) for text in texts]


def measure(
    nlp: Language, texts: Sequence[AnnotatedText], protocols: Sequence[str]
) -> list[dict[str, object]]:
    """F1 over all types and of each, and of all types that are linked to full vocabularies."""
    linker = find_linker(nlp)
    links = list(link_open(nlp, linker, texts))
    canonical = linker.kb.canonical if linker is not None else str
    found = [
        (row.label, row) for row in evaluate(texts, links, protocols=protocols, canonical=canonical)
    ]
    if all(LINKED < {*text.annotates} for text in texts):
        few = [replace(t, annotates=tuple(sorted(LINKED))) for t in texts]
        name = ", ".join(sorted(LINKED))
        found += [
            (name, row)
            for row in evaluate(few, links, protocols=protocols, canonical=canonical)
            if not row.label
        ]
    measured = [
        {"protocol": row.protocol, "subset": subset, **figures(row)}
        for subset, row in found
        if row.metric == "f1"
    ]
    return measured + (measure_given(nlp, linker, texts) if linker is not None else [])


def measure_given(
    nlp: Language, linker: Any, texts: Sequence[AnnotatedText]
) -> list[dict[str, object]]:
    """Accuracy of linking gold mentions, all ids right: of each type that is linked, those whose
    ids the knowledge base has, and the documents in which it has all of them.
    """
    rows: list[dict[str, object]] = []
    for label in sorted({label for text in texts for label in text.annotates} - {VARIANT}):
        for subset, chosen in subsets(texts, label, linker.kb).items():
            found = evaluate(
                chosen,
                list(link_given(nlp, linker, chosen)),
                protocols=["gold"],
                canonical=linker.kb.canonical,
                per_label=False,
            )
            rows += [
                {"protocol": "gold", "subset": f"{label}, {subset}"}
                | figures(row)
                | {"metric": METRICS[row.metric]}
                for row in found
                if row.metric in METRICS and row.n
            ]
    return rows


def subsets(
    texts: Sequence[AnnotatedText], label: str, kb: KnowledgeBase
) -> dict[str, list[AnnotatedText]]:
    """Documents with mentions of one label that have an id."""

    def known(ids: tuple[str, ...]) -> bool:
        return bool((kb.find_all(list(ids)) >= 0).any())

    labelled = [
        replace(text, mentions=tuple(m for m in text.mentions if m.label == label and m.ids))
        for text in texts
    ]
    return {
        "known documents": [
            t for t in labelled if t.mentions and all(known(m.ids) for m in t.mentions)
        ],
        "known mentions": [
            replace(text, mentions=tuple(m for m in text.mentions if known(m.ids)))
            for text in labelled
        ],
    }


if __name__ == "__main__":
    typer.run(main)
