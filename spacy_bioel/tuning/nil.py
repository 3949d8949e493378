"""Tuning of the linker's NIL threshold by strict end-to-end F1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from spacy.language import Language
from spacy.util import minibatch

from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.measuring import BATCH, ProgressBar, docs_before, silent
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, choose, metric_of
from spacy_bioel.types import AnnotatedText

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
    linker = find_linker(nlp)
    assert linker is not None
    counts: list[list[Counts]] = [[] for _ in THRESHOLDS]
    n_mentions = 0
    with progress("Choosing the NIL threshold", total=len(texts)) as advance:
        golds = iter(texts)
        for docs in minibatch(docs_before(nlp, linker, texts), BATCH):
            of_batch = list(islice(golds, len(docs)))
            ranking = linker.ranking(docs)
            for of_threshold, threshold in zip(counts, THRESHOLDS, strict=True):
                links = ranking.links(nil_threshold=threshold)
                of_threshold += count_documents(
                    of_batch, links, protocol=PROTOCOL, canonical=linker.kb.canonical
                )
            n_mentions += sum(map(len, links))
            advance(len(docs))
    if not n_mentions:
        return None
    choice = choose(THRESHOLDS, counts, metric_of(PROTOCOL, METRIC), folds=folds)
    linker.cfg["nil_threshold"] = choice.setting
    chosen = {"nil_threshold": choice.setting}
    return Tuned(linker.name, chosen, PROTOCOL, METRIC, choice.fitted, choice.cross_fitted)
