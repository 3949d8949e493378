from __future__ import annotations

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.nlm import read_mesh_xml
from spacy_bioel.io.records import tree_types
from spacy_bioel.types import Concept

DESCRIPTORS = """<?xml version="1.0"?>
<!DOCTYPE DescriptorRecordSet SYSTEM "https://example.invalid/nlmdescriptorrecordset.dtd">
<DescriptorRecordSet LanguageCode="eng">
<DescriptorRecord DescriptorClass="1"><DescriptorUI>D2</DescriptorUI>
<DescriptorName><String>Diabetes Mellitus</String></DescriptorName>
<TreeNumberList><TreeNumber>C18.452.394</TreeNumber><TreeNumber>C19.246</TreeNumber>
</TreeNumberList>
<ConceptList>
<Concept PreferredConceptYN="N"><TermList><Term><String>Sugar Disease</String></Term></TermList>
</Concept>
<Concept PreferredConceptYN="Y"><ScopeNote>High
    glucose.
</ScopeNote><TermList><Term><String>Diabetes Mellitus</String></Term>
<Term><String>Diabetes</String></Term></TermList></Concept>
</ConceptList></DescriptorRecord>
<DescriptorRecord><DescriptorUI>D1</DescriptorUI>
<DescriptorName><String>Metabolic Diseases</String></DescriptorName>
<TreeNumberList><TreeNumber>C18.452</TreeNumber></TreeNumberList></DescriptorRecord>
</DescriptorRecordSet>
"""
SUPPLEMENT = """<?xml version="1.0"?>
<SupplementalRecordSet LanguageCode="eng">
<SupplementalRecord><SupplementalRecordUI>C000002</SupplementalRecordUI>
<SupplementalRecordName><String>bevonium</String></SupplementalRecordName>
<Note>structure given</Note>
<HeadingMappedToList>
<HeadingMappedTo><DescriptorReferredTo><DescriptorUI>*D001561</DescriptorUI>
</DescriptorReferredTo></HeadingMappedTo>
<HeadingMappedTo><DescriptorReferredTo><DescriptorUI>D000001</DescriptorUI>
</DescriptorReferredTo></HeadingMappedTo></HeadingMappedToList>
<ConceptList><Concept PreferredConceptYN="Y"><TermList><Term><String>bevonium</String></Term>
<Term><String>Acabel</String></Term></TermList></Concept></ConceptList>
</SupplementalRecord></SupplementalRecordSet>
"""


def read(tmp_path, content: str) -> list[Concept]:
    path = tmp_path / "mesh.xml"
    path.write_text(content)
    return list(read_mesh_xml(path))


def test_tree_types():
    assert tree_types(["C18.452.394", "C19.246", "D09", ""]) == ("C18", "C19", "D09", "C", "D")
    assert tree_types([]) == ()


def test_descriptors(tmp_path):
    assert read(tmp_path, DESCRIPTORS) == [
        Concept(
            "MESH:D2",
            ("Diabetes Mellitus", "Diabetes", "Sugar Disease"),
            types=("C18", "C19", "C"),
            parents=("MESH:D1",),
            definition="High glucose.",
        ),
        Concept("MESH:D1", ("Metabolic Diseases",), types=("C18", "C")),
    ]


def test_supplement(tmp_path):
    assert read(tmp_path, SUPPLEMENT) == [
        Concept(
            "MESH:C000002",
            ("bevonium", "Acabel"),
            parents=("MESH:D001561", "MESH:D000001"),
            definition="structure given",
        )
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DescriptorRecordSet", "Other", "B121.*mesh.xml"),
        ("<DescriptorUI>D1</DescriptorUI>", "", "B122.*'Metabolic Diseases'"),
        ("<String>Metabolic Diseases</String>", "", "B122.*'D1'"),
        ("</DescriptorRecordSet>", "", "B111.*mesh.xml, line 20"),
    ],
)
def test_malformed(tmp_path, old, new, message):
    with pytest.raises(BioelError, match=message):
        read(tmp_path, DESCRIPTORS.replace(old, new))
