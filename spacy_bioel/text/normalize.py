"""Normalisation of names: two names are the same if their normalised strings are equal.

Stems and other spellings of normalised words and names are for comparing, and not for display.
"""

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


# Words that a name may have, or lack, without another meaning: "bowing of the femurs", and in a
# text "patellae were absent". "without", "no", "and" and "with" are not among them, nor is "a",
# which tells vitamins apart.
LINKING_WORDS = frozenset(
    "an the of in s its their his her is are was were be been being usually often sided".split()
)
# "Low potassium" is the name "Decreased circulating potassium concentration": words for more and
# for less, and those that names may have beside the substance. Blood alone has a pressure too.
MORE_OR_LESS = ("increased elevated raised high".split(), "decreased reduced low".split())
_LEVELS = frozenset("circulating serum plasma level levels concentration concentrations".split())
_DIRECTIONS = frozenset().union(*MORE_OR_LESS)
AMOUNT_WORDS = _LEVELS | _DIRECTIONS
_UNIT = re.compile(r"(?<=\d)(?=(?:mg|g|kg|ml|l|[nm]?m|m?mol|hr?|days?|weeks?|wk)(?: |$))")
_IRREGULAR = {"feet": "foot", "teeth": "tooth", "children": "child", "women": "woman"} | {
    "men": "man", "lice": "louse", "mice": "mouse", "geese": "goose", "phalanges": "phalanx",
    "bacteria": "bacterium", "ova": "ovum", "septa": "septum", "sera": "serum",
    "viscera": "viscus", "femora": "femur", "corpora": "corpus", "testes": "testis",
    "atria": "atrium", "cilia": "cilium", "ganglia": "ganglion", "mitochondria": "mitochondrion",
    "diverticula": "diverticulum", "crura": "crus", "calves": "calf", "meninges": "meninx",
}  # fmt: skip
_PLURALS = (
    ("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("ae", "a"),
    ("omata", "oma"), ("yses", "ysis"), ("stases", "stasis"), ("eses", "esis"), ("rices", "rix"),
    ("dices", "dix"), ("tices", "tex"), ("thelia", "thelium"), ("gonia", "gonium"),
    ("amina", "amen"), ("umina", "umen"), ("ci", "cus"), ("chi", "chus"), ("lei", "leus"),
    ("li", "lus"), ("bi", "bus"), ("gi", "gus"), ("vi", "vus"), ("s", ""),
)  # fmt: skip
_OSES = re.compile(r"(?<=[a-z]{4})oses$")
_NO_PLURALS = ("ss", "us", "is", "os")
_PLURALS_IN_OS = ("yos", "ios")  # "embryos", "ratios"
_SHORT = 5  # letters; "toes" and "his" have neither endings nor British spellings
_BRITISH = ((re.compile(r"is(?=(?:ed|ing|e)$)"), "iz"), (re.compile(r"(?<=[bt])re(?=s?$)"), "er"))
_FEWEST = 4  # letters that are left of a word
# Endings of one word family and what stands for them, so that "hypoplasia" meets "hypoplastic",
# "fibula" "fibular" and "deficiency" "deficient". Endings that tell substances apart ("-ate",
# "-ide", "-ine", "-ous") are not among them.
_FAMILIES = {
    "ality": "", "alities": "", "ally": "", "al": "", "ar": "", "ac": "", "ia": "", "ial": "i",
    "ic": "", "yonic": "yo", "ical": "", "ically": "", "stic": "s", "tic": "t", "sis": "t",
    "etes": "et", "sion": "s", "sive": "s", "tion": "t", "tional": "t", "tive": "t", "ation": "",
    "ational": "", "ative": "", "ity": "", "itis": "it", "ible": "ib", "ibular": "ib",
    "icle": "ic", "icular": "ic", "uscle": "usc", "uscular": "usc", "oma": "om", "omatous": "om",
    "ibility": "ib", "ability": "abl",
    "ment": "", "mental": "", "ement": "", "ence": "ent", "ency": "ent", "ance": "ant",
    "ancy": "ant", "ed": "", "ing": "", "ly": "", "ness": "", "is": "", "um": "", "us": "",
    "ous": "ous", "a": "", "e": "", "y": "", "sy": "t",
    "eton": "et", "agmatic": "agm",
}  # fmt: skip
_BY_LENGTH = sorted(_FAMILIES, key=len, reverse=True)


_CAPITALS = re.compile(rf"(?<!['’\w])(?:{'|'.join(LINKING_WORDS).upper()})(?!\w)")


def linking_words_of(name: str) -> frozenset[str]:
    """The linking words among the normalised words of a name, except those that distinguish it:
    in capitals, as in "protein S" and "HIS bundle"."""
    if name.isupper():
        return LINKING_WORDS
    return LINKING_WORDS.difference(map(str.lower, _CAPITALS.findall(name)))


def amount_of(words: list[str]) -> tuple[int, list[str]]:
    """Whether normalised words say that there is more (0) or less (1) of a substance, and the stems
    of the substance; none: they say something else."""
    signs = [sign for word in words for sign in (0, 1) if word in MORE_OR_LESS[sign]]
    without = AMOUNT_WORDS | LINKING_WORDS | {"blood"}
    rest = [stem_of(word) for word in words if word not in without]
    return (signs[0], sorted(rest)) if len(signs) == 1 else (0, [])


def is_amount(words: list[str]) -> bool:
    """Tell whether the words of a name say that there is more or less of something in the blood."""
    return words[0] in _DIRECTIONS and not _LEVELS.isdisjoint(words)


def words_of(normalized: str) -> list[str]:
    """Words of a normalised name; a number and its unit are two, as the tokenizer has them."""
    return _UNIT.sub(" ", normalized).split()


@lru_cache(maxsize=1 << 17)
def singular_of(word: str) -> str:
    """American spelling, in the singular, with Arabic numbers: a word in another spelling, of the
    same meaning.
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _ARABIC and len(word) > 1:  # "i" and "v" are letters too
        return _ARABIC[word]
    if len(word) >= _SHORT:
        word = _american(word)
        for pattern, replacement in _BRITISH:
            word = pattern.sub(replacement, word)
    if len(word) < 4 or (word.endswith(_NO_PLURALS) and not word.endswith(_PLURALS_IN_OS)):
        return word
    if _OSES.search(word):
        return word.removesuffix("es") + "is"
    for ending, replacement in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word.removesuffix(ending) + replacement
    return word


@lru_cache(maxsize=1 << 17)
def stem_of(word: str) -> str:
    """Stem that the words of a family have in common; short words stay as they are."""
    word = singular_of(word)
    for ending in _BY_LENGTH:
        if word.endswith(ending):
            stem = word.removesuffix(ending) + _FAMILIES[ending]
            if len(stem) >= _FEWEST:
                return _without_vowel(stem)
    return _without_vowel(word)


def _without_vowel(stem: str) -> str:
    return stem[:-1] if stem[-1:] in "aeiouy" and len(stem) > _FEWEST else stem


# British -> American, inside words; MeSH and most ontologies prefer the American spelling.
_AMERICAN = (
    (re.compile(r"ae(?=m|d|t|c|g|s|l|n)"), "e"),
    (re.compile(r"oe(?=a|d|s|t|m|n)"), "e"),
    (re.compile(r"(?<=[a-z]{3})our(?=s?\b)"), "or"),
    (re.compile(r"(?<=[a-z]{3})isation"), "ization"),
    (re.compile(r"sulph"), "sulf"),
)
_NUMERALS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii", "xiii")
_ARABIC = {roman: str(number) for number, roman in enumerate(_NUMERALS, start=1)}
_ROMAN = {arabic: roman for roman, arabic in _ARABIC.items()}
# A single letter is a numeral only after one of these words.
_NUMBERED = {"type", "stage", "grade", "class", "factor", "group", "phase", "syndrome", "disease"}
_POSSESSIVE = re.compile(r"(?<=\w) s\b")
_PLURALS_OF_NAMES = (("ies", "y"), ("xes", "x"), ("s", ""), ("ses", "sis"), ("ses", "s"))


def respellings(name: str) -> list[str]:
    """Return other spellings of a normalised name, the likeliest first: American, in the singular,
    with Roman or Arabic numerals, and in the plural.
    """
    spelled = _american(name)
    plain = _POSSESSIVE.sub("", spelled)  # "parkinson s disease"
    others = [spelled, plain, *_singulars(name), *_singulars(spelled), *_renumbered(name)]
    others += [] if not name or name.endswith("s") else [name + "s", spelled + "s"]
    return [v for v in dict.fromkeys(others) if v and v != name]


def _american(name: str) -> str:
    for pattern, replacement in _AMERICAN:
        name = pattern.sub(replacement, name)
    return name


def _singulars(name: str) -> list[str]:
    if name.endswith(("ss", "us", "is")):
        return []
    return [
        name.removesuffix(ending) + replacement
        for ending, replacement in _PLURALS_OF_NAMES
        if name.endswith(ending) and len(name) > len(ending) + 3
    ]


def _renumbered(name: str) -> list[str]:
    words = name.split()
    arabic = [
        _ARABIC.get(word, word) if len(word) > 1 or before in _NUMBERED else word
        for before, word in zip(["", *words], words, strict=False)
    ]
    return [" ".join(arabic), " ".join([_ROMAN.get(word, word) for word in words])]
