"""Tuning of how names of a knowledge base are found: weights of the evidence, and a threshold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

import numpy as np
from spacy.language import Language

from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.fusion import Fusion
from spacy_bioel.pipeline.linker.queries import looking_up
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.measuring import ProgressBar, changed, link_open, silent
from spacy_bioel.pipeline.mentions.finder import default_weights
from spacy_bioel.pipeline.mentions.name_evidence import FEATURES
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, Value, choose, metric_of
from spacy_bioel.tuning.development import Development
from spacy_bioel.tuning.fusion import fit_fusion
from spacy_bioel.types import AnnotatedText

PROTOCOL, METRIC = "end_to_end", "f1"
_DEFAULT = 0.5
_THRESHOLDS = sorted((0.2, 0.3, 0.4, 0.5, 0.6, 0.7), key=lambda t: abs(t - _DEFAULT))
# Whether the weights are refitted, and the threshold; as it is first, because ties go to the first.
SETTINGS = tuple(product((False, True), _THRESHOLDS))


def tune_finding(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Set the linker to the weights of finding and the threshold with the best end-to-end F1.

    Refitted weights are judged on documents that they were not fitted on.

    texts (Sequence[AnnotatedText]): Gold documents.
    folds (Sequence[Fold]): Folds of the documents.
    RETURNS (Tuned | None): None without folds, or when nothing that is like a name is right.
    """
    linker = find_linker(nlp)
    assert linker is not None
    spans = _gather(nlp, linker, texts)
    if not folds or not any(right.any() for right in spans.right):
        return None
    counts: list[list[Counts]] = [[{}] * len(texts) for _ in SETTINGS]
    with progress("Fitting weights (finding)", total=len(folds) * len(SETTINGS)) as advance:
        for fold in folds:
            refitted = _fit(spans.of_documents(fold.fitting.tolist()))
            held_out = [texts[i] for i in fold.held_out.tolist()]
            for of_setting, setting in zip(counts, SETTINGS, strict=True):
                with _set(linker, setting, refitted):
                    found = _counts(nlp, linker, held_out)
                for i, count in zip(fold.held_out.tolist(), found, strict=True):
                    of_setting[i] = count
                advance(1)
    choice = choose(SETTINGS, counts, metric_of(PROTOCOL, METRIC), folds=folds)
    is_refitted, threshold = choice.setting
    if is_refitted:
        linker.finding = _fit(spans)
    linker.cfg["finding"] = {**linker.cfg["finding"], "threshold": threshold}
    chosen: dict[str, Value] = {"refitted": is_refitted, "threshold": threshold}
    return Tuned(linker.name, chosen, PROTOCOL, METRIC, choice.fitted, choice.cross_fitted)


def _gather(nlp: Language, linker: Linker, texts: Sequence[AnnotatedText]) -> Development:
    """Spans that may be names, each a mention with one candidate, which is right or not."""
    finder, kb = linker.generator.finder, linker.kb
    docs = [nlp.make_doc(text.text) for text in texts]
    spans = finder.look_up(docs, **looking_up(linker.state.settings))
    hits, rows, features = finder.weigh(spans)
    alone = hits.gap == hits.end  # parts of coordinations are weighed by rules
    hits, rows, features = hits.take(alone), rows[alone], features[alone]
    of_doc = spans.words.doc[hits.start]
    starts, ends = spans.words.places(hits.start, hits.end)
    gold = {
        (number, mention.start, mention.end): set(kb.find_all(list(mention.ids)).tolist())
        for number, text in enumerate(texts)
        for mention in text.mentions
    }
    indptr, concepts, _ = kb.concepts_of_names(rows)
    right = [
        not gold.get(place, set()).isdisjoint(concepts[indptr[i] : indptr[i + 1]].tolist())
        for i, place in enumerate(zip(of_doc.tolist(), starts.tolist(), ends.tolist(), strict=True))
    ]
    return Development(
        features,
        [np.array([i]) for i in range(len(rows))],
        [np.array([is_right]) for is_right in right],
        [""] * len(rows),
        of_doc.tolist(),
    )


def _fit(spans: Development) -> Fusion:
    """Weights near those of the package, rounded as saving does."""
    fitted = fit_fusion(spans, prior=default_weights()) if len(spans) else default_weights()
    return Fusion.from_json(fitted.to_json(FEATURES), FEATURES)


@contextmanager
def _set(linker: Linker, setting: tuple[bool, float], refitted: Fusion) -> Iterator[None]:
    is_refitted, threshold = setting
    before = linker.finding
    finding = {**linker.cfg["finding"], "threshold": threshold}
    with changed(linker.cfg, {"finding": finding}):
        linker.finding = refitted if is_refitted else before
        try:
            yield
        finally:
            linker.finding = before


def _counts(nlp: Language, linker: Linker, texts: Sequence[AnnotatedText]) -> list[Counts]:
    links = list(link_open(nlp, linker, texts))
    return count_documents(texts, links, protocol=PROTOCOL, canonical=linker.kb.canonical)
