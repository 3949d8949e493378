"""Recognise ids in texts and tables: CURIEs, spelling variants, and concept URLs."""

from __future__ import annotations

import re
from functools import lru_cache

# Lower-case spellings of each prefix; the first one is the key.
_SPELLINGS = (
    "hp hpo", "mesh msh", "mondo", "doid do", "ncbigene entrez entrezgene geneid ncbi_gene",
    "ncbitaxon ncbitaxonomy taxid taxonomy", "omim mim", "orpha orphanet ordo", "hgnc",
    "snomed snomedct snomed_ct snomedct_us snomed_ct_us sct sctid", "umls cui", "uberon",
    "rxnorm rxcui", "icd10cm icd10 icd_10 icd_10_cm", "cvcl cellosaurus",
)  # fmt: skip
# The key of each spelling, including spellings with a hyphen or space instead of an underscore.
KEY_OF_PREFIX = {
    spelling.replace("_", sign): line.split()[0]
    for line in _SPELLINGS
    for spelling in line.split()
    for sign in ("_", "-", " ")
}
_KNOWN = "|".join(map(re.escape, sorted(KEY_OF_PREFIX, key=len, reverse=True)))
# A label that may precede an id, but is not its name: "HPO", "ID", "MeSH term".
ID_LABEL = rf"(?i:(?:{_KNOWN})(?:[ ]terms?)?|(?:(?:{_KNOWN})[ ])?(?:id|identifier|code|curie)s?)"
# Prefixes of numbers that are not concept ids.
_NOT_CONCEPTS = "pmid|pmc|pmcid|doi|isbn|issn|orcid|http|https|tel|nct"
_WITH_PREFIX = re.compile(
    r"(?:([A-Za-z][\w.-]{0,30}):|([A-Za-z][A-Za-z0-9.]{0,30})_)(.{1,60})", re.S
)
_CUI = re.compile(r"C\d{7}")
_LOCAL = r"(?:[A-Za-z]{1,10}_)?[A-Za-z]{0,5}\d\w{0,20}(?:[.-]\d\w{0,9})?"
_LONG = r"[A-Z]?\d{5}|[A-Z]\d\d[.]\d"  # the start of an id after a space
_ADDRESS = r"""https?://(?:
    [\w./]{0,40}/obo/(?P<obo>[A-Za-z]{1,20})_
  | (?:www\.)?identifiers\.org/(?P<registry>[\w.]{1,20})[:/](?:(?i:(?P=registry)):)?
  | (?:meshb(?:-prev)?\.nlm\.nih\.gov/record/ui\?ui=|id\.nlm\.nih\.gov/mesh/(?:\d{4}/)?)
)"""
# A web address, up to the id in it.
_PAGE = r"""(?:https?://|(?<![\w:/.@-])(?=[\w.-]{1,60}\.[a-z]{2,9}/))[\w.-]{1,60}/
    [^\s<>()[\]"'|]{0,200}?(?:(?<=[/=:?&\#])|(?<=%2[Ff])|(?<=%3[AaDd]))"""


def prefix_key(prefix: str) -> str:
    """Return the key that all spellings of a prefix share: "hp" for "HP" and "HPO"."""
    return KEY_OF_PREFIX.get(prefix.lower(), prefix.lower())


def prefix_of(raw: str) -> str:
    """Return the key of an id's prefix, or "" if the id has none."""
    return prefix_key((split_id(raw) or ("",))[0])


def split_id(raw: str) -> tuple[str, str] | None:
    """Split an id into its prefix and local part, as written; None if there is no prefix."""
    raw = raw.strip()
    if match := id_pattern(()).fullmatch(raw):
        prefix = match["obo"] or match["registry"] or match["page"] or match["prefix"] or "MESH"
        return prefix, match["local"] or match["digits"]
    if _CUI.fullmatch(raw):
        return "UMLS", raw
    match = _WITH_PREFIX.fullmatch(raw)
    return (match[1] or match[2], match[3]) if match else None


@lru_cache(maxsize=8)
def id_pattern(prefixes: frozenset[str] | tuple[()]) -> re.Pattern[str]:
    """Compile a pattern for ids in running text: CURIEs and URLs.

    prefixes: Prefixes in the knowledge bases. A space may replace the colon after the prefixes in
        `KEY_OF_PREFIX`, as in "HPO 0001250" and "MeSH ID: D000795". All other prefixes must begin
        with a capital and be followed by at least four digits.
    """
    spelled = {form for p in prefixes for form in (p, p.upper(), p.lower(), p.title())}
    listed = "|".join(map(re.escape, sorted(filter(None, spelled), key=lambda p: (-len(p), p))))
    other = rf"(?!(?i:{_NOT_CONCEPTS})[:_])[A-Z][A-Za-z]{{1,14}}(?=[:_][A-Z]?\d{{4}})"
    in_page = rf"(?i:{_KNOWN})|{listed}" if listed else r"[A-Za-z][\w.-]{0,30}"
    return re.compile(
        rf"(?:{_ADDRESS}|{_PAGE}(?P<page>{in_page})(?::|%3[Aa]|_(?=[A-Z]?\d{{5}})))"
        rf"(?P<local>{_LOCAL})"
        rf"|(?:(?<![\w:/])|(?<=\bobo:))(?P<prefix>(?P<known>(?i:{_KNOWN}))|{listed}|{other})"
        rf"(?:(?:[ _-](?i:id))?(?:[:_]|:[ ](?={_LONG}))|"
        rf"(?(known)(?:[ ](?i:id))?:?[ ]\#?(?={_LONG})|(?!)))"
        rf"(?P<digits>{_LOCAL})",
        re.X,
    )
