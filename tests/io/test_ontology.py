"""OBO with the constructs of real files, OWL, OBO JSON, and JSON of cellxgene-ontology-guide."""

import json
import logging
import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_ontology
from spacy_bioel.io.ontology import read_cellxgene_json, read_obo, read_obo_header, read_owl
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
    Concept("X:4", ("obsolete and gone",), consider=()),
]

_OBO = "http://purl.obolibrary.org/obo"
OWL = f"""<?xml version="1.0"?>
<rdf:RDF xmlns="http://example.invalid/x#" xml:base="http://example.invalid/x"
 xmlns:owl="http://www.w3.org/2002/07/owl#" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
 xmlns:oboInOwl="http://www.geneontology.org/formats/oboInOwl#">
<owl:Ontology rdf:about="http://example.invalid/x"/>
<owl:Class rdf:about="{_OBO}/X_1"><rdfs:label>disease</rdfs:label></owl:Class>
<owl:Class rdf:about="{_OBO}/X_2"><rdfs:label>flu</rdfs:label>
<rdfs:subClassOf rdf:resource="{_OBO}/X_1"/>
<oboInOwl:hasExactSynonym>influenza</oboInOwl:hasExactSynonym></owl:Class>
</rdf:RDF>
"""
_SYNONYMS = {"synonyms": [{"pred": "hasExactSynonym", "val": "influenza"}]}
GRAPHS = {
    "graphs": [
        {
            "id": f"{_OBO}/x.owl",
            "nodes": [
                {"id": f"{_OBO}/X_1", "type": "CLASS", "lbl": "disease", "meta": {}},
                {"id": f"{_OBO}/X_2", "type": "CLASS", "lbl": "flu", "meta": _SYNONYMS},
            ],
            "edges": [{"sub": f"{_OBO}/X_2", "pred": "is_a", "obj": f"{_OBO}/X_1"}],
        }
    ]
}
HEAD = "format-version: 1.2\ndefault-namespace: toy\n\n[Term]\nid: X:1\n"


def read(write, lines: str, *, head: str = HEAD) -> list[Concept]:
    return list(read_obo(write(head + lines, "toy.obo")))


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
def test_names(write, line, names):
    assert read(write, f"{line}\n") == [Concept("X:1", names, types=("toy",))]


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
def test_text_after_a_synonym_is_ignored(write, rest):
    lines = f'name: limb\nsynonym: "limb \\"bud\\"; a, b"{rest}\n'
    assert read(write, lines)[0].names == ("limb", 'limb "bud"; a, b')


def test_names_are_ordered_by_scope(write):
    lines = (
        'synonym: "e" RELATED []\nsynonym: "d" []\nsynonym: "c" BROAD []\nsynonym: "b" EXACT []\n'
        'exact_synonym: "a" [X:1]\nname: z\nsynonym: "n" NARROW LATIN []\nrelated_synonym: "f" []\n'
    )
    assert read(write, lines)[0].names == ("z", "a", "b", "n", "c", "d", "e", "f")


def test_ids_have_modifiers_and_comments(write):
    lines = (
        'name: artery\nis_a: X:3 {source="cjm", is_inferred="true"} ! mesenteric artery\n'
        "is_a: X:2 ! vessel\nalt_id: X:9\nalt_id: X\\:8\nnamespace: blood ! all\n\n"
        '[Term] ! old\nid: X:4\nname: gone\nis_obsolete: true {xref="X:5"}\nreplaced_by: X:1 ! a\n'
    )
    assert read(write, lines) == [
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
def test_cross_references(write, line, xrefs, caplog):
    assert read(write, f"name: a\n{line}\n")[0].xrefs == xrefs
    assert not caplog.records


def test_malformed_optional_fields_are_skipped_and_counted(write, caplog):
    lines = (
        'name: a\ndef: "A thing, \\"b\\"." [GO:[GOC\\:mtg_sensu\\, ISBN\\:1\\]]\n'
        "xref: PHENOSCAPE: wd\nxref: PMID:1 \\n\nxref:\nproperty_value: anything {at all\n"
        'relationship: [x\ncomment: \\"a\n\n[Term]\nid: X:2\nname: b\ndef: no quotes\nxref: A:1\n'
    )
    with caplog.at_level(logging.WARNING):
        first, second = read(write, lines)
    assert (first.definition, first.xrefs) == ('A thing, "b".', ())
    assert (second.definition, second.xrefs) == ("", ("A:1",))
    (message,) = caplog.messages
    assert message.startswith("[W477]")
    assert ": 4, the first in line 8: 'xref: PHENOSCAPE: wd'" in message


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
def test_ids_and_names_are_strict(write, lines, number):
    with pytest.raises(BioelError, match=rf"\[B116\] .*toy.obo, line {number}: expected"):
        read(write, f"{lines}\n")


def test_the_first_lines_are_strict(tmp_path, write):
    with pytest.raises(BioelError, match=r"\[B116\] .*line 1: expected TAG: VALUE"):
        read(write, "", head="nothing of the kind\n")
    with pytest.raises(BioelError, match="B101"):  # and not looked for on the web
        list(read_obo(tmp_path / "nowhere.obo"))


def test_terms_are_streamed(write):
    term = '[Term]\nid: X:{n}\nname: thing {n}\nsynonym: "{n} things" EXACT []\n\n'
    path = write("format-version: 1.2\n\n" + "".join(term.format(n=n) for n in range(10_000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_obo(path)) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 300_000  # bytes; the file has 700,000
    finally:
        tracemalloc.stop()


def test_a_zip_of_one_file_is_read(tmp_path):
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
        ("hp.obo.gz", 23_317, 41_956, 0),  # a retired id with two replacements is two records
        ("UBERON_2016.obo.zip", 14_403, 50_232, 1),
        ("CL_2016.obo.zip", 2_236, 4_256, 1),
        ("SO_2016.obo.zip", 2_503, 6_220, 0),
    ],
)
def test_real_ontologies(name, records, names, left_out, caplog):
    concepts = list(read_ontology(Path(os.environ["BIOEL_DATA"]) / "names" / "obo" / name))
    assert (len(concepts), sum(len(c.names) for c in concepts)) == (records, names)
    assert [f": {left_out}, the first" in said for said in caplog.messages] == [True] * left_out


def test_obo(write, recwarn):
    assert list(read_obo(write(OBO, "toy.obo"))) == CONCEPTS
    assert not recwarn.list


@pytest.mark.parametrize(("name", "content"), [("toy.owl", OWL), ("toy.json", json.dumps(GRAPHS))])
def test_owl_and_obo_json(write, name, content):
    path = write(content, name)
    assert list(read_owl(path)) == [
        Concept("X:1", ("disease",)),
        Concept("X:2", ("flu", "influenza"), parents=("X:1",)),
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
def test_release_and_licence_of_an_obo_header(write, header, expected):
    path = write(f"format-version: 1.2\n{header}\n[Term]\nid: X:1\ndata-version: no\n", "toy.obo")
    assert read_obo_header(path) == expected


def test_cellxgene(write):
    terms = {
        "CL:0": {"ancestors": {}, "label": "cell", "deprecated": False},
        "CL:2": {
            "ancestors": {"CL:1": 1, "CL:0": 2},
            "label": "neuron",
            "description": "A nerve cell.",
            "synonyms": ["nerve cell", "neuron"],
            "deprecated": False,
        },
        "CL:3": {"label": "obsolete neuron", "deprecated": True, "replaced_by": "CL:2"},
        "CL:4": {"ancestors": {}, "label": "obsolete cell", "deprecated": True},
    }
    path = write(zstandard.compress(json.dumps(terms).encode()), "cl.json.zst")
    assert list(read_cellxgene_json(path)) == [
        Concept("CL:0", ("cell",)),
        Concept("CL:2", ("neuron", "nerve cell"), parents=("CL:1",), definition="A nerve cell."),
        Concept("CL:3", ("obsolete neuron",), replaced_by="CL:2"),
        Concept("CL:4", ("obsolete cell",), consider=()),
    ]


def test_cellosaurus_has_ids_without_a_colon(write):
    term = '{"ancestors": {"CVCL_1": 2, "CVCL_2": 1}, "label": "HeLa", "synonyms": null}'
    path = write(f'{{"CVCL_0030": {term}}}')
    assert list(read_ontology(path)) == [Concept("CVCL_0030", ("HeLa",), parents=("CVCL_2",))]


@pytest.mark.parametrize(
    "content",
    [
        *("[1]", "{", '{"CL:0": {"name": "cell"}}', '{"CL:0": 1}'),
        '{"CL:0": {"label": "cell", "ancestors": ["CL:1"]}}',
        '{"CL:0": {"label": "cell", "synonyms": "unit"}}',
        '{"CL:0": {"label": "cell", "synonyms": [1]}}',
        '{"CL:0": {"label": "cell", "description": {"en": "unit"}}}',
    ],
)
def test_malformed_cellxgene(write, content):
    with pytest.raises(BioelError, match="B120.*x.txt"):
        list(read_cellxgene_json(write(content)))
