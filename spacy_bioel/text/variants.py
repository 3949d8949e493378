"""Sequence variants as texts write them: what they change, their rs number, and their gene."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from spacy_bioel.text.hgvs import THREE_LETTERS, Variant
from spacy_bioel.types import GENE, Link

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
_OFFSET = r"(?:\s?[-+]\s?\d+)?"
_TOKENS = re.compile(
    rf"""(?P<level>(?<![A-Za-z])[cgmnrp]\.)
    |(?P<skip>(?i:exons?|introns?)\s(?:\d+|[IVX]+\b)|IVS\s?\d++(?!\s?[-+])|\b(?:CD|SNPs?|c?DNA|m?RNA|UTR)\b)
    |(?P<length>\d[\d,.]*[\s-]?(?i:[kM]?(?:bp|(?<=[kM])b|base(?:[ -]?pair)?
        |nucleotide|nt|amino[ ]acid)s?\b))
    |(?P<at>(?:(?:IVS|Ex)\s?\d++[:,]?\s?(?:[-+]\s)?)?[-+*]?\d+{_OFFSET}(?:\s?_\s?[-+*]?\d+{_OFFSET})?)
    |(?P<both>(?i:ins\w{{0,6}}\s?[/-]\s?del\w{{0,5}}|del\w{{0,5}}\s?[/-]\s?ins\w{{0,6}}|delins|indels?)(?![a-z])|I/D)
    |(?P<kind>(?i:del(?:etions?|eted|ta)?|Δ|ins(?:ert(?:ions?|ed)?)?
        |dup(?:licat(?:ions?|ed|ing))?|repeats?)(?![a-z]))
    |(?P<shift>(?i:fs|frame-?shift))
    |(?P<reversed>\bfor\b|instead\ of|rather\ than)
    |(?P<or>/)|(?P<joined>_)
    |(?P<word>(?:(?<![a-z])|(?<=del)|(?<=ins)|(?<=dup))(?i:{_WORDS})(?![a-ceg-z]|f[^s]|d[^eu]))
    |(?P<letters>[ACDEFGHIKLMNPQRSTUVWXY*]+(?![a-ceg-z]))
    """,
    re.VERBOSE | re.ASCII,
)
_KINDS = {"de": "DEL", "Δ": "DEL", "δ": "DEL", "in": "INS", "du": "DUP", "re": "DUP"}
_ROMAN = ["", "I", "II", "III", "IV", "V"]
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
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
_RS = re.compile(r"(?<![A-Za-z\d])(?P<rs>rs[1-9][0-9]{0,9})(?!\d)", re.I)
_RS_BEHIND = re.compile(  # "V600E mutation (rs113488022)"
    rf"(?:\s?[(\[;:=]|\s(?:(?!and\b|or\b)\w{{2,15}}\s){{1,2}}\()\s?(?:dbSNP:?\s?)?{_RS.pattern}",
    re.I,
)
_RS_BEFORE = re.compile(rf"{_RS.pattern}\s?[(\[:;=]\s?$", re.I)
_BESIDE = 15  # characters
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z(])")


def read_variant(text: str, start: int = 0, end: int | None = None) -> Variant | None:
    """Read the variant that text[start:end] names.

    Whether "G12C" is of a gene or of its protein is for the rest of the text to say.

    RETURNS (Variant | None): None: it says of no change of a sequence, or only an rs number.
    """
    end = len(text) if end is None else end
    mention = _RS.sub("", text[start : min(end, start + 2 * _LONGEST_MENTION)])
    for pattern, plain in _PLAIN:
        mention = pattern.sub(plain, mention)
    if len(mention) > _LONGEST_MENTION or _CYTOGENETIC.search(mention):
        return None
    tokens = [t for t in _TOKENS.finditer(mention) if t.lastgroup != "skip"]
    shape = "".join(_SHAPES[str(t.lastgroup)] for t in tokens)  # "c.35delG": "vnkr"
    letters, level = _residues(mention, tokens)
    kind = _kind_of(tokens, shape, letters)
    at, is_codon, numbers = _place_of(mention, tokens)
    first, second, number = [*letters, ""][0], "".join(letters[1:2]), "".join(numbers[:1])
    if level != "p" and kind != "FS":
        level = next((t[0][0] for t in tokens if t.lastgroup == "level"), level)
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
        lengths = [_length(t[0]) for t in tokens if t.lastgroup == "length"]
        length = [*lengths, number][0]
        first = ",".join(letters) if kind == "DUP" else first  # "CAG and GGC repeat"
        length = "" if at and length == "1" else length
        count = number if first else ""
        new = f"{first}({count})" if kind == "INS" and count else first or length
        found = Variant(level, kind, at, "", new, count if kind == "DUP" else "")
    if is_codon and found.level == "c" and kind != "Allele" and at.isdigit():
        found = replace(found, at=f"CODON{at}")
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
            letters.append(token[0].replace("*", "X"))
            found = "" if set(token[0]) <= set("ACGTU") else "p"
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


def rs_numbers(text: str, places: Sequence[tuple[int, int]]) -> list[str]:
    """The number in dbSNP, "rs113488022", of each variant of a document; "": the text has none.

    It is in the mention, beside it ("V600E (rs113488022)"), or it is that of another mention of
    the same change.
    """
    numbers = [_own_number(text, *place) for place in places]
    changes = [read_variant(text, *place) for place in places] if any(numbers) else []
    known = {v: rs for v, rs in zip(changes, numbers, strict=False) if v and v.at and rs}
    if not known:
        return numbers
    return [rs or (known.get(v, "") if v else "") for v, rs in zip(changes, numbers, strict=True)]


def _own_number(text: str, start: int, end: int) -> str:
    places = (
        _RS.search(text, start, end),
        _RS_BEHIND.match(text, end),
        _RS_BEFORE.search(text[max(0, start - _NEAR) : start]),
    )
    return next((place["rs"].lower() for place in places if place), "")


def gene_of(text: str, start: int, end: int, links: Sequence[Link]) -> str | None:
    """The id of the gene that a variant belongs to, of the genes that the text links.

    It is the one right before the variant, else right behind it; else, of the genes of the
    sentence, or without any of the document, the one that the document names most often.
    """
    genes = [x for x in links if x.label == GENE and x.ids]
    if not genes:
        return None
    before = [x for x in genes if 0 <= start - x.end <= _BESIDE]
    behind = [x for x in genes if 0 <= x.start - end <= _BESIDE]
    if before or behind:
        nearest = max(before, key=lambda x: x.end) if before else min(behind, key=lambda x: x.start)
        return nearest.ids[0]
    first = max((m.end() for m in _SENTENCE_END.finditer(text, 0, start)), default=0)
    after = _SENTENCE_END.search(text, end)
    last = after.start() if after else len(text)
    of_sentence = [x for x in genes if first <= x.start and x.end <= last]
    counts = Counter(x.ids[0] for x in genes)
    return max((x.ids[0] for x in of_sentence or genes), key=lambda id: counts[id])
