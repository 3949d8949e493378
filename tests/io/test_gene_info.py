"""The table gene_info of NCBI Gene."""

from __future__ import annotations

from pathlib import Path

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.nlm import read_gene_info
from spacy_bioel.types import Concept

HEADER = (
    "#tax_id\tGeneID\tSymbol\tLocusTag\tSynonyms\tdbXrefs\tchromosome\tmap_location\tdescription\t"
    "type_of_gene\tSymbol_from_nomenclature_authority\tFull_name_from_nomenclature_authority\t"
    "Nomenclature_status\tOther_designations\tModification_date\tFeature_type\n"
)
GENES = HEADER + (
    "9606\t999\tXYZ1\t-\tXA|XB\tMIM:1|HGNC:HGNC:5\t1\t1p1\txyz protein 1\tprotein-coding\tXYZ1\t"
    "xyz protein 1\tO\txyz|protein x\t20260101\t-\n"
    "9606\t1000\tXYZP\t-\t-\t-\t1\t-\txyz pseudogene\tpseudo\t-\t-\t-\t-\t20260101\t-\n"
    "9606\t1001\tNEWENTRY\t-\t-\t-\t-\t-\t-\tother\t-\t-\t-\t-\t20260101\t-\n"
)


def test_genes(tmp_path: Path) -> None:
    path = tmp_path / "Some.gene_info"
    path.write_text(GENES, encoding="utf8")
    first = Concept(
        "NCBIGene:999",
        ("XYZ1", "xyz protein 1", "XA", "XB", "xyz", "protein x"),
        types=("Gene", "protein-coding", "NCBITaxon:9606"),
        xrefs=("MIM:1", "HGNC:HGNC:5"),
    )
    second = Concept(
        "NCBIGene:1000",
        ("XYZP", "xyz pseudogene"),
        types=("Gene", "pseudo", "NCBITaxon:9606"),
    )
    assert list(read_gene_info(path)) == list(read_ontology(path)) == [first, second]


def test_a_column_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "Some.gene_info"
    path.write_text(GENES.replace("type_of_gene", "type"), encoding="utf8")
    with pytest.raises(BioelError, match=r"\[B128\].*type_of_gene"):
        list(read_gene_info(path))
