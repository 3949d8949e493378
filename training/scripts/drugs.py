"""Drugs that MeSH has as supplementary records, and brands and salts that its table leaves out, by
the names that the FDA keeps of substances (UNII); short forms and formulas of chemicals.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spacy_bioel.dictionary.unambiguous import common_words
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

# Who names a substance, in brackets behind the name: only of drugs, and of drugs on the market.
_BY = re.compile(r" \[([^\]]*)\]$")
_OF_DRUGS = {"INN", "USAN"}
_BRAND = re.compile(r"[A-Z][A-Z-]{3,}")
# Brands that everyday English has less often than this, in a million words, or knows as brands.
_EVERYDAY = 0.2
_BRANDS = set(
    "accutane advil allegra ambien ativan benadryl botox cialis epipen oxycontin prozac ritalin "
    "teflon tylenol valium viagra xanax zoloft".split()
)
CHEMICALS = Path(__file__).parents[1] / "assets" / "chemicals.tsv"
_NUMBER = re.compile(r"(?<=[A-Za-z)])(\d+)")
DRUG = "drug"  # their type, beside those of MeSH, where antibodies are proteins
_MOST_WORDS, _MOST_LETTERS = 3, 30  # of names that texts have, unlike systematic ones


def read_chemicals() -> dict[str, list[str]]:
    """Read chemicals that texts name, by the preferred names of MeSH, normalised, each with the
    short forms and formulas that MeSH's table leaves out, as texts have them today and as MEDLINE
    had them, "CaCl(2)".
    """
    found = {}
    for line in CHEMICALS.read_text(encoding="utf8").splitlines():
        name, _, forms = line.partition("\t")
        own = list(filter(None, forms.split("|")))
        both = (form for x in own for form in (x, _NUMBER.sub(r"(\1)", x)))
        found[normalize_name(name)] = list(dict.fromkeys(both))
    return found


@dataclass
class Substance:
    """A substance of the FDA: names, the one on display first; whether it is a drug; brands."""

    names: list[str] = field(default_factory=list)
    is_drug: bool = False
    brands: list[str] = field(default_factory=list)


def read_substances(path: Path) -> list[Substance]:
    """Read the table UNII_Names of the FDA; codes and systematic names are left out."""
    found: dict[str, Substance] = defaultdict(Substance)
    with path.open(encoding="utf8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            of = found[row["UNII"]]
            by = _BY.search(row["Name"])
            of.names = of.names or [normalize_name(row["Display Name"])]
            of.is_drug |= row["TYPE"] == "bn" or (by is not None and by[1] in _OF_DRUGS)
            if row["TYPE"] in ("cn", "of"):
                of.names.append(normalize_name(_BY.sub("", row["Name"])))
            elif row["TYPE"] == "bn" and _BRAND.fullmatch(row["Name"]):
                of.brands.append(row["Name"].capitalize())
    return list(found.values())


def drug_names(
    substances: Iterable[Substance], kbs: Iterable[KnowledgeBase], english: Mapping[str, float]
) -> dict[str, list[str]]:
    """Return the ids of drugs, each with its brands, and with the name of a drug that is known by
    its salt only.

    kbs (Iterable[KnowledgeBase]): The first that knows a substance is believed.
    english (Mapping[str, float]): How often words are in a million words of everyday English.
    """
    drugs = [substance for substance in substances if substance.is_drug]
    bases = {drug.names[0] for drug in drugs}
    everyday = {word for word, often in english.items() if often >= _EVERYDAY} - _BRANDS
    everyday |= common_words().keys()
    indexes = [_index(kb) for kb in kbs]
    found: dict[str, list[str]] = {}
    for drug in drugs:
        base = _base(drug.names[0], bases)
        for by_name, by_base in indexes:
            salts = by_base.get(drug.names[0], set())
            names = [by_name[name] for name in (*drug.names, base) if name in by_name]
            if len(ids := (names or [salts])[0]) == 1:
                more = [brand for brand in drug.brands if brand.lower() not in everyday]
                found.setdefault(min(ids), []).extend(more + drug.names[:1] * (not names))
                break
    return found


def _index(kb: KnowledgeBase) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Ids of concepts by each name, and by all but the last word of the preferred name."""
    by_name, by_base = defaultdict(set), defaultdict(set)
    for row, id in enumerate(kb.ids):
        names = [normalize_name(name) for name in kb.names.take(kb.names_of(row))]
        for name in names:
            by_name[name].add(id)
        by_base[names[0].rpartition(" ")[0]].add(id)
    return by_name, by_base


def _base(name: str, inn: set[str]) -> str:
    """The drug that a salt is made of: "atorvastatin" of "atorvastatin calcium trihydrate"."""
    words = name.split()
    starts = (" ".join(words[:n]) for n in range(len(words) - 1, 0, -1))
    return next((start for start in starts if start in inn), "")


def is_short(name: str) -> bool:
    """Tell whether a text may have this name of a chemical."""
    return name.count(" ") < _MOST_WORDS and len(name) <= _MOST_LETTERS and "," not in name
