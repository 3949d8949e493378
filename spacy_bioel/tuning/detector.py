"""Tuning of the detector's threshold, consistency and overlap by mention F1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from spacy_bioel.pipeline.loading import find_detector
from spacy_bioel.pipeline.measuring import BATCH, ProgressBar, docs_before, silent
from spacy_bioel.pipeline.mentions.choosing import choose_mentions
from spacy_bioel.pipeline.mentions.decoding import ScoredSpan
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, choose, metric_of
from spacy_bioel.types import AnnotatedText, Link

PROTOCOL, METRIC = "mention", "f1"


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
    detector = find_detector(nlp)
    assert detector is not None
    docs, found = [], []
    with progress("Finding spans", total=len(texts)) as advance:
        for batch in minibatch(docs_before(nlp, detector, texts), BATCH):
            docs += batch
            found += detector.score_spans(batch)
            advance(len(batch))
    counts = []
    with progress("Choosing the detector's settings", total=len(SETTINGS)) as advance:
        for candidate in SETTINGS:
            cfg = {**detector.cfg, **candidate._asdict()}
            links = [
                [_link(doc, span) for span in choose_mentions(doc, spans, cfg)]
                for doc, spans in zip(docs, found, strict=True)
            ]
            counts.append(count_documents(texts, links, protocol=PROTOCOL))
            advance(1)
    choice = choose(SETTINGS, counts, metric_of(PROTOCOL, METRIC), folds=folds)
    setting = choice.setting._asdict()
    detector.cfg.update(setting)
    return Tuned(detector.name, setting, PROTOCOL, METRIC, choice.fitted, choice.cross_fitted)


def _link(doc: Doc, span: ScoredSpan) -> Link:
    start, end, label, _ = span
    last = doc[end - 1]
    return Link(doc[start].idx, last.idx + len(last), label)
