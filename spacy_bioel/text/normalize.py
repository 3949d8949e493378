"""Normalisation of names: two names are the same if their normalised strings are equal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

# Stored with every knowledge base, and part of every encoder's fingerprint: raise it whenever
# normalize_name returns other words. Earlier releases of version 1 left two spaces where "_" stood
# beside another separator in a non-ASCII name; the words, and so the keys of lookups, are the same.
NORMALIZER_VERSION = 1

# It ends a name; any other white space between words is one space.
_LINE_END = r"(?:\r\n|\n|\r(?!\n))"
BLANK_LINE = re.compile(rf"{_LINE_END}[^\S\r\n]*{_LINE_END}")
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ξ": "xi", "ο": "omicron", "π": "pi", "ρ": "rho", "σ": "sigma", "ς": "sigma", "τ": "tau",
    "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
}  # fmt: skip
_FOLD = str.maketrans(_GREEK | {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d"})
_SYMBOLS = re.compile(r"[^\w\s\u0300-\u036f]+")
_SEPARATORS = re.compile(r"[\W_]+")
_ASCII_SEPARATORS = re.compile(r"[^0-9a-z]+")
_SEPARATORS_OF_A_LINE = re.compile(r"[^0-9a-z\n]+")


def normalize_name(name: str) -> str:
    """Fold case, accents, Greek letters and punctuation, so that spelling variants are equal.

    Knowledge base builds, training and queries call this function and no other. It works word by
    word: a text and its pieces, cut at non-alphanumeric characters, normalise to the same words.
    The span lookup of `kb.knowledge_base` depends on it. The function is idempotent.

    RETURNS (str): Lower-case words separated by single spaces; "" if no word is left.
    """
    if name.isascii():
        return _ASCII_SEPARATORS.sub(" ", name.lower()).strip()
    # Symbols are removed first, since NFKD would turn the sign of "Gleevec™" into letters.
    folded = unicodedata.normalize("NFKD", _SYMBOLS.sub(" ", name)).lower().translate(_FOLD)
    folded = "".join([c for c in folded if not unicodedata.combining(c)])
    return _SEPARATORS.sub(" ", folded).strip()


def on_one_line(text: str) -> str:
    """The words of a text with one space between them, as names have it."""
    return " ".join(text.split())


# Tokens repeat: their normalised form is remembered. Bounded, so that a service does not grow.
_normalize_token = lru_cache(maxsize=1 << 17)(normalize_name)


def normalize_tokens(tokens: Iterable[str]) -> list[str]:
    """Normalise many tokens."""
    return list(map(_normalize_token, tokens))


def normalize_names(names: Sequence[str]) -> list[str]:
    """Normalise many names; ASCII names as the lines of one text, which is faster."""
    lines = [name if name.isascii() and "\n" not in name else "" for name in names]
    plain = _SEPARATORS_OF_A_LINE.sub(" ", "\n".join(lines).lower()).split("\n")
    return [
        found.strip() if line else normalize_name(name)
        for name, line, found in zip(names, lines, plain, strict=False)  # "" is one line
    ]


def has_whole_brackets(text: str) -> bool:
    """Tell whether each bracket is paired within the text, unlike that of "IGF-I) receptor"."""
    for opening, closing in ("()", "[]"):
        if opening not in text and closing not in text:
            continue
        depths = [0, *accumulate((c == opening) - (c == closing) for c in text)]
        if min(depths) < 0 or depths[-1]:
            return False
    return True
