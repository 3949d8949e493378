"""The format of a file is recognised by its content, whatever its name."""

import gzip
from pathlib import Path

import pytest
import srsly
from io_cases import HERE, load

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import (
    CORPUS_FORMATS,
    detect_corpus_format,
    detect_ontology_format,
    read_corpus,
    read_ontology,
)
from spacy_bioel.io.jsonl import read_texts_jsonl, write_texts_jsonl
from spacy_bioel.types import AnnotatedText, Concept, Mention

DETECT = {"corpus": detect_corpus_format, "ontology": detect_ontology_format}
STARTS = srsly.read_yaml(HERE / "strings.yml")["starts"]
# The first file of each section that names a format, and for options has none.
FILES = {
    name: case
    for name, case in load("good.yml")
    if name.endswith(" 1") and name.split()[0] in DETECT and "table," not in name
}


@pytest.mark.parametrize("name", FILES)
def test_good_files_are_recognised(name, tmp_path):
    kind, *format = name.partition(",")[0].removesuffix(" 1").split(" ")
    path = FILES[name].write(tmp_path)
    if path.is_file() and "obo, tags" not in name:
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert DETECT[kind](path) == (format[0] if format else "table")


@pytest.mark.parametrize("format", STARTS)
def test_formats_are_recognised_by_their_start(write, format):
    detect = DETECT["corpus" if format.split()[0] in CORPUS_FORMATS else "ontology"]
    detect = DETECT["ontology"] if format == "jsonl" else detect
    for content in STARTS[format]:
        for start in ("", " " * 70_000):  # leading white space is skipped
            assert detect(write(start + content)) == format.split()[0]


@pytest.mark.parametrize("suffix", [".ann", ".txt"])
def test_a_pair_of_brat_is_recognised_by_either_file(tmp_path, suffix):
    FILES["corpus brat 1"].write(tmp_path)
    (tmp_path / "annotation.conf").write_text("[entities]\n")
    assert detect_corpus_format(tmp_path) == "brat"
    assert list(read_corpus(tmp_path / f"7{suffix}")) == list(read_corpus(tmp_path))
    path = tmp_path / f"7{suffix}"
    path.with_suffix({".ann": ".txt", ".txt": ".ann"}[suffix]).unlink()
    with pytest.raises(BioelError, match=r"\[B263\]"):
        list(read_corpus(path, format="brat"))


def test_texts_that_we_write_are_read(tmp_path):
    mentions = Mention(0, 23, "Disease", ("D1", "D2"), ((0, 5), (16, 23))), Mention(10, 15, "")
    texts = [AnnotatedText("1", "renal and liver failure", mentions), AnnotatedText("2", "naïve")]
    write_texts_jsonl(tmp_path / "texts.jsonl", iter(texts))
    assert list(read_texts_jsonl(tmp_path / "texts.jsonl")) == texts


def test_columns_are_of_tables(write):
    path, columns = write("id\tname\nD1\tflu\n", "names.tsv"), {"id": "id", "name": "name"}
    assert list(read_ontology(path, columns=columns)) == [Concept("D1", ("flu",))]
    with pytest.raises(BioelError, match="B135.*'obo'"):
        read_ontology(path, format="obo", columns=columns)


def test_unknown_formats(write):
    path: Path = write("Once upon a time\n", "prose.txt")
    with pytest.raises(BioelError, match="B133.*prose.txt.*'Once upon.*pubtator"):
        read_corpus(path)
    with pytest.raises(BioelError, match="B133.*obo"):
        read_ontology(path)
    with pytest.raises(BioelError, match="B134.*'conll'.*pubtator"):
        read_corpus(path, format="conll")
    with pytest.raises(BioelError, match="B134.*'conll'.*cellxgene"):
        read_ontology(path, format="conll")
    with pytest.raises(BioelError, match="B133"):
        detect_corpus_format(write(" " * 70_000))
