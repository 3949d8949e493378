"""Selection of settings by metrics of `spacy_bioel.scoring`, with cross-fitting by document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice, product
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from spacy_bioel.pipeline.loading import find_detector, find_linker
from spacy_bioel.pipeline.measuring import BATCH, ProgressBar, docs_before, silent
from spacy_bioel.pipeline.mentions.choosing import ScoredSpan, choose_mentions
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.scoring.measure import percent
from spacy_bioel.scoring.protocols import Metric, get_protocol
from spacy_bioel.types import AnnotatedText, Link

LINKING, MENTIONS, METRIC = "end_to_end", "mention", "f1"  # protocols, and their metric

Setting = TypeVar("Setting")
Value = float | bool | str
IntArray = NDArray[np.int64]
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices of the documents to fit on and of the held-out documents to measure on."""

    fitting: IntArray
    held_out: IntArray


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings chosen on development documents, with their fitted and cross-fitted figures.

    what (str): Name of the pipe.
    chosen (dict): Its chosen settings, by name.
    protocol, metric (str): Protocol and metric that were maximised, as in `bioel evaluate`.
    fitted (float): Percentage on the documents used for the choice, which is optimistic.
    cross_fitted (float | None): The same, each document measured with the settings chosen on the
        other folds; settings of earlier steps are not chosen again. None: only one document.
    """

    what: str
    chosen: dict[str, Value]
    protocol: str
    metric: str
    fitted: float
    cross_fitted: float | None

    def to_json(self) -> dict[str, Any]:
        rounded = {"fitted": round(self.fitted, 2)}
        if self.cross_fitted is not None:
            rounded["cross_fitted"] = round(self.cross_fitted, 2)
        return asdict(self) | rounded


@dataclass(frozen=True, slots=True)
class Choice(Generic[Setting]):
    """Best of several settings, with figures as in `Tuned`."""

    setting: Setting
    fitted: float
    cross_fitted: float | None


def document_folds(n_documents: int, *, n_folds: int = FOLDS, seed: int = 0) -> list[Fold]:
    """Split documents into folds, deterministically; no folds for a single document."""
    if n_documents < 2:
        return []
    n_folds = min(n_folds, n_documents)
    fold = np.random.default_rng(seed).permutation(n_documents) % n_folds
    return [
        Fold(np.flatnonzero(fold != number), np.flatnonzero(fold == number))
        for number in range(n_folds)
    ]


def choose(
    settings: Sequence[Setting],
    counts: Sequence[Sequence[Counts]],
    metric: Metric,
    *,
    folds: Sequence[Fold],
) -> Choice[Setting]:
    """Choose the setting with the highest metric; at a tie, the first.

    settings (Sequence): At least one setting, in the order of preference.
    counts (Sequence): For each setting, the counts of each document.
    folds (Sequence[Fold]): Folds of the documents; empty: no cross-fitting.
    """
    names = sorted({name for ratio in metric.ratios for name in ratio})
    counts_sdc = np.array([[[row[n] for n in names] for row in rows] for rows in counts], float)

    def percents(sums_sc: NDArray[np.float64]) -> NDArray[np.float64]:
        return percent(metric, dict(zip(names, sums_sc.T, strict=True)))

    on_all = percents(counts_sdc.sum(axis=1))
    best = int(np.argmax(on_all))
    cross_fitted = None
    if folds:
        total_c = np.zeros(len(names))
        for fold in folds:
            chosen = int(np.argmax(percents(counts_sdc[:, fold.fitting].sum(axis=1))))
            total_c += counts_sdc[chosen, fold.held_out].sum(axis=0)
        cross_fitted = float(percents(total_c[None])[0])
    return Choice(settings[best], float(on_all[best]), cross_fitted)


def percent_of(counts: Sequence[Counts], metric: Metric) -> float:
    """Compute a metric, in percent, from the summed counts of documents."""
    return choose([None], [counts], metric, folds=[]).fitted


def metric_of(protocol: str, metric: str) -> Metric:
    """Look up a metric in the table of protocols."""
    return get_protocol(protocol)[1].metrics[metric]


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
