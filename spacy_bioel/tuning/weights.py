"""Tuning of the weights of the linker's evidence: fitted by likelihood, measured by accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spacy.language import Language

from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.evidence import FEATURES
from spacy_bioel.pipeline.linker.fusion import Fusion, default_fusion
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.measuring import ProgressBar, link_given, silent
from spacy_bioel.scoring.counts import Counts
from spacy_bioel.scoring.evaluation import count_documents
from spacy_bioel.tuning.choosing import Fold, Tuned, metric_of, percent_of
from spacy_bioel.tuning.development import (
    Development,
    gather_development,
    gather_reading,
    gold_docs,
)
from spacy_bioel.tuning.fusion import fit_fusion, fit_nearest
from spacy_bioel.types import AnnotatedText

# NIL is ignored, because its threshold is chosen afterwards.
PROTOCOL, METRIC = "gold", "accuracy@1_nil_ignored"


def tune_weights(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Fit the linker's fusion, so that scores of candidates are probabilities of being right.

    texts (Sequence[AnnotatedText]): Gold documents, at least one.
    folds (Sequence[Fold]): Folds of the documents.
    RETURNS (Tuned | None): None without evidence from candidate generation, which may be switched
        off.
    """
    linker = find_linker(nlp)
    assert linker is not None
    development = gather_development(linker, gold_docs(nlp, texts))
    if not len(development.features):
        return None

    def fit(part: Development) -> Fusion:
        return fit_nearest(part, [default_fusion(), None])

    return _tune(nlp, texts, "fusion", development, fit, folds=folds, progress=progress)


def tune_reading(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Fit the weights of a contextual linker: scores from the context against scores of strings.

    Arguments and return value are those of `tune_weights`.
    """
    development = gather_reading(nlp, gold_docs(nlp, texts))
    if not len(development.features):
        return None

    def fit(part: Development) -> Fusion:
        # Five numbers need no hidden layer.
        return fit_fusion(part, n_hidden=0, l2=0.001)

    return _tune(nlp, texts, "reading", development, fit, folds=folds, progress=progress)


# The features that the weights in each attribute of a linker are for.
_FEATURES = {"fusion": FEATURES, "reading": READ_FEATURES}


def _tune(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    name: str,
    development: Development,
    fit: Callable[[Development], Fusion],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar,
) -> Tuned:
    """Fit and assign the attribute `name` of the linker.

    development (Development): Mentions of all documents.
    """
    linker = find_linker(nlp)
    assert linker is not None
    metric = metric_of(PROTOCOL, METRIC)
    previous = getattr(linker, name)
    held_out: list[Counts] = []
    with progress(f"Fitting weights ({name})", total=1 + len(folds)) as advance:
        for fold in folds:
            part = development.of_documents(fold.fitting.tolist())
            setattr(linker, name, _as_saved(fit(part), name) if len(part) else previous)
            held_out += _counts(nlp, linker, [texts[i] for i in fold.held_out.tolist()])
            advance(1)
        setattr(linker, name, _as_saved(fit(development), name))
        advance(1)
    return Tuned(
        linker.name,
        {"weights": name, "mentions": len(development)},
        PROTOCOL,
        METRIC,
        percent_of(_counts(nlp, linker, texts), metric),
        percent_of(held_out, metric) if held_out else None,
    )


def _as_saved(fusion: Fusion, name: str) -> Fusion:
    """Round weights as saving does, so that the saved weights are measured."""
    return Fusion.from_json(fusion.to_json(_FEATURES[name]), _FEATURES[name])


def _counts(nlp: Language, linker: Linker, texts: Sequence[AnnotatedText]) -> list[Counts]:
    links = list(link_given(nlp, linker, texts))
    return count_documents(texts, links, protocol=PROTOCOL, canonical=linker.kb.canonical)
