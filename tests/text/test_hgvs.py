"""Sequence variants in the notation of HGVS."""

from __future__ import annotations

import pytest

from spacy_bioel.text.variants import to_hgvs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("V600E", "p.Val600Glu"),
        ("Val600Glu", "p.Val600Glu"),
        ("p.V600E", "p.Val600Glu"),
        ("p.(Val600Glu)", "p.Val600Glu"),
        ("Val 600 Glu", "p.Val600Glu"),
        ("Val-600-Glu", "p.Val600Glu"),
        ("R506X", "p.Arg506Ter"),
        ("R506*", "p.Arg506Ter"),
        ("Arg506Stop", "p.Arg506Ter"),
        ("p.A146T", "p.Ala146Thr"),
        ("R97fs", "p.Arg97fs"),
        ("p.Gln39fsX12", "p.Gln39fs"),
        ("F508del", "p.Phe508del"),
        ("ΔF508", "p.Phe508del"),
        ("delF508", "p.Phe508del"),
        ("c.1799T>A", "c.1799T>A"),
        ("c.1799 t-->a", "c.1799T>A"),
        ("c.35delG", "c.35del"),
        ("c.76_77insT", "c.76_77insT"),
        ("c.88+2T>G", "c.88+2T>G"),
        ("c.-21C/T", "c.-21C>T"),
        ("m.3243A>G", "m.3243A>G"),
        ("g.76_83delinsTG", "g.76_83delinsTG"),
    ],
)
def test_variants(text: str, expected: str) -> None:
    assert to_hgvs(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "C677T",
        "A146T",
        "rs113488022",
        "1799T>A",
        "exon 3 deletion",
        "V600",
        "",
        "B2C",
        "T4",
        "n3İ",
        "V٣E",
    ],
)
def test_those_that_say_too_little(text: str) -> None:
    assert to_hgvs(text) is None
