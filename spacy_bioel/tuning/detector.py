"""Tuning of the detector's threshold, consistency and overlap by mention F1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.pipeline.loading import find_detector
from spacy_bioel.pipeline.measuring import ProgressBar, changed, silent
from spacy_bioel.pipeline.mentions.decoding import ScoredSpan, agree, drop_overlaps
from spacy_bioel.pipeline.tokens import listens, with_token_vectors
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, choose, metric_of
from spacy_bioel.types import AnnotatedText, Link

PROTOCOL, METRIC = "mention", "f1"
_BATCH = 32
_LOWEST = 0.05  # minimum probability of the spans among which settings choose


class Setting(NamedTuple):
    threshold: float
    consistency: float
    allow_overlap: bool


# Nearest to the defaults first, because ties go to the first.
SETTINGS = sorted(
    (
        Setting(threshold, consistency, allow_overlap)
        for threshold, consistency, allow_overlap in product(
            np.round(np.arange(0.1, 0.91, 0.05), 2).tolist(),
            (0.0, 0.25, 0.5, 0.75),
            (True, False),
        )
    ),
    key=lambda s: (abs(s.threshold - 0.5), s.consistency, not s.allow_overlap),
)


def tune_detector(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned:
    """Set the pipeline's detector to the settings with the best mention F1.

    texts (Sequence[AnnotatedText]): Gold documents, at least one.
    folds (Sequence[Fold]): Folds of the documents.
    """
    detector: Any = find_detector(nlp)
    docs = [nlp.make_doc(text.text) for text in texts]
    if listens(detector.model):
        docs = list(with_token_vectors(nlp, docs))
    found = list(_all_spans(detector, docs, progress))
    counts = []
    with progress("Choosing the detector's settings", total=len(SETTINGS)) as advance:
        for setting in SETTINGS:
            counts.append(count_setting(texts, docs, found, setting))
            advance(1)
    choice = choose(SETTINGS, counts, metric_of(PROTOCOL, METRIC), folds=folds)
    chosen = choice.setting._asdict()
    detector.cfg.update(chosen)
    return Tuned(detector.name, chosen, PROTOCOL, METRIC, choice.fitted, choice.cross_fitted)


def _all_spans(
    detector: Any, docs: Sequence[Doc], progress: ProgressBar
) -> Iterator[list[ScoredSpan]]:
    """Spans of each document from which any setting selects."""
    everything = Setting(_LOWEST, consistency=0.0, allow_overlap=True)._asdict()
    with changed(detector.cfg, everything), progress("Finding spans", total=len(docs)) as advance:
        for start in range(0, len(docs), _BATCH):
            batch = docs[start : start + _BATCH]
            yield from detector.predict(batch)
            advance(len(batch))


def count_setting(
    texts: Sequence[AnnotatedText],
    docs: Sequence[Doc],
    found: Sequence[Sequence[ScoredSpan]],
    setting: Setting,
) -> list[Counts]:
    """Count each document under one setting, applied as the detector applies it.

    found (Sequence): Spans of each document with their probabilities.
    """
    predicted = []
    for doc, spans in zip(docs, found, strict=True):
        kept = agree(doc, spans, weight=setting.consistency)
        kept = [span for span in kept if span[3] >= setting.threshold]
        if not setting.allow_overlap:
            kept = drop_overlaps(kept, threshold=setting.threshold)
        predicted.append([_link(doc, span) for span in kept])
    return count_documents(texts, predicted, protocol=PROTOCOL)


def _link(doc: Doc, span: ScoredSpan) -> Link:
    start, end, label, _ = span
    last = doc[end - 1]
    return Link(doc[start].idx, last.idx + len(last), label)
