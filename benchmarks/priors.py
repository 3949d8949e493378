"""Default weights of the evidence as prior of weights that are fitted on a corpus.

python -m benchmarks.priors CORPUS... --fusion before=FILE measures a linker with the package's
encoder and the mention statistics of the training documents on the development documents, whose
mentions are given: as it is ("untuned"), and with weights fitted on the documents of the other
folds, with each prior.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.language import Language

from benchmarks.linking import SYSTEMS, make_pipeline
from benchmarks.record import add, measurement
from spacy_bioel.corpus import read_texts
from spacy_bioel.pipeline.linker.fusion import Fusion, default_fusion
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import document_folds, metric_of, percent_of
from spacy_bioel.tuning.development import gather_development, gold_docs
from spacy_bioel.tuning.fusion import fit_nearest
from spacy_bioel.types import AnnotatedText

PROTOCOL, METRIC = "gold", "accuracy@1_nil_ignored"
KEY = ("corpus", "system", "seed")


def main(
    corpora: list[str],
    fusion: Annotated[list[str] | None, typer.Option(help="NAME=FILE of other weights.")] = None,
    seeds: Annotated[int, typer.Option(help="Of the folds.")] = 3,
) -> None:
    priors: dict[str, Fusion | None] = {"package": default_fusion(), "none": None}
    for one in fusion or ():
        name, _, path = one.partition("=")
        priors[name] = Fusion.from_json(json.loads(Path(path).read_text("utf8")))
    rows = []
    for corpus in corpora:
        about = {"corpus": corpus, "split": "dev", "protocol": PROTOCOL, "metric": METRIC}
        nlp, linker = make_pipeline(
            corpus, SYSTEMS["rescnn"], encoder="spacy_bioel/assets/encoder", uses_training=True
        )
        texts = list(read_texts(Path("corpus") / corpus / "dev.jsonl"))
        about["n"] = sum(bool(m.ids) for text in texts for m in text.mentions)
        development = gather_development(linker, gold_docs(nlp, texts))

        for name, prior in priors.items():
            if prior is not None:
                value = percent_of(counts(nlp, linker, prior, texts), metric_of(PROTOCOL, METRIC))
                rows.append((f"{name}, untuned", 0, value, about))
            for seed in range(seeds):
                held_out: list[Counts] = []
                for fold in document_folds(len(texts), seed=seed):
                    part = development.of_documents(fold.fitting.tolist())
                    own = [texts[i] for i in fold.held_out.tolist()]
                    fitted = fit_nearest(part, [prior, None] if prior else [None])
                    held_out += counts(nlp, linker, fitted, own)
                value = percent_of(held_out, metric_of(PROTOCOL, METRIC))
                rows.append((f"{name}, cross-fitted", seed, value, about))
                typer.echo(f"{corpus} {rows[-1][:3]}")
    found = [
        measurement("priors", name, seed=seed, value=round(value, 2), **about)
        for name, seed, value, about in rows
    ]
    typer.echo("\n".join(f"{r['corpus']} {r['system']} {r['seed']} {r['value']}" for r in found))
    typer.echo(add("priors", found, key=KEY))


def counts(
    nlp: Language, linker: Any, weights: Fusion, texts: Sequence[AnnotatedText]
) -> list[Counts]:
    """Count the documents that are linked by these weights."""
    linker.fusion = weights
    links = list(link_given(nlp, linker, texts))
    return count_documents(texts, links, protocol=PROTOCOL, canonical=linker.kb.canonical)


if __name__ == "__main__":
    typer.run(main)
