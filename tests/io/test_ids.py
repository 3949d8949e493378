from __future__ import annotations

import pytest

from spacy_bioel.io.records import curie, split_ids, unique_names


@pytest.mark.parametrize(
    ("raw", "prefix", "expected"),
    [
        ("D003920", "MESH", "MESH:D003920"),
        (" D003920 ", "", "D003920"),
        ("MESH:D003920", "MESH", "MESH:D003920"),
        ("mesh:D003920", "", "MESH:D003920"),
        ("OMIM:261600", "MESH", "OMIM:261600"),
        ("261600", "MESH", "OMIM:261600"),
        ("261600", "SNOMED", "SNOMED:261600"),
        ("UMLS:C0011849", "", "C0011849"),
        ("Cellosaurus:CVCL_0132", "", "CVCL_0132"),
        ("C0011849", "UMLS", "C0011849"),
        ("HP:0001250", "MESH", "HP:0001250"),
        ("DO:DOID:0001816", "MESH", "DOID:0001816"),
        ("", "MESH", ""),
    ],
)
def test_curie(raw, prefix, expected):
    assert curie(raw, prefix) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("D1|D2", ("MESH:D1", "MESH:D2")),
        ("D1+D2;D3,D1", ("MESH:D1", "MESH:D2", "MESH:D3")),
        ("300322+OMIM:102600", ("OMIM:300322", "OMIM:102600")),
        ("-1", ()),
        ("", ()),
        ("-", ()),
        ("NIL", ()),
        ("CUI-less", ()),
        ("D1|-1", ("MESH:D1",)),
    ],
)
def test_split_ids(raw, expected):
    assert split_ids(raw, "MESH") == expected


def test_unique_names_keeps_order():
    assert unique_names(["b ", "", "a", "b", "B"]) == ("b", "a", "B")
