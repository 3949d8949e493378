"""Select, relabel and split the documents of a corpus as `corpora.yml` asks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b

from spacy_bioel.io.open import curie
from spacy_bioel.types import AnnotatedText, Mention

Labels = dict[str, str | None]
FIFTHS = 5
_PIECE_LENGTH = 4000  # characters of a part of a long training document, rounded up to a sentence
_SENTENCE_END = re.compile(r"(?<=[a-z)\]][.!?])\s+(?=[A-Z])")


def fifth_of(id: str) -> int:
    """Return the fifth, 0 to 4, that a document belongs to by a hash of its id."""
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest(), "big") % FIFTHS


def selected(
    texts: Iterable[AnnotatedText],
    *,
    ids: Collection[str] | None = None,
    left_out: Collection[str] = (),
    fifths: Collection[int] = range(FIFTHS),
) -> Iterator[AnnotatedText]:
    """Yield the documents with one of these ids (None: any) in one of these fifths."""
    for text in texts:
        if (ids is None or text.id in ids) and text.id not in left_out:
            if fifth_of(text.id) in fifths:
                yield text


def relabelled(
    text: AnnotatedText, *, labels: Labels, prefixes: dict[str, str | None]
) -> AnnotatedText:
    """Rename labels and complete ids; drop the mentions of labels that are renamed to null.

    prefixes (dict): Vocabulary of the ids of each new label; None: its ids are dropped.
    """
    renamed = ((m, labels.get(m.label, m.label)) for m in text.mentions)
    mentions = (
        replace(m, label=label, ids=_ids_of(m, label, prefixes))
        for m, label in renamed
        if label is not None
    )
    return replace(text, mentions=tuple(mentions))


def _ids_of(mention: Mention, label: str, prefixes: dict[str, str | None]) -> tuple[str, ...]:
    if label not in prefixes:
        return mention.ids
    prefix = prefixes[label]
    if prefix is None:
        return ()
    # GNormPlus adds the species: "18506(Tax:10090)".
    return tuple(curie(id.partition("(")[0], prefix) for id in mention.ids)


def pieces(text: AnnotatedText) -> Iterator[AnnotatedText]:
    """Split a long document at ends of sentences outside mentions."""
    cuts = [0]
    for end in (match.end() for match in _SENTENCE_END.finditer(text.text)):
        if end - cuts[-1] >= _PIECE_LENGTH and not any(
            m.start < end < m.end for m in text.mentions
        ):
            cuts.append(end)
    borders = [*cuts, len(text.text)]
    for number, (start, end) in enumerate(zip(borders, borders[1:], strict=False), start=1):
        mentions = tuple(
            replace(
                m,
                start=m.start - start,
                end=m.end - start,
                fragments=tuple((a - start, b - start) for a, b in m.fragments),
            )
            for m in text.mentions
            if start <= m.start < end
        )
        id = text.id if len(cuts) == 1 else f"{text.id}.{number}"
        yield replace(text, id=id, text=text.text[start:end], mentions=mentions)
