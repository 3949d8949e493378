"""Quantise the detector of a pipeline, and measure what it loses."""

from __future__ import annotations

from dataclasses import dataclass

from spacy.language import Language

from spacy_bioel.errors import BioelError
from spacy_bioel.loading import find_detector, find_linker
from spacy_bioel.models.torch_io import quantize_model
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors
from spacy_bioel.plugins.evaluation.run import Texts, Track, measure_pipeline, untracked
from spacy_bioel.scoring.protocols import get_protocol

MAX_LOSS = 0.2  # of F1 in percentage points


@dataclass(frozen=True)
class QuantizationReport:
    """F1 in percent by protocol, before and after a detector was quantised."""

    documents: int
    mentions: int
    before: dict[str, float]
    after: dict[str, float]


def quantize_pipeline(
    nlp: Language, texts: Texts, *, track: Track = untracked
) -> QuantizationReport:
    """Quantise the detector of a pipeline in place, for inference.

    nlp (Language): Its scores, nlp.meta["performance"], are removed.
    texts (Texts): Gold documents that the pipeline was not trained on.
    RAISES BioelError: [B639] if there is no detector, [B640] if F1 falls by more than `MAX_LOSS`,
        [B641] if a weight is not a finite number.
    """
    detector = find_detector(nlp)
    if detector is None:
        raise BioelError(EvaluationErrors.B639.format(pipes=", ".join(nlp.pipe_names) or "none"))
    has_ids = any(mention.ids for text in texts for mention in text.mentions)
    names = ("mention", "end_to_end") if find_linker(nlp) and has_ids else ("mention",)
    measured_by = {name: get_protocol(name)[1] for name in names}

    def measured() -> dict[str, float]:
        figures = measure_pipeline(nlp, texts, measured_by, track=track)
        return {name: figures.get((name, "f1"), 0.0) for name in names}

    before = measured()
    quantize_model(detector.model)
    after = measured()
    for name in names:
        if (loss := before[name] - after[name]) > MAX_LOSS:
            about = {"before": before[name], "after": after[name], "loss": loss}
            raise BioelError(EvaluationErrors.B640.format(protocol=name, largest=MAX_LOSS, **about))
    n_mentions = sum(len(text.mentions) for text in texts)
    nlp.meta["performance"] = {}
    return QuantizationReport(len(texts), n_mentions, before, after)
