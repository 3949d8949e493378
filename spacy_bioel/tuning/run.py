"""Tuning of a pipeline on development documents: weights, finding, detector, NIL threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spacy.language import Language

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.loading import find_detector, find_linker
from spacy_bioel.pipeline.measuring import ProgressBar, measure_pipeline, silent
from spacy_bioel.scoring.protocols import get_protocol
from spacy_bioel.tuning.choosing import Tuned, document_folds
from spacy_bioel.tuning.fusion import require_scipy
from spacy_bioel.tuning.tuners import tune_detector, tune_finding, tune_nil, tune_weights
from spacy_bioel.types import AnnotatedText


@dataclass(frozen=True, slots=True)
class Report:
    """Report of `tune`.

    documents, mentions (int): Number of gold documents and mentions.
    folds (int): Number of folds of documents; 0: too few documents to cross-fit.
    tuned (tuple[Tuned, ...]): Chosen settings, in the order of tuning.
    notes (tuple[str, ...]): Settings left unchanged, with the reason.
    """

    documents: int
    mentions: int
    folds: int
    tuned: tuple[Tuned, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        tuned = [one.to_json() for one in self.tuned]
        return {**values, "tuned": tuned, "notes": list(self.notes)}


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
    notes: list[str] = [] if folds else ["there is one document: nothing is cross-fitted"]
    has_ids = any(mention.ids for text in texts for mention in text.mentions)
    if linker is not None and has_ids:
        require_scipy()  # before hours of work
        weights = tune_weights(nlp, texts, folds=folds, progress=progress)
        if weights is None:
            notes.append("the weights are unchanged: there is no evidence of strings")
        found.append(weights)
        if linker.reads:
            found.append(tune_weights(nlp, texts, "reading", folds=folds, progress=progress))
        if linker.cfg["mentions"] == "kb":
            finding = tune_finding(nlp, texts, folds=folds, progress=progress)
            if folds and finding is None:
                notes.append("finding is unchanged: no span that is like a name is right")
            found.append(finding)
    if detector is not None:
        mentions = tune_detector(nlp, texts, folds=folds, progress=progress)
        if not mentions.fitted:
            notes.append("the detector finds no gold mention: train it for longer")
        found.append(mentions)
    if linker is not None and has_ids:
        nil = tune_nil(nlp, texts, folds=folds, progress=progress)
        if nil is None:
            notes.append("the NIL threshold is unchanged: no mention is found in bare text")
        found.append(nil)
    if linker is not None and not has_ids:
        notes.append("the linker is unchanged: no gold mention has an id")
    tuned = [one for one in found if one is not None]
    # What `bioel evaluate` says of the pipeline as it is now, in place of each step's own figure.
    chosen = {one.protocol: get_protocol(one.protocol)[1] for one in tuned}
    rows = measure_pipeline(nlp, texts, chosen)
    figures = {(row.protocol, row.metric): row.value for row in rows if not row.label}
    report = Report(
        documents=len(texts),
        mentions=sum(len(text.mentions) for text in texts),
        folds=len(folds),
        tuned=tuple(
            replace(one, fitted=figures.get((one.protocol, one.metric), 0.0)) for one in tuned
        ),
        notes=tuple(notes),
    )
    # Training measured other weights and thresholds, and its losses are no scores.
    nlp.meta["performance"] = {}
    nlp.meta["bioel"] = {**nlp.meta.get("bioel", {}), "tuning": report.to_json()}
    return report
