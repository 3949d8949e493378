from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.ontology import read_cellxgene_json, read_obo, read_obo_header
from spacy_bioel.types import Concept

OBO = """format-version: 1.2
default-namespace: toy
import: http://example.invalid/never-fetched.obo
ontology: x

[Term]
id: X:1
name: disease

[Term]
id: X:2
name: anæmia
namespace: blood
alt_id: X:20
alt_id: X:10
def: "Too little haemoglobin." []
synonym: "low blood" RELATED []
synonym: "anemia" EXACT []
synonym: "anaemia" EXACT []
synonym: "iron anaemia" NARROW []
is_a: X:1 ! disease

[Term]
id: X:3
name: obsolete pallor
is_obsolete: true
replaced_by: X:2

[Term]
id: X:4
name: obsolete and gone
is_obsolete: true
"""
CONCEPTS = [
    Concept("X:1", ("disease",), types=("toy",)),
    Concept(
        "X:2",
        ("anæmia", "anaemia", "anemia", "iron anaemia", "low blood"),
        types=("blood",),
        parents=("X:1",),
        definition="Too little haemoglobin.",
    ),
    Concept("X:10", (), replaced_by="X:2"),
    Concept("X:20", (), replaced_by="X:2"),
    Concept("X:3", ("obsolete pallor",), replaced_by="X:2"),
]

OWL = """<?xml version="1.0"?>
<rdf:RDF xmlns:owl="http://www.w3.org/2002/07/owl#" xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
 xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<owl:Ontology rdf:about="http://purl.obolibrary.org/obo/x.owl"/>
<owl:Class rdf:about="http://purl.obolibrary.org/obo/X_1"><rdfs:label>disease</rdfs:label></owl:Class>
<owl:Class rdf:about="http://purl.obolibrary.org/obo/X_2"><rdfs:label>anaemia</rdfs:label>
<rdfs:subClassOf rdf:resource="http://purl.obolibrary.org/obo/X_1"/></owl:Class>
</rdf:RDF>
"""
OBOGRAPH = {
    "graphs": [
        {
            "id": "http://purl.obolibrary.org/obo/x.owl",
            "meta": {},
            "nodes": [
                {"id": "http://purl.obolibrary.org/obo/X_1", "type": "CLASS", "lbl": "disease"},
                {"id": "http://purl.obolibrary.org/obo/X_2", "type": "CLASS", "lbl": "anaemia"},
            ],
            "edges": [
                {
                    "sub": "http://purl.obolibrary.org/obo/X_2",
                    "pred": "is_a",
                    "obj": "http://purl.obolibrary.org/obo/X_1",
                }
            ],
        }
    ]
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_obo(tmp_path, pack, recwarn):
    path = tmp_path / "toy.obo"
    path.write_bytes(pack(OBO.encode()))
    assert list(read_obo(path)) == CONCEPTS
    assert not recwarn.list


@pytest.mark.parametrize(
    ("name", "content"), [("toy.owl", OWL), ("toy.json", json.dumps(OBOGRAPH))]
)
def test_owl_and_obo_json(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert list(read_obo(path)) == [
        Concept("X:1", ("disease",)),
        Concept("X:2", ("anaemia",), parents=("X:1",)),
    ]


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
def test_release_and_licence_of_an_obo_header(tmp_path, header, expected):
    path = tmp_path / "toy.obo"
    path.write_text(f"format-version: 1.2\n{header}\n[Term]\nid: X:1\ndata-version: no\n")
    assert read_obo_header(path) == expected


def test_an_owl_file_has_no_obo_header(tmp_path):
    path = tmp_path / "toy.owl"
    path.write_text(OWL)
    assert read_obo_header(path) == ("", "")


def test_ids_without_vocabulary_get_the_prefix(tmp_path):
    path = tmp_path / "toy.obo"
    path.write_text("format-version: 1.2\n\n[Term]\nid: 7\nname: seven\n")
    assert list(read_obo(path, prefix="X")) == [Concept("X:7", ("seven",))]


@pytest.mark.parametrize(
    "content", ["nothing of the kind", "format-version: 1.2\n\n[Term]\nid X:1\n"]
)
def test_malformed_obo(tmp_path, content):
    path = tmp_path / "toy.obo"
    path.write_text(content)
    with pytest.raises(BioelError, match="B116.*toy.obo"):
        list(read_obo(path))


def test_missing_obo_is_not_looked_for_on_the_web(tmp_path):
    with pytest.raises(BioelError, match="B101"):
        list(read_obo(tmp_path / "toy.obo"))


def test_cellxgene(tmp_path):
    terms = {
        "CL:0": {"ancestors": {}, "label": "cell", "deprecated": False},
        "CL:2": {
            "ancestors": {"CL:1": 1, "CL:0": 2},
            "label": "neuron",
            "description": "A nerve cell.",
            "synonyms": ["nerve cell", "neuron"],
            "deprecated": False,
        },
        "CL:3": {
            "ancestors": {},
            "label": "obsolete neuron",
            "deprecated": True,
            "replaced_by": "CL:2",
        },
        "CL:4": {"ancestors": {}, "label": "obsolete cell", "deprecated": True},
    }
    path = tmp_path / "cl.json.zst"
    path.write_bytes(zstandard.compress(json.dumps(terms).encode()))
    assert list(read_cellxgene_json(path)) == [
        Concept("CL:0", ("cell",)),
        Concept("CL:2", ("neuron", "nerve cell"), parents=("CL:1",), definition="A nerve cell."),
        Concept("CL:3", ("obsolete neuron",), replaced_by="CL:2"),
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_cellxgene_is_recognised_packed_or_not(tmp_path, pack):
    term = '{"ancestors": {"CL:1": 2, "CL:2": 1}, "label": "cell", "synonyms": null}'
    path = tmp_path / "ontology"
    path.write_bytes(pack(f'{{"CL:0": {term}}}'.encode()))
    assert list(read_ontology(path)) == [Concept("CL:0", ("cell",), parents=("CL:2",))]


def test_cellosaurus_has_ids_without_a_colon(tmp_path):
    path = tmp_path / "CVCL.json"
    path.write_text('{"CVCL_0030": {"ancestors": {}, "label": "HeLa", "deprecated": false}}')
    assert list(read_ontology(path)) == [Concept("CVCL_0030", ("HeLa",))]


@pytest.mark.parametrize(
    "content",
    [
        "[1]",
        "{",
        '{"CL:0": {"name": "cell"}}',
        '{"CL:0": 1}',
        '{"CL:0": {"label": "cell", "ancestors": ["CL:1"]}}',
        '{"CL:0": {"label": "cell", "synonyms": "unit"}}',
        '{"CL:0": {"label": "cell", "synonyms": [1]}}',
        '{"CL:0": {"label": "cell", "description": {"en": "unit"}}}',
    ],
)
def test_malformed_cellxgene(tmp_path, content):
    path = tmp_path / "cl.json"
    path.write_text(content)
    with pytest.raises(BioelError, match="B120.*cl.json"):
        list(read_cellxgene_json(path))


def test_cellosaurus_as_obo(tmp_path):
    path = tmp_path / "cellosaurus.obo"
    path.write_text(
        "format-version: 1.2\ndefault-namespace: cellosaurus\n"
        'subsetdef: Female "Female"\nxref-dbname: ATCC\n\n'
        '[Term]\nid: CVCL_0030\nname: HeLa\nsubset: Female\nsynonym: "HELA" RELATED []\n'
        "xref: NCBI_TaxID:9606 ! Homo sapiens (Human)\nxref: ATCC:CCL-2\n\n"
        "[Term]\nid: CVCL_1276\nname: HeLa 229\nrelationship: derived_from CVCL_0030 ! HeLa\n\n"
        "[Typedef]\nid: derived_from\nname: derived from\n"
    )
    first, second = read_ontology(path)
    assert (first.id, first.names) == ("CVCL_0030", ("HeLa", "HELA"))
    assert sorted(first.xrefs) == ["ATCC:CCL-2", "NCBI_TaxID:9606"]
    assert (second.id, second.names) == ("CVCL_1276", ("HeLa 229",))
