"""Warn of unreliable evaluation data: few documents, or documents like those of training."""

from __future__ import annotations

from collections.abc import Iterator

from specs import find_split

from spacy_bioel.cli.console import count_of
from spacy_bioel.corpus import read_texts
from spacy_bioel.types import AnnotatedText

_MIN_DOCUMENTS = 100  # of both splits
_NGRAM_LENGTH = 4  # words
_MAX_SHARED_NGRAMS = 0.5  # share of the n-grams of a document that are in train too
_MAX_SIMILAR_SHARE = 0.2  # share of the documents that resemble those of train


def doubts(corpus: str, split: str) -> Iterator[str]:
    """Yield reasons why the scores on a split may not hold for new texts."""
    train, texts = (list(read_texts(find_split(corpus, part))) for part in ("train", split))
    train_texts = {text.text for text in train}
    shared = [text.id for text in texts if text.text in train_texts]
    if shared:
        yield (
            f"{count_of(len(shared), 'document')} of {split} are in train too, first "
            f"{shared[0]}: their scores do not show how well new texts are linked."
        )
    if len(train) + len(texts) < _MIN_DOCUMENTS:
        yield (
            f"{count_of(len(train), 'document')} of train and {len(texts):,} of {split} are few: "
            "compare with the knowledge-base-only baseline, and try the pipeline on other texts."
        )
    train_ngrams = {ngram for text in train for ngram in masked_ngrams(text)}
    similar = [text.id for text in texts if _is_similar(masked_ngrams(text), train_ngrams)]
    if texts and len(similar) > _MAX_SIMILAR_SHARE * len(texts):
        yield (
            f"{count_of(len(similar), 'document')} of {split} differ from train documents mostly "
            f"in their names, first {similar[0]}: their scores tell little about new texts."
        )


def masked_ngrams(text: AnnotatedText) -> set[tuple[str, ...]]:
    """Return the word n-grams of a document in which mentions are replaced by their labels."""
    parts, end = [], 0
    for mention in sorted(text.mentions, key=lambda m: m.start):
        if mention.start >= end:
            parts += [text.text[end : mention.start], mention.label]
            end = mention.end
    words = " ".join([*parts, text.text[end:]]).lower().split()
    starts = range(len(words) - _NGRAM_LENGTH + 1)
    return {tuple(words[i : i + _NGRAM_LENGTH]) for i in starts}


def _is_similar(ngrams: set[tuple[str, ...]], train_ngrams: set[tuple[str, ...]]) -> bool:
    return len(ngrams & train_ngrams) > _MAX_SHARED_NGRAMS * len(ngrams)
