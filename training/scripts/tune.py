"""Choose, on the development documents, what training does not learn: the detector's threshold,
the weights of the linker's evidence and of what it reads, its NIL threshold. Saves the pipeline
with its KB.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import get_minor_version_range
from thinc.api import Model

from spacy_bioel import __version__
from spacy_bioel.corpus import read_docs
from spacy_bioel.models.types import DOCUMENT_TRANSFORMER
from spacy_bioel.pipeline.gold import GOLD_KEY, split_ids
from spacy_bioel.pipeline.linker.fusion import default_fusion
from spacy_bioel.pipeline.mentions.decoding import agree, drop_overlaps
from spacy_bioel.pipeline.tokens import with_token_vectors
from spacy_bioel.storage.atomic import replacing_folder
from spacy_bioel.tuning.development import gather_development, gather_reading
from spacy_bioel.tuning.fusion import fit_fusion, fit_nearest

_THRESHOLDS = np.round(np.arange(0.1, 0.91, 0.05), 2)
_CONSISTENCIES = (0.0, 0.25, 0.5, 0.75)
_LOWEST = 0.05
# Names of models that the package transformers is needed for.
_TRANSFORMERS = {DOCUMENT_TRANSFORMER, "cross_encoder", "name_transformer"}
_LOGGER = logging.getLogger("tune")


def main(model: Path, kb: Path, dev: Path, out: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    nlp = spacy.load(model)
    docs = list(read_docs(dev, nlp.vocab))
    # Either pipe may be alone: to find mentions only, or to link those that are given.
    links, finds = (name in nlp.pipe_names for name in ("bioel_linker", "bioel_mentions"))
    if links:
        nlp.get_pipe("bioel_linker").set_kb(kb)
        tune_weights(nlp, docs)
        if nlp.get_pipe("bioel_linker").reads:
            tune_reading(nlp, docs)
    if finds:
        tune_detector(nlp, docs)
    if links and finds:
        tune_nil(nlp, docs)
    if any(node.name in _TRANSFORMERS for node in walk_models(nlp)):
        # `spacy package` writes it into the wheel.
        versions = get_minor_version_range(__version__)
        nlp.meta["requirements"] = [f"spacy-bioel[transformers]{versions}"]
    with replacing_folder(out) as folder:
        nlp.to_disk(folder)


def walk_models(nlp: Language) -> Iterator[Model]:
    for _, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        if isinstance(model, Model):
            yield from model.walk()


def f1(n_right: int, n_predicted: int, n_gold: int) -> float:
    return 2 * n_right / max(1, n_predicted + n_gold)


def tune_detector(nlp: Language, docs: list[Doc]) -> None:
    """Threshold, consistency and overlap with the best strict mention F1."""
    detector: Any = nlp.get_pipe("bioel_mentions")
    detector.cfg.update(threshold=_LOWEST, consistency=0.0, allow_overlap=True)
    bare = list(with_token_vectors(nlp, (nlp.make_doc(doc.text) for doc in docs)))
    found = [
        spans
        for start in range(0, len(bare), 32)
        for spans in detector.predict(bare[start : start + 32])
    ]
    gold = [{(s.start, s.end, s.label_) for s in doc.spans[GOLD_KEY]} for doc in docs]
    n_gold = sum(map(len, gold))
    best = (0.0, 0.5, 0.0, True)
    for consistency in _CONSISTENCIES:
        agreed = [agree(doc, s, weight=consistency) for doc, s in zip(bare, found, strict=True)]
        for threshold in _THRESHOLDS.tolist():
            kept = [[span for span in spans if span[3] >= threshold] for spans in agreed]
            for allow_overlap in (True, False):
                if not allow_overlap:
                    kept = [drop_overlaps(spans, threshold=threshold) for spans in kept]
                right = sum(len({s[:3] for s in k} & g) for k, g in zip(kept, gold, strict=True))
                score = f1(right, sum(map(len, kept)), n_gold)
                best = max(best, (score, threshold, consistency, allow_overlap))
    score, threshold, consistency, allow_overlap = best
    detector.cfg.update(threshold=threshold, consistency=consistency, allow_overlap=allow_overlap)
    _LOGGER.info("mention F1 %.4f with threshold %s, consistency %s, overlap %s", *best)
    if not score:
        _LOGGER.warning("The detector finds no mention of dev as it is: train it for longer.")


def tune_weights(nlp: Language, docs: list[Doc]) -> None:
    """Weights under which a candidate's score is the probability that it is right."""
    linker: Any = nlp.get_pipe("bioel_linker")
    development = gather_development(linker, docs)
    if not len(development.features):  # all that strings have to say is switched off
        return
    fusion = fit_nearest(development, [default_fusion(), None])
    linker.fusion = fusion
    _LOGGER.info("weights of %d features fitted on %d mentions", len(fusion.mean), len(development))


def tune_reading(nlp: Language, docs: list[Doc]) -> None:
    """Weights of what was read, beside what the strings of the mentions say."""
    linker: Any = nlp.get_pipe("bioel_linker")
    development = gather_reading(nlp, docs)
    # Five numbers need no hidden layer.
    linker.reading = fit_fusion(development, n_hidden=0, l2=0.001)
    _LOGGER.info("weights of what was read fitted on %d mentions", len(development))


def tune_nil(nlp: Language, docs: list[Doc]) -> None:
    """Threshold with the best strict end-to-end F1."""
    linker: Any = nlp.get_pipe("bioel_linker")
    linker.cfg["nil_threshold"] = 0.0
    links = [
        (number, span.start, span.end, span.label_, candidates[0])
        for number, doc in enumerate(nlp.pipe(doc.text for doc in docs))
        for span in doc.spans[linker.cfg["spans_key"]]
        if (candidates := span._.candidates)
    ]
    gold = {
        (number, span.start, span.end, span.label_): {linker.kb.canonical(i) for i in ids}
        for number, doc in enumerate(docs)
        for span in doc.spans[GOLD_KEY]
        if (ids := split_ids(span.kb_id_))
    }
    right = np.array(
        [gold.get(place) == {best.id} for *place_, best in links for place in [tuple(place_)]],
        dtype=bool,
    )
    scores = np.array([best.score for *_, best in links])
    thresholds = np.round(np.arange(0.0, 0.81, 0.05), 2).tolist()
    f1s = [
        f1(int(right[scores >= t].sum()), int((scores >= t).sum()), len(gold)) for t in thresholds
    ]
    best = int(np.argmax(f1s))
    _LOGGER.info("NIL threshold %s: end-to-end F1 %.4f", thresholds[best], f1s[best])
    linker.cfg["nil_threshold"] = thresholds[best]


if __name__ == "__main__":
    typer.run(main)
