"""Whether a change such as "A1166C" is one of bases or of amino acids, from the text around it."""

from __future__ import annotations

import re

_MAX_CONTEXT = 40  # characters before and after a variant that may tell its level
_MIN_BASE_NUMBER = 1000  # proteins have fewer amino acids
_MIN_GENOME_NUMBER = 110_000  # transcripts have fewer bases
_MIN_LIKELY_BASE_NUMBER = 100
_MAX_CODON_SHIFT = 5  # codons by which numbers with other starts of counting differ
_MITOCHONDRIA = re.compile(r"mitochondrial\s?(?:\n|DNA|genom|t?RNA|gene|mutat)|mtDNA|\btRNA", re.I)
# Genes known for their amino acid changes, or for changes of bases with low numbers.
_KNOWN_GENES = (
    r"(?:(?P<protein>[KNH]-?RAS|SNCA|(?:alpha-?)?synuclein|SOD1|APP|EGFR|CTNNB1|catenin|TTR)"
    r"|MTHFR|CYP\w{3,4}|CCND1|eNOS|NOS3|BDNF|TNF|TNF-alpha)"
)
_GENE_BEFORE = re.compile(rf"\b{_KNOWN_GENES}\W+(?:[a-z]\w*\W+){{0,2}}$")
_GENE_AFTER = re.compile(rf"\W?(?:of\s|in\s)?{_KNOWN_GENES}\b")
_PROTEIN_OR_BASES = re.compile(
    r"\b(?:codons?\b|residues?\b|amino[ -]acids?\b|p\.[A-Z]|(?P<bases>nucleotides?\b|SNPs?\b"
    r"|promoter\b|polymorphi|genotyp|transitions?\b|transversions?\b|UTR\b|introns?\b|[cgm]\.\d))",
    re.I,
)
_SUBSTITUTION = re.compile(r"(?<![A-Za-z\d.])[A-Z](\d{1,5})[A-Z*](?![A-Za-z\d])")


def level_in_text(text: str, start: int, end: int, position: str) -> str:
    """Return the level of a change, see `Variant`; "": unclear.

    start, end (int): Character offsets of the mention.
    position (str): The position of the change, see `Variant`.
    """
    before = text[max(0, start - _MAX_CONTEXT) : start]
    around = f"{before}\n{text[end : end + _MAX_CONTEXT]}"
    if not position.isdigit():
        return "c"
    if gene := _GENE_BEFORE.search(before) or _GENE_AFTER.match(text, end):
        return "p" if gene["protein"] else "c"
    if _MITOCHONDRIA.search(around):
        return "m"
    if int(position) >= _MIN_BASE_NUMBER:
        return "g" if int(position) >= _MIN_GENOME_NUMBER else "c"
    if cue := _PROTEIN_OR_BASES.search(around):
        return "c" if cue["bases"] else "p"
    base_numbers: set[int] = set()
    codon_numbers: set[int] = set()
    for change in _SUBSTITUTION.finditer(text):
        may_be_bases = {change[0][0], change[0][-1]} <= set("ACGT")
        (base_numbers if may_be_bases else codon_numbers).add(int(change[1]))
    # Texts often name a change of a base with that of its codon, "C677T (A222V)", and then the
    # codons of the text are about a third of the numbers of its bases.
    are_related = any(
        abs(codon - base / 3) <= _MAX_CODON_SHIFT
        for codon in codon_numbers
        for base in base_numbers
    )
    if codon_numbers and not are_related:
        return "p"
    return "c" if int(position) >= _MIN_LIKELY_BASE_NUMBER else ""
