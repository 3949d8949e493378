"""Run a pipeline on the bare text or gold mentions of gold documents, and measure it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language

from spacy_bioel.doc import get_links
from spacy_bioel.errors import LOGGER, BioelError, Errors, shortened
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.given import DOCS_PER_BATCH, link_gold_mentions
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.linking.validation import check_gold_ids
from spacy_bioel.loading import (
    dictionary_pipeline,
    find_detector,
    find_linker,
    require_linker,
    spans_key,
)
from spacy_bioel.models.fusion import standard_id
from spacy_bioel.models.torch_io import quantize_model
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors, EvaluationWarnings
from spacy_bioel.plugins.evaluation.evaluate import Figure, GoldLookup, evaluate_links
from spacy_bioel.scoring import protocols
from spacy_bioel.scoring.scorers import MAX_UNKNOWN_SHARE
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Link

Texts = Sequence[AnnotatedText]
Protocols = Mapping[str, protocols.Protocol]  # Protocols by name.
# Each document's links, keyed by whether the linker was given the gold mentions.
Predicted = dict[bool, list[list[Link]]]
# Takes items, a description and optionally `total`; yields the items, and may show progress.
Track = Callable[..., Iterable[Any]]


def untracked(items: Iterable[Any], description: str, total: int = 0) -> Iterable[Any]:
    return items


def ids_by_xrefs(kb: KnowledgeBase) -> Callable[[str], str]:
    """Return a function that maps an id to the one concept that lists it as a cross-reference.

    Ids in the knowledge base are mapped to current ids. An id is left unchanged if no
    concept, or more than one, lists it as a cross-reference.
    """
    concept_of: dict[str, str] = {}
    for id_, xrefs in zip(kb.ids, kb.xrefs_of_all(np.arange(len(kb))), strict=True):
        for xref in set(map(standard_id, xrefs)):
            concept_of[xref] = "" if xref in concept_of else id_

    def concept(id_: str) -> str:
        current = kb.canonical(id_)
        return current if kb.find(current) >= 0 else concept_of.get(standard_id(id_)) or current

    return concept


def with_ids_by_xrefs(texts: Texts, kb: KnowledgeBase) -> list[AnnotatedText]:
    """Replace gold ids with the ids of knowledge base concepts (see `ids_by_xrefs`).

    RAISES BioelError: [B630] if the knowledge base has no cross-references.
    """
    if not any(kb.xrefs_of_all(np.arange(len(kb)))):
        raise BioelError(EvaluationErrors.B630.format(kb=kb.where))
    concept = cache(ids_by_xrefs(kb))
    return [
        replace(
            text,
            mentions=tuple(
                replace(m, ids=tuple(dict.fromkeys(map(concept, m.ids)))) for m in text.mentions
            ),
        )
        for text in texts
    ]


def check_gold(texts: Texts, linker: Linker | None, path: Path) -> None:
    """Check that a pipeline can be measured on gold documents.

    Warns [W340] if the linker's knowledge base has fewer than half of the gold ids, [W372] if there
    are no gold ids.

    RAISES BioelError: [B076] if there are no gold mentions, [B077] if the knowledge base has none
        of the gold ids.
    """
    if not any(text.mentions for text in texts):
        raise BioelError(Errors.B076.format(path=path, n=len(texts)))
    if linker is not None:
        ids = Counter(id_ for text in texts for mention in text.mentions for id_ in mention.ids)
        check_gold_ids(linker.kb, ids, path)
        if not ids:
            LOGGER.warning(EvaluationWarnings.W372.format(path=path))


def warn_of_labels(texts: Texts, links: Predicted) -> None:
    """Warn [W457] if no prediction has a label that the documents annotate, and [W458] if documents
    do not declare their labels and many predictions have labels that no gold mention has."""
    counted = {label for text in texts for label in text.annotates}
    found = Counter(link.label for of_text in links.get(False, ()) for link in of_text)
    gold = {mention.label for text in texts for mention in text.mentions} - {""}
    others = sorted(found.keys() - gold)
    n = sum(found[label] for label in others)
    if not counted and gold & found.keys() and n > MAX_UNKNOWN_SHARE * found.total():
        annotates = " ".join(f"--annotates {label}" for label in sorted(gold))
        about = {"n": n, "total": found.total(), "annotates": annotates}
        LOGGER.warning(EvaluationWarnings.W458.format(found=", ".join(others), **about))
    if found and counted.isdisjoint(found) and all(text.annotates for text in texts):
        known = shortened(", ".join(sorted(found)))
        about = {"counted": ", ".join(sorted(counted)), "found": known, "first": min(counted)}
        LOGGER.warning(EvaluationWarnings.W457.format(**about))


def measure_pipeline(
    nlp: Language, texts: Texts, chosen: Protocols, *, track: Track = untracked
) -> dict[tuple[str, str], float]:
    """Run a pipeline on gold documents, and return percentages by protocol and metric."""
    links = predict_links(nlp, texts, chosen, track=track)
    figures = score_links(nlp, texts, links, chosen)
    return {(one.protocol, one.metric): one.value for one in figures if not one.label}


def predict_links(
    nlp: Language, texts: Texts, chosen: Protocols, *, track: Track = untracked
) -> Predicted:
    """Run a pipeline on bare text, gold mentions or both, as the protocols require."""
    linker = find_linker(nlp)
    links: Predicted = {}
    for given in sorted({protocol.given_mentions for protocol in chosen.values()}):
        if given:
            linked = link_gold_mentions(nlp, require_linker(nlp), texts)
            links[given] = list(track(linked, "Linking gold mentions", total=len(texts)))
        else:
            links[given] = list(link_bare_texts(nlp, linker, texts, track=track))
    return links


def score_links(
    nlp: Language, texts: Texts, links: Predicted, chosen: Protocols, *, seed: int = 0
) -> list[Figure]:
    """Score the links from `predict_links`, and return the figures in protocol order."""
    options: dict[str, Any] = {}
    if (linker := find_linker(nlp)) is not None:
        kb = linker.kb
        options = {"canonical": kb.canonical, "in_kb": lambda id_: kb.find(id_) >= 0}
        options["max_candidates"] = linker.cfg["max_candidates"]
    figures: list[Figure] = []
    for given, predicted in links.items():
        names = [name for name, protocol in chosen.items() if protocol.given_mentions == given]
        figures += evaluate_links(texts, predicted, protocols=names, seed=seed, **options)
    return sorted(figures, key=lambda figure: list(chosen).index(figure.protocol))


def measure_kb_only(
    nlp: Language, texts: Texts, chosen: Protocols, *, track: Track = untracked
) -> dict[tuple[str, str], float]:
    """With the bare-text protocols, measure a baseline that uses only the knowledge base."""
    baseline = dictionary_pipeline("")
    require_linker(baseline).set_kb(require_linker(nlp).kb)
    bare = {name: one for name, one in chosen.items() if not one.given_mentions}
    # Corpora do not list the baseline's labels, because these are the KB's semantic types.
    texts = [replace(text, annotates=()) for text in texts]
    return measure_pipeline(baseline, texts, bare, track=track)


def link_bare_texts(
    nlp: Language,
    linker: Linker | None,
    texts: Iterable[AnnotatedText],
    *,
    track: Track = untracked,
) -> Iterator[list[Link]]:
    """Yield the links that a pipeline finds in bare text, or the mentions if it has no linker."""
    key = spans_key(linker)
    bare = [text.text for text in texts]
    docs = nlp.pipe(bare, batch_size=DOCS_PER_BATCH)
    for doc in track(docs, "Running the pipeline", total=len(bare)):
        yield get_links(doc, spans_key=key)


def knowledge_of(linker: Linker) -> GoldLookup:
    """Build the `GoldLookup` for `find_errors` from a linker's knowledge base and alias table."""
    kb, counts = linker.kb, linker.alias_table.counts
    linked_ids = {id_ for ids in counts.values() for id_ in ids}

    def has_name(id_: str, name: str) -> bool:
        row = kb.find(id_)
        names = kb.names.take(kb.names_of(row)) if row >= 0 else []
        return normalize_name(name) in map(normalize_name, names)

    def is_seen(string: str, ids: Iterable[str]) -> bool:
        return normalize_name(string) in counts or not linked_ids.isdisjoint(ids)

    return GoldLookup(
        canonical=kb.canonical,
        knows=lambda id_: kb.find(id_) >= 0,
        has_name=has_name,
        is_seen=is_seen if counts else None,
    )


def digest_of(texts: Iterable[AnnotatedText]) -> str:
    """Return a digest of gold documents' texts and mentions that does not depend on their order."""
    rows = []
    for text in texts:
        mentions = sorted((m.start, m.end, m.label, sorted(m.ids)) for m in text.mentions)
        rows.append(blake2b(repr((text.text, mentions)).encode("utf8", "surrogatepass")).digest())
    return blake2b(b"".join(sorted(rows)), digest_size=8).hexdigest()


MAX_LOSS = 0.2  # maximum F1 loss from quantising, in percentage points


def quantize_pipeline(
    nlp: Language, texts: Texts, *, track: Track = untracked
) -> tuple[dict[str, float], dict[str, float]]:
    """Quantise a pipeline's detector in place, for inference.

    nlp (Language): Its scores, nlp.meta["performance"], are removed.
    texts (Texts): Gold documents that the pipeline was not trained on.
    RETURNS (tuple): F1 in percent by protocol, before and after.
    RAISES BioelError: [B639] if there is no detector, [B640] if F1 falls by more than `MAX_LOSS`,
        [B641] if a weight is not a finite number.
    """
    detector = find_detector(nlp)
    if detector is None:
        raise BioelError(EvaluationErrors.B639.format(pipes=", ".join(nlp.pipe_names) or "none"))
    has_ids = any(mention.ids for text in texts for mention in text.mentions)
    names = ("mention", "end_to_end") if find_linker(nlp) and has_ids else ("mention",)
    measured_by = {name: protocols.get_protocol(name)[1] for name in names}

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
    nlp.meta["performance"] = {}
    return before, after
