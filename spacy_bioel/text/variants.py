"""Sequence variants as texts write them: component forms, HGVS, rs numbers, and their gene.

The component form is that of tmVar 3 (Wei et al. 2022, https://doi.org/10.1093/bioinformatics/btac537):
"p|SUB|V|600|E". It also says what HGVS cannot: "c|DEL||22" is a deletion of 22 bases somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_THREE = {
    "A": "Ala", "R": "Arg", "N": "Asn", "D": "Asp", "C": "Cys", "Q": "Gln", "E": "Glu", "G": "Gly",
    "H": "His", "I": "Ile", "L": "Leu", "K": "Lys", "M": "Met", "F": "Phe", "P": "Pro", "S": "Ser",
    "T": "Thr", "W": "Trp", "Y": "Tyr", "V": "Val", "X": "Ter",
}  # fmt: skip
_ACIDS = {three.lower(): one for one, three in _THREE.items()} | {
    "alanine": "A", "arginine": "R", "asparagine": "N", "aspartic acid": "D", "aspartate": "D",
    "cysteine": "C", "glutamine": "Q", "glutamic acid": "E", "glutamate": "E", "glycine": "G",
    "histidine": "H", "isoleucine": "I", "leucine": "L", "lysine": "K", "methionine": "M",
    "phenylalanine": "F", "proline": "P", "serine": "S", "threonine": "T", "tryptophan": "W",
    "tyrosine": "Y", "valine": "V", "stop": "X", "termination": "X", "term": "X", "nonsense": "X",
}  # fmt: skip
_BASES = {
    "adenine": "A", "adenosine": "A", "cytosine": "C", "cytidine": "C", "guanine": "G",
    "guanosine": "G", "thymine": "T", "thymidine": "T", "uracil": "U", "uridine": "U",
}  # fmt: skip
_CODONS = dict(
    zip(
        (a + b + c for a in "TCAG" for b in "TCAG" for c in "TCAG"),
        "FFLLSSSSYYXXCCXWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
        strict=True,
    )
)
_WORDS = "|".join(sorted([*_ACIDS, *_BASES], key=len, reverse=True)).replace(" ", r"\s")
_OFFSET = r"(?:\s?[-+]\s?\d+)?"
_TOKENS = re.compile(
    rf"""(?P<level>(?<![A-Za-z])[cgmnrp]\.)
    |(?P<skip>(?i:exons?|introns?)\s(?:\d+|[IVX]+\b)|IVS\s?\d++(?!\s?[-+])|\b(?:CD|SNPs?|c?DNA|m?RNA|UTR)\b)
    |(?P<length>\d[\d,.]*[\s-]?(?i:[kM]?(?:bp|(?<=[kM])b|base(?:[ -]?pair)?|nucleotide|nt|amino[ ]acid)s?\b))
    |(?P<at>(?:(?:IVS|Ex)\s?\d++[:,]?\s?(?:[-+]\s)?)?[-+*]?\d+{_OFFSET}(?:\s?_\s?[-+*]?\d+{_OFFSET})?)
    |(?P<both>(?i:ins\w{{0,6}}\s?[/-]\s?del\w{{0,5}}|del\w{{0,5}}\s?[/-]\s?ins\w{{0,6}}|delins|indels?)(?![a-z])|I/D)
    |(?P<kind>(?i:del(?:etions?|eted|ta)?|Δ|DD(?=\d)|ins(?:ert(?:ions?|ed)?)?
        |dup(?:licat(?:ions?|ed|ing))?|repeats?)(?![a-z]))
    |(?P<shift>(?i:fs|frame-?shift))
    |(?P<reversed>\bfor\b|instead\ of|rather\ than)
    |(?P<or>/)|(?P<joined>_)
    |(?P<word>(?:(?<![a-z])|(?<=del)|(?<=ins)|(?<=dup))(?i:{_WORDS})(?![a-ceg-z]|f[^s]|d[^eu]))
    |(?P<letters>[ACDEFGHIKLMNPQRSTUVWXY*]+(?![a-ceg-z]))
    """,
    re.VERBOSE | re.ASCII,
)
_KINDS = {"de": "DEL", "Δ": "DEL", "δ": "DEL", "dd": "DEL", "in": "INS", "du": "DUP", "re": "DUP"}
_ROMAN = ["", "I", "II", "III", "IV", "V"]
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
_PLAIN: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"&gt;|\s?(?:-+>|→|–>)\s?"), ">"),
    (re.compile(r"[‐‑–−]"), "-"),
    (re.compile(r"(\d)\s(?:to|through)\s(?:nt\s)?(-?\d+)"), r"\1_\2"),
    (
        re.compile(r"\b(\d+)\sand\s(\d+)"),
        lambda m: "_".join(m.groups()) if int(m[2]) == int(m[1]) + 1 else m[0],
    ),
    (re.compile(r"(?:\(|^)-([ACGT]+)\b"), r"del \1"),
    (re.compile(r"\(([ACGT]{2,})\)n"), r"repeat \1"),
    (re.compile(r"IVS-?(IV|V|I{1,3})(?=\s?[-+])"), lambda m: f"IVS{_ROMAN.index(m[1])}"),
    (
        re.compile(rf"\b({'|'.join(_NUMBERS)})(?=[ -](?:base|bp|nucleotide|amino|additional))"),
        lambda m: str(_NUMBERS.index(m[0]) + 1),
    ),
    (re.compile("additional "), ""),
    (re.compile(r"(?<=[A-Za-z])-(\d+)-(?=[A-Za-z])"), r"\1"),  # Val-600-Glu
    (re.compile(r"([A-Z][a-z]{0,2})(\d+)="), r"\1\2\1"),
    (re.compile(r"(?<![A-Za-z])[acgtu]+\s?[>/]\s?[acgtu]+\b"), lambda m: m[0].upper()),
]
_SHAPES = {
    "level": "v", "length": "l", "at": "n", "both": "b", "kind": "k", "shift": "f",
    "reversed": "o", "or": "/", "joined": "_", "word": "r", "letters": "r",
}  # fmt: skip
_CUE = re.compile(
    r"(?:position|nucleotide|(codon|\bCD\)?)|residue|acid|\bnt|\bat)s?[\s:]*\(?$", re.I
)
_RANGE = re.compile(r"(\d+)-(\d+)")
_NEAR = 40  # characters
_LONG = 1000  # proteins have fewer amino acids
_SHORT = 100  # numbers of bases are rarely lower
_MITOCHONDRIA = re.compile(r"mitochondri|mtDNA|\btRNA", re.I)
_CYTOGENETIC = re.compile(r"\d[pq][\d)]|\d[pq]\b|\([pq]\d")
_SHIFTED = 5  # codons by which numbers differ that begin elsewhere
# Genes whose changed amino acids are often letters of bases as well, and words.
_OF_EITHER = re.compile(
    r"\b(?:(?:[KNH]-?RAS|SNCA|(?:alpha-?)?synuclein|SOD1|APP|EGFR|CTNNB1|(?:beta-?)?catenin|TTR)\b"
    r"|codons?\b|residues?\b|amino[ -]acids?\b|p\.[A-Z]|(?P<bases>nucleotides?\b|SNPs?\b|promoter\b"
    r"|polymorphi|genotyp|transitions?\b|transversions?\b|UTR\b|introns?\b|mtDNA\b|[cgm]\.\d))",
    re.I,
)
_CHANGE = re.compile(r"(?<![A-Za-z\d.])[A-Z](\d+)[A-Z*](?![A-Za-z\d])")
_REPEATS = ("rn", "nrk", "nkr")
_LENGTH_BEHIND = re.compile(r"(?:Δ|delta|DD|dup|ins)\s?\d|del\d{1,2}\b", re.I)
_RS = re.compile(r"(?<![A-Za-z\d])rs[1-9]\d{0,9}(?!\d)", re.I)


@dataclass(frozen=True, slots=True)
class Variant:
    """What a text says of a sequence variant.

    level (str): Of what the sequence is: "c", "g", "m", "n", "r", or "p", a protein.
    kind (str): "SUB", "DEL", "INS", "DUP", "INDEL", "FS", or "Allele", one of several.
    at (str): Such as "600", "-308", "88+2", "IVS2+1", "76_77", "CODON26"; "": it is not said.
    old (str): What is replaced, in letters of one base or amino acid; of a range of a protein, what
        stands at its ends.
    new (str): What replaces it, separated by commas if several may; what is deleted, doubled or
        inserted, or how many bases.
    count (str): Of repeats; of a frame shift where it stops.
    """

    level: str
    kind: str
    at: str = ""
    old: str = ""
    new: str = ""
    count: str = ""

    @property
    def component(self) -> str:
        """The component form."""
        parts = {
            "SUB": [self.old, self.at, self.new],
            "FS": [self.old, self.at, self.new, self.count],
            "DUP": [self.at, self.new, self.count],
            "Allele": [self.new, self.at],
        }
        return "|".join([self.level, self.kind, *parts.get(self.kind, [self.at, self.new])])

    @property
    def hgvs(self) -> str | None:
        """The form in HGVS (https://hgvs-nomenclature.org), without a reference sequence; None:
        the text says too little for one.
        """
        if not (self.at and self.level) or self.kind == "Allele" or self.at.startswith("CODON"):
            return None
        change = (_of_protein if self.level == "p" else _of_bases)(self)
        return change and f"{self.level}.{change}"


def _of_protein(v: Variant) -> str | None:
    old, new = _three(v.old), _three(v.new)
    if v.kind == "SUB":
        if not (old and new):
            return None
        news = "^".join("=" if one == v.old else _three(one) for one in v.new.split(","))
        return f"{old}{v.at}{news}"
    if v.kind == "FS":
        end = f"{new}fsTer{v.count}" if new and v.count else "fs"
        return f"{old}{v.at}{end}"
    first, _, last = v.at.partition("_")
    at = ""
    if last and len(v.old) == 2:
        at = f"{_three(v.old[0])}{first}_{_three(v.old[1])}{last}"
    elif v.new.isalpha() and v.kind in ("DEL", "DUP") and not last:
        at = _three(v.new[0]) + first
        if len(v.new) > 1:
            at += f"_{_three(v.new[-1])}{int(first) + len(v.new) - 1}"
    if not at or (v.kind in ("INS", "INDEL") and not v.new.isalpha()):
        return None
    return (
        at
        + {"DEL": "del", "DUP": "dup", "INS": "ins", "INDEL": "delins"}[v.kind]
        + (new if v.kind in ("INS", "INDEL") else "")
    )


def _three(letters: str) -> str:
    return "".join(_THREE[letter] for letter in letters if letter in _THREE)


def _of_bases(v: Variant) -> str | None:
    if v.kind == "SUB":
        if len(v.old) == 1 and v.new:
            if v.old == v.new:
                return f"{v.at}="
            return "^".join(f"{v.at}{v.old}>{one}" for one in v.new.split(","))
        return f"{_upto(v.at, len(v.old))}delins{v.new}" if v.old and v.new else None
    if v.kind == "INS":
        at = f"{v.at}_{int(v.at) + 1}" if v.at.isdigit() else v.at
        return f"{at}ins{v.new}" if v.new and "_" in at else None
    if v.kind == "INDEL":
        return f"{v.at}delins{v.new}" if v.new.isalpha() else None
    # What was deleted or doubled is said by the place.
    n = int(v.new) if v.new.isdigit() else len(v.new) or 1
    return None if v.count else _upto(v.at, n) + v.kind.lower()


def _upto(at: str, n: int) -> str:
    return f"{at}_{int(at) + n - 1}" if at.isdigit() and n > 1 else at


def read_variant(text: str, start: int = 0, end: int | None = None) -> Variant | None:
    """Read the variant that text[start:end] names.

    Whether "G12C" is of a gene or of its protein is for the rest of the text to say.

    RETURNS (Variant | None): None: it says of no change of a sequence, or only an rs number.
    """
    end = len(text) if end is None else end
    mention = _RS.sub("", text[start:end])
    for pattern, plain in _PLAIN:
        mention = pattern.sub(plain, mention)
    if _CYTOGENETIC.search(mention):
        return None
    tokens = [t for t in _TOKENS.finditer(mention) if t.lastgroup != "skip"]
    shape = "".join(_SHAPES[str(t.lastgroup)] for t in tokens)  # "c.35delG": "vnkr"
    letters, level = _residues(mention, tokens)
    kind = _kind_of(tokens, shape, letters)
    at, is_codon, numbers = _place_of(mention, tokens)
    first, second, number = [*letters, ""][0], "".join(letters[1:2]), "".join(numbers[:1])
    level = next((t[0][0] for t in tokens if t.lastgroup == "level"), level)
    if kind == "SUB" and shape.count("rnr") > 1:
        return None  # it names several
    if kind == "SUB" and not level and "rnr" in shape and ">" not in mention:
        level = _level_of(text, start, end, at)
    elif not level:
        is_protein = kind == "FS" or (kind in ("DEL", "INS") and shape.startswith("rn"))
        is_protein |= is_codon and not letters or "amino" in mention
        level = "p" if is_protein else "c"
    if kind == "SUB":
        if (is_codon or "rnr" in shape) and level == "c" and len(first) == len(second) == 3:
            level, first, second = "p", _CODONS.get(first, "X"), _CODONS.get(second, "X")
        elif "r/r" in shape:
            second = ",".join(letters[1:])
        old, new = (second, first) if "o" in shape else (first, second)
        found = Variant(level, kind, at, old, new)
    elif kind == "FS":
        found = Variant(level, kind, at, first, second if "rnrf" in shape else "", number)
    elif "rn_rn" in shape:
        found = Variant(level, kind, f"{at}_{number}", first + second, "".join(letters[2:3]))
    elif kind == "DUP" and shape in _REPEATS[: 3 if "repeat" in mention else 1]:  # (CAG)23
        found = Variant(level, kind, "", "", first, at)
    elif shape == "kn" and _LENGTH_BEHIND.match(mention):  # Δ32
        found = Variant(level, kind, "", "", at)
    else:
        length = "".join(_length(t[0]) for t in tokens if t.lastgroup == "length") or number
        count = number if first else ""
        new = f"{first}({count})" if kind == "INS" and count else first or length
        found = Variant(level, kind, at, "", new, count if kind == "DUP" else "")
    if is_codon and found.level == "c" and kind != "Allele":
        found = replace(found, at=f"CODON{at}")
    return found if kind and (found.at or found.new) else None


def _residues(mention: str, tokens: Sequence[re.Match[str]]) -> tuple[list[str], str]:
    """Bases and amino acids that are named, and of what they are; "": of either."""
    letters, levels = [], set()
    before = ""
    for token in tokens:
        group, word = token.lastgroup, token[0].lower()
        # "adenine (A)"
        is_repeated = before == "word" and mention[token.start() - 1] == "("
        if group == "word" and not is_repeated:
            letters.append(_ACIDS.get(word) or _BASES[word])
            levels.add("p" if word in _ACIDS else "c")
        elif group == "letters" and not is_repeated:
            letters.append(token[0].replace("*", "X"))
            if not set(token[0]) <= set("ACGTU"):
                levels.add("p")
        before = str(group)
    return letters, max(levels, default="")


def _place_of(mention: str, tokens: Sequence[re.Match[str]]) -> tuple[str, bool, list[str]]:
    """The place of a change, whether that is the number of a codon, and the other numbers."""
    numbers = [t for t in tokens if t.lastgroup == "at"]
    cues = [_CUE.search(mention, 0, t.start()) for t in numbers]
    chosen = next((i for i, cue in enumerate(cues) if cue), 0)
    texts = [re.sub(r"[\s:,]", "", t[0]) for t in numbers]
    at = texts.pop(chosen) if texts else ""
    if ends := _RANGE.fullmatch(at):
        first, last = ends.groups()
        if "del" in mention and "." not in mention and len(last) == 1:  # 2238-9delAG
            last = first[:-1] + last
        at = f"{first}_{last}" if int(last) > int(first) else at
    is_codon = any(cue and cue[1] for cue in cues[chosen : chosen + 1])
    return at, is_codon, [text.strip("*+-") for text in texts]


def _kind_of(tokens: Sequence[re.Match[str]], shape: str, letters: Sequence[str]) -> str:
    kinds = {_KINDS[t[0][:2].lower()] for t in tokens if t.lastgroup == "kind"}
    if "f" in shape:
        return "FS"
    if "b" in shape or {"INS", "DEL"} <= kinds:
        return "INDEL"
    if kinds:
        return min(kinds)
    if len(letters) > 1:
        return "SUB"
    if letters and "n" in shape:
        return "DUP" if len(letters[0]) > 1 and shape.endswith("rn") else "Allele"
    return ""


def _length(text: str) -> str:
    number = re.match(r"[\d.,]+", text)
    unit = re.search(r"[kM](?=b)", text, re.I)
    return (number[0].replace(",", "") if number else "") + (unit[0].upper() if unit else "")


def _level_of(text: str, start: int, end: int, at: str) -> str:
    """Whether "A1166C" is of a gene, "c", or of its protein, "p", as the text around it says."""
    near = f"{text[max(0, start - _NEAR) : start]}\n{text[end : end + _NEAR]}"
    if _MITOCHONDRIA.search(near):
        return "m"
    if not at.isdigit() or int(at) >= _LONG:
        return "c"
    if found := _OF_EITHER.search(near):
        return "c" if found["bases"] else "p"
    changes = {(m[0], int(m[1])) for m in _CHANGE.finditer(text)}
    bases = {n for change, n in changes if {change[0], change[-1]} <= set("ACGT")}
    codons = {n for _, n in changes} - bases
    # What is said of a base is often said of its codon too: "C677T (A222V)".
    if codons and not any(abs(codon - n / 3) <= _SHIFTED for codon in codons for n in bases):
        return "p"
    return "c" if int(at) >= _SHORT else ""


def rs_number(text: str) -> str:
    """The number of a variant in dbSNP, "rs113488022", that a text says first; "": it has none."""
    found = _RS.search(text)
    return found[0].lower() if found else ""
