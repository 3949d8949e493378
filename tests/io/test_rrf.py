from __future__ import annotations

import gzip

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.nlm import read_umls
from spacy_bioel.types import Concept


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
RETIRED = [
    Concept("C0000008", (), replaced_by="C0000001"),
    Concept("C0000009", (), replaced_by="C0000003"),
]


@pytest.fixture
def meta(tmp_path):
    for name, content in [("MRCONSO", CONSO), ("MRSTY", STY), ("MRDEF", DEF), ("MRCUI", CUI)]:
        (tmp_path / f"{name}.RRF").write_text(content, encoding="utf8")
    return tmp_path


def test_concepts_types_definitions_and_retired_ids(meta):
    assert list(read_umls(meta)) == [
        Concept(
            "C0000001",
            ("Diabetes", "DM", "sugar disease"),
            types=("T047",),
            definition="High glucose.",
            xrefs=("CHV:X", "MSH:X"),
        ),
        Concept("C0000003", ("Fever",), types=("T184", "T033"), xrefs=("CHV:X",)),
        *RETIRED,
    ]


def test_packed_files_and_optional_ones(meta):
    (meta / "MRDEF.RRF").unlink()
    (meta / "MRCUI.RRF").unlink()
    (meta / "MRCONSO.RRF").unlink()
    (meta / "MRCONSO.RRF.gz").write_bytes(gzip.compress(CONSO.encode()))
    assert [(c.id, c.definition) for c in read_umls(meta)] == [("C0000001", ""), ("C0000003", "")]


@pytest.mark.parametrize("name", ["MRCONSO", "MRSTY"])
def test_missing_file(meta, name):
    (meta / f"{name}.RRF").unlink()
    with pytest.raises(BioelError, match=f"B123.*{name}"):
        list(read_umls(meta))


def test_unsorted(meta):
    (meta / "MRCONSO.RRF").write_text(atom("C0000003", "b") + atom("C0000001", "a"))
    with pytest.raises(BioelError, match="B124.*MRCONSO.RRF, line 2: C0000001.*C0000003"):
        list(read_umls(meta))


def test_truncated_row(meta):
    (meta / "MRSTY.RRF").write_text(STY + "C0000004|T04")
    with pytest.raises(BioelError, match="B125.*MRSTY.RRF, line 5"):
        list(read_umls(meta))


def test_codes_of_other_vocabularies(meta):
    codes = [
        atom("C0000001", "Seizure", ts="P", sab="MSH", code="D012640"),
        atom("C0000001", "Seizure", sab="HPO", code="HP:0001250"),
        atom("C0000001", "Fit", sab="MSH", code="D012640"),
        atom("C0000001", "Fit", sab="MTH", code="NOCODE"),
        atom("C0000001", "Old fit", sab="RCD", code="F25", suppress="O"),
        atom("C0000001", "Crise", sab="MSHFRE", code="D012640", lat="FRE"),
    ]
    (meta / "MRCONSO.RRF").write_text("".join(codes), encoding="utf8")
    expected = ("MSH:D012640", "HP:0001250")
    assert next(read_umls(meta)).xrefs == expected
