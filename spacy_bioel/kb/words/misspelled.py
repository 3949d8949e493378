"""Misspelled words: words of a text that are one slip away from a word of the knowledge base."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from spacy_bioel.text.stems import singular_of

# Letters: short words are near to too many others, and longer strings are no words. A word has as
# many pieces as letters, each as long as itself.
SHORTEST, LONGEST = 6, 64
# Of two words that may be meant, one has to be so many times as frequent as the other.
_SURER = 10.0
RARE = 0.3  # times in a million words, of a word whose frequency is not known


class Misspellings:
    """Finds the word that is meant: one letter more, less, another, or two in the wrong order.

    words (Mapping[str, int]): Words of a knowledge base, and how often each is there.
    """

    def __init__(self, words: Mapping[str, int]) -> None:
        self._words = [w for w in words if SHORTEST <= len(w) <= LONGEST and w.isalpha()]
        self._counts = words
        # Two words are one slip apart if they are equal with a letter left out of one, or both.
        pieces = [
            (hash(piece), number)
            for number, word in enumerate(self._words)
            for piece in {word, *_shortened(word)}
        ]
        table = np.array(pieces, dtype=np.int64).reshape(-1, 2)
        table = table[np.argsort(table[:, 0], kind="stable")]
        self._hashes, self._numbers = table[:, 0].copy(), table[:, 1].astype(np.int32)

    def meant(self, word: str, *, known: Mapping[str, float]) -> str | None:
        """The word that a misspelled one stands for; None: no word, or a choice between several.

        known (Mapping[str, float]): Words that are right as they are, as is every word of the
            knowledge base, and how often they are in a million words of text.
        """
        if not SHORTEST <= len(word) <= LONGEST or not (word.isalpha() and word.isascii()):
            return None
        if any(w in self._counts or w in known for w in (word, singular_of(word), word + "s")):
            return None
        found = dict.fromkeys(self._near(word)) or dict.fromkeys(self._near(singular_of(word)))
        frequency: dict[str, float] = defaultdict(float)
        for other in found:
            frequency[singular_of(other)] += known.get(other, RARE)
        ranked = sorted(frequency, key=frequency.__getitem__, reverse=True)
        if not ranked or any(frequency[ranked[0]] < _SURER * frequency[w] for w in ranked[1:]):
            return None
        likely = [other for other in found if singular_of(other) == ranked[0]]
        return max(likely, key=self._counts.__getitem__)

    def _near(self, word: str) -> Iterator[str]:
        for piece in {word, *_shortened(word)}:
            start = np.searchsorted(self._hashes, hash(piece))
            end = np.searchsorted(self._hashes, hash(piece), side="right")
            for number in self._numbers[start:end].tolist():
                if _is_one_slip(word, self._words[number]):
                    yield self._words[number]


def _shortened(word: str) -> Iterator[str]:
    """All strings with one letter left out, but not the first, which is rarely wrong."""
    return (word[:i] + word[i + 1 :] for i in range(1, len(word)))


def _is_one_slip(word: str, other: str) -> bool:
    if word[0] != other[0] or abs(len(word) - len(other)) > 1 or word == other:
        return False
    shorter = min(len(word), len(other))
    same = next((i for i in range(shorter) if word[i] != other[i]), shorter)
    a, b = word[same:], other[same:]
    return (
        a[1:] == b[1:]  # another letter
        or a[1:] == b
        or a == b[1:]
        or (a[:2] == b[:2][::-1] and a[2:] == b[2:])
    )
