"""What is shown of a link: the HGVS form of a variant, the reason of the decision, and the page of
the concept on the web.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from spacy_bioel.text.variants import read_variant
from spacy_bioel.types import VARIANT, Link, is_tied

# From a prefix, in lower case, to the address of the vocabulary's own page of a concept.
_PAGES = {
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
_PAGES |= {name.lower(): f"http://purl.obolibrary.org/obo/{name}_{{}}" for name in _OBO_FOUNDRY}
# Ids that are written without a colon.
_BARE = re.compile(r"(?P<umls>C\d{7,8})|CVCL_(?P<cvcl>\w{4})|(?P<dbsnp>rs\d+)")


def address_of(id: str) -> str:
    """Return the address of the page of a concept in its own vocabulary; "" if that is not known.

    id (str): Such as "MESH:D003920", "HP:0001250", or "C0011849" for UMLS.
    """
    prefix, _, local = id.partition(":")
    if bare := _BARE.fullmatch(id):
        prefix, local = bare.lastgroup or "", bare[bare.lastindex or 0]
    local = quote(local.strip(), safe="")
    return _PAGES.get(prefix.lower(), "").format(local) if local else ""


def reason_of(link: Link, *, nil_threshold: float | None = None) -> str:
    """Return the reason of a link, or of none, in one sentence.

    nil_threshold (float | None): Score that a candidate had to have; None: not known here.
    """
    if not link.candidates:
        return "NIL: no name that it may be linked to is like it."
    if len(link.ids) > 1:
        names = ", ".join(f"{c.name} ({c.id})" for c in link.candidates[: len(link.ids)])
        return f"Linked: it is read as {len(link.ids)} names, {names}, which is likelier than one."
    best = link.candidates[0]
    limit = "" if nil_threshold is None else f", {nil_threshold:g}"
    likeliest = f"{best.name} ({best.id}) is the likeliest"
    score = f"its score of {best.score:.2f}"
    if link.ids:
        return f"Linked: {likeliest}, and {score} reaches nil_threshold{limit}."
    if is_tied(link.candidates) and best.score >= (nil_threshold or 0.0):
        tied = (f"{c.name} ({c.id})" for c in link.candidates if c.score == best.score)
        return f"NIL: {' and '.join(tied)} are equally likely."
    return f"NIL: {likeliest}, but {score} is below nil_threshold{limit}."


def hgvs_of(text: str, link: Link) -> str | None:
    """Return the form in HGVS of a mention that is labelled as a variant; None for any other."""
    variant = read_variant(text, link.start, link.end) if link.label == VARIANT else None
    return variant.hgvs if variant else None
