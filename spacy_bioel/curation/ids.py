"""Recognise ids in texts and tables: CURIEs, their spellings, and addresses of concepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

# Other spellings of prefixes, in lower case, with the first as the key.
_SPELLINGS = """
hp hpo
mesh msh
mondo
doid do
ncbigene entrez entrezgene geneid ncbi_gene
ncbitaxon ncbitaxonomy taxid taxonomy
omim mim
orpha orphanet ordo
snomed snomedct snomedct_us sct
umls cui
uberon
rxnorm rxcui
icd10cm icd10
cvcl cellosaurus
"""
_KEY_OF = {
    spelling: line.split()[0]
    for line in _SPELLINGS.strip().splitlines()
    for spelling in line.split()
}
# Prefixes with numbers that are not ids of concepts.
_NOT_CONCEPTS = frozenset("pmid pmc pmcid doi isbn issn orcid http https tel nct".split())
_WITH_PREFIX = re.compile(
    r"(?:([A-Za-z][\w.-]{0,30}):|([A-Za-z][A-Za-z0-9.]{0,30})_)(.{1,60})", re.S
)
_CUI = re.compile(r"C\d{7}")
_LOCAL = r"(?:[A-Za-z]{1,10}_)?[A-Za-z]{0,5}\d\w{0,20}(?:[.-]\d\w{0,9})?"
_ADDRESS = r"""https?://(?:
    [\w./]{0,40}/obo/(?P<obo>[A-Za-z]{1,20})_
  | (?:www\.)?identifiers\.org/(?P<registry>[\w.]{1,20})[:/](?:(?i:(?P=registry)):)?
  | (?P<mesh>meshb(?:-prev)?\.nlm\.nih\.gov/record/ui\?ui=|id\.nlm\.nih\.gov/mesh/(?:\d{4}/)?)
)"""


def prefix_key(prefix: str) -> str:
    """Return what all spellings of a prefix have in common."""
    return _KEY_OF.get(prefix.lower(), prefix.lower())


def split_id(raw: str) -> tuple[str, str] | None:
    """Split an id into its prefix and local part, as written; None if there is no prefix."""
    raw = raw.strip()
    if match := _any_id().fullmatch(raw):
        return id_parts(match)
    if _CUI.fullmatch(raw):
        return "UMLS", raw
    match = _WITH_PREFIX.fullmatch(raw)
    return (match[1] or match[2], match[3]) if match else None


@lru_cache(maxsize=1)
def _any_id() -> re.Pattern[str]:
    return id_pattern(())


def id_parts(match: re.Match[str]) -> tuple[str, str]:
    """Return the prefix and local part of a match of `id_pattern`."""
    prefix = (
        match["obo"] or match["registry"] or match["prefix"] or ("MESH" if match["mesh"] else "")
    )
    return prefix, match["local"] or match["digits"]


def id_pattern(prefixes: Iterable[str]) -> re.Pattern[str]:
    """Compile the pattern of ids in running text: CURIEs and addresses.

    prefixes (Iterable[str]): Prefixes in the knowledge bases. Other prefixes than these and those
        with several spellings must have capitals and at least four digits.
    """
    known = {prefix for prefix in (*prefixes, *_KEY_OF) if prefix}
    spelled = {form for p in known for form in (p, p.upper(), p.lower(), p.capitalize())}
    listed = "|".join(map(re.escape, sorted(spelled, key=lambda p: (-len(p), p))))
    others = "|".join(sorted(_NOT_CONCEPTS))
    return re.compile(
        rf"{_ADDRESS}(?P<local>{_LOCAL})"
        rf"|(?<![\w:/.])(?:(?P<prefix>{listed}|(?!(?i:{others})[:_])[A-Z][A-Za-z]{{1,14}}(?=[:_][A-Z]?\d{{4}}))"
        rf"[:_](?:(?P<digits>{_LOCAL}|[ ]\d{{5,12}}\b)))",
        re.X,
    )
