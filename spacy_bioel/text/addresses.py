"""From the id of a concept to its page on the web."""

from __future__ import annotations

import re
from urllib.parse import quote

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
# Prefixes of the OBO Foundry, whose addresses are all of one form.
_OBO = {
    prefix.lower(): prefix
    for prefix in (
        "BTO CHEBI CL CLO DOID ECO ECTO EMAPA ENVO FBbt FMA FOODON GO HP HsapDv IDO MA MAXO MI MOD "
        "MONDO MP NBO NCIT OAE OBI OGG OGMS OMIT PATO PO PR PW SO SYMP TO TRANS UBERON UO VO WBbt "
        "WBPhenotype XAO ZFA ZP"
    ).split()
}
_OBO_PAGE = "http://purl.obolibrary.org/obo/{}_{}"
# Ids that are written without a colon.
_BARE = (
    (re.compile(r"(C\d{7,8})"), "umls"),
    (re.compile(r"CVCL_(\w{4})"), "cvcl"),
    (re.compile(r"(rs\d+)"), "dbsnp"),
)


def address_of(id: str) -> str:
    """Address of the page of a concept in its own vocabulary.

    id (str): Such as "MESH:D003920", "HP:0001250", or "C0011849" for UMLS.
    RETURNS (str): "" for a vocabulary that is not known here.
    """
    prefix, colon, local = id.partition(":")
    if not colon:
        prefix, local = _read_bare(id)
    prefix = prefix.lower()
    local = quote(local.strip(), safe="")
    if not local:
        return ""
    if prefix in _OBO:
        return _OBO_PAGE.format(_OBO[prefix], local)
    return _PAGES[prefix].format(local) if prefix in _PAGES else ""


def _read_bare(id: str) -> tuple[str, str]:
    """Prefix and local part of an id without a colon; empty if it has neither."""
    for pattern, prefix in _BARE:
        if found := pattern.fullmatch(id):
            return prefix, found[1]
    return "", ""
