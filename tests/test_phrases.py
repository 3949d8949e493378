"""Corpora and dictionaries of bare names, as `phrases.py` reads them."""

import pytest
from phrases import read_dictionary, read_name_lists, read_phrase_table

from spacy_bioel.errors import BioelError
from spacy_bioel.types import AnnotatedText, Concept, Mention

COMETA = (
    "ID\tTerm\tGeneral SNOMED ID\tSpecific SNOMED ID\tExample\n"
    '0\tdizzy\t10\t11\t"so ""dizzy""\ntoday"\n'
    "1\thungry\t20\t21\tplain\n"
)
COMETA_WITH_COMMAS = (
    "ID,Term,General SNOMED Label,General SNOMED ID,Example\n"
    '0,"woozy, very",Dizziness,10,"so woozy,\nvery"\n'
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # Without a header.
        (
            '10\tDizziness\tmy head spins\n20\tAnorexia\t"not eating\n',
            [("1", "my head spins", 13, "S:10"), ("2", '"not eating', 11, "S:20")],
        ),
        (COMETA, [("2", "dizzy", 5, "S:10"), ("4", "hungry", 6, "S:20")]),
        (COMETA_WITH_COMMAS, [("2", "woozy, very", 11, "S:10")]),
    ],
)
def test_phrase_table(write, content, expected):
    assert list(read_phrase_table(write(content), prefix="S")) == [
        AnnotatedText(f"x.txt:{line}", phrase, (Mention(0, end, "", (id_,)),))
        for line, phrase, end, id_ in expected
    ]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("10\tDizziness\tspins\n20\tAnorexia\n", "T030.*line 2"),
        ("10\tDizziness\t \n", "T030.*line 1"),
        (COMETA.replace('today"', "today"), "B126"),
    ],
)
def test_malformed_phrase_rows(write, content, found):
    with pytest.raises(BioelError, match=found):
        list(read_phrase_table(write(content)))


# Lines of MEDIC, and the concepts that they hold.
DICTIONARIES = {
    "an OMIM number beside the id, and entities": (
        "C567755|613097||Tooth Agenesis, Selective, 6|STHAG6\n1||Gunther&apos;s Disease\n",
        [
            Concept("MESH:C567755", ("Tooth Agenesis, Selective, 6", "STHAG6")),
            Concept("OMIM:613097", (), replaced_by="MESH:C567755"),
            Concept("MESH:1", ("Gunther's Disease",)),
        ],
    ),
    "an OMIM number before the id": (
        "114480|D001943||Breast Neoplasms|Breast Cancer\n100100|D2||a\nD2||b\n",
        [
            Concept("MESH:D001943", ("Breast Neoplasms", "Breast Cancer")),
            Concept("OMIM:114480", (), replaced_by="MESH:D001943"),
            # D2 is a concept of its own here.
            Concept("OMIM:100100", ("a",)),
            Concept("MESH:D2", ("a",)),
            Concept("MESH:D2", ("b",)),
        ],
    ),
    "a name of two concepts, one led by OMIM": (
        "100001|D1||a\n100001|D1|D2||hpp\nD2||b\n",
        [
            Concept("MESH:D1", ("a",)),
            Concept("OMIM:100001", (), replaced_by="MESH:D1"),
            Concept("MESH:D1", ("hpp",)),
            Concept("MESH:D2", ("hpp",)),
            Concept("MESH:D2", ("b",)),
        ],
    ),
    "lines merge only side by side": (
        "D1||a\nD1||b\nD2||c\nD1||d\n",
        [
            Concept("MESH:D1", ("a", "b")),
            Concept("MESH:D2", ("c",)),
            Concept("MESH:D1", ("d",)),
        ],
    ),
    "a name of two concepts is no alias": (
        "D1|100001||a\nD1|100001|D2|100002||hpp\nD2|100002||b\n",
        [
            Concept("MESH:D1", ("a",)),
            Concept("OMIM:100001", (), replaced_by="MESH:D1"),
            Concept("MESH:D1", ("hpp",)),
            Concept("MESH:D2", ("hpp",)),
            Concept("OMIM:100002", (), replaced_by="MESH:D2"),
            Concept("MESH:D2", ("b",)),
        ],
    ),
}


@pytest.mark.parametrize(("content", "concepts"), DICTIONARIES.values(), ids=[*DICTIONARIES])
def test_medic(write, content, concepts):
    assert list(read_dictionary(write(content), prefix="MESH")) == concepts


@pytest.mark.parametrize("row", ["D1|b", "||b", "D1||", "D1||||"])
def test_malformed_dictionary_row(write, row):
    with pytest.raises(BioelError, match="B116.*line 2"):
        list(read_dictionary(write(f"D1||a\n{row}\n")))


def test_name_lists(write):
    path = write(
        '{"10": [["synonym", "giddy"], ["primary", "Dizziness"]], "20": [["primary", "x"]]}'
    )
    assert list(read_name_lists(path, prefix="SNOMED")) == [
        Concept("SNOMED:10", ("Dizziness", "giddy")),
        Concept("SNOMED:20", ("x",)),
    ]


@pytest.mark.parametrize(
    "content", ['{"10": [["primary", "x"]', "[1]", '{"10": ["x"]}', '{"10": [["primary", 2]]}']
)
def test_malformed_name_lists(write, content):
    with pytest.raises(BioelError, match="T031.*x.txt"):
        list(read_name_lists(write(content)))
