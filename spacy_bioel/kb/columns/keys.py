"""64-bit keys of normalised names.

The key of a name is a polynomial in the hashes of its words. The keys of all spans of a document
therefore follow from its words by one vectorised recurrence, without building any string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_BASE = 0x9E3779B97F4A7C15  # odd, so that multiplication loses no bits
_MASK = (1 << 64) - 1

KeyArray = NDArray[np.uint64]


@lru_cache(maxsize=1 << 18)
def word_key(word: str) -> int:
    """Hash one normalised word to 64 bits, the same on every machine and in every run."""
    digest = blake2b(word.encode("utf8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def word_keys(words: Iterable[str]) -> KeyArray:
    """Keys of many words, or of ids. Shape (n_words,)."""
    return np.fromiter(map(word_key, words), dtype=np.uint64)


def name_key(normalized: str) -> int:
    """Key of a name that `normalize_name` returned; 0 for the empty name."""
    key = 0
    for word in normalized.split():
        key = (key * _BASE + word_key(word)) & _MASK
    return key


def name_keys(normalized: Iterable[str]) -> KeyArray:
    """Keys of many normalised names. Shape (n_names,)."""
    return np.fromiter(map(name_key, normalized), dtype=np.uint64)


def span_keys(tokens: Sequence[str], max_width: int) -> KeyArray:
    """Keys of every span of up to `max_width` tokens.

    tokens (Sequence[str]): Normalised tokens; a token may hold no word ("") or several.
    RETURNS (KeyArray): keys[i, w] is the key of tokens[i : i + w + 1]; 0 if the span leaves the
        text or has no word. Shape (n_tokens, max_width).
    """
    n = len(tokens)
    keys = np.zeros((n, max_width), dtype=np.uint64)
    if n == 0:
        return keys
    # Tokens repeat, so each is hashed once. A token maps the key of the tokens before it:
    # key -> key * factor + own.
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    number = np.fromiter(map(numbers.__getitem__, tokens), dtype=np.int64, count=n)
    own = name_keys(numbers)[number]
    n_words = np.array([token.count(" ") + 1 if token else 0 for token in numbers])
    powers = np.array([pow(_BASE, k, 1 << 64) for k in range(n_words.max() + 1)], dtype=np.uint64)
    factor = powers[n_words][number]
    keys[:, 0] = own
    for width in range(1, min(max_width, n)):
        keys[: n - width, width] = keys[: n - width, width - 1] * factor[width:] + own[width:]
    return keys
