"""The NIL threshold of a linker and the settings of a detector, chosen on development documents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from spacy_bioel.pipeline.loading import find_detector, find_linker
from spacy_bioel.pipeline.measuring import BATCH, ProgressBar, docs_before, silent
from spacy_bioel.pipeline.mentions.choosing import ScoredSpan, choose_mentions
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, choose, metric_of
from spacy_bioel.types import AnnotatedText, Link

LINKING, MENTIONS, METRIC = "end_to_end", "mention", "f1"  # protocols, and their metric
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
                    of_batch, links, protocol=LINKING, canonical=linker.kb.canonical
                )
            n_mentions += sum(map(len, links))
            advance(len(docs))
    if not n_mentions:
        return None
    choice = choose(THRESHOLDS, counts, metric_of(LINKING, METRIC), folds=folds)
    linker.cfg["nil_threshold"] = choice.setting
    chosen = {"nil_threshold": choice.setting}
    return Tuned(linker.name, chosen, LINKING, METRIC, choice.fitted, choice.cross_fitted)


class DetectorSetting(NamedTuple):
    threshold: float
    consistency: float
    allow_overlap: bool


# Nearest to the defaults first, because ties go to the first.
SETTINGS = sorted(
    (
        DetectorSetting(threshold, consistency, allow_overlap)
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
            counts.append(count_documents(texts, links, protocol=MENTIONS))
            advance(1)
    choice = choose(SETTINGS, counts, metric_of(MENTIONS, METRIC), folds=folds)
    setting = choice.setting._asdict()
    detector.cfg.update(setting)
    return Tuned(detector.name, setting, MENTIONS, METRIC, choice.fitted, choice.cross_fitted)


def _link(doc: Doc, span: ScoredSpan) -> Link:
    start, end, label, _ = span
    last = doc[end - 1]
    return Link(doc[start].idx, last.idx + len(last), label)
