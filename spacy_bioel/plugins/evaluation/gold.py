"""Read gold documents, and map them to a pipeline's labels and ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spacy.language import Language

from spacy_bioel.corpus import declare_labels, read_texts
from spacy_bioel.errors import LOGGER, BioelError
from spacy_bioel.io.open import curie
from spacy_bioel.kb.folder import label_and_folder
from spacy_bioel.loading import find_detector, find_linker, load_model, require_linker, set_kb
from spacy_bioel.plugins.evaluation.errors import EvaluationErrors, EvaluationWarnings
from spacy_bioel.plugins.evaluation.run import check_gold, with_ids_by_xrefs
from spacy_bioel.types import AnnotatedText

if TYPE_CHECKING:
    from spacy_bioel.plugins.evaluation.corpora import GoldOptions


def load_with_mapped_gold(
    model: str,
    gold: Path,
    options: GoldOptions,
    *,
    kb: str | None,
    preset: str | None = None,
    xrefs: bool = False,
) -> tuple[Language, list[AnnotatedText]]:
    """Load a pipeline, and gold documents mapped to its labels and ids.

    kb (str | None): Replaces the pipeline's knowledge base; "LABEL=KB": only for this label.
    xrefs (bool): Replace gold ids with the concepts that list them as cross-references.
    """
    # Read the documents first, so that errors in them are reported without delay.
    texts = list(stream_mapped_gold(gold, options))
    nlp = load_model(model, preset=preset)
    detector = find_detector(nlp)
    known = detector.labels if detector else ()
    for old, new in _parse_labels(options.label).items():
        if new and known and new not in known:
            raise BioelError(
                EvaluationErrors.B369.format(gold=old, label=new, known=", ".join(known))
            )
    if kb is not None:
        set_kb(nlp, kb, model)
        label, folder = label_and_folder(kb)
        labels = {mention.label for text in texts for mention in text.mentions} - {""}
        if label and label not in {*labels, *known}:
            about = {"folder": folder, "known": ", ".join(sorted(labels))}
            LOGGER.warning(EvaluationWarnings.W480.format(label=label, **about))
    if xrefs:
        texts = with_ids_by_xrefs(texts, require_linker(nlp, model).kb)
    check_gold(texts, find_linker(nlp), gold)
    return nlp, texts


def stream_mapped_gold(
    gold: Path, options: GoldOptions, *, seen: set[str] | None = None, is_last: bool = True
) -> Iterator[AnnotatedText]:
    """Stream gold documents with mapped labels and ids.

    seen, is_last: Labels in the gold files read so far, and whether this file is the last one.
    """
    prefixes, labels = _parse_prefixes(options.prefix), _parse_labels(options.label)
    # The reader adds the prefix shared by all labels; label-specific prefixes are added afterwards.
    common_prefix = prefixes.pop("", "") if set(prefixes) <= {""} else ""
    gold_labels = set[str]() if seen is None else seen
    names = list(dict.fromkeys(options.annotates or ()))
    place = options.key()
    for text in read_texts(gold, format=options.format, prefix=common_prefix, spans_key=place):
        gold_labels.update(mention.label for mention in text.mentions)
        text = _map_labels_and_ids(text, labels, prefixes)
        yield declare_labels(text, names, path=gold, error=EvaluationErrors.B364) if names else text
    for name in [*labels, *filter(None, prefixes)] if gold_labels and is_last else ():
        if name not in gold_labels:
            known = ", ".join(sorted(filter(None, gold_labels))) or "none"
            raise BioelError(EvaluationErrors.B363.format(path=gold, label=name, known=known))


def _parse_prefixes(values: Sequence[str] | None) -> dict[str, str]:
    """Parse the id prefix for each label; the key "" applies to all other labels."""
    prefixes: dict[str, str] = {}
    for value in values or ():
        label, _, prefix = value.rpartition("=")
        prefix = prefix.strip().removesuffix(":")
        if prefixes.setdefault(label.strip(), prefix) != prefix:
            raise BioelError(
                EvaluationErrors.B361.format(first=prefixes[label.strip()], second=value)
            )
    return prefixes


def _parse_labels(values: Sequence[str] | None) -> dict[str, str]:
    """Parse a mapping from corpus labels to pipeline labels; "" excludes a label."""
    labels: dict[str, str] = {}
    for value in values or ():
        gold, separator, model = (part.strip() for part in value.partition("="))
        if not (gold and separator) or labels.setdefault(gold, model) != model:
            raise BioelError(EvaluationErrors.B362.format(found=value))
    return labels


def _map_labels_and_ids(
    text: AnnotatedText, labels: Mapping[str, str], prefixes: Mapping[str, str]
) -> AnnotatedText:
    mentions = []
    for mention in text.mentions:
        label = labels.get(mention.label, mention.label)
        if label or mention.label not in labels:
            prefix = prefixes.get(mention.label, prefixes.get("", ""))
            ids = tuple(curie(id, prefix) for id in mention.ids)
            mentions.append(replace(mention, label=label, ids=ids))
    annotates = filter(None, (labels.get(label, label) for label in text.annotates))
    return replace(text, mentions=tuple(mentions), annotates=tuple(dict.fromkeys(annotates)))
