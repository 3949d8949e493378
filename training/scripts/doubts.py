"""Doubts about what documents can measure: few, seen in training, or alike but for the names."""

from __future__ import annotations

from collections.abc import Iterator

from specs import find_split

from spacy_bioel.cli.console import count_of
from spacy_bioel.corpus import read_texts
from spacy_bioel.types import AnnotatedText

_FEW = 100  # documents of both splits
_WORDS = 4  # of a stretch of text
_SAME = 0.5  # part of the stretches of a document that are in others too
_ALIKE = 0.2  # part of the documents that are like others


def doubts(corpus: str, split: str) -> Iterator[str]:
    """Say why figures of a split may not hold for new texts."""
    train, other = (list(read_texts(find_split(corpus, part))) for part in ("train", split))
    known = {text.text for text in train}
    shared = [text.id for text in other if text.text in known]
    if shared:
        yield (
            f"{count_of(len(shared), 'document')} of {split} are in train too, first "
            f"{shared[0]}: what is measured on them says nothing of new texts."
        )
    if len(train) + len(other) < _FEW:
        yield (
            f"{count_of(len(train), 'document')} of train and {len(other):,} of {split} are few: "
            "compare the pipeline with the names alone, and try it on other texts."
        )
    stretches = {one for text in train for one in masked_stretches(text)}
    alike = [text.id for text in other if _is_like(masked_stretches(text), stretches)]
    if other and len(alike) > _ALIKE * len(other):
        yield (
            f"{count_of(len(alike), 'document')} of {split} read like documents of train but for "
            f"the names, first {alike[0]}: what is measured on them says little of new texts."
        )


def masked_stretches(text: AnnotatedText) -> set[tuple[str, ...]]:
    """Stretches of words of a document, with the labels of mentions in place of their words."""
    parts, end = [], 0
    for mention in sorted(text.mentions, key=lambda m: m.start):
        if mention.start >= end:
            parts += [text.text[end : mention.start], mention.label]
            end = mention.end
    words = " ".join([*parts, text.text[end:]]).lower().split()
    return {tuple(words[i : i + _WORDS]) for i in range(len(words) - _WORDS + 1)}


def _is_like(own: set[tuple[str, ...]], others: set[tuple[str, ...]]) -> bool:
    return len(own & others) > _SAME * len(own)
