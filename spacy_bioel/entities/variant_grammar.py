r"""A grammar that finds sequence variants in texts and parses the change that each describes.

1. A text is split into tokens of the kinds in `_TOKEN_KINDS`, each represented by a letter:
   "c.35delG" becomes "vmkg": level, number, kind of change, base.
2. Letter sequences that match one of `VARIANT_FORMS` are variants (`find_variants`).
3. The tokens of a mention, found by this grammar or another detector, are parsed as a change
   (`read_variant`), after `REWRITES` has unified different ways of writing it.

To support another way of writing variants, add a row to `VARIANT_FORMS` with an example and its
reading. If the example is parsed wrongly, add a row to `REWRITES` too. The tests run all examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from spacy_bioel.entities.variant_notation import (
    AMINO_ACID_OF_CODON,
    AMINO_ACIDS,
    BASES,
    Variant,
    level_in_text,
)

_RESIDUE_NAMES = "|".join(sorted([*AMINO_ACIDS, *BASES], key=len, reverse=True)).replace(" ", r"\s")
_NUMERALS_IN_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
_NUMERAL = "|".join(_NUMERALS_IN_WORDS)
_OFFSET = r"(?:\s?[-+]\s?\d{1,2}(?!\d)|[-+]\s?\d+)?"
_SITE = r"(?:amino[ -]acids?|nucleotides?|nts?|codons?|CD|residues?|positions?|bases?)"
_CHROMOSOME = r"\b(?:[Cc]hr(?:\d\d?|[XYM]):\s?(?:[gm]\.)?|(?<![\w.:-])(?:\d\d?|[XY]):(?=\d{6}))"
# Lower-case words that may be part of a variant; any run of other words is one token.
_VARIANT_WORD = (
    rf"(?:{_RESIDUE_NAMES}|{_NUMERAL}|del|ins|dup|repeat|indel|frame|fs|rather|allele|exon|intron"
    r"|codon|nucleotide|nts?\b|amino|residue|position|base|substitution|transition|transversion"
    r"|mutation|polymorphism|tandem|gene\b|in[ -]?frame)"
)
_VARIANT_WORDS = (
    rf"(?:{_VARIANT_WORD}|(?:for|to|by|with|of|at|the|in|between|and|through)\s"
    rf"(?:(?:the|an?|premature)\s){{0,3}}+(?:[^a-z]|{_VARIANT_WORD}))"
)
# Token kinds: name, letter ("": chosen by `_letter_of`) and pattern. The first match wins.
_TOKEN_KINDS = (
    ("plain", "",  # words that are not part of variants
     rf"\s?(?!{_VARIANT_WORDS})[a-z]{{2,}}\b"
     rf"(?:[,;]?\s(?!{_VARIANT_WORDS})(?:[a-z]{{2,}}|a)\b)*+"),
    ("gap", " ", r"[ ](?=[ABD-Z0-9(])"),
    ("level", "v",
     rf"(?<![A-Za-z])[cgmnrp]\.|{_CHROMOSOME}(?=\d)"),
    ("site", "p",  # "at codon " in "at codon 12"
     rf"\s?(?:\b(?:at|of|in|between)\s)?(?:the\s)?\b{_SITE}(?:\s{_SITE})?[\s:]?(?:\(CD\)\s?)?"
     r"(?=\(?[-+*]?\d)|\sat\s(?:the\s)?(?=-\d\d|\d{3})"),
    ("region", "x", r"(?i:exons?|introns?)\s(?:\d+|[IVX]+\b)|IVS\s?\d++(?!\s?[-+])"
     r"|\b(?:CD|SNPs?|c?DNA|m?RNA|UTR)\b|(?<=\))n\b"),
    ("length", "l",  # "22-bp", "four base pair"
     rf"(?:\d[\d,.]{{0,20}}+|\b(?:{_NUMERAL})\b)[\s-]?(?i:[kM]?(?:bp|(?<=[kM])b|base(?:[ -]?pair)?"
     r"|nucleotide|nt|amino[ ]acid)s?\b)"),
    ("number", "",  # "600", "-308", "88+2", "IVS2+1", "76_77"
     r"(?:(?:IVS[ -]?(?:\d++|IV|V|I{1,3})|Ex\s?\d++)[:,]?\s?(?:[-+]\s)?)?"
     rf"[-+*]?\d+{_OFFSET}(?:\s?_\s?[-+*]?\d+{_OFFSET})?"),
    ("indel", "b",
     r"(?i:ins\w{0,6}\s?[/-]\s?del\w{0,5}|del\w{0,5}\s?[/-]\s?ins\w{0,6}|delins|indels?)(?![a-z])"
     r"|I/D"),
    ("change", "", r"(?i:del(?:etions?|eted|ta[ -]?)?|[Δ∆]|ins(?:ert(?:ions?|ed)?)?"
     r"|dup(?:licat(?:ions?|ed|ing))?|repeats?)(?![a-z])|\bDD(?=\d\d\b)"),
    ("frameshift", "f", r"(?i:fs|frame-?shift)"),
    ("instead", "o", r"(?:\bfor\b|instead\sof|rather\sthan)(?:\s(?:the|an?)\b)?"),
    ("residue", "",  # "Val", "guanine", "stop"
     r"(?:(?<![a-z])|(?<=del)|(?<=ins)|(?<=dup)|(?<=fs))"
     rf"(?i:{_RESIDUE_NAMES})(?![a-ceg-z]|f[^s]|d[^eu])"),
    ("letters", "",
     r"[ACDEFGHIKLMNPQRSTUVWXY*]+(?![a-ceg-z])|(?<![A-Za-z])[acgtu]+(?=\s?-{0,9}>)|(?<=>)[acgtu]+\b"),
    ("arrow", "t",
     r"\s?(?:-{0,9}>|→|–>|&gt;|-to-)\s?|\s(?:to|by|with)\s(?:an?\s)?(?:premature\s)?"),
    ("codon", "c", r"\s(?:codon|residue)\b"),
    ("allele", "e", r"\s?alleles?\s(?:of|at)\s(?:the\s)?"),
    ("exchange", "i", r"\s(?:substitution|transition|transversion|mutation|polymorphism)\b"),
    ("qualifier", "y", r"\s?(?i:in[ -]?frame|tandem|gene)\b"),
    ("through", "h", r"\s(?:and|to|through)\s(?=-?\d)"),
    ("of", "q", r"\sof\s(?:the\s|an?\s)?"),
    ("rs_number", "z", r"(?i:rs[1-9]\d{2,9})(?![A-Za-z\d])"),
    ("other", "", r"[^\W_]+|."),
)  # fmt: skip
_DELTA = re.compile(r"(?:[Δ∆]|(?i:delta)|DD)(?=\d)")  # some files spell "Δ" as "DD"
_VARIANT_TOKENS = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, _, pattern in _TOKEN_KINDS), re.ASCII | re.DOTALL
)
_LETTER_OF_KIND = {name: letter for name, letter, _ in _TOKEN_KINDS}
# Character classes for the letters of `_letter_of`: a number, a base or amino acid, one or more
# bases, and several bases.
_NUM, _ONE, _SOME, _BASES = "[dmnrsN]", "[agwT]", "[gDG]", "[DG]"
_NAME = r"[wT]c?(?: ?\([agADG]\))?"  # "glutamine codon (Q)"
_AT = rf"i?p\(?{_NUM}(?:h{_NUM})?\)?"  # " substitution at codons 12 and 13"
_SHIFT = rf"f(?: ?{_ONE}?{_NUM})?"  # "fsX12"


class VariantForm(NamedTuple):
    """A way to write a variant.

    letters (str): Pattern that the letters of the variant's tokens match.
    reading (str): The result of `read_variant` for the example: the HGVS form, or else the
        component form; "" for dbSNP numbers.
    """

    name: str
    letters: str
    example: str
    reading: str


# Forms are tried in this order; the first match wins.
VARIANT_FORMS = tuple(
    VariantForm(*row)
    for row in (
        ("dbSNP number", "z", "rs6025", ""),
        ("bases", rf"v ?{_NUM} ?\(?{_SOME}[t/]{_SOME}\)?", "c.1799T>A", "c.1799T>A"),
        ("coordinates", rf"v{_NUM}k", "chr13:32340301del", "g.32340301del"),
        ("deletion, insertion, duplication with level",
         rf"v ?{_NUM} ?(?:[kKb] ?\.?{_SOME}?){{1,2}}(?:\({_BASES}\))?(?:\({_NUM}\))?",
         "c.35delG", "c.35del"),
        ("range of amino acids", rf"v?{_ONE}{_NUM}(?:_{_ONE}{_NUM})+ ?[kKb]{{1,2}}[agADGw]?",
         "E746_A750del", "p.Glu746_Ala750del"),
        ("range with level", rf"v{_ONE}{_NUM}_{_ONE}{_NUM}", "p.A5_S6", "p.Ala5Ser"),
        ("amino acid with level",
         rf"v[([]?{_ONE} ?{_NUM}(?: ?{_ONE}?{_SHIFT}|t?{_ONE}(?:/{_ONE})?| ?k[agADG]?|=)?[)\]]?",
         "p.(Val600Glu)", "p.Val600Glu"),
        ("letters", rf"[ag][mn][ag](?:/[ag]|{_SHIFT})?", "V600E/K", "p.Val600Glu^Lys"),
        ("letters after number", "[nm][ag]/[ag]", "600V/E", "p.Val600Glu"),
        ("frameshift", rf"(?:[ag][mnN]|w{_NUM})(?:{_SHIFT}|k)", "R97fs", "p.Arg97fs"),
        ("names", rf"w[ -]?{_NUM}[ -]?t? ?[wT](?:{_SHIFT})?", "Val66Met", "p.Val66Met"),
        ("deleted amino acid", "k[ag]n", "ΔF508", "p.Phe508del"),
        ("deleted bases", "jm(?!-)(?: K)?", "Delta32", "c|DEL||32"),
        ("arrow", rf"{_NUM}_?{_NUM}?[ ,]*\(?{_SOME}t{_SOME}\)?", "1799T>A", "c.1799T>A"),
        ("slash", rf"{_NUM}_?{_NUM}? ?\(?{_SOME}/{_SOME}\)?", "-592A/C", "c.-592A>C"),
        ("bases around number", "g[nN]t?g", "C677T", "c.677C>T"),
        ("genotype", "nD", "677TT", "c|Allele|TT|677"),
        ("histone", r"ad(?:\.d)?[ag]m[ag]", "H3K27M", "p.Lys27Met"),
        ("slash after sign", r"[sN][ ,]* ?\(?g/g\)?", "+49 A/G", "c.+49A>G"),
        ("allele after sign", "N ?[gD]", "-308A", "c|Allele|A|-308"),
        ("deletion, insertion, duplication", rf"{_NUM} ?[kb] ?\(?[gADG]\)?(?:\({_NUM}\))?",
         "185delAG", "c|DEL|185|AG"),
        ("length after change", rf"{_NUM}k{_NUM}", "1494del6", "c|DEL|1494|6"),
        ("change without position", rf"k(?:{_BASES}|l)", "dup24bp", "c|DUP||24|"),
        ("length after gap", "[kb] l", "del 6bp", "c|DEL||6"),
        ("arrow at position", rf"[gaDG]t[gaDG]{_AT}", "A>T at codon 12", "c|SUB|A|CODON12|T"),
        ("bracket at position", rf"\({_SOME}t{_SOME}\){_AT}", "(A>T) at nt 12", "c.12A>T"),
        ("name to name", rf"{_NAME} ?[to] ?{_NAME}(?:{_AT})?", "Ser>Leu", "p|SUB|S||L"),
        ("stop codon", rf"Tc?{_AT}", "stop codon at position 372", "p|Allele|X|372"),
        ("allele at position", "g[ep][sN]", "T allele at -31", "c|Allele|T|-31"),
        ("position first", rf"p{_NUM}[, ]*\(?(?:{_SOME}[t/]{_SOME}|{_NAME}[t/]{_NAME})\)?",
         "codon 282, CGG-->TGG", "p.Arg282Trp"),
        ("change after position", rf"p{_NUM}{_SOME}? [Kb]", "nt 35G deletion", "c|DEL|35|G"),
        ("length first", rf"l(?:[ -]?[ygDGw])*(?:[ -]|\({_BASES}\))*[kKb](?:{_AT})?",
         "12-bp deletion", "c|DEL||12"),
        ("change of a length", rf"[kKb]q(?:l|[DGw]c?|\({_BASES}\){_NUM}?{_BASES}?)(?:{_AT})?",
         "deletion of 6 bp at position 1494", "c|DEL|1494|6"),
        ("change of a base", rf"[kKb](?:qg)?{_AT}", "insertion of T at nt 76", "c|INS|76|T"),
        ("base, change", rf"[gDGw] ?[Kb]{_AT}", "A deletion in codon 242", "c|DEL|CODON242|A"),
        ("bases, change", "[wDG] ?[Kb]", "AAG deletion", "c|DEL||AAG"),
        ("change, bases", rf"K ?{_BASES}", "duplication CAG", "c|DUP||CAG|"),
        ("bases in brackets", rf"\({_BASES}\) ?K", "(AAG) deletion", "c|DEL||AAG"),
        ("repeat", rf"{_BASES} ?R", "CAG repeat", "c|DUP||CAG|"),
        ("repeats in brackets", rf"(?:\({_BASES}\)[dmnx])+{_BASES}?(?: R)?",
         "(GT)21", "c|DUP||GT|21"),
    )
)  # fmt: skip
_VARIANT = re.compile(
    rf"(?:(?=p|ND|[sN] ?\(?{_SOME}[t/])|(?<![agADGwTdmnrsNu_]))"
    rf"(?:{'|'.join(form.letters for form in VARIANT_FORMS)})(?![agADGwTdmnrsNuf])"
)
_BEFORE_VARIANT = re.compile(r"\s*(?:(?:at|of|in)\s)?(?:the\s)?")
RS_NUMBER = re.compile(r"(?<![A-Za-z\d])(?P<rs>rs[1-9][0-9]{0,9})(?!\d)", re.I)


class Rewrite(NamedTuple):
    """A spelling to replace before parsing a mention, with a before-and-after example."""

    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]
    before: str
    after: str


_INTRONS = ["", "I", "II", "III", "IV", "V"]
# Rewrites are applied in this order.
REWRITES = tuple(
    Rewrite(re.compile(pattern, flags), replacement, before, after)
    for pattern, flags, replacement, before, after in (
        (_CHROMOSOME, 0, lambda match: "m." if "M" in match[0] else "g.",
         "7:140453136A>T", "g.140453136A>T"),
        (r"&gt;|\s?(?:(?<!-)-++>|→|–>)\s?", 0, ">", "C --> T", "C>T"),
        (r"[‐‑–−]", 0, "-", "−308", "-308"),
        (r"\b(?:a|single)[ -](?=base|nucleotide)", 0, "1 ", "a base", "1 base"),
        (r"(?<=\d),(?=\d{3}\b)", 0, "", "37,410", "37410"),
        (r"(?:Δ|\bdelta\s?|\bDD)(\d+)\b", re.I, r"del \1 bp", "Δ32", "del 32 bp"),
        (r"(\d)\s(?:to|through)\s(?:nt\s)?(-?\d+)", 0, r"\1_\2", "76 to nt 80", "76_80"),
        (r"(?:\(|^)-([ACGT]+)\b", 0, r"del \1", "-CTT", "del CTT"),
        (r"IVS-?(IV|V|I{1,3})(?=\s?[-+])", 0,
         lambda match: f"IVS{_INTRONS.index(match[1])}", "IVSII+1", "IVS2+1"),
        (rf"\b({_NUMERAL})(?=[ -](?:base|bp|nucleotide|amino|additional))", 0,
         lambda match: str(_NUMERALS_IN_WORDS.index(match[0]) + 1), "four bp", "4 bp"),
        (r"additional |^H[1-4](?:[.]\d)?(?=[A-Z]\d)", 0, "", "H3K27M", "K27M"),
        (r"(?<=[A-Za-z])-(\d+)-(?=[A-Za-z])", 0, r"\1", "Val-600-Glu", "Val600Glu"),
        (r"([A-Z][a-z]{0,2})(\d+)=", 0, r"\1\2\1", "Gln787=", "Gln787Gln"),
    )
)  # fmt: skip
_MAX_MENTION_LENGTH = 200
_CYTOGENETIC = re.compile(r"\d[pq][\d)]|\d[pq]\b|\([pq]\d")
_POSITION_CUE = re.compile(
    r"(?:position|nucleotide|(codon|\bCD\)?)|residue|acid|\bnt|\bat)s?[\s:]*\(?$", re.I
)
_HYPHENATED_RANGE = re.compile(r"(\d+)-(\d+)")
_KIND_OF_WORD = {"in": "INS", "du": "DUP", "re": "DUP"}  # all other words mean deletions
_REPEAT_SHAPES = ("rn", "nrk", "nkr")
_LENGTH_AFTER_CHANGE = re.compile(r"(?:dup|ins)\s?\d|del\d{1,2}\b", re.I)
# The parser uses fewer letters than the search ("n" for numbers, "k" for kinds of change, "r" for
# residues), and ignores all letters except `_READ_LETTERS`.
_SHAPE_LETTERS = str.maketrans("dmrsNKREjTwagADG", "nnnnnkkkkrrrrrrr")
_READ_LETTERS = frozenset("vlnbkfo/_r")


@lru_cache(maxsize=256)  # rules run again if the linker finds more names in a text
def find_variants(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each variant that is written in an unambiguous form."""
    tokens = list(_VARIANT_TOKENS.finditer(text))
    places = []
    for match in _VARIANT.finditer("".join(map(_letter_of, tokens))):
        start, end = tokens[match.start()].start(), tokens[match.end() - 1].end()
        if before := _BEFORE_VARIANT.match(text, start):
            start = before.end()
        while text[end - 1] in " ." or (
            text[end - 1] in ")]" and not _has_opening_brackets(text[start:end])
        ):
            end -= 1
        places.append((start, end))
    return places


def _has_opening_brackets(text: str) -> bool:
    return sum(map(text.count, "([")) >= sum(map(text.count, ")]"))


def _letter_of(token: re.Match[str]) -> str:
    kind, text = str(token.lastgroup), token[0]
    if letter := _LETTER_OF_KIND[kind]:
        return letter
    match kind:
        case "plain":
            return "~" if text[0].isspace() else "u"
        case "letters" if set(text.upper()) <= set("ACGTU"):  # one, two, or more bases
            return "gDG"[min(len(text), 3) - 1]
        case "letters":  # one or more amino acids
            return "A" if len(text) > 1 else "a"
        case "number" if text[0] in "IE":  # "IVS2+1", "Ex2+860"
            return "N"
        case "number" if text[0] in "-+*" and sum(map(str.isdigit, text)) > 1:
            return "N" if sum(map(str.isdigit, text)) > 2 else "s"
        case "number":  # one, two, or more digits; "r" for ranges and other numbers
            return "dmn"[min(len(text), 3) - 1] if text.isdigit() else "r"
        case "change" if _DELTA.match(token.string, token.start()):
            return "j"
        case "change":  # "repeats", "deleted", "deletion", "del"
            long = "R" if text[0] in "rR" else "E" if text[-2:] == "ed" else "K"
            return long if len(text) > 5 else "k"
        case "residue":
            return "T" if AMINO_ACIDS.get(text.lower()) == "X" else "w"
        case _:
            return text if text in " ()[],.:;-=/_" else " " if text.isspace() else "u"


def read_variant(text: str, start: int = 0, end: int | None = None) -> Variant | None:
    """Parse the change that a mention, text[start:end], describes.

    The rest of the text decides whether "G12C" is a change in a gene or in its protein.

    RETURNS (Variant | None): None if the mention describes no change, or is only an rs number.
    """
    end = len(text) if end is None else end
    mention = RS_NUMBER.sub("", text[start : min(end, start + 2 * _MAX_MENTION_LENGTH)])
    for rewrite in REWRITES:
        mention = rewrite.pattern.sub(rewrite.replacement, mention)
    if len(mention) > _MAX_MENTION_LENGTH or _CYTOGENETIC.search(mention):
        return None
    tokens: list[re.Match[str]] = []
    shape = ""  # "c.35delG": "vnkr"
    for token in _VARIANT_TOKENS.finditer(mention):
        letter = _letter_of(token).translate(_SHAPE_LETTERS)
        if letter in _READ_LETTERS:
            tokens.append(token)
            shape += letter
    residues, level = _residues(mention, tokens)
    kind = _kind_of_change(tokens, shape, residues)
    position, is_codon, numbers = _position(mention, tokens)
    if level != "p" and kind != "FS":
        level = next((t[0][0] for t in tokens if t.lastgroup == "level"), level)
    if kind == "SUB" and (shape.count("rnr") > 1 or shape.endswith("rnrn")):
        return None  # a list of variants, or a name such as "H1N1"
    if kind == "SUB" and not level and "rnr" in shape and ">" not in mention:
        level = level_in_text(text, start, end, position)
    elif not level:
        is_protein = kind == "FS" or (kind in ("DEL", "INS") and shape.startswith("rn"))
        is_protein |= is_codon and "l" not in shape and not residues or "amino" in mention
        level = "p" if is_protein else "c"
    if kind == "SUB":
        variant = _substitution(level, position, residues, shape, is_codon=is_codon)
    else:
        variant = _other_change(level, kind, position, residues, numbers, tokens, mention, shape)
    if is_codon and variant.level == "c" and kind != "Allele" and position.isdigit():
        variant = replace(variant, position=f"CODON{position}")
    if not kind or not (variant.position or variant.new):
        return None
    return replace(variant, has_level="v" in shape)


def _substitution(
    level: str, position: str, residues: Sequence[str], shape: str, *, is_codon: bool
) -> Variant:
    first, second = residues[0], residues[1]
    if (is_codon or "rnr" in shape) and level == "c" and len(first) == len(second) == 3:
        level = "p"
        first = AMINO_ACID_OF_CODON.get(first, "X")
        second = AMINO_ACID_OF_CODON.get(second, "X")
    elif "r/r" in shape:
        second = ",".join(residues[1:])
    old, new = (second, first) if "o" in shape else (first, second)
    return Variant(level, "SUB", position, old, new)


def _other_change(
    level: str,
    kind: str,
    position: str,
    residues: Sequence[str],
    numbers: Sequence[str],
    tokens: Sequence[re.Match[str]],
    mention: str,
    shape: str,
) -> Variant:
    first, second, third = [*residues[:3], "", "", ""][:3]
    number = numbers[0] if numbers else ""
    if kind == "FS":
        return Variant(level, kind, position, first, second if "rnrf" in shape else "", number)
    if "rn_rn" in shape:
        return Variant(level, kind, f"{position}_{number}", first + second, third)
    if (
        kind == "DUP" and shape in _REPEAT_SHAPES[: 3 if "repeat" in mention else 1]
    ):  # such as "(CAG)23"
        return Variant(level, kind, "", "", first, position)
    if shape == "kn" and _LENGTH_AFTER_CHANGE.match(mention):  # such as "del32"
        return Variant(level, kind, "", "", position)
    lengths = [_length(t[0]) for t in tokens if t.lastgroup == "length"]
    length = lengths[0] if lengths else number
    if position and length == "1":
        length = ""
    sequence = ",".join(residues) if kind == "DUP" else first  # "CAG and GGC repeat"
    count = number if sequence else ""
    new = f"{sequence}({count})" if kind == "INS" and count else sequence or length
    return Variant(level, kind, position, "", new, count if kind == "DUP" else "")


def _residues(mention: str, tokens: Sequence[re.Match[str]]) -> tuple[list[str], str]:
    """Return the bases or amino acids in a mention, and their level ("" if unclear)."""
    residues: list[str] = []
    level = previous_kind = ""
    for token in tokens:
        kind, word = token.lastgroup, token[0].lower()
        level_of_token = ""
        # "adenine (A)" is one base.
        is_repeated = previous_kind == "residue" and mention[token.start() - 1] == "("
        if kind == "residue" and not is_repeated:
            residues.append(AMINO_ACIDS.get(word) or BASES[word])
            level_of_token = "p" if word in AMINO_ACIDS else "c"
        elif kind == "letters" and not is_repeated:
            residues.append(word.upper().replace("*", "X"))
            level_of_token = "" if set(residues[-1]) <= set("ACGTU") else "p"
        if not level and len(residues) < 3:
            level = level_of_token
        previous_kind = str(kind)
    return residues, level


def _position(mention: str, tokens: Sequence[re.Match[str]]) -> tuple[str, bool, list[str]]:
    """Return a change's position, whether that is a codon number, and any other numbers."""
    numbers = [t for t in tokens if t.lastgroup == "number"]
    cues = [_POSITION_CUE.search(mention, 0, t.start()) for t in numbers]
    chosen = next((i for i, cue in enumerate(cues) if cue), 0)
    texts = []
    for number, cue in zip(numbers, cues, strict=True):
        text = re.sub(r"[\s:,]", "", number[0])
        texts.append(text.lstrip("+") if cue else text)
    position = texts.pop(chosen) if texts else ""
    if ends := _HYPHENATED_RANGE.fullmatch(position):
        first, last = ends.groups()
        if "del" in mention and "." not in mention:  # such as "2238-9delAG"
            last = first[: -len(last)] + last
        position = f"{first}_{last}" if int(last) > int(first) else position
    is_codon = any(cue and cue[1] for cue in cues[chosen : chosen + 1])
    return position, is_codon, [text.strip("*+-") for text in texts]


def _kind_of_change(tokens: Sequence[re.Match[str]], shape: str, residues: Sequence[str]) -> str:
    kinds = {_KIND_OF_WORD.get(t[0][:2].lower(), "DEL") for t in tokens if t.lastgroup == "change"}
    if "f" in shape:
        return "FS"
    if "b" in shape or {"INS", "DEL"} <= kinds:
        return "INDEL"
    if kinds:
        return min(kinds)
    if len(residues) > 1:
        return "SUB"
    if residues and "n" in shape:
        return "DUP" if len(residues[0]) > 1 and shape.endswith("rn") else "Allele"
    return ""


def _length(text: str) -> str:
    """Strip a length to its number: "22" for "22-bp", "650K" for "650-kbp"."""
    number = re.match(r"[\d.,]+", text)
    unit = re.search(r"[kM](?=b)", text, re.I)
    return (number[0].replace(",", "") if number else "") + (unit[0].upper() if unit else "")
