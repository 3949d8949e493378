"""Names of genes, organisms and cell lines that training/scripts/type_names.py writes."""

from __future__ import annotations

import gzip
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import srsly

ROOT = Path(__file__).parents[1]
GENES = (
    "#tax_id\tGeneID\tSymbol\tSynonyms\tdbXrefs\tdescription\ttype_of_gene\t"
    "Full_name_from_nomenclature_authority\tOther_designations\n"
    "9606\t1\tABC1\tAB|A1\t-\talpha protein\tprotein-coding\talpha protein\t-\n"
    "9606\t2\tABC1P\t-\t-\tpseudogene\tpseudo\t-\t-\n"
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
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module type_names.py, in an empty project folder."""
    monkeypatch.syspath_prepend(ROOT / "training" / "scripts")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project.yml").write_text("assets: []\n")
    (tmp_path / "spacy_bioel" / "assets").mkdir(parents=True)
    return import_module("type_names")


def written(name: str) -> list[dict[str, Any]]:
    return list(srsly.read_gzip_jsonl(Path("spacy_bioel/assets") / f"{name}.jsonl.gz"))


def test_genes_that_are_transcribed(script: Any, tmp_path: Path) -> None:
    (tmp_path / "Homo_sapiens.gene_info").write_text(GENES)
    script.genes("2026-11", data=str(tmp_path))
    assert written("genes") == [
        {
            "id": "NCBIGene:1",
            "names": ["ABC1", "alpha protein", "AB", "A1"],
            "types": ["Gene", "protein-coding", "NCBITaxon:9606"],
        }
    ]
    about = json.loads(Path("spacy_bioel/assets/genes.json").read_text())
    assert (about["source"], about["release"]) == ("NCBI Gene, human", "2026-11")


def test_cell_lines_of_training_documents(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bioid_figures.PubTator.txt.gz").write_bytes(gzip.compress(LEGENDS.encode()))
    monkeypatch.setattr(script, "_TRAINING", range(5))
    script.cells(data=str(tmp_path))
    # A word like any other is no name, and of two ids nobody knows which.
    assert written("cells") == [
        {"id": "CVCL_0030", "names": ["HeLa", "HELA"], "types": ["CellLine"]}
    ]


@pytest.mark.parametrize(
    ("rank", "division", "known", "expected"),
    [
        (23, 0, {"common_name"}, True),
        (23, 0, {"taxid2refseq"}, True),
        (26, 0, {"taxid2refseq"}, False),  # a strain
        (23, 4, {"en_wiki_title"}, True),
        (23, 1, {"en_wiki_title"}, False),  # an insect
        (8, 4, {"en_wiki_title"}, False),  # a genus
        (23, 0, set(), False),
    ],
)
def test_taxa_that_texts_write_of(
    script: Any, rank: int, division: int, known: set[str], expected: bool
) -> None:
    assert script._is_written_of(rank, division, known) is expected


def test_short_forms(script: Any) -> None:
    assert script._short_forms("Escherichia coli") == ["E. coli"]
    assert script._short_forms("Human immunodeficiency virus 1") == []
    assert script._short_forms("Escherichia") == []
