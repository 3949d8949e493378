"""SSSOM files in and out, and links with the ids of another vocabulary."""

import csv
import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from kb_files import made_kb
from tables import cases, concepts_of

from spacy_bioel.errors import BioelError
from spacy_bioel.export.formats import TextFormat, format_of
from spacy_bioel.export.rows import LinkedText
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.curation.mappings import LinksAs, read_sssom, sssom_lines
from spacy_bioel.types import Candidate, Link

CONCEPTS = concepts_of(cases(__file__, "mapped"))
HEAD, COLUMNS = cases(__file__, "sssom")
HAND = "semapv:ManualMappingCuration"


@pytest.fixture()
def kb(tmp_path) -> KnowledgeBase:
    about = {"source": "mini", "licence": "https://x.org/cc0", "release": "7"}
    return made_kb(tmp_path / "kb", CONCEPTS, **about)


def mapped(path: Path, kb: KnowledgeBase, rows: str) -> tuple[dict[str, tuple[str, ...]], Counter]:
    path.write_text(HEAD + rows, encoding="utf8")
    left_out = Counter[str]()
    found = {c.id: c.xrefs for c in read_sssom(path, kb, left_out) if c.xrefs}
    return found, left_out


@pytest.mark.parametrize("subject, predicate, target, expected", cases(__file__, "exact_mappings"))
def test_exact_mappings(tmp_path, kb, subject, predicate, target, expected):
    row = f'{subject}\t"a ""quoted"" name"\t{predicate}\t{target}\t{HAND}\n'
    id, xref = expected
    assert mapped(tmp_path / "x.sssom.tsv", kb, COLUMNS + row) == ({id: (xref,)}, Counter())


def test_mappings_that_are_left_out(tmp_path, kb):
    rows = ("\t".join(row) + "\n" for row in cases(__file__, "left_out_mappings"))
    assert mapped(tmp_path / "x.tsv", kb, "".join(rows)) == (
        {"MONDO:0009061": ("DOID:1485",)},
        {"not skos:exactMatch": 4, "of other concepts": 1},
    )


@pytest.mark.parametrize(
    "rows, message",
    [
        (COLUMNS.replace("object_id", "object"), "B128.*object_id"),
        (f"{COLUMNS}MONDO:0009061\tCF\tskos:exactMatch\n", "B510.*line 9: .*3, expected 5"),
        ("", "B128"),
    ],
)
def test_faults_of_mappings(tmp_path, kb, rows, message):
    with pytest.raises(BioelError, match=message):
        mapped(tmp_path / "x.tsv", kb, rows)


def test_add_mappings(tmp_path, kb, bioel):
    path, more = tmp_path / "x.sssom.tsv.gz", tmp_path / "more.tsv"
    rows = f"{COLUMNS}MONDO:0009061\tCF\tskos:exactMatch\tDOID:1485\t{HAND}\n"
    path.write_bytes(gzip.compress(f"{HEAD}{rows}MONDO:9\t\tskos:exactMatch\tX:1\t\n".encode()))
    more.write_text("id\tname\nMONDO:0009061\tfibrocystic disease\n")
    shown = bioel("kb", "add", kb.path, more, "--sssom", path)
    assert "W413" in shown.err and "of other concepts: 1" in shown.words
    after = KnowledgeBase.open(tmp_path / "kb")
    assert after["MONDO:0009061"].xrefs == ("DOID:1485",)
    assert "fibrocystic disease" in after["MONDO:0009061"].names
    assert after.meta["source"] == "mini, more.tsv, x.sssom.tsv.gz"
    bioel("kb", "add", kb.path, "--sssom", path)
    assert KnowledgeBase.open(tmp_path / "kb").fingerprint == after.fingerprint
    assert "B638" in bioel("kb", "add", kb.path, status=2).err


def test_export_cross_references(tmp_path, kb, bioel):
    out = tmp_path / "x.sssom.tsv"
    shown = bioel("kb", "export", kb.path, "-o", out)
    assert "W414" in shown.err and "PREFIX:ID: 2 (Wiki, http)." in shown.err
    lines = out.read_text("utf8").splitlines()
    prefixes, expected = cases(__file__, "exported_mappings")
    assert lines[0] == "# curie_map:"
    assert lines[3:8] == [f'#   {prefix}: "{address}"' for prefix, address in prefixes.items()]
    assert '# license: "https://x.org/cc0"' in lines
    rows = list(csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t"))
    assert {row["predicate_id"] for row in rows} == {"oboInOwl:hasDbXref"}
    keys = ("subject_id", "subject_label", "object_id")
    assert [tuple(row[key] for key in keys) for row in rows] == [*expected]


def test_the_package_sssom_reads_the_file(tmp_path, kb):
    parsers = pytest.importorskip("sssom.parsers")
    path = tmp_path / "x.sssom.tsv"
    path.write_text("".join(sssom_lines(kb, Counter())), encoding="utf8")
    read = parsers.parse_sssom_table(path)
    pairs = sorted(zip(read.df["subject_id"], read.df["object_id"], strict=True))
    assert len(pairs) == 5 and ("MONDO:0007739", "OMIM:143100") in pairs
    assert read.metadata["license"] == "https://x.org/cc0"


def linked(kb: KnowledgeBase, *ids: str, others: tuple[str, ...] = ()) -> LinkedText:
    found = tuple(Candidate(id, 0.9, "HD", "exact", kb.fingerprint) for id in (*ids, *others))
    return LinkedText("1", "HD and CF", (Link(0, 2, "Disease", ids, found),))


def written(document: LinkedText, suffix: str, path: Path, **options: bool) -> str:
    format = format_of(suffix, **options)
    assert isinstance(format, TextFormat)
    with path.open("w", encoding="utf8", newline="") as file, format.writing(file) as write:
        write(document)
    return path.read_text("utf8")


def test_links_as_another_vocabulary(tmp_path, kb):
    links_as = LinksAs("omim", kb)
    (link,) = links_as(linked(kb, "MONDO:0007739", others=("MONDO:0009061",))).links
    assert link.ids == ("OMIM:143100",)
    assert [c.id for c in link.candidates] == ["OMIM:143100", "MONDO:0009061"]
    assert link.candidates[0].concept.id == "MONDO:0007739"  # the concept stays the same
    assert link.candidates[0].xrefs == ("OMIM:143100", "OMIM:1")
    assert not links_as.kept
    document = LinkedText("1", "HD and CF", (link,))
    row = written(document, ".csv", tmp_path / "x").splitlines()[1]
    assert row.startswith("1,0,2,HD,Disease,OMIM:143100,Huntington disease,HD,0.9,exact")
    assert "Huntington disease" in written(document, ".html", tmp_path / "x")
    (shown,) = json.loads(written(document, ".jsonl", tmp_path / "x", xrefs=True))["links"]
    assert shown["candidates"][0]["xrefs"] == ["OMIM:143100", "OMIM:1"]


def test_links_without_an_id_there_keep_theirs(kb):
    links_as = LinksAs("OMIM", kb)
    (link,) = links_as(linked(kb, "MONDO:0009061", "MONDO:0007739")).links
    assert link.ids == ("MONDO:0009061", "OMIM:143100")
    links_as(linked(kb, "MONDO:0009061"))
    variant = LinkedText("1", "V600E", (Link(0, 5, "Variant", ("dbSNP:rs1",)), Link(0, 1, "D")))
    assert links_as(variant) == variant
    assert links_as.kept == {"MONDO:0009061": 2, "dbSNP:rs1": 1}


def test_spellings_of_a_vocabulary(kb):
    (link,) = LinksAs("UMLS", kb)(linked(kb, "C0011849")).links
    assert link.ids == ("C0011849",)  # of the vocabulary already
    (link,) = LinksAs("MSH", kb)(linked(kb, "MONDO:0005148")).links
    assert link.ids == ("MESH:D003924",)
    with pytest.raises(BioelError, match="B609.*OMMI.*BTO, CVCL, MESH, MONDO, OMIM, UMLS, Wiki"):
        LinksAs("OMMI", kb)


def test_link_as_on_the_command_line(tmp_path, kb, bioel):
    (tmp_path / "notes.txt").write_text("Huntington disease.\nCystic fibrosis.\n")
    shown = bioel("link", kb.path, tmp_path / "notes.txt", "--as", "OMIM")
    assert [row["links"][0]["id"] for row in shown.rows] == ["OMIM:143100", "MONDO:0009061"]
    assert "W412" in shown.err and "MONDO:0009061" in shown.err
    shown = bioel("link", kb.path, tmp_path / "notes.txt", "--as", "OMMI", status=2)
    assert "B609" in shown.err


@pytest.mark.realdata
def test_the_mappings_of_mondo(tmp_path, bioel):
    obo = Path(os.environ["BIOEL_DATA"]) / "names" / "obo"
    bioel("kb", "build", tmp_path / "kb", obo / "MONDO-ontology-v2026-05-05.json.zst")
    files = sorted((obo / "mondo_sssom").iterdir())
    assert len(files) == 8
    bioel("kb", "add", tmp_path / "kb", *(word for file in files for word in ("--sssom", file)))
    kb = KnowledgeBase.open(tmp_path / "kb")
    assert set(kb["MONDO:0005148"].xrefs) >= {"DOID:9352", "mesh:D003924", "SCTID:44054006"}
    (link,) = LinksAs("MESH", kb)(linked(kb, "MONDO:0005148")).links
    assert link.ids == ("MESH:D003924",)
