"""Web addresses of concepts."""

import pytest

from spacy_bioel.export.html import address_of


@pytest.mark.parametrize(
    ("id", "address"),
    [
        ("MESH:D003920", "https://meshb.nlm.nih.gov/record/ui?ui=D003920"),
        ("HP:0001250", "http://purl.obolibrary.org/obo/HP_0001250"),
        ("mondo:0005148", "http://purl.obolibrary.org/obo/MONDO_0005148"),
        ("CVCL_0132", "https://www.cellosaurus.org/CVCL_0132"),
        ("C0011849", "https://uts.nlm.nih.gov/uts/umls/concept/C0011849"),
        ("rs113488022", "https://www.ncbi.nlm.nih.gov/snp/rs113488022"),
        ("dbSNP:rs1", "https://www.ncbi.nlm.nih.gov/snp/rs1"),
        ("MESH:D1&x=\"'<>/#", "https://meshb.nlm.nih.gov/record/ui?ui=D1%26x%3D%22%27%3C%3E%2F%23"),
        *((id, "") for id in ("", "NIL", "MINE:1", "MESH:", "CHAIR", "javascript:alert(1)")),
    ],
)
def test_the_page_of_a_concept(id, address):
    assert address_of(id) == address
