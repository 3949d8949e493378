"""Find drugs among the MeSH supplementary records, and names that the tables of MeSH lack.

Brands and salts are from the substance names of the FDA (UNII); short forms and formulas of
chemicals are from training/assets/chemicals.tsv.
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

# Authority in brackets after the name of a substance.
_AUTHORITY = re.compile(r" \[([^\]]*)\]$")
_DRUG_AUTHORITIES = {"INN", "USAN"}
_BRAND = re.compile(r"([A-Z][A-Z-]{3,})(?: (?:IV|XR|ER|SR|XL|CONTROL))?")
# Codes of drugs in development, but not numbers of collections: "AZD9291", "BAY 43-9006".
_CODE = re.compile(r"(?!NSC|CAS|FEMA|INS|FD|CI)([A-Z]{1,5})[ -]?(\d{2,}(?:-\d{2,})?[A-Z]?)")
_MIN_CODE_LENGTH = 5
# Brands are dropped if everyday English has them this often in a million words, unless as brands.
_EVERYDAY_FREQUENCY = 0.2
_WELL_KNOWN_BRANDS = set(
    "accutane advil allegra ambien ativan benadryl botox cialis epipen oxycontin prozac ritalin "
    "teflon tylenol valium viagra xanax zoloft".split()
)
CHEMICALS = Path(__file__).parents[1] / "assets" / "chemicals.tsv"
_NUMBER = re.compile(r"(?<=[A-Za-z)])(\d+)")
DRUG = "drug"  # a type added to those of MeSH, which calls antibodies proteins
_MAX_WORDS, _MAX_LENGTH = 3, 30  # of names that texts use; systematic names are longer


def read_chemicals() -> dict[str, list[str]]:
    """Read short forms and formulas of chemicals, by normalised preferred name of MeSH.

    Formulas come in the spelling of today, "CaCl2", and in that of MEDLINE, "CaCl(2)".
    """
    chemicals = {}
    for line in CHEMICALS.read_text(encoding="utf8").splitlines():
        name, _, forms = line.partition("\t")
        spellings: list[str] = []
        for form in filter(None, forms.split("|")):
            spellings += [form, _NUMBER.sub(r"(\1)", form)]
        chemicals[normalize_name(name)] = list(dict.fromkeys(spellings))
    return chemicals


@dataclass
class Substance:
    """A substance of the FDA; the first name is the display name."""

    names: list[str] = field(default_factory=list)
    is_drug: bool = False
    brands: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)


def read_substances(path: Path) -> list[Substance]:
    """Read the table UNII_Names of the FDA, without systematic names.

    Codes come in both spellings, "AZD9291" and "AZD-9291".
    """
    substances: dict[str, Substance] = defaultdict(Substance)
    with path.open(encoding="utf8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            substance = substances[row["UNII"]]
            authority = _AUTHORITY.search(row["Name"])
            substance.names = substance.names or [normalize_name(row["Display Name"])]
            is_brand = row["TYPE"] == "bn"
            is_drug_name = authority is not None and authority[1] in _DRUG_AUTHORITIES
            substance.is_drug |= is_brand or is_drug_name
            if row["TYPE"] in ("cn", "of"):
                substance.names.append(normalize_name(_AUTHORITY.sub("", row["Name"])))
            elif is_brand and (brand := _BRAND.fullmatch(row["Name"])):
                substance.brands.append(brand[1].capitalize())
            elif row["TYPE"] == "cd" and (code := _CODE.fullmatch(row["Name"])):
                if len(code[1] + code[2]) >= _MIN_CODE_LENGTH:
                    substance.codes += [code[1] + code[2], f"{code[1]}-{code[2]}"]
    return list(substances.values())


def drug_names(
    substances: Iterable[Substance], kbs: Iterable[KnowledgeBase], english: Mapping[str, float]
) -> dict[str, list[str]]:
    """Return new names by drug id: brands, codes, and the base of drugs known by a salt only.

    kbs (Iterable[KnowledgeBase]): The first one that has a substance decides.
    english (Mapping[str, float]): Occurrences of words in a million words of everyday English.
    """
    drugs = [substance for substance in substances if substance.is_drug]
    bases = {drug.names[0] for drug in drugs}
    everyday = {word for word, n in english.items() if n >= _EVERYDAY_FREQUENCY}
    everyday -= _WELL_KNOWN_BRANDS
    everyday |= common_words().keys()
    indexes = [_index(kb) for kb in kbs]
    new_names: dict[str, list[str]] = {}
    for drug in drugs:
        base = _base(drug.names[0], bases)
        for by_name, by_base in indexes:
            salts = by_base.get(drug.names[0], set())
            named = [by_name[name] for name in (*drug.names, base) if name in by_name]
            ids = named[0] if named else salts
            if len(ids) == 1:
                names = new_names.setdefault(min(ids), [])
                names += [brand for brand in drug.brands if brand.lower() not in everyday]
                names += dict.fromkeys(drug.codes)
                if not named:
                    names.append(drug.names[0])
                break
    return new_names


def _index(kb: KnowledgeBase) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return concept ids by name, and by the preferred name without its last word."""
    by_name, by_base = defaultdict(set), defaultdict(set)
    for row, id in enumerate(kb.ids):
        names = [normalize_name(name) for name in kb.names.take(kb.names_of(row))]
        for name in names:
            by_name[name].add(id)
        by_base[names[0].rpartition(" ")[0]].add(id)
    return by_name, by_base


def _base(name: str, drug_names: set[str]) -> str:
    """Return the drug in a salt: "atorvastatin" for "atorvastatin calcium trihydrate"."""
    words = name.split()
    for n in range(len(words) - 1, 0, -1):
        start = " ".join(words[:n])
        if start in drug_names:
            return start
    return ""


def is_short(name: str) -> bool:
    """Tell whether texts may use this name of a chemical."""
    return name.count(" ") < _MAX_WORDS and len(name) <= _MAX_LENGTH and "," not in name
