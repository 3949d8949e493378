"""What a text says of a sequence variant, in its component form and in HGVS.

The component form is that of tmVar 3 (Wei et al. 2022, doi:10.1093/bioinformatics/btac537):
"p|SUB|V|600|E". It also says what HGVS cannot: "c|DEL||22" is a deletion of 22 bases somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
