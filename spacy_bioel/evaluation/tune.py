"""Tune a pipeline on development documents. Each tuner changes the settings of one pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from hashlib import blake2b
from itertools import islice, product, takewhile
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.evaluation.evaluate import count_documents
from spacy_bioel.evaluation.fit import (
    Fold,
    Tuned,
    Value,
    document_folds,
    fit_fusion,
    fit_with_best_prior,
    gather_contextual_development,
    gather_development,
    gold_docs,
    grid_search,
    judge_names,
    linker_of,
    percent_of,
    require_scipy,
    wrong_names,
)
from spacy_bioel.evaluation.protocols import Counts, get_protocol
from spacy_bioel.evaluation.run import (
    Texts,
    Track,
    batches_before_pipe,
    changed_settings,
    measure_pipeline,
    predict_links,
    untracked,
)
from spacy_bioel.linking.decide import find_mentions
from spacy_bioel.linking.evidence import default_fusion
from spacy_bioel.loading import find_detector, find_linker, spans_key
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.mentions.selection import select_mentions
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY
from spacy_bioel.types import AnnotatedText, Link, ScoredSpan

GOLD_PROTOCOL, LINK_PROTOCOL, MENTION_PROTOCOL = "gold", "end_to_end", "mention"
ACCURACY = "accuracy@1_nil_ignored"  # ignores NIL, because its threshold is chosen afterwards


def _threshold_steps(first: float, last: float) -> list[float]:
    return np.round(np.arange(first, last + 0.01, 0.05), 2).tolist()


# Settings to try. Those closest to the defaults come first, because a tie goes to the first.
NIL_GRID: list[dict[str, Value]] = [
    {"nil_threshold": t} for t in sorted(_threshold_steps(0.0, 0.8), key=lambda t: abs(t - 0.25))
]
DETECTOR_GRID: list[dict[str, Value]] = [
    {"threshold": t, "document_smoothing": document_smoothing, "allow_overlap": allow_overlap}
    for t, document_smoothing, allow_overlap in sorted(
        product(_threshold_steps(0.1, 0.9), (0.0, 0.25, 0.5, 0.75), (True, False)),
        key=lambda s: (abs(s[0] - 0.5), s[1], not s[2]),
    )
]
DICTIONARY_GRID: list[dict[str, Value]] = [
    {"left_out": n_wrong, "threshold": t} for n_wrong, t in product((0, 3, 2, 1), (0.5, 0.7, 0.9))
]


def _count_links(nlp: Language, texts: Texts, protocol: str) -> list[Counts]:
    (links,) = predict_links(nlp, texts, dict([get_protocol(protocol)])).values()
    canonical = linker_of(nlp).kb.canonical
    return count_documents(texts, links, protocol=protocol, canonical=canonical)


def _as_saved(fusion: Fusion, features: Sequence[str]) -> Fusion:
    """Round weights as when saving them, so that measured and saved weights are identical."""
    return Fusion.from_json(fusion.to_json(features), features)


def tune_weights(
    nlp: Language,
    texts: Texts,
    name: str = "fusion",
    *,
    folds: Sequence[Fold],
    track: Track = untracked,
) -> Tuned | None:
    """Fit the linker's weights, so that a candidate's score is its probability of being right.

    name (str): "fusion": weights for string evidence; "rescoring": weights that combine the context
        score and the string score.
    RETURNS (Tuned | None): None if there is no evidence, because all evidence is switched off.
    """
    linker, docs = linker_of(nlp), gold_docs(nlp, texts)
    features = linker.features_of(name)
    if name == "fusion":
        development = gather_development(linker, docs)
        fit = partial(fit_with_best_prior, priors=[default_fusion(), None])
    else:  # with only five features, no hidden layer is needed
        development = gather_contextual_development(nlp, docs)
        fit = partial(fit_fusion, n_hidden=0, l2=0.001)
    if not len(development.features):
        return None
    previous = getattr(linker, name)
    held_out: list[Counts] = []
    for fold in track(folds, f"Fitting weights ({name})"):
        part = development.for_documents(fold.fitting.tolist())
        setattr(linker, name, _as_saved(fit(part), features) if len(part) else previous)
        held_out += _count_links(nlp, [texts[i] for i in fold.held_out.tolist()], GOLD_PROTOCOL)
    setattr(linker, name, _as_saved(fit(development), features))
    chosen: dict[str, Value] = {"weights": name, "mentions": len(development)}
    cross_fitted = percent_of(held_out, GOLD_PROTOCOL, ACCURACY) if held_out else None
    return Tuned(linker.name, chosen, GOLD_PROTOCOL, ACCURACY, None, cross_fitted)


def tune_dictionary(
    nlp: Language, texts: Texts, *, folds: Sequence[Fold], track: Track = untracked
) -> Tuned | None:
    """Set the dictionary's excluded names and threshold to maximise end-to-end F1.

    Names that are not annotated in the corpus, such as "protein", are excluded. Each fold is
    measured with the names excluded on the basis of the other folds.

    RETURNS (Tuned | None): None without folds, or if none of the names found is right.
    """
    linker = linker_of(nlp)
    dictionary = {"exclude": [], **linker.cfg["dictionary"]}
    names = judge_names(nlp, texts)
    if not folds or not any(is_right for text_names in names for _, is_right in text_names):
        return None
    counts: list[list[Counts]] = [[{}] * len(texts) for _ in DICTIONARY_GRID]
    trials = list(product(folds, zip(counts, DICTIONARY_GRID, strict=True)))

    def dictionary_with(setting: Mapping[str, Value], documents: Sequence[int]) -> dict[str, Any]:
        n_gold = sum(len(texts[i].mentions) for i in documents)
        n_wrong = int(setting["left_out"])
        wrong = wrong_names([names[i] for i in documents], n_gold, min_wrong=n_wrong)
        exclude = sorted({*dictionary["exclude"], *wrong})
        return {**dictionary, "exclude": exclude, "threshold": setting["threshold"]}

    with changed_settings(linker.cfg, {"dictionary": dictionary}):
        for fold, (of_setting, setting) in track(trials, "Tuning the dictionary"):
            held_out = fold.held_out.tolist()
            linker.cfg["dictionary"] = dictionary_with(setting, fold.fitting.tolist())
            fold_counts = _count_links(nlp, [texts[i] for i in held_out], LINK_PROTOCOL)
            for i, count in zip(held_out, fold_counts, strict=True):
                of_setting[i] = count
    tuned = grid_search(linker.name, DICTIONARY_GRID, counts, protocol=LINK_PROTOCOL, folds=folds)
    linker.cfg["dictionary"] = dictionary_with(tuned.chosen, range(len(texts)))
    return tuned


def tune_nil(
    nlp: Language, texts: Texts, *, folds: Sequence[Fold], track: Track = untracked
) -> Tuned | None:
    """Set the linker's NIL threshold to maximise end-to-end F1.

    RETURNS (Tuned | None): None if the pipeline finds no mentions in the bare text.
    """
    linker = linker_of(nlp)
    grid = [{"nil_threshold": linker.cfg["nil_threshold"]}, *NIL_GRID]
    counts: list[list[Counts]] = [[] for _ in grid]
    n_mentions = 0
    golds = iter(texts)
    for docs in batches_before_pipe(nlp, linker, track(texts, "Tuning the NIL threshold")):
        gold = list(islice(golds, len(docs)))
        ranking = linker.ranking(docs)
        for setting_counts, setting in zip(counts, grid, strict=True):
            links = ranking.links(nil_threshold=float(setting["nil_threshold"]))
            setting_counts += count_documents(
                gold, links, protocol=LINK_PROTOCOL, canonical=linker.kb.canonical
            )
        n_mentions += sum(map(len, links))
    if not n_mentions:
        return None
    tuned = grid_search(linker.name, grid, counts, protocol=LINK_PROTOCOL, folds=folds)
    linker.cfg |= tuned.chosen
    return tuned


def tune_detector(
    nlp: Language, texts: Texts, *, folds: Sequence[Fold], track: Track = untracked
) -> Tuned:
    """Set the detector's settings to maximise the mention F1 of the whole pipeline."""
    detector = find_detector(nlp)
    assert detector is not None
    docs: list[Doc] = []
    scored: list[list[ScoredSpan]] = []
    for batch in batches_before_pipe(nlp, detector, track(texts, "Finding spans")):
        docs += batch
        scored += detector.score_spans(batch)
    counts, rules = [], detector.rules
    grid = [{key: detector.cfg[key] for key in DETECTOR_GRID[0]}, *DETECTOR_GRID]
    find = _whole_pipeline(nlp, detector, docs)
    for setting in track(grid, "Tuning the detector"):
        spans = select_mentions(docs, scored, {**detector.cfg, **setting}, rules)
        links = [find(index, tuple(of_doc)) for index, of_doc in enumerate(spans)]
        counts.append(count_documents(texts, links, protocol=MENTION_PROTOCOL))
    tuned = grid_search(detector.name, grid, counts, protocol=MENTION_PROTOCOL, folds=folds)
    detector.cfg |= tuned.chosen
    return tuned


def _whole_pipeline(
    nlp: Language, detector: MentionDetector, docs: Sequence[Doc]
) -> Callable[[int, tuple[ScoredSpan, ...]], list[Link]]:
    """Return a function that finds the mentions of the whole pipeline in a document.

    Its arguments are the document's index and the detector's mentions, to which the linker may add
    names. Results are cached, because many settings give the same mentions.
    """
    linker, later = find_linker(nlp), nlp.pipeline[nlp.pipe_names.index(detector.name) + 1 :]
    between = list(takewhile(lambda pipe: pipe is not linker, (pipe for _, pipe in later)))

    @cache
    def find(index: int, mentions: tuple[ScoredSpan, ...]) -> list[Link]:
        doc = docs[index].copy()
        detector.set_annotations([doc], [list(mentions)])
        for pipe in between:
            doc = pipe(doc)
        if linker is None:
            return get_links(doc, spans_key(None))
        if linker.cfg["mentions"] in (BY_DICTIONARY, SPANS_AND_DICTIONARY, "model"):
            return linker.predict([doc])[0]
        spans = find_mentions([doc], linker.generator).spans
        return [Link(span.start_char, span.end_char, span.label_) for span in spans]

    return find


@dataclass(frozen=True, slots=True)
class TuningReport:
    """Result of `tune_pipeline`.

    documents, mentions (int): Number of gold documents and mentions.
    digest (str): Digest of the texts and mentions (see `digest_of`).
    folds (int): Number of folds; 0: too few documents to cross-fit.
    tuned (tuple[Tuned, ...]): Chosen settings, in the order of tuning.
    remarks (tuple[str, ...]): Settings that were left unchanged, with the reason.
    """

    documents: int
    mentions: int
    digest: str
    folds: int
    tuned: tuple[Tuned, ...]
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        tuned = [step.to_json() for step in self.tuned]
        return {**asdict(self), "tuned": tuned, "remarks": list(self.remarks)}


def digest_of(texts: Iterable[AnnotatedText]) -> str:
    """Return a digest of gold documents: texts and mentions, without regard to their order."""
    rows = []
    for text in texts:
        mentions = sorted((m.start, m.end, m.label, sorted(m.ids)) for m in text.mentions)
        rows.append(blake2b(repr((text.text, mentions)).encode("utf8", "surrogatepass")).digest())
    return blake2b(b"".join(sorted(rows)), digest_size=8).hexdigest()


def tune_pipeline(nlp: Language, texts: Texts, *, track: Track = untracked) -> TuningReport:
    """Tune a pipeline in place, and record the report in nlp.meta["bioel"]["tuning"].

    The training scores and losses, nlp.meta["performance"], are removed.

    nlp (Language): A pipeline with a detector, a linker, or both.
    texts (Texts): Gold documents that the pipeline was not trained on.
    RAISES BioelError: [B232] if there is neither pipe, [B040] if a linker needs SciPy and it is not
        installed.
    """
    linker, detector = find_linker(nlp), find_detector(nlp)
    if linker is None and detector is None:
        raise BioelError(Errors.B232.format(pipes=", ".join(nlp.pipe_names) or "none"))
    folds = document_folds(len(texts))
    steps: list[Tuned | None] = []
    remarks: list[str] = [] if folds else ["there is only one document: nothing is cross-fitted"]
    has_ids = any(mention.ids for text in texts for mention in text.mentions)
    if linker is not None and has_ids:
        require_scipy()  # fail now rather than after hours of work
        weights = tune_weights(nlp, texts, folds=folds, track=track)
        if weights is None:
            remarks.append("the weights are unchanged: there is no string evidence")
        steps.append(weights)
        if linker.is_contextual:
            steps.append(tune_weights(nlp, texts, "rescoring", folds=folds, track=track))
        if linker.cfg["mentions"] == "dictionary":
            dictionary = tune_dictionary(nlp, texts, folds=folds, track=track)
            if folds and dictionary is None:
                remarks.append("the dictionary is unchanged: no name that it finds is right")
            steps.append(dictionary)
    if detector is not None:
        steps.append(mentions := tune_detector(nlp, texts, folds=folds, track=track))
        if not mentions.fitted:
            remarks.append("the detector finds no gold mentions: train it for longer")
    if linker is not None and has_ids:
        nil = tune_nil(nlp, texts, folds=folds, track=track)
        if nil is None:
            remarks.append("the NIL threshold is unchanged: no mentions are found in bare text")
        steps.append(nil)
    if linker is not None and not has_ids:
        remarks.append("the linker is unchanged: no gold mention has an id")
    tuned = [step for step in steps if step is not None]
    # Replace each step's figure with the final pipeline's figure, as reported by `bioel evaluate`.
    protocols = {step.protocol: get_protocol(step.protocol)[1] for step in tuned}
    figures = measure_pipeline(nlp, texts, protocols)
    report = TuningReport(
        documents=len(texts),
        mentions=sum(len(text.mentions) for text in texts),
        digest=digest_of(texts),
        folds=len(folds),
        tuned=tuple(
            replace(step, fitted=figures.get((step.protocol, step.metric), 0.0)) for step in tuned
        ),
        remarks=tuple(remarks),
    )
    # The training scores were measured with other weights and thresholds.
    nlp.meta["performance"] = {}
    nlp.meta["bioel"] = {**nlp.meta.get("bioel", {}), "tuning": report.to_json()}
    return report
