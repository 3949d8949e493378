"""OBO as real files have it: escapes, modifiers, comments, sources that are no ids."""

from __future__ import annotations

import logging
import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.ontology import read_obo, read_obo_header
from spacy_bioel.types import Concept

HEAD = "format-version: 1.2\ndefault-namespace: toy\n\n[Term]\nid: X:1\n"


def read(tmp_path: Path, lines: str, *, head: str = HEAD) -> list[Concept]:
    path = tmp_path / "toy.obo"
    path.write_text(head + lines, encoding="utf8")
    return list(read_obo(path))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("name: limb bud", ("limb bud",)),
        ("name:limb bud  ", ("limb bud",)),
        ("name: limb bud ! of a limb", ("limb bud",)),
        ('name: limb bud {source="X:7", comment="a ! b"} ! of a limb', ("limb bud",)),
        (r"name: limb\: bud\, \"A\" \[b\] \{c\}\! \\ d\We", (r'limb: bud, "A" [b] {c}! \ d e',)),
        ("name: 2-{[(1R)-1-amino]}acid {x}", ("2-{[(1R)-1-amino]}acid {x}",)),
        ("name: limb \\\nbud", ("limb bud",)),
        ("name: limb bud\\\\\nsynonym: \"bud\" EXACT []", ("limb bud\\", "bud")),
        ("name: a\n! name: b\n\n[Typedef]\nid: part_of\nname: part of", ("a",)),
    ],
)  # fmt: skip
def test_names(tmp_path: Path, line: str, names: tuple[str, ...]) -> None:
    assert read(tmp_path, f"{line}\n") == [Concept("X:1", names, types=("toy",))]


@pytest.mark.parametrize(
    "rest",
    [
        "",
        " EXACT",
        " EXACT []",
        "EXACT[X:2]",
        ' EXACT ABBREVIATION [NIFSTD:a_Source\\,NIFSTD\\:birnlex_1] {source="X:1"} ! bud',
        " EXACT [TAO:Bird and Mabee 2003]",
        r" EXACT [:ISBN 3-89937-052-X [Goujet and Young 2004\]]",
        " PLURAL [isbn 0080923437]",
        " [X:2]",
    ],
)
def test_what_follows_a_synonym_does_not_matter(tmp_path: Path, rest: str) -> None:
    lines = f'name: limb\nsynonym: "limb \\"bud\\"; a, b"{rest}\n'
    assert read(tmp_path, lines)[0].names == ("limb", 'limb "bud"; a, b')


def test_scopes_are_the_order_of_names(tmp_path: Path) -> None:
    lines = (
        'synonym: "e" RELATED []\nsynonym: "d" []\nsynonym: "c" BROAD []\nsynonym: "b" EXACT []\n'
        'exact_synonym: "a" [X:1]\nname: z\nsynonym: "n" NARROW LATIN []\nrelated_synonym: "f" []\n'
    )
    assert read(tmp_path, lines)[0].names == ("z", "a", "b", "n", "c", "d", "e", "f")


def test_ids_have_modifiers_and_comments(tmp_path: Path) -> None:
    lines = (
        'name: artery\nis_a: X:3 {source="cjm", is_inferred="true"} ! mesenteric artery\n'
        "is_a: X:2 ! vessel\nalt_id: X:9\nalt_id: X\\:8\nnamespace: blood ! all\n\n"
        '[Term] ! old\nid: X:4\nname: gone\nis_obsolete: true {xref="X:5"}\nreplaced_by: X:1 ! a\n'
    )
    assert read(tmp_path, lines) == [
        Concept("X:1", ("artery",), types=("blood",), parents=("X:2", "X:3")),
        Concept("X:8", (), replaced_by="X:1"),
        Concept("X:9", (), replaced_by="X:1"),
        Concept("X:4", ("gone",), replaced_by="X:1"),
    ]


@pytest.mark.parametrize(
    ("line", "xrefs"),
    [
        ('xref: MESH:D1 "a name" {source="x"} ! b', ("MESH:D1",)),
        (r"xref: http://en.wikipedia.org/wiki/File\:Gray793.png", ("http://en.wikipedia.org/wiki/File:Gray793.png",)),
        (r"xref: http\://x.org/R-Z\,%20a.htm", ("http://x.org/R-Z,%20a.htm",)),
        ('xref: EFO:1{source="MONDO"}', ("EFO:1",)),
    ],
)  # fmt: skip
def test_cross_references(
    tmp_path: Path, line: str, xrefs: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    assert read(tmp_path, f"name: a\n{line}\n")[0].xrefs == xrefs
    assert not caplog.records


def test_what_names_do_not_need_is_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (
        'name: a\ndef: "A thing, \\"b\\"." [GO:[GOC\\:mtg_sensu\\, ISBN\\:1\\]]\n'
        "xref: PHENOSCAPE: wd\nxref: PMID:1 \\n\nxref:\nproperty_value: anything {at all\n"
        'relationship: [x\ncomment: \\"a\n\n[Term]\nid: X:2\nname: b\ndef: no quotes\nxref: A:1\n'
    )
    with caplog.at_level(logging.WARNING):
        first, second = read(tmp_path, lines)
    assert (first.definition, first.xrefs) == ('A thing, "b".', ())
    assert (second.definition, second.xrefs) == ("", ("A:1",))
    (record,) = caplog.records
    message = record.getMessage()
    assert (
        message.startswith("[W477]")
        and ": 4, the first in line 8: 'xref: PHENOSCAPE: wd'" in message
    )


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        ("name: a\nsynonym: no quotes", 7),
        ('name: a\nsynonym: "no end', 7),
        ("name: a\nis_a: two ids", 7),
        ("name: a\nis_a:", 7),
        ("name: a\nreplaced_by: X:2 X:3", 7),
        ("name: a\nis_obsolete: maybe", 7),
        ("name: a\nid: X:2", 4),
        ("name: a\nhalf of a line", 7),
        ("name: a\n[broken", 7),
        ("name: a\n\n[Term]\nname: b", 8),
    ],
)
def test_ids_and_names_are_strict(tmp_path: Path, lines: str, number: int) -> None:
    with pytest.raises(BioelError, match=rf"\[B116\] .*toy.obo, line {number}: expected"):
        read(tmp_path, f"{lines}\n")


def test_the_first_lines_are_strict(tmp_path: Path) -> None:
    with pytest.raises(BioelError, match=r"\[B116\] .*line 1: expected TAG: VALUE"):
        read(tmp_path, "", head="nothing of the kind\n")


def test_terms_are_streamed(tmp_path: Path) -> None:
    path = tmp_path / "large.obo"
    term = '[Term]\nid: X:{n}\nname: thing {n}\nsynonym: "{n} things" EXACT []\n\n'
    path.write_text("format-version: 1.2\n\n" + "".join(term.format(n=n) for n in range(50_000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_obo(path)) == 50_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # bytes; the file has 3.5 million
    finally:
        tracemalloc.stop()


def test_a_zip_of_one_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "toy.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._toy.obo", "x")
        archive.writestr("toy/", "")
        archive.writestr("toy/toy.obo", f"! by hand\ndata-version: 7\n{HEAD}name: limb\n")
    assert list(read_ontology(path)) == [Concept("X:1", ("limb",), types=("toy",))]
    assert read_obo_header(path) == ("7", "")


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "records", "names", "left_out"),
    [
        ("hp.obo.gz", 23_222, 41_861, 0),
        ("UBERON_2016.obo.zip", 13_610, 48_794, 1),
        ("CL_2016.obo.zip", 2_147, 4_151, 1),
        ("SO_2016.obo.zip", 2_355, 5_966, 0),
    ],
)
def test_real_ontologies(
    name: str, records: int, names: int, left_out: int, caplog: pytest.LogCaptureFixture
) -> None:
    concepts = list(read_ontology(Path(os.environ["BIOEL_DATA"]) / "names" / "obo" / name))
    assert (len(concepts), sum(len(c.names) for c in concepts)) == (records, names)
    messages = [record.getMessage() for record in caplog.records]
    assert [f": {left_out}, the first" in message for message in messages] == [True] * left_out
