"""Find codes, such as product and antibody names, in any written form: "IL6", "IL 6" or "IL-6".

A code contains a digit or a Greek letter, begins with "anti-", or consists of capitals with a
separator. Its written forms differ in hyphens, spaces, case, Greek letters, and "α" for "anti-".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from spacy_bioel.dictionary.unambiguous import MAX_ACRONYM_LENGTH, common_words
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import GREEK, normalize_name

_GREEK_WORD = re.compile(
    r"(?<![a-z])(?:alpha|beta|gamma|delta|epsilon|zeta|kappa|lambda)(?![a-z])|[αβγδεζκλ]"
)
_CODE_NAME = re.compile(r"(?=.*[A-Zα-κ\d])[^\W\d_]\w*(?:[-/. ]?\w+){0,4}")
_LETTERS_OR_DIGITS = re.compile(r"\d+|[^\W\d_]+")
_SEPARATORS = re.compile(r"[\W_]+")
# "PD 1 day" and "BG 300 mg" are quantities.
_UNIT = re.compile(
    r"\s?(?:[%°]|(?:[mµμnk]?[gMLl]|mmol|h|hr|min|s|days?|hours?|weeks?|months?|years?)\b)"
)
_MAX_NAME_LENGTH, _MAX_PIECES = 16, 7
_MAX_NAMES = 100_000  # in larger vocabularies, many codes have other meanings too
_N_SAMPLED_NAMES = 1000


def _letters_and_digits(text: str) -> str:
    """Return a string's letters and digits in lower case, with Greek letters spelled out."""
    return _SEPARATORS.sub("", "".join(GREEK.get(char, char) for char in text.lower()))


def is_code_name(name: str) -> bool:
    """Return whether a name is a code such as "IL-6", rather than words."""
    if len(name) > _MAX_NAME_LENGTH or not _CODE_NAME.fullmatch(name) or len(name) < 2:
        return False
    has_sign = bool(_GREEK_WORD.search(name.lower())) or any(map(str.isdigit, name))
    return has_sign or (name.isupper() and not name.isalpha()) or name[:5].lower() == "anti-"


def has_mostly_codes(kb: KnowledgeBase) -> bool:
    """Return whether most names are codes; if so, common words among them must match by case."""
    names = kb.names.take(np.arange(0, kb.n_names, max(1, kb.n_names // _N_SAMPLED_NAMES)))
    return 2 * sum(map(is_code_name, names)) > len(names)


def are_words_in_capitals(kb: KnowledgeBase) -> bool:
    """Return whether names are words written in capitals, so that case carries no information.

    This is common in hospital exports. Gene symbols do not count as words.
    """

    def is_word(lowered: str) -> bool:
        is_long = len(lowered) > MAX_ACRONYM_LENGTH
        return lowered.isalpha() and (is_long or lowered in common_words())

    names = kb.names.take(np.arange(0, kb.n_names, max(1, kb.n_names // _N_SAMPLED_NAMES)))
    n_in_capitals = sum(name == name.upper() for name in names)
    n_with_word = sum(any(map(is_word, name.lower().split())) for name in names)
    return 10 * n_in_capitals >= 9 * len(names) and 2 * n_with_word > len(names)


# Words that mark the common word before them as a product name: "the Rapid assay".
_PRODUCT_WORD = re.compile(
    r"[ -](?:assays?|kits?|buffers?|reagents?|antibod(?:y|ies)|systems?|medi(?:um|a)|cells?|lines?"
    r"|clones?|softwares?|readers?|beads?|gels?|probes?|tests?|devices?|Laborator(?:y|ies))\b"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:]\s|\n)\W*$")


def is_common_word(text: str, start: int, end: int, name: str) -> bool:
    """Return whether a string is a common word ("rapid") rather than the product of that name."""
    word = text[start:end]
    if not (name.isalpha() and name.istitle()) or name.lower() not in common_words():
        return False
    if _PRODUCT_WORD.match(text, end) and not word.islower():
        return False
    return word != name or bool(_SENTENCE_START.search(text[max(0, start - 5) : start]))


class WrittenForms:
    """Finds codes that a text writes differently from the knowledge base, such as "IL 6"."""

    def __init__(self, kb: KnowledgeBase) -> None:
        names = kb.names.take(np.arange(kb.n_names)) if kb.n_names <= _MAX_NAMES else []
        by_key: dict[str, set[str]] = defaultdict(set)
        for name in filter(is_code_name, names):
            by_key[_letters_and_digits(name)].add(name)
        self._name_of = {key: name for key, (name, *others) in by_key.items() if not others}
        self._known = set(map(normalize_name, self._name_of.values()))

    def find(self, text: str) -> dict[str, str]:
        """Map each differently written code in a text to its name in the knowledge base."""
        forms: dict[str, str] = {}
        pieces = list(_LETTERS_OR_DIGITS.finditer(text)) if self._name_of else []
        for first, piece in enumerate(pieces):
            if piece.start() and (text[piece.start() - 1].isalnum() or piece[0].isdigit()):
                continue
            for end in self._ends(text, pieces[first : first + _MAX_PIECES]):
                written = text[piece.start() : end]
                name = self._name(written)
                if name and normalize_name(written) not in self._known:
                    forms.setdefault(written, name)
        return forms

    def _ends(self, text: str, pieces: list[re.Match[str]]) -> Iterator[int]:
        """Yield the possible end offsets of a code that begins with the first piece."""
        last = pieces[0].start()
        for i, piece in enumerate(pieces):
            gap = text[last : piece.start()]
            if i and (len(gap) > 1 or (gap and gap not in "-/. ")):
                return
            last = piece.end()
            if not text[last : last + 1].isalnum() and not (gap == " " and _UNIT.match(text, last)):
                yield last

    def _name(self, written: str) -> str:
        """Resolve a written form to a name, or return "": "was 17" does not mean WAS-17."""
        keys = [_letters_and_digits(written)]
        if written[0] == "α":
            keys.append(_letters_and_digits("anti" + written[1:]))
        name = next((self._name_of[key] for key in keys if key in self._name_of), "")
        return "" if written.islower() and not name.islower() else name
