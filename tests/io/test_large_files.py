"""Files that are large, deep or wide are read in a stream, or refused; they stop no reader."""

import tracemalloc
import zipfile
from pathlib import Path

import pytest
from io_cases import load

from spacy_bioel.cli.inputs import stream_documents
from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_corpus, read_ontology
from spacy_bioel.io.ontology import read_obo, read_obo_header
from spacy_bioel.types import Concept

GOOD = dict(load("good.yml"))


def test_terms_of_obo_are_streamed(write):
    term = '[Term]\nid: X:{n}\nname: thing {n}\nsynonym: "{n} things" EXACT []\n\n'
    path = write("format-version: 1.2\n\n" + "".join(term.format(n=n) for n in range(3_000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_obo(path)) == 3_000
        assert tracemalloc.get_traced_memory()[1] < 150_000  # bytes; the file has 200,000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("[" * 100_000 + "]" * 100_000, "more than 100 deep"),
        ("[" * 101 + "]" * 101, "more than 100 deep"),
        ("9" * 5000, "thousands of digits"),
    ],
)
def test_deep_json_is_refused(write, value, found):
    path = write(f'{{"id": "1", "names": [], "x": {value}}}\n', "x.jsonl")
    with pytest.raises(BioelError, match=rf"\[B131\] .*line 1: .*{found}"):
        list(read_ontology(path, format="jsonl"))


def test_deep_xml_is_refused(write):
    deep = "<sentence>" * 9000 + "</sentence>" * 9000
    content = GOOD["corpus bioc-xml 1"].files["x.txt"].decode()
    with pytest.raises(BioelError, match=r"\[B112\].*Recursion"):
        list(read_corpus(write(content.replace("<offset>0", f"{deep}<offset>0"))))


def test_a_cell_of_134_megabytes_is_refused(tmp_path):
    (tmp_path / "texts.csv").write_bytes(b'id,text\n1,"a\n' + b"x" * (1 << 27) + b'\n"\n')
    with pytest.raises(BioelError, match=r"\[B479\] .*texts.csv, line 2:"):
        list(stream_documents(str(tmp_path / "texts.csv"), None))


def test_many_columns_that_are_not_read_are_counted(write, caplog):
    others = [f"c{n}" for n in range(250)]
    path = write(",".join(["id", "name", *others, ""]) + "\n1,Gout" + "," * 251 + "\n", "t.csv")
    assert len(list(read_ontology(path))) == 1
    (message,) = caplog.messages
    assert "not read: 250 ('c0', " in message and "'c9')." in message and "c10" not in message


def test_bars_after_the_rows_that_decide_what_separates_synonyms(write, caplog):
    rows = "".join(f"{n},N{n},a{n};b{n}\n" for n in range(1500))
    path = write(f"id,name,synonyms\n{rows}x,X,c|d\n", "t.csv")
    assert [concept.names for concept in read_ontology(path)][-1] == ("X", "c|d")
    assert "[W478]" in caplog.text and "there: 1,500, with a bar: 1." in caplog.text


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            "data-version: x/releases/2025-01-16\nproperty_value: terms:license https://x.org/a\n",
            ("x/releases/2025-01-16", "https://x.org/a"),
        ),
        ('property_value: dcterms-license "CC BY 4.0" xsd:string\n', ("", "CC BY 4.0")),
        ("property_value: http://purl.org/dc/terms/license http://y.org\n", ("", "http://y.org")),
        ("remark: the license is elsewhere\n", ("", "")),
    ],
)
def test_release_and_licence_of_an_obo_header(write, header, expected):
    path = write(f"format-version: 1.2\n{header}\n[Term]\nid: X:1\ndata-version: no\n", "toy.obo")
    assert read_obo_header(path) == expected


def test_a_zip_of_one_file_is_read(tmp_path):
    path = tmp_path / "toy.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._toy.obo", "x")
        archive.writestr("toy/", "")
        head = "! by hand\ndata-version: 7\nformat-version: 1.2\n\n[Term]\nid: X:1\n"
        archive.writestr("toy/toy.obo", f"{head}name: limb\n")
    assert list(read_ontology(path)) == [Concept("X:1", ("limb",))]
    assert read_obo_header(path) == ("7", "")


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "records", "names", "left_out"),
    [
        ("hp.obo.gz", 23_317, 41_956, 0),  # a retired id with two replacements is two records
        ("UBERON_2016.obo.zip", 14_403, 50_232, 1),
        ("CL_2016.obo.zip", 2_236, 4_256, 1),
        ("SO_2016.obo.zip", 2_503, 6_220, 0),
    ],
)
def test_real_ontologies_in_obo(data_folder, name, records, names, left_out, caplog):
    concepts = list(read_ontology(data_folder / "names" / "obo" / name))
    assert (len(concepts), sum(len(c.names) for c in concepts)) == (records, names)
    assert [f": {left_out}, the first" in said for said in caplog.messages] == [True] * left_out


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["MONDO*.json.zst", "UBERON*.json.zst", "CL*.json.zst"])
def test_real_ontologies_in_json(data_folder: Path, caplog, name):
    (path,) = (data_folder / "names" / "obo").glob(name)
    assert sum(1 for _ in read_ontology(path)) > 2000 and not caplog.messages
