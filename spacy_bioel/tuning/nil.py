"""Tuning of the linker's NIL threshold by strict end-to-end F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from spacy.language import Language

from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.measuring import ProgressBar, changed, link_open, silent
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, choose, metric_of
from spacy_bioel.types import AnnotatedText, Link

PROTOCOL, METRIC = "end_to_end", "f1"
_DEFAULT = 0.25
# Nearest to the default first, because ties go to the first.
THRESHOLDS = sorted(
    np.round(np.arange(0.0, 0.81, 0.05), 2).tolist(), key=lambda t: abs(t - _DEFAULT)
)


def tune_nil(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Set the pipeline's linker to the NIL threshold with the best end-to-end F1.

    texts (Sequence[AnnotatedText]): Gold documents, at least one.
    folds (Sequence[Fold]): Folds of the documents.
    RETURNS (Tuned | None): None when the pipeline finds no mention in the bare text.
    """
    linker: Any = find_linker(nlp)
    with changed(linker.cfg, {"nil_threshold": 0.0}):
        links = list(link_open(nlp, linker, texts, progress=progress))
    if not any(links):
        return None
    counts = [
        count_documents(
            texts,
            [[_ids_at(link, threshold) for link in of_text] for of_text in links],
            protocol=PROTOCOL,
            canonical=linker.kb.canonical,
        )
        for threshold in THRESHOLDS
    ]
    choice = choose(THRESHOLDS, counts, metric_of(PROTOCOL, METRIC), folds=folds)
    linker.cfg["nil_threshold"] = choice.setting
    chosen = {"nil_threshold": choice.setting}
    return Tuned(linker.name, chosen, PROTOCOL, METRIC, choice.fitted, choice.cross_fitted)


def _ids_at(link: Link, threshold: float) -> Link:
    """Link at a threshold without its candidates, which the protocol does not look at."""
    return replace(with_threshold(link, threshold), candidates=())


def with_threshold(link: Link, threshold: float) -> Link:
    """Apply a NIL threshold as `pipeline.linker.decision.decide` does.

    link (Link): The decision at threshold 0.
    RETURNS (Link): The decision at this threshold.
    """
    scores = [candidate.score for candidate in link.candidates[: len(link.ids)]]
    if not scores:
        return link
    # The candidates of the parts come first; this is the probability of a composite as a whole.
    likelihood = min(scores) ** len(scores)
    is_linked = likelihood >= threshold if len(scores) == 1 else likelihood > threshold
    return link if is_linked else replace(link, ids=())
