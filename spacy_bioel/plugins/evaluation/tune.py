"""Tune a pipeline on development documents.

Settings that belong together are chosen by one `Choice`. Slow steps, such as scoring spans, are run
only once. `cross_fit` then repeats all choices for each fold, on the other folds only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product, takewhile
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from spacy_bioel.doc import get_links
from spacy_bioel.errors import BioelError
from spacy_bioel.found import FoundSpans
from spacy_bioel.linking.evidence import default_fusion
from spacy_bioel.linking.find import find_mentions
from spacy_bioel.linking.given import DOCS_PER_BATCH, changed_settings
from spacy_bioel.linking.link import link, rank_candidates
from spacy_bioel.loading import find_detector, find_linker, require_linker, spans_key
from spacy_bioel.mentions.find import find, steps_of_detector
from spacy_bioel.models.fusion import Fusion
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors
from spacy_bioel.plugins.evaluation.evaluate import Figure, count_documents
from spacy_bioel.plugins.evaluation.fit import (
    Value,
    choose_setting,
    document_folds,
    fit_fusion,
    fit_with_best_prior,
    gather_contextual_development,
    gather_development,
    gold_docs,
    judge_names,
    name_of,
    require_scipy,
    wrong_names,
)
from spacy_bioel.plugins.evaluation.run import (
    Predicted,
    Texts,
    Track,
    digest_of,
    measure_pipeline,
    predict_links,
    score_links,
    untracked,
)
from spacy_bioel.scoring.protocols import Counts, get_protocol
from spacy_bioel.scoring.scorers import STEPS
from spacy_bioel.settings import BY_DICTIONARY, SPANS_AND_DICTIONARY
from spacy_bioel.types import Link, ScoredSpan

GOLD_PROTOCOL, LINK_PROTOCOL, MENTION_PROTOCOL = "gold", "end_to_end", "mention"
ACCURACY = "accuracy@1_nil_ignored"  # ignores NIL, because its threshold is chosen afterwards
_TRAINED = (
    "all figures are optimistic if `spacy train` chose its best checkpoint on these documents: "
    "training is not repeated"
)


def _threshold_steps(first: float, last: float) -> list[float]:
    return np.round(np.arange(first, last + 0.01, 0.05), 2).tolist()


# Settings to try, closest to the defaults first, because ties go to the earliest.
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
DICTIONARY_THRESHOLDS = (0.5, 0.7, 0.9)
DICTIONARY_GRID: list[dict[str, Value]] = [
    {"left_out": n_wrong, "threshold": t}
    for n_wrong, t in product((0, 3, 2, 1), DICTIONARY_THRESHOLDS)
]


@dataclass(frozen=True, slots=True)
class Choice:
    """How to choose a group of related settings for the pipe `what`.

    protocol, metric (str): The figure to maximise, as in `bioel evaluate`.
    choose (Callable): Takes document indices, chooses settings on these documents only, updates the
        pipe, and returns the settings, or None if the pipe is unchanged.
    unchanged (str): Remark for users if the pipe is unchanged.
    """

    what: str
    protocol: str
    metric: str
    choose: Callable[[Sequence[int]], dict[str, Value] | None]
    unchanged: str = ""


class Prepared:
    """Development documents, already processed by all pipes that precede the first one to tune.

    texts (Texts): Gold documents.
    spans (list[list[ScoredSpan]]): Spans that the detector scored in each document; [] without one.
    """

    def __init__(self, nlp: Language, texts: Texts, *, track: Track = untracked) -> None:
        self.nlp, self.texts = nlp, texts
        self.linker, self.detector = find_linker(nlp), find_detector(nlp)
        self._canonical = str if self.linker is None else cache(self.linker.kb.canonical)
        first = self.detector or self.linker
        assert first is not None
        self.docs: list[Doc] = []
        self.spans: list[list[ScoredSpan]] = []
        names, pipes = zip(*nlp.pipeline[nlp.pipe_names.index(first.name) :], strict=True)
        bare = (text.text for text in track(texts, "Reading the documents"))
        docs = nlp.pipe(bare, batch_size=DOCS_PER_BATCH, disable=names)
        for batch in minibatch(docs, DOCS_PER_BATCH):
            self.docs += batch
            self.spans += [] if self.detector is None else self.detector.score_spans(batch)
        self._between = list(takewhile(lambda pipe: pipe is not self.linker, pipes))[1:]

    def before_linker(self, index: int, mentions: Sequence[ScoredSpan] | None = None) -> Doc:
        """Return a document as the linker receives it.

        mentions (Sequence[ScoredSpan] | None): The detector's mentions; None: the mentions that
            its current settings select.
        """
        doc, detector = self.docs[index], self.detector
        if detector is None:
            return doc
        if mentions is None:
            steps = steps_of_detector(detector.cfg, detector.rules)
            (found,) = find([FoundSpans(doc, self.spans[index])], steps)
            mentions = found.spans
        doc = doc.copy()
        detector.set_annotations([doc], [list(mentions)])
        for pipe in self._between:
            doc = pipe(doc)
        return doc

    def count(
        self, indices: Iterable[int], links: Sequence[Sequence[Link]], protocol: str
    ) -> list[Counts]:
        """Count the links of each document under a protocol."""
        texts = [self.texts[i] for i in indices]
        return count_documents(texts, links, protocol=protocol, canonical=self._canonical)


def weights_step(prepared: Prepared, name: str = "fusion") -> Choice:
    """Fit the linker's weights so that a candidate's score is its probability of being correct.

    name (str): "fusion": weights for string evidence; "rescoring": weights that combine the context
        score and the string score.
    """
    nlp, linker = prepared.nlp, require_linker(prepared.nlp)
    docs = gold_docs(nlp, prepared.texts)
    features = linker.features_of(name)
    everything = gather_development(linker, docs) if name == "fusion" else None

    def choose(documents: Sequence[int]) -> dict[str, Value] | None:
        if everything is not None:
            development = everything.for_documents(documents)
            fit = partial(fit_with_best_prior, priors=[default_fusion(), None])
        else:  # contextual evidence depends on the fusion weights and needs no hidden layer
            development = gather_contextual_development(nlp, [docs[i] for i in documents])
            fit = partial(fit_fusion, n_hidden=0, l2=0.001)
        if not len(development.features):
            return None
        if len(development):
            # Round the weights as saving does, so that the measured weights are the saved ones.
            fitted = fit(development).to_json(features)
            setattr(linker, name, Fusion.from_json(fitted, features))
        return {"weights": name, "mentions": len(development)}

    unchanged = "the weights are unchanged: there is no string evidence"
    return Choice(linker.name, GOLD_PROTOCOL, ACCURACY, choose, unchanged)


def dictionary_step(prepared: Prepared) -> Choice:
    """Choose the dictionary's excluded names and threshold to maximise end-to-end F1.

    Names that are not annotated in the corpus, such as "protein", are excluded. The number of
    times a name must be wrong is chosen on different folds from those used to count wrong names.
    """
    linker, texts = require_linker(prepared.nlp), prepared.texts
    present = {"exclude": [], **linker.cfg["dictionary"]}
    links: dict[Value, list[list[Link]]] = {}
    for threshold in DICTIONARY_THRESHOLDS:
        with changed_settings(linker.cfg, {"dictionary": present | {"threshold": threshold}}):
            batches = minibatch(prepared.docs, DOCS_PER_BATCH)
            links[threshold] = [of_doc for docs in batches for of_doc in linker.predict(docs)]
    names = {t: judge_names(texts, found, linker.kb.canonical) for t, found in links.items()}

    def wrong_in(documents: Sequence[int], setting: Mapping[str, Value]) -> set[str]:
        judged = [names[setting["threshold"]][i] for i in documents]
        n_gold = sum(len(texts[i].mentions) for i in documents)
        return set(wrong_names(judged, n_gold, min_wrong=int(setting["left_out"])))

    def choose(documents: Sequence[int]) -> dict[str, Value] | None:
        judged = (names[DICTIONARY_THRESHOLDS[0]][i] for i in documents)
        if len(documents) < 2 or not any(is_right for of_doc in judged for _, is_right in of_doc):
            return None
        counts: list[list[Counts]] = [[{}] * len(documents) for _ in DICTIONARY_GRID]
        for fold in document_folds(len(documents)):
            held_out = fold.held_out.tolist()
            for of_setting, setting in zip(counts, DICTIONARY_GRID, strict=True):
                wrong = wrong_in([documents[i] for i in fold.fitting], setting)
                for i in held_out:
                    found = links[setting["threshold"]][documents[i]]
                    kept = [link for link in found if name_of(link) not in wrong]
                    (of_setting[i],) = prepared.count([documents[i]], [kept], LINK_PROTOCOL)
        chosen = choose_setting(DICTIONARY_GRID, counts, protocol=LINK_PROTOCOL)
        exclude = sorted({*present["exclude"], *wrong_in(documents, chosen)})
        linker.cfg["dictionary"] = present | {"exclude": exclude, "threshold": chosen["threshold"]}
        return chosen

    unchanged = "the dictionary is unchanged: no name that it finds is correct"
    return Choice(linker.name, LINK_PROTOCOL, "f1", choose, unchanged)


def nil_step(prepared: Prepared) -> Choice:
    """Choose the linker's NIL threshold to maximise end-to-end F1."""
    linker = require_linker(prepared.nlp)
    grid = [{"nil_threshold": linker.cfg["nil_threshold"]}, *NIL_GRID]

    def choose(documents: Sequence[int]) -> dict[str, Value] | None:
        counts: list[list[Counts]] = [[] for _ in grid]
        n_mentions = 0
        for batch in minibatch(documents, DOCS_PER_BATCH):
            mentions = linker.find([prepared.before_linker(i) for i in batch])
            ranked = rank_candidates(mentions, linker.generator)
            for of_setting, setting in zip(counts, grid, strict=True):
                threshold = float(setting["nil_threshold"])
                _, links = link(ranked, linker.generator, nil_threshold=threshold)
                of_setting += prepared.count(batch, links, LINK_PROTOCOL)
            n_mentions += sum(map(len, links))
        if not n_mentions:
            return None
        chosen = choose_setting(grid, counts, protocol=LINK_PROTOCOL)
        linker.cfg |= chosen
        return chosen

    unchanged = "the NIL threshold is unchanged: no mentions are found in plain text"
    return Choice(linker.name, LINK_PROTOCOL, "f1", choose, unchanged)


def detector_step(prepared: Prepared, *, track: Track = untracked) -> Choice:
    """Choose the detector's settings to maximise the whole pipeline's mention F1."""
    detector = prepared.detector
    assert detector is not None
    grid = [{key: detector.cfg[key] for key in DETECTOR_GRID[0]}, *DETECTOR_GRID]

    @cache  # many settings give the same mentions
    def linked(index: int, mentions: tuple[ScoredSpan, ...]) -> list[Link]:
        """Return the mentions that the whole pipeline finds, including those the linker adds."""
        doc, linker = prepared.before_linker(index, mentions), prepared.linker
        if linker is None:
            return get_links(doc, spans_key(None))
        if linker.cfg["mentions"] in (BY_DICTIONARY, SPANS_AND_DICTIONARY, "model"):
            return linker.predict([doc])[0]
        spans = find_mentions([doc], linker.generator).spans
        return [Link(span.start_char, span.end_char, span.label_) for span in spans]

    counts: list[list[Counts]] = []
    for setting in track(grid, "Tuning the detector"):
        cfg = {**detector.cfg, **setting}
        scored = list(map(FoundSpans, prepared.docs, prepared.spans))
        found = find(scored, steps_of_detector(cfg, detector.rules))
        links = [linked(index, tuple(of_doc.spans)) for index, of_doc in enumerate(found)]
        counts.append(prepared.count(range(len(links)), links, MENTION_PROTOCOL))

    def choose(documents: Sequence[int]) -> dict[str, Value] | None:
        of_documents = [[rows[i] for i in documents] for rows in counts]
        chosen = choose_setting(grid, of_documents, protocol=MENTION_PROTOCOL)
        detector.cfg |= chosen
        return chosen

    return Choice(detector.name, MENTION_PROTOCOL, "f1", choose)


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings chosen for a pipe, with figures for the whole tuned pipeline.

    what (str): Name of the pipe.
    chosen (dict): Chosen settings, by name.
    protocol, metric (str): What was maximised, as in `bioel evaluate`.
    fitted (float): Percentage on the documents used for the choice, which is optimistic.
    cross_fitted (Figure | None): The same metric, with each document measured under settings that
        were all chosen on the other folds (see `cross_fit`). None: there is only one document.
    """

    what: str
    chosen: dict[str, Value]
    protocol: str
    metric: str
    fitted: float
    cross_fitted: Figure | None

    def to_json(self) -> dict[str, Any]:
        """Return the record as a dict for JSON, with the 95 % interval as `low` and `high`."""
        figures, cross_fitted = {"fitted": self.fitted}, self.cross_fitted
        if cross_fitted is not None:
            figures["cross_fitted"] = cross_fitted.value
            figures |= {"low": cross_fitted.low, "high": cross_fitted.high}
        return asdict(self) | {name: round(x, 2) for name, x in figures.items()}


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


@contextmanager
def _restored(nlp: Language) -> Iterator[None]:
    """Restore a pipeline's weights and settings after a `with` block."""
    linker, detector = find_linker(nlp), find_detector(nlp)
    settings = [(pipe.cfg, dict(pipe.cfg)) for pipe in (linker, detector) if pipe is not None]
    weights = None if linker is None else (linker.fusion, linker.rescoring)
    try:
        yield
    finally:
        for cfg, before in settings:
            cfg.update(before)
        if linker is not None and weights is not None:
            linker.fusion, linker.rescoring = weights


def cross_fit(
    prepared: Prepared, steps: Sequence[Choice], *, track: Track = untracked
) -> dict[tuple[str, str], Figure]:
    """Measure each document with settings chosen only on the other folds.

    The pipeline is unchanged afterwards.

    RETURNS (dict): Figures by protocol and metric of the steps; empty for a single document.
    """
    nlp, texts, folds = prepared.nlp, prepared.texts, document_folds(len(prepared.texts))
    protocols = dict(get_protocol(step.protocol) for step in steps)
    links: Predicted = {rules.given_mentions: [[]] * len(texts) for rules in protocols.values()}
    for fold in track(folds, "Cross-fitting"):
        held_out = fold.held_out.tolist()
        with _restored(nlp):
            for step in steps:
                step.choose(fold.fitting.tolist())
            predicted = predict_links(nlp, [texts[i] for i in held_out], protocols)
        for given, links_of_docs in predicted.items():
            for i, links_of_doc in zip(held_out, links_of_docs, strict=True):
                links[given][i] = links_of_doc
    figures = score_links(nlp, texts, links, protocols) if folds else []
    return {(one.protocol, one.metric): one for one in figures if not one.label}


def _steps(prepared: Prepared, *, links: bool, track: Track) -> Iterator[Choice]:
    """Yield a pipeline's choices in order, with the linker's choices only if `links` is true."""
    linker = prepared.linker if links else None
    if linker is not None:
        yield weights_step(prepared)
        if linker.is_contextual:
            yield weights_step(prepared, "rescoring")
        if linker.cfg["mentions"] == BY_DICTIONARY and len(prepared.texts) > 1:
            yield dictionary_step(prepared)
    if prepared.detector is not None:
        yield detector_step(prepared, track=track)
    if linker is not None:
        yield nil_step(prepared)


def tune_pipeline(nlp: Language, texts: Texts, *, track: Track = untracked) -> TuningReport:
    """Tune a pipeline in place, and record the report in nlp.meta["bioel"]["tuning"].

    The training scores and losses, nlp.meta["performance"], are removed.

    nlp (Language): A pipeline with a detector, a linker, or both.
    texts (Texts): Gold documents that the pipeline was not trained on.
    RAISES BioelError: [B232] if the pipeline has neither, [B040] if a linker needs SciPy but it is
        not installed.
    """
    linker, detector = find_linker(nlp), find_detector(nlp)
    if linker is None and detector is None:
        raise BioelError(EvaluationErrors.B232.format(pipes=", ".join(nlp.pipe_names) or "none"))
    has_ids = any(mention.ids for text in texts for mention in text.mentions)
    if linker is not None and has_ids:
        require_scipy()  # fail now rather than after hours of work
    prepared = Prepared(nlp, texts, track=track)
    steps = list(_steps(prepared, links=has_ids, track=track))
    cross_fitted = cross_fit(prepared, steps, track=track)
    chosen = [step.choose(range(len(texts))) for step in steps]
    fitted = measure_pipeline(nlp, texts, dict(get_protocol(step.protocol) for step in steps))
    remarks = [] if len(texts) > 1 else ["there is only one document: nothing is cross-fitted"]
    tuned = []
    for step, settings in zip(steps, chosen, strict=True):
        goal = step.protocol, step.metric
        if settings is None:
            remarks.append(step.unchanged)
        else:
            tuned.append(Tuned(step.what, settings, *goal, fitted[goal], cross_fitted.get(goal)))
    if detector is not None and not fitted[MENTION_PROTOCOL, "f1"]:
        remarks.append("the detector finds no gold mentions: train it for longer")
    if linker is not None and not has_ids:
        remarks.append("the linker is unchanged: no gold mention has an id")
    if STEPS in nlp.meta:
        remarks.append(_TRAINED)
    report = TuningReport(
        documents=len(texts),
        mentions=sum(len(text.mentions) for text in texts),
        digest=digest_of(texts),
        folds=len(document_folds(len(texts))),
        tuned=tuple(tuned),
        remarks=tuple(remarks),
    )
    # The training scores were measured with other weights and thresholds.
    nlp.meta["performance"] = {}
    nlp.meta["bioel"] = {**nlp.meta.get("bioel", {}), "tuning": report.to_json()}
    return report
