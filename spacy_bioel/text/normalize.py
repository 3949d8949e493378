"""The one function that decides when two names are the same string."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Stored with every knowledge base, and part of every encoder's fingerprint: raise it whenever the
# words that normalize_name returns change. Version 1 once left two spaces where "_" stood beside
# another separator in a name beyond ASCII. The words, and so the keys of lookups, are the same.
NORMALIZER_VERSION = 1

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
    """Fold case, accents, Greek letters and punctuation, so that spelling variants meet.

    Knowledge base build, training and query all call this and nothing else. It works word by
    word: normalising a text and normalising its pieces cut at non-alphanumeric characters give
    the same words, which the span lookup of `kb.columns.keys` relies on. Normalising twice gives
    what normalising once does.

    name (str): Any string.
    RETURNS (str): Lower-case words separated by single spaces; "" when nothing is left.
    """
    if name.isascii():
        return _ASCII_SEPARATORS.sub(" ", name.lower()).strip()
    # Symbols go first: "Gleevec™" is one word, and NFKD would make letters of the sign.
    folded = unicodedata.normalize("NFKD", _SYMBOLS.sub(" ", name)).lower().translate(_FOLD)
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    return _SEPARATORS.sub(" ", folded).strip()


def normalize_names(names: Sequence[str]) -> list[str]:
    """`normalize_name` of many names; those in ASCII as lines of one text, which is faster."""
    are_lines = [name.isascii() and "\n" not in name for name in names]
    text = "\n".join(name for name, is_line in zip(names, are_lines, strict=True) if is_line)
    lines = iter(_SEPARATORS_OF_A_LINE.sub(" ", text.lower()).split("\n"))
    return [
        next(lines).strip() if is_line else normalize_name(name)
        for name, is_line in zip(names, are_lines, strict=True)
    ]
