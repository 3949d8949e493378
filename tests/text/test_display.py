"""What is shown of a link."""

from __future__ import annotations

import pytest

from spacy_bioel.text.display import address_of, to_hgvs


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
def test_the_page_of_a_concept(id: str, address: str) -> None:
    assert address_of(id) == address


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("V600E|Val600Glu|p.V600E|p.(Val600Glu)|Val 600 Glu|Val-600-Glu", "p.Val600Glu"),
        ("R506X|R506*|Arg506Stop", "p.Arg506Ter"),
        ("p.A146T", "p.Ala146Thr"),
        ("R97fs", "p.Arg97fs"),
        ("p.Gln39fsX12", "p.Gln39fs"),
        ("F508del|ΔF508|delF508", "p.Phe508del"),
        ("c.1799T>A|c.1799 t-->a", "c.1799T>A"),
        ("c.35delG", "c.35del"),
        ("c.76_77insT", "c.76_77insT"),
        ("c.88+2T>G", "c.88+2T>G"),
        ("c.-21C/T", "c.-21C>T"),
        ("g.76_83delinsTG", "g.76_83delinsTG"),
        # Those that say too little.
        ("C677T|A146T|rs113488022|1799T>A|exon 3 deletion|V600||B2C|T4|n3İ|V٣E", None),
    ],
)
def test_variants(texts: str, expected: str | None) -> None:
    assert {to_hgvs(text) for text in texts.split("|")} == {expected}
