"""Default weights of the evidence as prior of weights that are fitted on a corpus.

python -m benchmarks.run priors CORPUS... --fusion before=FILE measures a linker with the package's
encoder and the mention statistics of the training documents on the development documents, whose
mentions are given: as it is ("untuned"), and with weights fitted on the documents of the other
folds, with each prior.
"""

from collections.abc import Iterator
from typing import Annotated

import srsly
import typer

from benchmarks.linking import ENCODER, SYSTEMS, make_pipeline
from benchmarks.record import Row, question
from benchmarks.texts import dev, scored, weighed_by_folds
from spacy_bioel.pipeline.linker.fusion import Fusion, default_fusion
from spacy_bioel.pipeline.measuring import link_given
from spacy_bioel.tuning.development import gather_development, gold_docs
from spacy_bioel.tuning.fusion import fit_nearest

_WANTED = {"gold": ("accuracy@1_nil_ignored",)}


@question("priors", key=("corpus", "system", "seed"))
def priors(
    corpora: list[str],
    fusion: Annotated[list[str] | None, typer.Option(help="NAME=FILE of other weights.")] = None,
    seeds: Annotated[int, typer.Option(help="Of the folds.")] = 3,
) -> Iterator[Row]:
    known: dict[str, Fusion | None] = {"package": default_fusion(), "none": None}
    for one in fusion or ():
        name, _, path = one.partition("=")
        known[name] = Fusion.from_json(srsly.read_json(path))
    for corpus in corpora:
        about = {"corpus": corpus, "split": "dev"}
        nlp, linker = make_pipeline(corpus, SYSTEMS["rescnn"], encoder=ENCODER, uses_training=True)
        texts = dev(corpus)
        development = gather_development(linker, gold_docs(nlp, texts))
        for name, prior in known.items():
            candidates = [prior, None] if prior else [None]

            def fit(documents: list[int], candidates: list[Fusion | None] = candidates) -> Fusion:
                return fit_nearest(development.of_documents(documents), candidates)  # noqa: B023

            if prior is not None:
                linker.fusion = prior
                links = list(link_given(nlp, linker, texts))
                for row in scored(texts, links, linker.kb, _WANTED):
                    yield about | row | {"system": f"{name}, untuned", "seed": 0}
            for seed in range(seeds):
                links = weighed_by_folds(nlp, linker, texts, fit, seed=seed)
                for row in scored(texts, links, linker.kb, _WANTED):
                    yield about | row | {"system": f"{name}, cross-fitted", "seed": seed}
