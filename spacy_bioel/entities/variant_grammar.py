"""What a text says of a sequence variant, in its component form and in HGVS.

The component form is that of tmVar 3 (Wei et al. 2022, doi:10.1093/bioinformatics/btac537):
"p|SUB|V|600|E". It also says what HGVS cannot: "c|DEL||22" is a deletion of 22 bases somewhere.

Sequence variants as texts write them: one grammar, which finds them and reads what they change.

A text is tokens of a few kinds, each with a letter: "c.35delG" is "vnkg", of a level, a place, a
kind of change, and a base. Stretches of letters that nothing else has are variants (`_SHAPES`);
what a variant changes is read from the tokens of its mention, wherever that comes from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

THREE_LETTERS = {
    "A": "Ala", "R": "Arg", "N": "Asn", "D": "Asp", "C": "Cys", "Q": "Gln", "E": "Glu", "G": "Gly",
    "H": "His", "I": "Ile", "L": "Leu", "K": "Lys", "M": "Met", "F": "Phe", "P": "Pro", "S": "Ser",
    "T": "Thr", "W": "Trp", "Y": "Tyr", "V": "Val", "X": "Ter",
}  # fmt: skip
_CHANGES = {"DEL": "del", "DUP": "dup", "INS": "ins", "INDEL": "delins"}


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
    is_said (bool): Whether the text says the level: numbers of old texts begin elsewhere.
    """

    level: str
    kind: str
    at: str = ""
    old: str = ""
    new: str = ""
    count: str = ""
    is_said: bool = field(default=True, compare=False)

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
        if self.kind in _CHANGES and self.level != "p" and not self.is_said:
            return None  # "185delAG" is c.68_69del today
        change = (_of_protein if self.level == "p" else _of_bases)(self)
        return change and f"{self.level}.{change}"


def _of_protein(v: Variant) -> str | None:
    old, new = _three(v.old), _three(v.new)
    first, _, last = v.at.partition("_")
    if not first.lstrip("-").isdigit():
        return None
    if v.kind == "SUB":
        news = "^".join("=" if one == v.old else _three(one) for one in v.new.split(","))
        return f"{old}{first}{news}" if len(v.old) == 1 and new else None
    if v.kind == "FS":
        return f"{old}{first}{f'{new}fsTer{v.count}' if new and v.count else 'fs'}" if old else None
    if last:
        at = f"{_three(v.old[:1])}{first}_{_three(v.old[1:])}{last}" if len(v.old) == 2 else ""
    else:  # it begins with what is deleted, and so many follow
        at = f"{new[:3]}{first}" if v.kind in ("DEL", "DUP") and v.new.isalpha() else ""
        at += f"_{new[-3:]}{int(first) + len(v.new) - 1}" if at and len(v.new) > 1 else ""
    inserted = new if v.kind in ("INS", "INDEL") else ""
    return at + _CHANGES[v.kind] + inserted if at and (inserted or "INS" not in v.kind) else None


def _three(letters: str) -> str:
    return "".join(THREE_LETTERS[letter] for letter in letters if letter in THREE_LETTERS)


def _of_bases(v: Variant) -> str | None:
    if v.kind == "SUB" and len(v.old) == 1:
        changes = [f"{v.at}{v.old}>{new}" for new in v.new.split(",")]
        return f"{v.at}=" if v.old == v.new else "^".join(changes)
    if v.kind == "SUB":
        return f"{_upto(v.at, len(v.old))}delins{v.new}"
    if v.kind in ("INS", "INDEL"):
        at = f"{v.at}_{int(v.at) + 1}" if v.kind == "INS" and v.at.isdigit() else v.at
        has_place = v.kind == "INDEL" or "_" in at
        return at + _CHANGES[v.kind] + v.new if v.new.isalpha() and has_place else None
    # What was deleted or doubled is said by the place.
    n = int(v.new) if v.new.isdigit() else len(v.new)
    return None if v.count else _upto(v.at, n) + _CHANGES[v.kind]


def _upto(at: str, n: int) -> str:
    return f"{at}_{int(at) + n - 1}" if at.isdigit() and n > 1 else at


_ACIDS = {three.lower(): one for one, three in THREE_LETTERS.items()} | {
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
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
_COUNT = "|".join(_NUMBERS)
_OFFSET = r"(?:\s?[-+]\s?\d{1,2}(?!\d)|[-+]\s?\d+)?"
_SITE = r"(?:amino[ -]acids?|nucleotides?|nts?|codons?|CD|residues?|positions?|bases?)"
# Words in lower case that may be a part of one; of the others, as many as there are are one token.
_STEM = (
    rf"(?:{_WORDS}|{_COUNT}|del|ins|dup|repeat|indel|frame|fs|rather|allele|exon|intron|codon"
    r"|nucleotide|nts?\b|amino|residue|position|base|substitution|transition|transversion"
    r"|mutation|polymorphism|tandem|gene\b|in[ -]?frame)"
)
_KNOWN = (
    rf"(?:{_STEM}|(?:for|to|by|with|of|at|the|in|between|and|through)\s"
    rf"(?:(?:the|an?|premature)\s)*+(?:[^a-z]|{_STEM}))"
)
_TOKENS = re.compile(
    rf"""(?P<plain>\s?(?!{_KNOWN})[a-z]{{2,}}\b(?:[,;]?\s(?!{_KNOWN})(?:[a-z]{{2,}}|a)\b)*+)
    |(?P<gap>[ ](?=[ABD-Z0-9(]))
    |(?P<v>(?<![A-Za-z])[cgmnrp]\.)
    |(?P<p>\s?(?:\b(?:at|of|in|between)\s)?(?:the\s)?\b{_SITE}(?:\s{_SITE})?[\s:]?(?:\(CD\)\s?)?
        (?=\(?[-+*]?\d)|\sat\s(?:the\s)?(?=-\d\d|\d{{3}}))
    |(?P<x>(?i:exons?|introns?)\s(?:\d+|[IVX]+\b)|IVS\s?\d++(?!\s?[-+])
        |\b(?:CD|SNPs?|c?DNA|m?RNA|UTR)\b|(?<=\))n\b)
    |(?P<l>(?:\d[\d,.]*|\b(?:{_COUNT})\b)[\s-]?(?i:[kM]?(?:bp|(?<=[kM])b|base(?:[ -]?pair)?
        |nucleotide|nt|amino[ ]acid)s?\b))
    |(?P<at>(?:(?:IVS[ -]?(?:\d++|IV|V|I{{1,3}})|Ex\s?\d++)[:,]?\s?(?:[-+]\s)?)?
        [-+*]?\d+{_OFFSET}(?:\s?_\s?[-+*]?\d+{_OFFSET})?)
    |(?P<b>(?i:ins\w{{0,6}}\s?[/-]\s?del\w{{0,5}}|del\w{{0,5}}\s?[/-]\s?ins\w{{0,6}}|delins
        |indels?)(?![a-z])|I/D)
    |(?P<kind>(?i:del(?:etions?|eted|ta[ -]?)?|[Δ∆]|ins(?:ert(?:ions?|ed)?)?
        |dup(?:licat(?:ions?|ed|ing))?|repeats?)(?![a-z])|\bDD(?=32\b))
    |(?P<f>(?i:fs|frame-?shift))
    |(?P<o>(?:\bfor\b|instead\sof|rather\sthan)(?:\s(?:the|an?)\b)?)
    |(?P<word>(?:(?<![a-z])|(?<=del)|(?<=ins)|(?<=dup)|(?<=fs))(?i:{_WORDS})(?![a-ceg-z]|f[^s]|d[^eu]))
    |(?P<letters>[ACDEFGHIKLMNPQRSTUVWXY*]+(?![a-ceg-z])|(?<![A-Za-z])[acgtu]+(?=\s?-*>)
        |(?<=>)[acgtu]+\b)
    |(?P<t>\s?(?:-*>|→|–>|&gt;|-to-)\s?|\s(?:to|by|with)\s(?:an?\s)?(?:premature\s)?)
    |(?P<c>\s(?:codon|residue)\b)
    |(?P<e>\s?alleles?\s(?:of|at)\s(?:the\s)?)
    |(?P<i>\s(?:substitution|transition|transversion|mutation|polymorphism)\b)
    |(?P<y>\s?(?i:in[ -]?frame|tandem|gene)\b)
    |(?P<h>\s(?:and|to|through)\s(?=-?\d))
    |(?P<q>\sof\s(?:the\s|an?\s)?)
    |(?P<z>(?i:rs[1-9]\d{{2,9}})(?![A-Za-z\d]))
    |(?P<other>[^\W_]+|.)
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)
# Letters of tokens, beside the names of the groups: numbers "d", "m" and "n" of one, two, and more
# digits, "M" 32, "s" and "N" with a sign or an intron, "r" others; kinds "k", long ones "K", "R"
# repeats, "E" verbs; "w" words of amino acids and bases, "T" a stop; "a" one letter of an amino
# acid, "A" several; "g" one base, "D" two, "G" more; "u" other words, "~" plain ones.
_ONE, _SOME, _SEVERAL, _AT = "[agwT]", "[gDG]", "[DG]", "[dmMnrsN]"
_WORD = r"[wT]c?(?: ?\([agADG]\))?"
_PLACE = rf"i?p\(?{_AT}(?:h{_AT})?\)?"
_SHIFT = rf"f(?: ?{_ONE}?{_AT})?"
_SHAPES = [
    rf"z|v ?{_AT} ?\(?{_SOME}[t/]{_SOME}\)?",
    rf"v ?{_AT} ?(?:[kKb] ?\.?{_SOME}?){{1,2}}(?:\({_SEVERAL}\))?(?:\({_AT}\))?",
    rf"v?{_ONE}{_AT}(?:_{_ONE}{_AT})+ ?[kKb]{{1,2}}[agADGw]?|v{_ONE}{_AT}_{_ONE}{_AT}",
    rf"v[([]?{_ONE} ?{_AT}(?: ?{_ONE}?{_SHIFT}|t?{_ONE}(?:/{_ONE})?| ?k[agADG]?|=)?[)\]]?",
    rf"[ag][mn][ag](?:/[ag]|{_SHIFT})?|[nm][ag]/[ag]|(?:[ag][mnN]|w{_AT})(?:{_SHIFT}|k)",
    rf"w[ -]?{_AT}[ -]?t? ?[wT](?:{_SHIFT})?|k[ag]n|kM(?: K)?",
    rf"{_AT}_?{_AT}?[ ,]*\(?{_SOME}t{_SOME}\)?|{_AT}_?{_AT}? ?\(?{_SOME}/{_SOME}\)?",
    r"g[nN]t?g|nD|ad(?:\.d)?[ag]m[ag]|[sN][ ,]* ?\(?g/g\)?|N ?[gD]",
    rf"{_AT} ?[kb] ?\(?[gADG]\)?(?:\({_AT}\))?|{_AT}k{_AT}|k(?:{_SEVERAL}|l)|[kb] l",
    rf"[gaDG]t[gaDG]{_PLACE}|\({_SOME}t{_SOME}\){_PLACE}",
    rf"{_WORD} ?[to] ?{_WORD}(?:{_PLACE})?|Tc?{_PLACE}|g[ep][sN]",
    rf"p{_AT}[, ]*\(?(?:{_SOME}[t/]{_SOME}|{_WORD}[t/]{_WORD})\)?|p{_AT}{_SOME}? [Kb]",
    rf"l(?:[ -]?[ygDGw])*(?:[ -]|\({_SEVERAL}\))*[kKb](?:{_PLACE})?",
    rf"[kKb]q(?:l|[DGw]c?|\({_SEVERAL}\){_AT}?{_SEVERAL}?)(?:{_PLACE})?|[kKb](?:qg)?{_PLACE}",
    rf"[gDGw] ?[Kb]{_PLACE}|[wDG] ?[Kb]|K ?{_SEVERAL}|\({_SEVERAL}\) ?K",
    rf"{_SEVERAL} ?R|(?:\({_SEVERAL}\)[dmnx])+{_SEVERAL}?(?: R)?",
]
_VARIANT = re.compile(
    rf"(?:(?=p|ND|[sN] ?\(?{_SOME}[t/])|(?<![agADGwTdmMnrsNu_]))"
    rf"(?:{'|'.join(_SHAPES)})(?![agADGwTdmMnrsNuf])"
)
_BEFORE = re.compile(r"\s*(?:(?:at|of|in)\s)?(?:the\s)?")
# Cell lines, a mouse strain, and the proteins S100A and S100B.
_OTHERS = re.compile(r"S100[ABPZG]|T47D|T98G|C33A|H295R|R26R|U2OS")
_READ = str.maketrans("dmMrsNKRETwagADG", "nnnnnnkkkrrrrrrr")  # in less detail
_IS_READ = frozenset("vlnbkfo/_r")
_KINDS = {"de": "DEL", "Δ": "DEL", "δ": "DEL", "in": "INS", "du": "DUP", "re": "DUP"}
_ROMAN = ["", "I", "II", "III", "IV", "V"]
_PLAIN: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"&gt;|\s?(?:-+>|→|–>)\s?"), ">"),
    (re.compile(r"[‐‑–−]"), "-"),
    (re.compile(r"\b(?:a|single)[ -](?=base|nucleotide)"), "1 "),
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"(?:Δ|\bdelta\s?|\bDD)(\d+)\b", re.I), r"del \1 bp"),  # CCR5 Δ32
    (re.compile(r"(\d)\s(?:to|through)\s(?:nt\s)?(-?\d+)"), r"\1_\2"),
    (
        re.compile(r"(?<!\d)(-?)(\d+)(?:\sand\s|/)(\d+)"),
        lambda m: f"{m[1]}{m[2]}_{m[1]}{m[3]}" if int(m[3]) == int(m[2]) + 1 else m[0],
    ),
    (re.compile(r"(?:\(|^)-([ACGT]+)\b"), r"del \1"),
    (re.compile(r"\(([ACGT]{2,})\)n"), r"repeat \1"),
    (re.compile(r"IVS-?(IV|V|I{1,3})(?=\s?[-+])"), lambda m: f"IVS{_ROMAN.index(m[1])}"),
    (
        re.compile(rf"\b({_COUNT})(?=[ -](?:base|bp|nucleotide|amino|additional))"),
        lambda m: str(_NUMBERS.index(m[0]) + 1),
    ),
    (re.compile("additional |^H[1-4](?:[.]\\d)?(?=[A-Z]\\d)"), ""),  # H3K27M
    (re.compile(r"(?<=[A-Za-z])-(\d+)-(?=[A-Za-z])"), r"\1"),  # Val-600-Glu
    (re.compile(r"([A-Z][a-z]{0,2})(\d+)="), r"\1\2\1"),
]
_CUE = re.compile(
    r"(?:position|nucleotide|(codon|\bCD\)?)|residue|acid|\bnt|\bat)s?[\s:]*\(?$", re.I
)
_RANGE = re.compile(r"(\d+)-(\d+)")
_LONGEST_MENTION = 200  # characters
_NEAR = 40
_LONG = 1000  # proteins have fewer amino acids
_LONGEST = 110_000  # and messages fewer bases
_SHORT = 100  # numbers of bases are rarely lower
_MITOCHONDRIA = re.compile(r"mitochondrial\s?(?:\n|DNA|genom|t?RNA|gene|mutat)|mtDNA|\btRNA", re.I)
_CYTOGENETIC = re.compile(r"\d[pq][\d)]|\d[pq]\b|\([pq]\d")
_SHIFTED = 5  # codons by which numbers differ that begin elsewhere
# Genes whose changed amino acids, or bases with low numbers, are named often.
_GENES = (
    r"(?:(?P<protein>[KNH]-?RAS|SNCA|(?:alpha-?)?synuclein|SOD1|APP|EGFR|CTNNB1|catenin|TTR)"
    r"|MTHFR|CYP\w{3,4}|CCND1|eNOS|NOS3|BDNF|TNF|TNF-alpha)"
)
_GENE_BEFORE = re.compile(rf"\b{_GENES}\W+(?:[a-z]\w*\W+){{0,2}}$")
_GENE_BEHIND = re.compile(rf"\W?(?:of\s|in\s)?{_GENES}\b")
_OF_PROTEIN_OR_BASES = re.compile(
    r"\b(?:codons?\b|residues?\b|amino[ -]acids?\b|p\.[A-Z]|(?P<bases>nucleotides?\b|SNPs?\b"
    r"|promoter\b|polymorphi|genotyp|transitions?\b|transversions?\b|UTR\b|introns?\b|[cgm]\.\d))",
    re.I,
)
_CHANGE = re.compile(r"(?<![A-Za-z\d.])[A-Z](\d{1,5})[A-Z*](?![A-Za-z\d])")
_REPEATS = ("rn", "nrk", "nkr")
_LENGTH_BEHIND = re.compile(r"(?:dup|ins)\s?\d|del\d{1,2}\b", re.I)
RS_NUMBER = re.compile(r"(?<![A-Za-z\d])(?P<rs>rs[1-9][0-9]{0,9})(?!\d)", re.I)


def find_variants(text: str) -> list[tuple[int, int]]:
    """Find the variants that are written in ways that nothing else has, as (start, end)."""
    tokens = list(_TOKENS.finditer(text))
    found = []
    for match in _VARIANT.finditer("".join(map(_letter, tokens))):
        start, end = tokens[match.start()].start(), tokens[match.end() - 1].end()
        if before := _BEFORE.match(text, start):
            start = before.end()
        while text[end - 1] in " ." or text[end - 1] in ")]" and not _is_whole(text[start:end]):
            end -= 1
        if not _OTHERS.fullmatch(text, start, end):
            found.append((start, end))
    return found


def _is_whole(text: str) -> bool:
    return sum(map(text.count, "([")) >= sum(map(text.count, ")]"))


def _letter(token: re.Match[str]) -> str:
    group, text = str(token.lastgroup), token[0]
    match group:
        case "plain":
            return "~" if text[0].isspace() else "u"
        case "gap":
            return " "
        case "letters" if set(text.upper()) <= set("ACGTU"):
            return "gDG"[min(len(text), 3) - 1]
        case "letters":
            return "A" if len(text) > 1 else "a"
        case "at" if text[0] in "IE":
            return "N"
        case "at" if text[0] in "-+*" and sum(map(str.isdigit, text)) > 1:
            return "N" if sum(map(str.isdigit, text)) > 2 else "s"
        case "at":
            short = "M" if text == "32" else "dmn"[min(len(text), 3) - 1]
            return short if text.isdigit() else "r"
        case "kind":
            long = "R" if text[0] in "rR" else "E" if text[-2:] == "ed" else "K"
            return long if len(text) > 5 else "k"
        case "word":
            return "T" if _ACIDS.get(text.lower()) == "X" else "w"
        case "other":
            return text if text in " ()[],.:;-=/_" else " " if text.isspace() else "u"
    return group


def read_variant(text: str, start: int = 0, end: int | None = None) -> Variant | None:
    """Read the variant that text[start:end] names.

    Whether "G12C" is of a gene or of its protein is for the rest of the text to say.

    RETURNS (Variant | None): None: it says of no change of a sequence, or only an rs number.
    """
    end = len(text) if end is None else end
    mention = RS_NUMBER.sub("", text[start : min(end, start + 2 * _LONGEST_MENTION)])
    for pattern, plain in _PLAIN:
        mention = pattern.sub(plain, mention)
    if len(mention) > _LONGEST_MENTION or _CYTOGENETIC.search(mention):
        return None
    read = [(t, _letter(t).translate(_READ)) for t in _TOKENS.finditer(mention)]
    tokens = [token for token, letter in read if letter in _IS_READ]
    shape = "".join(letter for _, letter in read if letter in _IS_READ)  # "c.35delG": "vnkr"
    letters, level = _residues(mention, tokens)
    kind = _kind_of(tokens, shape, letters)
    at, is_codon, numbers = _place_of(mention, tokens)
    first, second, number = [*letters, ""][0], "".join(letters[1:2]), "".join(numbers[:1])
    if level != "p" and kind != "FS":
        level = next((t[0][0] for t in tokens if t.lastgroup == "v"), level)
    if kind == "SUB" and (shape.count("rnr") > 1 or shape.endswith("rnrn")):
        return None  # it names several, or "H1N1"
    if kind == "SUB" and not level and "rnr" in shape and ">" not in mention:
        level = _level_of(text, start, end, at)
    elif not level:
        is_protein = kind == "FS" or (kind in ("DEL", "INS") and shape.startswith("rn"))
        is_protein |= is_codon and "l" not in shape and not letters or "amino" in mention
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
        lengths = [_length(t[0]) for t in tokens if t.lastgroup == "l"]
        length = [*lengths, number][0]
        first = ",".join(letters) if kind == "DUP" else first  # "CAG and GGC repeat"
        length = "" if at and length == "1" else length
        count = number if first else ""
        new = f"{first}({count})" if kind == "INS" and count else first or length
        found = Variant(level, kind, at, "", new, count if kind == "DUP" else "")
    if is_codon and found.level == "c" and kind != "Allele" and at.isdigit():
        found = replace(found, at=f"CODON{at}")
    found = replace(found, is_said="v" in shape)
    return found if kind and (found.at or found.new) else None


def _residues(mention: str, tokens: Sequence[re.Match[str]]) -> tuple[list[str], str]:
    """Bases and amino acids that are named, and of what they are; "": of either."""
    letters: list[str] = []
    level = before = ""
    for token in tokens:
        group, word = token.lastgroup, token[0].lower()
        # "adenine (A)"
        is_repeated = before == "word" and mention[token.start() - 1] == "("
        if group == "word" and not is_repeated:
            letters.append(_ACIDS.get(word) or _BASES[word])
            found = "p" if word in _ACIDS else "c"
        elif group == "letters" and not is_repeated:
            letters.append(word.upper().replace("*", "X"))
            found = "" if set(letters[-1]) <= set("ACGTU") else "p"
        else:
            found = ""
        level = level or (found if len(letters) < 3 else "")
        before = str(group)
    return letters, level


def _place_of(mention: str, tokens: Sequence[re.Match[str]]) -> tuple[str, bool, list[str]]:
    """The place of a change, whether that is the number of a codon, and the other numbers."""
    numbers = [t for t in tokens if t.lastgroup == "at"]
    cues = [_CUE.search(mention, 0, t.start()) for t in numbers]
    chosen = next((i for i, cue in enumerate(cues) if cue), 0)
    texts = [re.sub(r"[\s:,]", "", t[0]) for t in numbers]
    texts = [t.lstrip("+") if cue else t for t, cue in zip(texts, cues, strict=True)]
    at = texts.pop(chosen) if texts else ""
    if ends := _RANGE.fullmatch(at):
        first, last = ends.groups()
        if "del" in mention and "." not in mention:  # 2238-9delAG
            last = first[: -len(last)] + last
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
    before = text[max(0, start - _NEAR) : start]
    near = f"{before}\n{text[end : end + _NEAR]}"
    if not at.isdigit():
        return "c"
    if gene := _GENE_BEFORE.search(before) or _GENE_BEHIND.match(text, end):
        return "p" if gene["protein"] else "c"
    if _MITOCHONDRIA.search(near):
        return "m"
    if int(at) >= _LONG:
        return "g" if int(at) >= _LONGEST else "c"
    if found := _OF_PROTEIN_OR_BASES.search(near):
        return "c" if found["bases"] else "p"
    bases: set[int] = set()
    codons: set[int] = set()
    for change in _CHANGE.finditer(text):
        may_be_bases = {change[0][0], change[0][-1]} <= set("ACGT")
        (bases if may_be_bases else codons).add(int(change[1]))
    # What is said of a base is often said of its codon too: "C677T (A222V)".
    if codons and not any(abs(codon - n / 3) <= _SHIFTED for codon in codons for n in bases):
        return "p"
    return "c" if int(at) >= _SHORT else ""
