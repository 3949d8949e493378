"""Tuning of a pipeline on development documents. Each tuner sets the settings of one pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.evaluation.evaluate import count_documents
from spacy_bioel.evaluation.fit import (
    Fold,
    Tuned,
    Value,
    choose,
    document_folds,
    fit_fusion,
    fit_nearest,
    gather_development,
    gather_names,
    gather_reading,
    gold_docs,
    linker_of,
    percent_of,
    require_scipy,
    wrong_names,
)
from spacy_bioel.evaluation.protocols import Counts, get_protocol
from spacy_bioel.evaluation.run import (
    ProgressBar,
    batches_before,
    link_given,
    link_open,
    measure_pipeline,
    silent,
)
from spacy_bioel.linking.evidence import default_fusion
from spacy_bioel.loading import find_detector, find_linker
from spacy_bioel.mentions.selection import select_mentions
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.types import AnnotatedText, Link, ScoredSpan

GIVEN, LINKING, MENTIONS = "gold", "end_to_end", "mention"  # protocols
ACCURACY = "accuracy@1_nil_ignored"  # since the NIL threshold is chosen afterwards


def _steps(first: float, last: float) -> list[float]:
    return np.round(np.arange(first, last + 0.01, 0.05), 2).tolist()


# What is tried, nearest to the defaults first, because ties go to the first.
NIL: list[dict[str, Value]] = [
    {"nil_threshold": t} for t in sorted(_steps(0.0, 0.8), key=lambda t: abs(t - 0.25))
]
DETECTOR: list[dict[str, Value]] = [
    {"threshold": t, "document_smoothing": document_smoothing, "allow_overlap": allow_overlap}
    for t, document_smoothing, allow_overlap in sorted(
        product(_steps(0.1, 0.9), (0.0, 0.25, 0.5, 0.75), (True, False)),
        key=lambda s: (abs(s[0] - 0.5), s[1], not s[2]),
    )
]
FINDING: list[dict[str, Value]] = [
    {"left_out": least, "threshold": t} for least, t in product((0, 3, 2, 1), (0.5, 0.7, 0.9))
]


def _counts(nlp: Language, texts: Sequence[AnnotatedText], protocol: str) -> list[Counts]:
    linker = linker_of(nlp)
    link = link_given if protocol == GIVEN else link_open
    links = list(link(nlp, linker, texts))
    return count_documents(texts, links, protocol=protocol, canonical=linker.kb.canonical)


def _as_saved(fusion: Fusion, features: Sequence[str]) -> Fusion:
    """Round weights as saving does, so that the saved weights are measured."""
    return Fusion.from_json(fusion.to_json(features), features)


def tune_weights(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    name: str = "fusion",
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Fit weights of the linker, so that scores of candidates are probabilities of being right.

    name (str): "fusion", the evidence of strings; "rescoring", scores from the context against those.
    RETURNS (Tuned | None): None without evidence, which may be switched off.
    """
    linker, docs = linker_of(nlp), gold_docs(nlp, texts)
    features = linker.features_of(name)
    if name == "fusion":
        development = gather_development(linker, docs)
        fit = partial(fit_nearest, priors=[default_fusion(), None])
    else:  # five numbers need no hidden layer
        development = gather_reading(nlp, docs)
        fit = partial(fit_fusion, n_hidden=0, l2=0.001)
    if not len(development.features):
        return None
    previous = getattr(linker, name)
    held_out: list[Counts] = []
    with progress(f"Fitting weights ({name})", total=1 + len(folds)) as advance:
        for fold in folds:
            part = development.of_documents(fold.fitting.tolist())
            setattr(linker, name, _as_saved(fit(part), features) if len(part) else previous)
            held_out += _counts(nlp, [texts[i] for i in fold.held_out.tolist()], GIVEN)
            advance(1)
        setattr(linker, name, _as_saved(fit(development), features))
        advance(1)
    chosen: dict[str, Value] = {"weights": name, "mentions": len(development)}
    cross_fitted = percent_of(held_out, GIVEN, ACCURACY) if held_out else None
    return Tuned(linker.name, chosen, GIVEN, ACCURACY, None, cross_fitted)


def tune_dictionary(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Set the linker to the names to leave out and the threshold with the best end-to-end F1.

    What a corpus does not annotate ("protein") is left out by the name: judged on documents that
    the names were not chosen on.

    RETURNS (Tuned | None): None without folds, or when no name that is found is right.
    """
    linker = linker_of(nlp)
    dictionary = {"exclude": [], **linker.cfg["dictionary"]}
    names = gather_names(nlp, texts)
    if not folds or not any(is_right for of_text in names for _, is_right in of_text):
        return None
    counts: list[list[Counts]] = [[{}] * len(texts) for _ in FINDING]

    def setting_of(setting: Mapping[str, Value], documents: Sequence[int]) -> dict[str, Any]:
        seen = [names[i] for i in documents]
        n = sum(len(texts[i].mentions) for i in documents)
        wrong = wrong_names(seen, n, least=int(setting["left_out"]))
        exclude = sorted({*dictionary["exclude"], *wrong})
        return {**dictionary, "exclude": exclude, "threshold": setting["threshold"]}

    try:
        with progress("Choosing how names are found", total=len(folds) * len(FINDING)) as advance:
            for fold in folds:
                held_out = fold.held_out.tolist()
                for of_setting, setting in zip(counts, FINDING, strict=True):
                    linker.cfg["dictionary"] = setting_of(setting, fold.fitting.tolist())
                    found = _counts(nlp, [texts[i] for i in held_out], LINKING)
                    for i, count in zip(held_out, found, strict=True):
                        of_setting[i] = count
                    advance(1)
    finally:
        linker.cfg["dictionary"] = dictionary
    tuned = choose(linker.name, FINDING, counts, protocol=LINKING, folds=folds)
    linker.cfg["dictionary"] = setting_of(tuned.chosen, range(len(texts)))
    return tuned


def tune_nil(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned | None:
    """Set the linker to the NIL threshold with the best end-to-end F1.

    RETURNS (Tuned | None): None when the pipeline finds no mention in the bare text.
    """
    linker = linker_of(nlp)
    counts: list[list[Counts]] = [[] for _ in NIL]
    n_mentions = 0
    with progress("Choosing the NIL threshold", total=len(texts)) as advance:
        golds = iter(texts)
        for docs in batches_before(nlp, linker, texts):
            of_batch = list(islice(golds, len(docs)))
            ranking = linker.ranking(docs)
            for of_setting, setting in zip(counts, NIL, strict=True):
                links = ranking.links(nil_threshold=float(setting["nil_threshold"]))
                of_setting += count_documents(
                    of_batch, links, protocol=LINKING, canonical=linker.kb.canonical
                )
            n_mentions += sum(map(len, links))
            advance(len(docs))
    if not n_mentions:
        return None
    tuned = choose(linker.name, NIL, counts, protocol=LINKING, folds=folds)
    linker.cfg |= tuned.chosen
    return tuned


def tune_detector(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    *,
    folds: Sequence[Fold],
    progress: ProgressBar = silent,
) -> Tuned:
    """Set the pipeline's detector to the settings with the best mention F1."""
    detector = find_detector(nlp)
    assert detector is not None
    docs: list[Doc] = []
    scored: list[list[ScoredSpan]] = []
    with progress("Finding spans", total=len(texts)) as advance:
        for batch in batches_before(nlp, detector, texts):
            docs += batch
            scored += detector.score_spans(batch)
            advance(len(batch))
    counts, rules = [], detector.rules
    with progress("Choosing the detector's settings", total=len(DETECTOR)) as advance:
        for setting in DETECTOR:
            cfg = {**detector.cfg, **setting}
            spans = select_mentions(docs, scored, cfg, rules)
            links = list(map(_links, docs, spans))
            counts.append(count_documents(texts, links, protocol=MENTIONS))
            advance(1)
    tuned = choose(detector.name, DETECTOR, counts, protocol=MENTIONS, folds=folds)
    detector.cfg |= tuned.chosen
    return tuned


def _links(doc: Doc, mentions: list[ScoredSpan]) -> list[Link]:
    spans = [doc[start:end] for start, end, *_ in mentions]
    labels = [label for *_, label, _ in mentions]
    return [Link(s.start_char, s.end_char, x) for s, x in zip(spans, labels, strict=True)]


@dataclass(frozen=True, slots=True)
class Report:
    """What `tune` did on so many gold documents and mentions.

    folds (int): 0: too few documents to cross-fit.
    tuned (tuple[Tuned, ...]): Chosen settings, in the order of tuning.
    remarks (tuple[str, ...]): Settings left unchanged, with the reason.
    """

    documents: int
    mentions: int
    folds: int
    tuned: tuple[Tuned, ...]
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        tuned = [one.to_json() for one in self.tuned]
        return {**asdict(self), "tuned": tuned, "remarks": list(self.remarks)}


def tune(
    nlp: Language, texts: Sequence[AnnotatedText], *, progress: ProgressBar = silent
) -> Report:
    """Tune a pipeline in place, and record the report in nlp.meta["bioel"]["tuning"].

    The scores and losses of training, nlp.meta["performance"], are dropped.

    nlp (Language): A pipeline with a detector, a linker, or both.
    texts (Sequence[AnnotatedText]): Gold documents that the pipeline was not trained on.
    RAISES BioelError: [B232] with neither pipe, [B040] without SciPy, for a linker.
    """
    linker, detector = find_linker(nlp), find_detector(nlp)
    if linker is None and detector is None:
        raise BioelError(Errors.B232.format(pipes=", ".join(nlp.pipe_names) or "none"))
    folds = document_folds(len(texts))
    found: list[Tuned | None] = []
    remarks: list[str] = [] if folds else ["there is one document: nothing is cross-fitted"]
    has_ids = any(mention.ids for text in texts for mention in text.mentions)
    if linker is not None and has_ids:
        require_scipy()  # before hours of work
        weights = tune_weights(nlp, texts, folds=folds, progress=progress)
        if weights is None:
            remarks.append("the weights are unchanged: there is no evidence of strings")
        found.append(weights)
        if linker.is_contextual:
            found.append(tune_weights(nlp, texts, "rescoring", folds=folds, progress=progress))
        if linker.cfg["mentions"] == "dictionary":
            dictionary = tune_dictionary(nlp, texts, folds=folds, progress=progress)
            if folds and dictionary is None:
                remarks.append("dictionary is unchanged: no name that is found is right")
            found.append(dictionary)
    if detector is not None:
        found.append(mentions := tune_detector(nlp, texts, folds=folds, progress=progress))
        if not mentions.fitted:
            remarks.append("the detector finds no gold mention: train it for longer")
    if linker is not None and has_ids:
        nil = tune_nil(nlp, texts, folds=folds, progress=progress)
        if nil is None:
            remarks.append("the NIL threshold is unchanged: no mention is found in bare text")
        found.append(nil)
    if linker is not None and not has_ids:
        remarks.append("the linker is unchanged: no gold mention has an id")
    tuned = [one for one in found if one is not None]
    # What `bioel evaluate` says of the pipeline as it is now, in place of each step's own figure.
    chosen = {one.protocol: get_protocol(one.protocol)[1] for one in tuned}
    figures = measure_pipeline(nlp, texts, chosen)
    report = Report(
        documents=len(texts),
        mentions=sum(len(text.mentions) for text in texts),
        folds=len(folds),
        tuned=tuple(
            replace(one, fitted=figures.get((one.protocol, one.metric), 0.0)) for one in tuned
        ),
        remarks=tuple(remarks),
    )
    # Training measured other weights and thresholds, and its losses are no scores.
    nlp.meta["performance"] = {}
    nlp.meta["bioel"] = {**nlp.meta.get("bioel", {}), "tuning": report.to_json()}
    return report
