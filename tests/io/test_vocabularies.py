"""Readers of MeSH XML, UMLS, NCBI Gene and ClinVar."""

import gzip
from pathlib import Path

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.ontology import read_mesh_xml
from spacy_bioel.io.table import read_clinvar, read_gene_info, read_umls
from spacy_bioel.types import Concept

DESCRIPTORS = """<?xml version="1.0"?>
<!DOCTYPE DescriptorRecordSet SYSTEM "https://example.invalid/nlmdescriptorrecordset.dtd">
<DescriptorRecordSet LanguageCode="eng">
<DescriptorRecord DescriptorClass="1"><DescriptorUI>D2</DescriptorUI>
<DescriptorName><String>Diabetes Mellitus</String></DescriptorName>
<TreeNumberList><TreeNumber>C18.452.394</TreeNumber><TreeNumber>C19.246</TreeNumber>
</TreeNumberList>
<ConceptList>
<Concept PreferredConceptYN="N"><TermList><Term><String>Sugar Disease</String></Term></TermList>
</Concept>
<Concept PreferredConceptYN="Y"><ScopeNote>High
    glucose.
</ScopeNote><TermList><Term><String>Diabetes Mellitus</String></Term>
<Term><String>Diabetes</String></Term></TermList></Concept>
</ConceptList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D1</DescriptorUI>
<DescriptorName><String>Metabolic Diseases</String></DescriptorName>
<TreeNumberList><TreeNumber>C18.452</TreeNumber></TreeNumberList></DescriptorRecord>
</DescriptorRecordSet>
"""
SUPPLEMENT = """<?xml version="1.0"?>
<SupplementalRecordSet LanguageCode="eng">
<SupplementalRecord><SupplementalRecordUI>C000002</SupplementalRecordUI>
<SupplementalRecordName><String>bevonium</String></SupplementalRecordName>
<Note>structure given</Note>
<HeadingMappedToList>
<HeadingMappedTo><DescriptorReferredTo><DescriptorUI>*D001561</DescriptorUI>
</DescriptorReferredTo></HeadingMappedTo>
<HeadingMappedTo><DescriptorReferredTo><DescriptorUI>D000001</DescriptorUI>
</DescriptorReferredTo></HeadingMappedTo></HeadingMappedToList>
<ConceptList><Concept PreferredConceptYN="Y"><TermList><Term><String>bevonium</String></Term>
<Term><String>Acabel</String></Term></TermList></Concept></ConceptList>
</SupplementalRecord></SupplementalRecordSet>
"""
DIABETES = ("Diabetes Mellitus", "Diabetes", "Sugar Disease")
MESH = {
    DESCRIPTORS: [
        Concept("MESH:D2", DIABETES, ("C18", "C19", "C"), ("MESH:D1",), "High glucose."),
        Concept("MESH:D1", ("Metabolic Diseases",), types=("C18", "C")),
    ],
    SUPPLEMENT: [
        Concept(
            "MESH:C000002",
            ("bevonium", "Acabel"),
            parents=("MESH:D001561", "MESH:D000001"),
            definition="structure given",
        )
    ],
}


@pytest.mark.parametrize(("content", "concepts"), MESH.items(), ids=["desc", "supp"])
def test_mesh(write, content, concepts):
    assert list(read_mesh_xml(write(content))) == concepts


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DescriptorRecordSet", "Other", "B121.*x.txt"),
        ("<DescriptorUI>D1</DescriptorUI>", "", "B122.*'Metabolic Diseases'"),
        ("<String>Metabolic Diseases</String>", "", "B122.*'D1'"),
        ("</DescriptorRecordSet>", "", "B111.*x.txt, line 20"),
    ],
)
def test_malformed_mesh(write, old, new, message):
    with pytest.raises(BioelError, match=message):
        list(read_mesh_xml(write(DESCRIPTORS.replace(old, new))))


def atom(
    cui: str, name: str, *, lat: str = "ENG", ts: str = "S", stt: str = "PF", sab: str = "MSH",
    aui: str = "A0", suppress: str = "N", ispref: str = "Y", code: str = "X",
) -> str:  # fmt: skip
    return f"{cui}|{lat}|{ts}|L1|{stt}|S1|{ispref}|{aui}||||{sab}|MH|{code}|{name}|0|{suppress}||\n"


CONSO = (
    atom("C0000001", "sugar disease", sab="CHV")
    + atom("C0000001", "diabète", lat="FRE", ts="P")
    + atom("C0000001", "DM", ts="P", stt="VO")
    + atom("C0000001", "Diabetes", ts="P", aui="A1")
    + atom("C0000001", "old name", suppress="O")
    + atom("C0000001", "DM", sab="HPO", code="HP:0001250")
    + atom("C0000001", "DM", sab="MTH", code="NOCODE")
    + atom("C0000002", "only French", lat="FRE")
    + atom("C0000003", "Fever", ts="P", sab="CHV")
)
STY = (
    "C0000001|T047|B2|Disease or Syndrome|AT1||\n"
    "C0000002|T047|B2|Disease or Syndrome|AT1||\n"
    "C0000003|T184|A2|Sign or Symptom|AT1||\n"
    "C0000003|T033|A2|Finding|AT1||\n"
)
DEF = (
    "C0000001|A9|AT1||CHV|not of an atom that is taken|N||\n"
    "C0000001|A1|AT1||MSH|withdrawn|O||\n"
    "C0000001|A1|AT2||MSH|High glucose.|N||\n"
)
CUI = (
    "C0000008|2020AA|SY|||C0000001|Y|\n"
    "C0000008|2020AA|RO|||C0000003|Y|\n"
    "C0000009|2020AA|RO|||C0000003|Y|\n"
    "C0000010|2020AA|RO|||C0000001|Y|\n"
    "C0000010|2020AA|RO|||C0000003|Y|\n"
    "C0000011|2020AA|DEL||||Y|\n"
)


@pytest.fixture
def meta(write) -> Path:
    for name, content in [("MRCONSO", CONSO), ("MRSTY", STY), ("MRDEF", DEF), ("MRCUI", CUI)]:
        write(content, f"{name}.RRF")
    return write("", "README").parent


def test_umls(meta):
    assert list(read_umls(meta)) == [
        Concept(
            "C0000001",
            ("Diabetes", "DM", "sugar disease"),
            types=("T047",),
            definition="High glucose.",
            xrefs=("CHV:X", "MSH:X", "HP:0001250"),
        ),
        Concept("C0000003", ("Fever",), types=("T184", "T033"), xrefs=("CHV:X",)),
        Concept("C0000008", (), replaced_by="C0000001"),
        Concept("C0000009", (), replaced_by="C0000003"),
    ]


def test_packed_files_and_optional_ones(meta):
    for name in ("MRDEF", "MRCUI", "MRCONSO"):
        (meta / f"{name}.RRF").unlink()
    (meta / "MRCONSO.RRF.gz").write_bytes(gzip.compress(CONSO.encode()))
    assert [(c.id, c.definition) for c in read_umls(meta)] == [("C0000001", ""), ("C0000003", "")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("MRCONSO", None, "B123.*MRCONSO"),
        ("MRSTY", None, "B123.*MRSTY"),
        (
            "MRCONSO",
            atom("C0000003", "b") + atom("C0000001", "a"),
            "B124.*MRCONSO.RRF, line 2: C0000001.*C0000003",
        ),
        ("MRSTY", STY + "C0000004|T04", "B125.*MRSTY.RRF, line 5"),
    ],
)
def test_damaged_umls(meta, name, content, message):
    (meta / f"{name}.RRF").unlink()
    if content:
        (meta / f"{name}.RRF").write_text(content)
    with pytest.raises(BioelError, match=message):
        list(read_umls(meta))


VARIANTS = (
    "#AlleleID\tType\tName\tGeneID\tGeneSymbol\tRS# (dbSNP)\tAssembly\n"
    "29000\tsingle nucleotide variant\tNM_004333.6(BRAF):c.1799T>A (p.Val600Glu)\t673\tBRAF\t"
    "113488022\tGRCh38\n"
    "29001\tIndel\tNM_004333.6(BRAF):c.1799_1800delinsAA (p.Val600Glu)\t673\tBRAF\t121913377\t"
    "GRCh38\n"
    "29002\tDeletion\tGRCh38/hg38 1q21.1(chr1:1-2)x1\t-1\t-\t-1\tGRCh38\n"
)


def test_variants_of_clinvar(write):
    path = write(VARIANTS, "variant_summary.txt")
    found = list(read_clinvar(path))
    assert found[0] == Concept("dbSNP:rs113488022", ("rs113488022",), ("Variant",))
    assert [(c.id, c.replaced_by) for c in found[1:]] == [
        ("NCBIGene:673:c.1799T>A", "dbSNP:rs113488022"),
        ("NCBIGene:673:p.Val600Glu", "dbSNP:rs113488022"),
        ("dbSNP:rs121913377", ""),
        ("NCBIGene:673:c.1799_1800delinsAA", "dbSNP:rs121913377"),
        ("NCBIGene:673:p.Val600Glu", "dbSNP:rs121913377"),
    ]
    with pytest.raises(BioelError, match="B128"):
        list(read_clinvar(write(VARIANTS.replace("GeneID", "Gene"))))


GENES = (
    "#tax_id\tGeneID\tSymbol\tLocusTag\tSynonyms\tdbXrefs\tchromosome\tmap_location\tdescription\t"
    "type_of_gene\tSymbol_from_nomenclature_authority\tFull_name_from_nomenclature_authority\t"
    "Nomenclature_status\tOther_designations\tModification_date\tFeature_type\n"
    "9606\t999\tXYZ1\t-\tXA|XB\tMIM:1|HGNC:HGNC:5\t1\t1p1\txyz protein 1\tprotein-coding\tXYZ1\t"
    "xyz protein 1\tO\txyz|protein x\t20260101\t-\n"
    "9606\t1000\tXYZP\t-\t-\t-\t1\t-\txyz pseudogene\tpseudo\t-\t-\t-\t-\t20260101\t-\n"
    "9606\t1001\tNEWENTRY\t-\t-\t-\t-\t-\t-\tother\t-\t-\t-\t-\t20260101\t-\n"
)


def test_genes(write):
    path = write(GENES, "Some.gene_info")
    names = ("XYZ1", "xyz protein 1", "XA", "XB", "xyz", "protein x")
    types = ("Gene", "protein-coding", "NCBITaxon:9606")
    assert (
        list(read_gene_info(path))
        == list(read_ontology(path))
        == [
            Concept("NCBIGene:999", names, types, xrefs=("MIM:1", "HGNC:HGNC:5")),
            Concept(
                "NCBIGene:1000", ("XYZP", "xyz pseudogene"), ("Gene", "pseudo", "NCBITaxon:9606")
            ),
        ]
    )
    said = r"\[B128\].* no column \['type_of_gene'\]; its header is \['tax_id'"
    with pytest.raises(BioelError, match=said):
        list(read_gene_info(write(GENES.replace("type_of_gene", "type"))))


def test_genes_of_other_releases(write):
    columns = GENES.partition("\n")[0].lstrip("#").replace("\t", " ")
    old = f"#Format: {columns} (tab is used as a separator)\n9606\t1\tA1BG\n"
    with pytest.raises(BioelError, match=r"\[B128\].*has no column"):
        list(read_gene_info(write(old)))
    for tax_id in ("-", "human", ""):
        with pytest.raises(BioelError, match=r"\[B132\].*tax_id of NCBIGene:999"):
            list(read_gene_info(write(GENES.replace("9606\t999", f"{tax_id}\t999"))))
    cut = GENES.partition("\n")[0] + "\n9606\t7\tABC\n"
    with pytest.raises(BioelError, match=r"\[B510\].*line 2: number of cells: 3, expected 16"):
        list(read_gene_info(write(cut)))
