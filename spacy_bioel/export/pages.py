"""Building blocks for all HTML pages: templates, colours, chart ticks and concept page URLs.

Templates escape all values from documents and knowledge bases. (displaCy escapes texts, but neither
labels nor ids.) A page makes no request to another host, and follows the reader's preference for
dark or light mode.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from itertools import count
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, select_autoescape
from markupsafe import Markup, escape

from spacy_bioel.explanation import reason_of
from spacy_bioel.registered import declared_facts
from spacy_bioel.types import Candidate, type_name

# Maps lower-case vocabulary prefixes to the URLs of concept pages.
_CONCEPT_PAGES = {
    "atc": "https://atcddd.fhi.no/atc_ddd_index/?code={}",
    "chembl": "https://www.ebi.ac.uk/chembl/explore/compound/{}",
    "cvcl": "https://www.cellosaurus.org/CVCL_{}",
    "dbsnp": "https://www.ncbi.nlm.nih.gov/snp/{}",
    "drugbank": "https://go.drugbank.com/drugs/{}",
    "efo": "http://www.ebi.ac.uk/efo/EFO_{}",
    "ensembl": "https://www.ensembl.org/id/{}",
    "hgnc": "https://www.genenames.org/data/gene-symbol-report/#!/hgnc_id/HGNC:{}",
    "loinc": "https://loinc.org/{}",
    "mesh": "https://meshb.nlm.nih.gov/record/ui?ui={}",
    "ncbigene": "https://www.ncbi.nlm.nih.gov/gene/{}",
    "ncbitaxon": "https://www.ncbi.nlm.nih.gov/datasets/taxonomy/{}/",
    "omim": "https://www.omim.org/entry/{}",
    "orpha": "http://www.orpha.net/ORDO/Orphanet_{}",
    "orphanet": "http://www.orpha.net/ORDO/Orphanet_{}",
    "pubchem.compound": "https://pubchem.ncbi.nlm.nih.gov/compound/{}",
    "rxnorm": "https://mor.nlm.nih.gov/RxNav/search?searchBy=RXCUI&searchTerm={}",
    "snomedct": "https://browser.ihtsdotools.org/?perspective=full&conceptId1={}",
    "snomedct_us": "https://browser.ihtsdotools.org/?perspective=full&conceptId1={}",
    "umls": "https://uts.nlm.nih.gov/uts/umls/concept/{}",
    "uniprot": "https://www.uniprot.org/uniprotkb/{}/entry",
}
_OBO_FOUNDRY = (
    "BTO CHEBI CL CLO DOID ECO ECTO EMAPA ENVO FBbt FMA FOODON GO HP HsapDv IDO MA MAXO MI MOD "
    "MONDO MP NBO NCIT OAE OBI OGG OGMS OMIT PATO PO PR PW SO SYMP TO TRANS UBERON UO VO WBbt "
    "WBPhenotype XAO ZFA ZP"
).split()
_CONCEPT_PAGES |= {
    name.lower(): f"http://purl.obolibrary.org/obo/{name}_{{}}" for name in _OBO_FOUNDRY
}
# Ids without a colon, such as "C0011849" (UMLS), "CVCL_0030" (Cellosaurus) and "rs334" (dbSNP).
_UNPREFIXED_ID = re.compile(r"(?P<umls>C\d{7,8})|CVCL_(?P<cvcl>\w{4})|(?P<dbsnp>rs\d+)")


def address_of(id: str) -> str:
    """Return the URL of a concept's page in its vocabulary, or "" if no URL is known.

    id (str): For example "MESH:D003920", "HP:0001250", or "C0011849" for UMLS.
    """
    prefix, _, local = id.partition(":")
    if match := _UNPREFIXED_ID.fullmatch(id):
        prefix, local = match.lastgroup or "", match[match.lastindex or 0]
    local = quote(local.strip(), safe="")
    return _CONCEPT_PAGES.get(prefix.lower(), "").format(local) if local else ""


def linked_id(id: str) -> Markup:
    """Format an id as a link to its concept page, or as plain text if it has none."""
    address = address_of(id)
    return Markup(f'<a href="{escape(address)}">{escape(id)}</a>') if address else escape(id)


def _candidate_names(candidate: Candidate) -> str:
    """Format a candidate's preferred name, with its type and, if different, the matched name."""
    kind, name = type_name(candidate), candidate.name
    preferred = candidate.preferred_name or name
    title = f"{preferred} ({kind})" if kind else preferred
    return title if preferred == name else f"{title} (matched: {name})"


# Hues of the starter's labels; other labels get one of twelve hues and one of four edge styles.
_HUES = {
    "Disease": 0, "CellLine": 35, "Species": 130, "Chemical": 210, "Gene": 275, "Variant": 320,
}  # fmt: skip
_EDGES = ("solid", "double", "dotted", "dashed")


def style_of(label: str) -> Markup:
    """Return a label's CSS colour variables, computed as in `templates/mentions.js`."""
    number = reduce(lambda total, c: (total * 31 + ord(c)) % 1440, label, 7)
    hue, edge = _HUES.get(label, number % 12 * 30), _EDGES[number // 12 % 4]
    return Markup(f"--hue: {hue}; --edge-style: {'solid' if label in _HUES else edge}")


def ticks_of(values: Iterable[float]) -> list[float]:
    """Return evenly spaced round numbers that span all values, for a chart axis."""
    numbers = [*filter(_is_finite, values)] or [0.0]
    low, high = min(numbers), max(numbers)
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0) or float(not low)
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= (high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def bins_of(*counts: Counter[int], n: int = 12) -> list[Counter[str]]:
    """Count integers in about n equal bins, such as 1–50; the largest 2 % share the last bin.

    counts (Counter): How often each integer occurs; all counters get the same bins.
    RETURNS (list): For each counter, the number of integers in each bin, by the bin's name.
    """
    values, names = sorted(sum(counts, Counter[int]()).elements()), {}
    if not values:
        return [Counter() for _ in counts]
    low, high = values[0], values[math.ceil(0.98 * (len(values) - 1))]
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    step = next(step for step in steps if high - low < n * step)
    base = min(low, 1)  # bins such as 1–50, 51–100
    last = (high - base) // step + 1
    for number in range((low - base) // step, min((values[-1] - base) // step, last) + 1):
        start, end = base + number * step, base + (number + 1) * step - 1
        names[number] = f"{start:,}" if start == end else f"{start:,}–{end:,}"
    if last in names:
        names[last] = f"{base + last * step:,} or more"
    binned = [Counter(dict.fromkeys(names.values(), 0)) for _ in counts]
    for found, of in zip(counts, binned, strict=True):
        for value, times in found.items():
            of[names[min((value - base) // step, last)]] += times
    return binned


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


_TEMPLATES = PackageLoader("spacy_bioel", "templates")
# Templates for all pages and the model card.
PAGES = Environment(
    loader=_TEMPLATES,
    autoescape=select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
PAGES.globals |= {
    "declared_facts": declared_facts,
    "reason_of": reason_of,
    "ticks_of": ticks_of,
    "hues": _HUES,
    "addresses": _CONCEPT_PAGES,
    "unprefixed": f"^(?:{_UNPREFIXED_ID.pattern})$".replace("(?P<", "(?<"),
}
PAGES.tests["finite"] = _is_finite
PAGES.tests["drawable"] = lambda point: all(map(_is_finite, point[:2]))
PAGES.filters["escaped"] = lambda text: text.replace("|", r"\|")  # for Markdown tables
PAGES.filters["max_of"] = lambda row: max(filter(_is_finite, row[1:]), default=0)
PAGES.filters["linked"] = linked_id
PAGES.filters["style_of"] = style_of
PAGES.filters["with_names"] = _candidate_names


def pages_of(package: str) -> Environment:
    """Return a Jinja environment for a package's templates, which may include `PAGES` templates."""
    return PAGES.overlay(loader=ChoiceLoader([PackageLoader(package), _TEMPLATES]))
