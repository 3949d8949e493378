"""Pipelines and gold documents, as arguments and options of commands name them.

It imports spaCy, so that commands import it late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spacy.language import Language

from spacy_bioel.corpus import declared, read_texts
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.evaluation.run import check_gold, gold_key
from spacy_bioel.io.open import curie
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import find_detector, find_linker, load_model
from spacy_bioel.settings import BY_KB, GOLD_KEY
from spacy_bioel.types import AnnotatedText, Mention


def require_linker(nlp: Language, model: str) -> Linker:
    """Find the linker of a pipeline. RAISES BioelError: [B072] when it has none."""
    linker = find_linker(nlp)
    if linker is None:
        raise BioelError(Errors.B072.format(model=model, pipes=", ".join(nlp.pipe_names) or "none"))
    return linker


def finds_names(nlp: Language) -> bool:
    """Whether mentions are names of the knowledge base, which gives no labels."""
    linker = find_linker(nlp)
    return linker is not None and linker.cfg["mentions"] == BY_KB


def load_with_mapped_gold(
    model: str,
    gold: Path,
    *,
    kb: Path | None,
    format: str | None,
    prefix: Sequence[str] | None,
    label: Sequence[str] | None,
    annotates: Sequence[str] | None,
    preset: str | None = None,
) -> tuple[Language, list[AnnotatedText]]:
    """Load a pipeline with another knowledge base, if one is given, and gold documents with the
    labels and ids of the pipeline; arguments are the options above.

    RAISES BioelError: [B361] on two prefixes for the same ids, [B362] on what is no GOLD=MODEL,
        [B363] when no mention has a label that an option names, [B364] when a mention has one that
        is not among `annotates`, [B369] on a label that the detector does not have; and on gold
        that nothing can be measured on.
    """
    prefixes, labels = _parse_prefixes(prefix or ()), _parse_labels(label or ())
    # The reader gives one prefix to all labels. Where they differ, ids get theirs after it.
    of_all = prefixes.pop("", "") if set(prefixes) <= {""} else ""
    # Documents are read first, so that errors in them are reported without delay.
    texts = list(read_texts(gold, format=format, prefix=of_all))
    nlp = load_model(model, preset=preset)
    if (key := gold_key(nlp)) != GOLD_KEY:
        texts = list(read_texts(gold, format=format, prefix=of_all, gold_key=key))
    if detector := find_detector(nlp):
        for old, new in labels.items():
            if new and detector.labels and new not in detector.labels:
                known = ", ".join(detector.labels)
                raise BioelError(Errors.B369.format(gold=old, label=new, known=known))
    found = {mention.label for text in texts for mention in text.mentions}
    for name in [*labels, *filter(None, prefixes)]:
        if name not in found:
            known = ", ".join(sorted(filter(None, found))) or "none"
            raise BioelError(Errors.B363.format(path=gold, label=name, known=known))
    texts = [_mapped(text, labels, prefixes) for text in texts]
    if annotates:
        names = tuple(dict.fromkeys(annotates))
        texts = [declared(text, names, path=gold, error=Errors.B364) for text in texts]
    if kb is not None:
        require_linker(nlp, model).set_kb(kb)
    check_gold(texts, find_linker(nlp), gold)
    return nlp, texts


def _parse_prefixes(values: Sequence[str]) -> dict[str, str]:
    """Prefixes by label; that of all other labels has the key ""."""
    prefixes: dict[str, str] = {}
    for value in values:
        label, _, prefix = value.rpartition("=")
        prefix = prefix.strip().removesuffix(":")
        if prefixes.setdefault(label.strip(), prefix) != prefix:
            raise BioelError(Errors.B361.format(first=prefixes[label.strip()], second=value))
    return prefixes


def _parse_labels(values: Sequence[str]) -> dict[str, str]:
    """The pipeline's label of each label of the corpus, "" for those that are left out."""
    labels: dict[str, str] = {}
    for value in values:
        gold, separator, model = (part.strip() for part in value.partition("="))
        if not (gold and separator) or labels.setdefault(gold, model) != model:
            raise BioelError(Errors.B362.format(found=value))
    return labels


def _mapped(
    text: AnnotatedText, labels: Mapping[str, str], prefixes: Mapping[str, str]
) -> AnnotatedText:
    def mentions() -> Iterator[Mention]:
        for one in text.mentions:
            label = labels.get(one.label, one.label)
            if label or one.label not in labels:
                prefix = prefixes.get(one.label, prefixes.get("", ""))
                yield replace(one, label=label, ids=tuple(curie(id, prefix) for id in one.ids))

    annotates = filter(None, (labels.get(label, label) for label in text.annotates))
    return replace(text, mentions=tuple(mentions()), annotates=tuple(dict.fromkeys(annotates)))
