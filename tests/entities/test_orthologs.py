"""Genes of cattle, pigs, chickens, dogs, frogs and thale cress, in documents about them only."""

import pytest
from spacy.language import Language

import spacy_bioel
from spacy_bioel.entities.organism_genes import orthologs_of
from spacy_bioel.kb.build import build_kb
from spacy_bioel.kb.bundled import starter_kb
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Concept

GENES = [
    # Cattle
    ("LALBA was expressed in the mammary gland of dairy cows.", "LALBA", "281894"),
    ("Bovine CSN3 genotypes and the yield of milk protein.", "CSN3", "281728"),
    ("Polymorphisms of DGAT1 affect milk fat in Holstein cattle.", "DGAT1", "282609"),
    ("Bovine oocytes expressed GDF9.", "GDF9", "282574"),
    ("Mutations in MSTN cause double muscling in Belgian Blue cattle.", "MSTN", "281187"),
    # Pigs
    ("A mutation in the RYR1 gene of pigs causes malignant hyperthermia.", "RYR1", "396718"),
    ("Porcine IGF2 affects muscle mass.", "IGF2", "396916"),
    ("In pigs, knockout of CD163 prevents infection with PRRSV.", "CD163", "397031"),
    ("MC4R was associated with backfat in Duroc pigs.", "MC4R", "397359"),
    ("Piglets had a higher expression of SLC5A1 in the jejunum.", "SLC5A1", "397113"),
    # Chickens
    ("SHH was expressed in the limb buds of chick embryos.", "SHH", "395615"),
    ("The chicken MSTN gene was edited.", "MSTN", "373964"),
    ("The expression of TLR4 in broiler chickens was increased.", "TLR4", "417241"),
    ("PRLR mRNA in the pituitary of chickens was measured.", "PRLR", "395660"),
    ("A mutation in TYRP1 dilutes the plumage colour of chickens.", "TYRP1", "395913"),
    # Dogs
    ("TP53 mutations were found in dogs with osteosarcoma.", "TP53", "403869"),
    ("A mutation in SOD1 causes degenerative myelopathy in dogs.", "SOD1", "403559"),
    ("RPGR mutations cause progressive retinal atrophy in dogs.", "RPGR", "403726"),
    ("A deletion in canine ABCB1 makes collies sensitive to ivermectin.", "ABCB1", "403879"),
    ("PTEN expression was lost in canine mammary tumours.", "PTEN", "403832"),
    # Frogs
    ("Knockdown of sox9 in Xenopus tropicalis reduced cartilage.", "sox9", "549607"),
    ("In Xenopus tropicalis, expression of nodal begins early.", "nodal", "100497218"),
    ("Xenopus tropicalis pax6 mutants lack eyes.", "pax6", "448447"),
    ("Loss of tbx5 in X. tropicalis disturbs the heart.", "tbx5", "619589"),
    ("The tyr gene was disrupted in Xenopus tropicalis.", "tyr", "100125152"),
    # Thale cress
    ("In Arabidopsis thaliana, the FLC gene represses flowering.", "FLC", "830878"),
    ("PHYB mutants of Arabidopsis flower early.", "PHYB", "816394"),
    ("COP1 degrades HY5 in Arabidopsis seedlings.", "COP1", "817857"),
    ("COP1 degrades HY5 in Arabidopsis seedlings.", "HY5", "830996"),
    ("Expression of CLV1 in the meristem of Arabidopsis was lost.", "CLV1", "843915"),
]
OTHER_TEXTS = [
    ("TP53 mutations were found in patients.", "TP53", ("7157",)),
    ("HeLa cells grew in fetal bovine serum. TP53 was knocked down.", "TP53", ("7157",)),
    ("Brca1 was deleted in mice with bovine serum albumin.", "Brca1", ("12189",)),
    ("The patients kept dogs. Expression of ABCB1 in human liver was high.", "ABCB1", ("5243",)),
    ("Expression of COP1 in HEK293 cells was low.", "COP1", ("64326",)),
    ("Expression of FLC in the serum of patients.", "FLC", ()),
    ("HY5 was given to the patients.", "HY5", ()),
    ("In goats, expression of LALBA was high.", "LALBA", ()),
]


@pytest.fixture(scope="module")
def nlp() -> Language:
    return spacy_bioel.load()


def ids_of(nlp: Language, text: str, name: str) -> tuple[str, ...]:
    doc = nlp(text)
    spans = [s for s in doc.spans["bioel"] if s.label_ == "Gene" and s.text == name]
    return tuple(id.removeprefix("NCBIGene:") for span in spans for id in span._.cuis)


@pytest.mark.parametrize(("text", "name", "id"), GENES)
def test_organism_in_the_document(nlp, text, name, id):
    assert ids_of(nlp, text, name) == (id,)


@pytest.mark.parametrize(("text", "name", "ids"), OTHER_TEXTS)
def test_no_such_organism(nlp, text, name, ids):
    assert ids_of(nlp, text, name) == ids


def test_explanation(nlp):
    explained = str(spacy_bioel.explain(nlp, "Expression of LALBA in dairy cows was measured."))
    assert 'The document names cows; this gene belongs to "cows".' in explained


def test_switched_off():
    config = {"components.bioel_linker.entities.genes.other_organisms": False}
    nlp = spacy_bioel.load(config=config)
    assert ids_of(nlp, "LALBA was expressed in the mammary gland of cattle.", "LALBA") == ()


def test_only_with_the_bundled_genes(tmp_path):
    concepts = [
        Concept("NCBIGene:3906", ("LALBA",), types=("Gene", "NCBITaxon:9606")),
        Concept("NCBITaxon:9913", ("cattle",), types=("Species",)),
    ]
    build_kb(concepts, tmp_path / "kb")
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert orthologs_of(kb, {"NCBITaxon:9913"}) == {}
    assert orthologs_of(starter_kb("starter:genes"), {"NCBITaxon:10090"}) == {}
    tables = orthologs_of(starter_kb("starter:genes"), {"NCBITaxon:9913", "NCBITaxon:10090"})
    assert tables["NCBITaxon:9913"]["lalba"] == "NCBIGene:281894"
