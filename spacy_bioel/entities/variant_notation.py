"""Parsed sequence variants, their notations, and the sequence type that a text refers to.

HGVS: https://hgvs-nomenclature.org. The component form (Wei et al. 2022,
https://doi.org/10.1093/bioinformatics/btac537), such as "p|SUB|V|600|E", can express more than
HGVS: "c|DEL||22" is a deletion of 22 bases at an unknown position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

THREE_LETTERS = {
    "A": "Ala", "R": "Arg", "N": "Asn", "D": "Asp", "C": "Cys", "Q": "Gln", "E": "Glu", "G": "Gly",
    "H": "His", "I": "Ile", "L": "Leu", "K": "Lys", "M": "Met", "F": "Phe", "P": "Pro", "S": "Ser",
    "T": "Thr", "W": "Trp", "Y": "Tyr", "V": "Val", "X": "Ter",
}  # fmt: skip
AMINO_ACIDS = {three.lower(): one for one, three in THREE_LETTERS.items()} | {
    "alanine": "A", "arginine": "R", "asparagine": "N", "aspartic acid": "D", "aspartate": "D",
    "cysteine": "C", "glutamine": "Q", "glutamic acid": "E", "glutamate": "E", "glycine": "G",
    "histidine": "H", "isoleucine": "I", "leucine": "L", "lysine": "K", "methionine": "M",
    "phenylalanine": "F", "proline": "P", "serine": "S", "threonine": "T", "tryptophan": "W",
    "tyrosine": "Y", "valine": "V", "stop": "X", "termination": "X", "term": "X", "nonsense": "X",
}  # fmt: skip
BASES = {
    "adenine": "A", "adenosine": "A", "cytosine": "C", "cytidine": "C", "guanine": "G",
    "guanosine": "G", "thymine": "T", "thymidine": "T", "uracil": "U", "uridine": "U",
}  # fmt: skip
AMINO_ACID_OF_CODON = dict(
    zip(
        (a + b + c for a in "TCAG" for b in "TCAG" for c in "TCAG"),
        "FFLLSSSSYYXXCCXWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
        strict=True,
    )
)
_HGVS_KINDS = {"DEL": "del", "DUP": "dup", "INS": "ins", "INDEL": "delins"}


@dataclass(frozen=True, slots=True)
class Variant:
    """A sequence variant, as far as a text describes it.

    level (str): The type of sequence: "c", "g", "m", "n", "r", or "p" for a protein.
    kind (str): "SUB", "DEL", "INS", "DUP", "INDEL", "FS", or "Allele" (one of several alleles).
    position (str): "600", "-308", "88+2", "IVS2+1", "76_77", "CODON26" or the like; "": unknown.
    old (str): The replaced bases or amino acids, in one-letter codes; for a range in a protein, its
        first and last amino acid.
    new (str): The replacement, with commas between several replacements; or the deleted,
        duplicated or inserted sequence, or its length.
    count (str): The number of repeats; or the position at which a frameshift ends.
    has_level (bool): Whether the text states the level. If not, the text may use an older numbering
        that counts from a different base.
    """

    level: str
    kind: str
    position: str = ""
    old: str = ""
    new: str = ""
    count: str = ""
    has_level: bool = field(default=True, compare=False)

    @property
    def component(self) -> str:
        """The component form, such as "p|SUB|V|600|E"."""
        parts = {
            "SUB": [self.old, self.position, self.new],
            "FS": [self.old, self.position, self.new, self.count],
            "DUP": [self.position, self.new, self.count],
            "Allele": [self.new, self.position],
        }
        return "|".join([self.level, self.kind, *parts.get(self.kind, [self.position, self.new])])

    @property
    def hgvs(self) -> str | None:
        """The HGVS form without a reference sequence; None if the text gives too few details."""
        is_placed = self.position and self.level and not self.position.startswith("CODON")
        if not is_placed or self.kind == "Allele":
            return None
        if self.kind in _HGVS_KINDS and self.level != "p" and not self.has_level:
            return None  # "185delAG" is c.68_69del in today's numbering
        change = _protein_change(self) if self.level == "p" else _base_change(self)
        return change and f"{self.level}.{change}"


def _protein_change(v: Variant) -> str | None:
    old, new = _three_letter_codes(v.old), _three_letter_codes(v.new)
    first, _, last = v.position.partition("_")
    if not first.lstrip("-").isdigit():
        return None
    if v.kind == "SUB":
        acids = ["=" if acid == v.old else _three_letter_codes(acid) for acid in v.new.split(",")]
        return f"{old}{first}{'^'.join(acids)}" if len(v.old) == 1 and new else None
    if v.kind == "FS":
        end = f"{new}fsTer{v.count}" if new and v.count else "fs"
        return f"{old}{first}{end}" if old else None
    position = ""
    if last and len(v.old) == 2:
        start_acid, end_acid = map(_three_letter_codes, v.old)
        position = f"{start_acid}{first}_{end_acid}{last}"
    elif not last and v.kind in ("DEL", "DUP") and v.new.isalpha():
        # The position refers to the first deleted or duplicated amino acid.
        position = f"{new[:3]}{first}"
        if len(v.new) > 1:
            position += f"_{new[-3:]}{int(first) + len(v.new) - 1}"
    inserted = new if v.kind in ("INS", "INDEL") else ""
    if not position or (v.kind == "INS" and not inserted):
        return None
    return position + _HGVS_KINDS[v.kind] + inserted


def _three_letter_codes(letters: str) -> str:
    return "".join(THREE_LETTERS[letter] for letter in letters if letter in THREE_LETTERS)


def _base_change(v: Variant) -> str | None:
    if v.kind == "SUB" and len(v.old) == 1:
        changes = [f"{v.position}{v.old}>{new}" for new in v.new.split(",")]
        return f"{v.position}=" if v.old == v.new else "^".join(changes)
    if v.kind == "SUB":
        return f"{_range(v.position, len(v.old))}delins{v.new}"
    if v.kind in ("INS", "INDEL"):
        position = v.position
        if v.kind == "INS" and position.isdigit():
            position = f"{position}_{int(position) + 1}"
        is_placed = v.kind == "INDEL" or "_" in position
        return position + _HGVS_KINDS[v.kind] + v.new if v.new.isalpha() and is_placed else None
    # For deletions and duplications, HGVS gives the position but not the sequence.
    n_bases = int(v.new) if v.new.isdigit() else len(v.new)
    return None if v.count else _range(v.position, n_bases) + _HGVS_KINDS[v.kind]


def _range(position: str, n: int) -> str:
    return f"{position}_{int(position) + n - 1}" if position.isdigit() and n > 1 else position


# The surrounding text decides whether "A1166C" changes a base or an amino acid.
_MAX_CONTEXT = 40  # the number of characters to search before and after a variant
_MIN_BASE_NUMBER = 1000  # proteins have fewer amino acids than this
_MIN_GENOME_NUMBER = 110_000  # transcripts have fewer bases than this
_MIN_LIKELY_BASE_NUMBER = 100
_MITOCHONDRIA = re.compile(r"mitochondrial\s?(?:\n|DNA|genom|t?RNA|gene|mutat)|mtDNA|\btRNA", re.I)
_PROTEIN_OR_BASES = re.compile(
    r"\b(?:codons?\b|residues?\b|amino[ -]acids?\b|p\.[A-Z]|(?P<bases>nucleotides?\b|SNPs?\b"
    r"|promoter\b|polymorphi|genotyp|transitions?\b|transversions?\b|UTR\b|introns?\b|[cgm]\.\d))",
    re.I,
)


def level_in_text(text: str, start: int, end: int, position: str) -> str:
    """Infer a change's level (see `Variant`) from the text around the mention.

    start, end (int): Character offsets of the mention.
    position (str): The position of the change (see `Variant`).
    """
    before = text[max(0, start - _MAX_CONTEXT) : start]
    around = f"{before}\n{text[end : end + _MAX_CONTEXT]}"
    if not position.isdigit():
        return "c"
    if _MITOCHONDRIA.search(around):
        return "m"
    if int(position) >= _MIN_BASE_NUMBER:
        return "g" if int(position) >= _MIN_GENOME_NUMBER else "c"
    if cue := _PROTEIN_OR_BASES.search(around):
        return "c" if cue["bases"] else "p"
    return "c" if int(position) >= _MIN_LIKELY_BASE_NUMBER else "p"
