"""Name normalisation: two names are the same if they normalise to the same string.

Stems and respellings are for comparison, not for display.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from types import SimpleNamespace

# Increment this number whenever `normalize_name` returns different words: it is stored in
# knowledge bases and hashed into encoder fingerprints. Early releases of version 1 left two spaces
# for "_" next to another separator in a non-ASCII name; neither words nor lookup keys changed.
NORMALIZER_VERSION = 1

# A blank line ends a name; other white space between words counts as one space.
_LINE_BREAK = r"(?:\r\n|\n|\r(?!\n))"
BLANK_LINE = re.compile(rf"{_LINE_BREAK}[^\S\r\n]*{_LINE_BREAK}")
GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ξ": "xi", "ο": "omicron", "π": "pi", "ρ": "rho", "σ": "sigma", "ς": "sigma", "τ": "tau",
    "υ": "upsilon", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega",
}  # fmt: skip
_FOLD = str.maketrans(GREEK | {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d"})
_SYMBOLS = re.compile(r"[^\w\s\u0300-\u036f]+")
_WORD_SEPARATORS = re.compile(r"[\W_]+")
_ASCII_SEPARATORS = re.compile(r"[^0-9a-z]+")
_SEPARATORS_IN_LINE = re.compile(r"[^0-9a-z\n]+")


def normalize_name(name: str) -> str:
    """Fold case, accents, Greek letters and punctuation: "TNF-α" becomes "tnf alpha".

    Knowledge base builds, training and queries all use this function. A text, and its pieces cut at
    non-alphanumeric characters, are normalised to the same words. The span lookup in
    `kb.knowledge_base` depends on this property. The function is idempotent.

    RETURNS (str): Lower-case words separated by single spaces; "" if no word is left.
    """
    if name.isascii():
        return _ASCII_SEPARATORS.sub(" ", name.lower()).strip()
    # Remove symbols first: NFKD would turn the trademark sign in "Gleevec™" into letters.
    folded = unicodedata.normalize("NFKD", _SYMBOLS.sub(" ", name)).lower().translate(_FOLD)
    folded = "".join([c for c in folded if not unicodedata.combining(c)])
    return _WORD_SEPARATORS.sub(" ", folded).strip()


# Bracketed subscripts after an element symbol or a Greek letter, as in "H(2)O".
_SUBSCRIPTED = re.compile(
    rf"(?<![^\W_])(?:[a-z]?(?:[A-Z][a-z]?){{1,5}}|{'|'.join([*GREEK, *GREEK.values()])})"
    r"(?:\(\d{1,2}[A-Za-z]?\)[A-Za-z]{0,5}){1,4}(?![^\W_])"
)
_WITH_NUMBER = re.compile(r"(?<![^\W_])([a-z]{4,})\(\d{1,2}\)(?![^\W_])")


def subscripts(text: str, document: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, usual spelling) for each word with bracketed subscripts, as in old
    abstracts: "H2O" for "H(2)O".

    document (str): The whole document of the text. If bracketed numbers follow ordinary words in
        the document, as in "asthma(2)", they are citations, and nothing is yielded.
    """
    if "(" not in text or _has_citations(document):
        return
    for match in _SUBSCRIPTED.finditer(text):
        yield *match.span(), match[0].replace("(", "").replace(")", "")


@lru_cache(maxsize=256)
def _has_citations(document: str) -> bool:
    return any(match[1] not in GREEK.values() for match in _WITH_NUMBER.finditer(document))


def on_one_line(text: str) -> str:
    """Collapse each run of white space in a text into a single space."""
    return " ".join(text.split())


def normalize_names(names: Sequence[str]) -> list[str]:
    """Normalise many names. For speed, ASCII names are joined and normalised together."""
    lines = [name if name.isascii() and "\n" not in name else "" for name in names]
    normalized = _SEPARATORS_IN_LINE.sub(" ", "\n".join(lines).lower()).split("\n")
    return [
        normalized[i].strip() if lines[i] else normalize_name(name) for i, name in enumerate(names)
    ]


def has_whole_brackets(text: str) -> bool:
    """Return whether the brackets in a text are balanced, unlike in "IGF-I) receptor"."""
    for opening, closing in ("()", "[]"):
        depths = [0, *accumulate((c == opening) - (c == closing) for c in text)]
        if min(depths) < 0 or depths[-1]:
            return False
    return True


# Words that can be added to or dropped from a name without changing its meaning: "bowing of the
# femurs", "patellae were absent". The set excludes "without", "no", "and" and "with", and also "a",
# which distinguishes vitamins.
LINKING_WORDS = frozenset(
    "an the of in s its their his her is are was were be been being usually often sided".split()
)
PREPOSITIONS = frozenset("of in with without to by due from for on at".split())
# Words for an increased or decreased amount of a substance, and other words used in such names:
# "low potassium" means "decreased circulating potassium concentration". "Blood" is excluded
# because of names such as "blood pressure".
MORE_OR_LESS = ("increased elevated raised high".split(), "decreased reduced low".split())
_LEVELS = frozenset("circulating serum plasma level levels concentration concentrations".split())
_MORE_AND_LESS = frozenset().union(*MORE_OR_LESS)
AMOUNT_WORDS = _LEVELS | _MORE_AND_LESS
_BEFORE_UNIT = re.compile(r"(?<=\d)(?=(?:mg|g|kg|ml|l|[nm]?m|m?mol|hr?|days?|weeks?|wk)(?: |$))")
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
_MIN_RESPELLED_LENGTH = 5  # shorter words, such as "toes" and "his", have no British spelling
_BRITISH = ((re.compile(r"is(?=(?:ed|ing|e)$)"), "iz"), (re.compile(r"(?<=[bt])re(?=s?$)"), "er"))
_MIN_STEM_LENGTH = 4
# Suffix replacements that give all words in a family the same stem: "hypoplasia" and
# "hypoplastic", "fibula" and "fibular", "deficiency" and "deficient". Suffixes that distinguish
# substances ("-ate", "-ide", "-ine", "-ous") are excluded.
_FAMILY_ENDINGS = {
    "ality": "", "alities": "", "ally": "", "al": "", "ar": "", "ac": "", "ia": "", "ial": "i",
    "ic": "", "yonic": "yo", "ical": "", "ically": "", "stic": "s", "tic": "t", "sis": "t",
    "etes": "et", "sion": "s", "sive": "s", "tion": "t", "tional": "t", "tive": "t", "ation": "",
    "ational": "", "ative": "", "ity": "", "itis": "it", "ible": "ib", "ibular": "ib",
    "icle": "ic", "icular": "ic", "uscle": "usc", "uscular": "usc", "oma": "om", "omatous": "om",
    "ibility": "ib", "ability": "abl",
    "ment": "", "mental": "", "ement": "", "ence": "ent", "ency": "ent", "ance": "ant",
    "ancy": "ant", "ed": "", "ing": "", "ly": "", "ness": "", "is": "", "um": "", "us": "",
    "ous": "ous", "a": "", "e": "", "y": "", "sy": "t", "siness": "t",
    "eton": "et", "agmatic": "agm",
}  # fmt: skip
_ENDINGS_BY_LENGTH = sorted(_FAMILY_ENDINGS, key=len, reverse=True)
_LINKING_WORD_IN_CAPITALS = re.compile(rf"(?<!['’\w])(?:{'|'.join(LINKING_WORDS).upper()})(?!\w)")


def linking_words_of(name: str) -> frozenset[str]:
    """Return the linking words that can be dropped from a name: all except those in capitals,
    such as "S" in "protein S" and "HIS" in "HIS bundle"."""
    if name.isupper():
        return LINKING_WORDS
    return LINKING_WORDS.difference(map(str.lower, _LINKING_WORD_IN_CAPITALS.findall(name)))


def amount_of(words: list[str]) -> tuple[int, list[str]]:
    """Return (0, stems) if normalised words describe an increased amount of a substance, (1, stems)
    if they describe a decreased amount, else (0, []). The stems are the substance's, sorted."""
    signs = [sign for word in words for sign in (0, 1) if word in MORE_OR_LESS[sign]]
    ignored = AMOUNT_WORDS | LINKING_WORDS | {"blood"}
    stems = [stem_of(word) for word in words if word not in ignored]
    return (signs[0], sorted(stems)) if len(signs) == 1 else (0, [])


def is_amount(words: list[str]) -> bool:
    """Return whether a name's words describe a high or low level of a substance in the blood."""
    return words[0] in _MORE_AND_LESS and not _LEVELS.isdisjoint(words)


def words_of(normalized: str) -> list[str]:
    """Split a normalised name into words, separating numbers from units as the tokenizer does."""
    return _BEFORE_UNIT.sub(" ", normalized).split()


# `kb.spelling.singular` is a rougher version, kept because features of saved models depend on it.
@lru_cache(maxsize=1 << 17)
def singular_of(word: str) -> str:
    """Convert a normalised word to its singular, in American spelling and with Arabic numerals."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _ARABIC and len(word) > 1:  # "i" and "v" may be letters
        return _ARABIC[word]
    if len(word) >= _MIN_RESPELLED_LENGTH:
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
    """Return the stem of a normalised word: "hypoplas" for "hypoplasia" and "hypoplastic"."""
    stem = singular_of(word)
    for ending in _ENDINGS_BY_LENGTH:
        if stem.endswith(ending):
            shorter = stem.removesuffix(ending) + _FAMILY_ENDINGS[ending]
            if len(shorter) >= _MIN_STEM_LENGTH:
                stem = shorter
                break
    return stem[:-1] if stem[-1:] in "aeiouy" and len(stem) > _MIN_STEM_LENGTH else stem


_LATIN_NOUN = re.compile(r"(?:(?<!o)us|um|is|a)$")
_FROM_LATIN_NOUN = re.compile(r"(?:[aeiou]l|ar|[ai]c|ary|oid|ous|y|i|ae)$")


def are_forms_of_one_word(word: str, other: str) -> bool:
    """Return whether two words with the same stem are forms of one word: "cranium" and "cranial"
    are; "cranium" and "crane", or "spine" and "spin", are not."""
    forms = first, second = sorted(map(singular_of, (word, other)))
    if first == second or first.removesuffix("a") + "um" == second:
        return True
    if first + "e" == second:
        return first.endswith("s")  # "sinus", "sinuses"
    latin = sum(bool(_LATIN_NOUN.search(form)) for form in forms)
    return not latin or (latin == 1 and any(map(_FROM_LATIN_NOUN.search, forms)))


# Replacements of British by American spellings, which MeSH and most ontologies prefer.
_AMERICAN = (
    (re.compile(r"ae(?=m|d|t|c|g|s|l|n)"), "e"),
    (re.compile(r"oe(?=a|d|s|t|m|n)"), "e"),
    (re.compile(r"(?<=[a-z]{3})our(?=s?\b)"), "or"),
    (re.compile(r"(?<=[a-z]{3})isation"), "ization"),
    (re.compile(r"sulph"), "sulf"),
)
_NUMERALS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii", "xiii")
_ARABIC = {roman: str(number) for number, roman in enumerate(_NUMERALS, start=1)}
_ROMAN_NUMERAL = {arabic: roman for roman, arabic in _ARABIC.items()}
# Words after which a single letter may be a numeral, as in "type I".
_NUMBERED_WORDS = frozenset("type stage grade class factor group phase syndrome disease".split())
_POSSESSIVE = re.compile(r"(?<=\w) s\b")
_PLURALS_IN_NAMES = (("ies", "y"), ("xes", "x"), ("s", ""), ("ses", "sis"), ("ses", "s"))


def respellings(name: str) -> list[str]:
    """Return other spellings of a normalised name, likeliest first: American, without possessive
    "s" ("parkinson disease" for "parkinson s disease"), singular, other numerals ("type 2" and
    "type ii"), plural."""
    american = _american(name)
    plain = _POSSESSIVE.sub("", american)  # "parkinson s disease"
    words = name.split()
    arabic = [
        _ARABIC.get(word, word) if len(word) > 1 or before in _NUMBERED_WORDS else word
        for before, word in pairwise(["", *words])
    ]
    roman = [_ROMAN_NUMERAL.get(word, word) for word in words]
    others = [american, plain, *_singulars(name), *_singulars(american)]
    others += [" ".join(arabic), " ".join(roman)]
    if name and not name.endswith("s"):
        others += [name + "s", american + "s"]
    return [other for other in dict.fromkeys(others) if other and other != name]


def _american(name: str) -> str:
    for pattern, replacement in _AMERICAN:
        name = pattern.sub(replacement, name)
    return name


def _singulars(name: str) -> list[str]:
    # Return all possible singulars, because the caller tries each of them as a name.
    if name.endswith(("ss", "us", "is")):
        return []
    return [
        name.removesuffix(ending) + replacement
        for ending, replacement in _PLURALS_IN_NAMES
        if name.endswith(ending) and len(name) > len(ending) + 3
    ]


# Spreadsheets evaluate a cell as a formula if it begins with one of these characters, unless an
# apostrophe comes first. If a value already begins with such an apostrophe, another one is added.
_FORMULA = re.compile("'*[=+@\t\r\n-]")
_SIGNED_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escape_formula(cell: str) -> str:
    """Prefix a table cell with an apostrophe if a spreadsheet would evaluate it as a formula."""
    return f"'{cell}" if _FORMULA.match(cell) and not _SIGNED_NUMBER.fullmatch(cell) else cell


def unescape_formula(cell: str) -> str:
    """Strip the apostrophe that `escape_formula` or another program put before a formula."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def table_line(cells: Iterable[object], delimiter: str) -> str:
    r"""Format a CSV or TSV line, quoting cells that contain "\r" so that readers keep them."""
    # `csv` quotes cells with line-terminator characters; `writerow` returns what `write` returns.
    writer = csv.writer(SimpleNamespace(write=str), delimiter=delimiter, lineterminator="\r\n")
    line: str = writer.writerow(cells)
    return line.removesuffix("\r\n") + "\n"
