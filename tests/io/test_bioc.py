import json

import pytest

from spacy_bioel.errors import BioelError
from spacy_bioel.io.bioc import read_bioc_json, read_bioc_xml
from spacy_bioel.types import AnnotatedText, Mention

XML = """<?xml version='1.0' encoding='UTF-8'?><!DOCTYPE collection SYSTEM 'BioC.dtd'>
<collection><source>s</source><date>d</date><key>k</key>
<document><id>7</id>
<passage><infon key="type">title</infon><offset>0</offset><text>Renal and liver failure</text>
<annotation id="0"><infon key="type">Disease</infon>
<infon key="CompositeRole">CompositeMention</infon><infon key="MESH">D1|D2</infon>
<location offset="0" length="23"/><text>Renal and liver failure</text></annotation>
<annotation id="1"><infon key="type">Disease</infon>
<infon key="CompositeRole">IndividualMention</infon><infon key="MESH">D1</infon>
<location offset="0" length="5"/><location offset="16" length="7"/>
<text>Renal failure</text></annotation>
<annotation id="2"><infon key="type">Disease</infon><infon key="Identifier">D4</infon>
<infon key="OMIM">261600</infon>
<location offset="16" length="7"/><location offset="0" length="5"/>
<text>Renal failure</text></annotation>
</passage>
<passage><offset>26</offset><text>naïve lithium</text>
<annotation id="3"><infon key="type">Chemical</infon><infon key="MESH">-1</infon>
<location offset="32" length="7"/><text>lithium</text></annotation>
</passage></document></collection>
"""
DOCUMENT = AnnotatedText(
    "7",
    "Renal and liver failure   naïve lithium",
    (
        Mention(0, 23, "Disease", ("MESH:D1", "MESH:D2")),
        Mention(0, 23, "Disease", ("X:D4", "OMIM:261600"), ((0, 5), (16, 23))),
        Mention(32, 39, "Chemical"),
    ),
)


def annotation(**changes: object) -> dict[str, object]:
    return {
        "id": "0",
        "infons": {"type": "Chemical", "identifier": "MESH:D3"},
        "text": "lithium",
        "locations": [{"offset": 4, "length": 7}],
    } | changes


def collection(**changes: object) -> dict[str, object]:
    passage = {
        "offset": 0,
        "infons": {},
        "text": "Use lithium",
        "sentences": [],
        "annotations": [annotation()],
        "relations": [],
    } | changes
    document = {"id": 8, "infons": {}, "passages": [passage], "relations": []}
    return {"source": "", "date": "", "key": "", "infons": {}, "documents": [document]}


def read_json(write, content: object) -> list[AnnotatedText]:
    return list(read_bioc_json(write(json.dumps(content))))


def read_xml(write, content: str) -> list[AnnotatedText]:
    return list(read_bioc_xml(write(content), prefix="X"))


def test_xml(write):
    assert read_xml(write, XML) == [DOCUMENT]


def test_json(write):
    expected = AnnotatedText("8", "Use lithium", (Mention(4, 11, "Chemical", ("MESH:D3",)),))
    assert read_json(write, collection()) == [expected]
    assert read_json(write, [collection(), collection()]) == [expected, expected]
    assert read_json(write, {"PubTator3": collection()["documents"]}) == [expected]


def test_text_of_sentences(write):
    sentences = [
        {"offset": 0, "infons": {}, "text": "Use.", "annotations": [], "relations": []},
        {
            "offset": 5,
            "infons": {},
            "text": "Lithium",
            "annotations": [annotation(text="Lithium", locations=[{"offset": 5, "length": 7}])],
            "relations": [],
        },
    ]
    (document,) = read_json(write, collection(text="", sentences=sentences, annotations=[]))
    assert document.text == "Use. Lithium"
    assert document.mentions == (Mention(5, 12, "Chemical", ("MESH:D3",)),)


def test_xml_that_is_divided_into_sentences(write):
    """Annotations of documents and sentences, words without a place, relations, empty passages."""
    mention = (
        '<annotation id="{id}"><infon key="type">{label}</infon><location offset="{start}" {rest}'
    )
    two = mention.format(id=1, label="Disease", start=5, rest='length="4"/></annotation>')
    one = mention.format(id=0, label="Chemical", start=0, rest='length="3"/></annotation>')
    passages = (
        f"<sentence><offset>0</offset><text>Use.</text>{one}</sentence>"
        "<sentence><offset>5</offset><text>Gout</text></sentence>"
        '<relation id="R"><node refid="0" role="r"/></relation>'
    )
    document = (
        f"<id>1</id><passage><offset>0</offset>{passages}</passage>"
        f"<passage><infon key='type'>table</infon><offset>10</offset></passage>{two}"
    )
    (text,) = read_xml(write, f"<collection><document>{document}</document></collection>")
    assert text == AnnotatedText(
        "1", "Use. Gout", (Mention(5, 9, "Disease"), Mention(0, 3, "Chemical"))
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('offset="32" length="7"', 'offset="31" length="7"', "B106.*document 7, annotation 3"),
        ('offset="32" length="7"', 'offset="32" length="70"', "B105.*annotation 3"),
        ('<location offset="32" length="7"/>', "", "B114.*annotation 3"),
        ('offset="32" length="7"', 'offset="x" length="7"', "B112.*document 7"),
        ("<offset>26</offset>", "<offset>20</offset>", "B113.*offset 20"),
        ("<offset>26</offset>", "", "B112.*document 7"),
        ("<id>7</id>", "", "B112.*document None.*'id'"),
        ('<annotation id="3">', "<annotation>", "B112.*document 7.*'id'"),
        ("<offset>0", "<sentence>" * 9000 + "</sentence>" * 9000 + "<offset>0", "B112.*Recursion"),
        ("</passage></document>", "</document>", "B111"),
        ("UTF-8", "klingon", r"\[B260\].*klingon"),
        (XML, "<collection></collection>", "B115"),
    ],
)
def test_malformed_xml(write, old, new, message):
    with pytest.raises(BioelError, match=message):
        read_xml(write, XML.replace(old, new))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"documents": [{"id": "9"}]}, "B112.*document 9"),
        ({"texts": []}, "B115"),
        (collection(annotations=[annotation(text="sodium!")]), "B106.*document 8, annotation 0"),
        (collection(offset="zero"), "B112.*document 8"),
        ({"documents": [["id", "9"]]}, "B112"),
        (collection(annotations=[{"id": "0", "infons": {}}]), "B112.*document 8.*'locations'"),
        # The gap would be filled with that many spaces.
        (collection(offset=10**10), r"\[B261\].*10000000000"),
    ],
)
def test_malformed_json(write, content, message):
    with pytest.raises(BioelError, match=message):
        read_json(write, content)
