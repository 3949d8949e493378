import gzip

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import (
    CORPUS_FORMATS,
    ONTOLOGY_FORMATS,
    detect_corpus_format,
    detect_ontology_format,
    read_corpus,
    read_ontology,
)
from spacy_bioel.types import AnnotatedText, Concept, Mention

CORPORA = {
    "pubtator": "\n1|t|Flu\n1|a|\n1\t0\t3\tFlu\tDisease\tD1\n",
    "bioc-xml": "<?xml version='1.0'?><!DOCTYPE collection SYSTEM 'BioC.dtd'>\n<collection>",
    "bioc-json": '{"source": "", "infons": {},\n "documents": [{"id": "1"}]}',
    "jsonl": '{"id": "1", "text": "Flu: the \\"documents\\" [1]"}\n',
    "brat": "T1\tDisease 0 3;5 7\tFlu it\n",
}
ONTOLOGIES = {
    "obo": "format-version: 1.2\n",
    "owl": '<rdf:RDF xmlns="http://x">',
    "cellxgene": '{"CL:0000000":{"ancestors":{},"label":"cell"}}',
    "mesh": '<?xml version="1.0"?>\n<!DOCTYPE x>\n<DescriptorRecordSet>',
    "ctd": "# CTD\n#\n# Fields:\n# DiseaseName\tDiseaseID\tSynonyms\n",
    "clinvar": "#AlleleID\tType\tName\tGeneID\n",
    "ncbi-gene": "#tax_id\tGeneID\tSymbol\tLocusTag\n",
    "jsonl": '{"id": "D1", "names": ["flu"]}\n',
    "table": "# made by hand\nid\tname\nD1\tflu\n",
}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        *((content, name) for name, content in CORPORA.items()),
        (" " * 70_000 + CORPORA["pubtator"], "pubtator"),  # leading white space is skipped
    ],
)
def test_corpora_are_recognised_by_content(write, content, name):
    assert detect_corpus_format(write(gzip.compress(content.encode()))) == name


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        *((content, name) for name, content in ONTOLOGIES.items()),
        ('<?xml version="1.0"?>\n<Ontology xmlns="http://x">', "owl"),
        ('{"graphs": []}', "owl"),
        ("<SupplementalRecordSet>", "mesh"),
        ('{"id": "D1", "replaced_by": "D2"}', "jsonl"),
        ("id,name\n", "table"),
    ],
)
def test_ontologies_are_recognised_by_content(write, content, expected):
    assert detect_ontology_format(write(content)) == expected


def test_umls_folder(tmp_path):
    (tmp_path / "MRCONSO.RRF").touch()
    assert detect_ontology_format(tmp_path) == "umls"


def test_every_format_is_covered_here():
    assert set(CORPORA) == set(CORPUS_FORMATS)
    assert set(ONTOLOGIES) | {"umls", "omop"} == set(ONTOLOGY_FORMATS)


def test_read_corpus(write):
    path = write(CORPORA["pubtator"])
    expected = [AnnotatedText("1", "Flu ", (Mention(0, 3, "Disease", ("MESH:D1",)),))]
    assert list(read_corpus(path, prefix="MESH")) == expected
    assert list(read_corpus(path, format="pubtator", prefix="MESH")) == expected


def test_read_ontology(write):
    path = write("id\tname\nD1\tflu\n", "names.tsv")
    assert list(read_ontology(path, prefix="MESH")) == [Concept("MESH:D1", ("flu",))]
    columns = {"id": "id", "name": "name"}
    assert list(read_ontology(path, columns=columns)) == [Concept("D1", ("flu",))]
    with pytest.raises(BioelError, match="B135.*'obo'"):
        read_ontology(path, format="obo", columns=columns)


def test_unknown_formats(write):
    path = write("Once upon a time\n", "prose.txt")
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
