"""Corpora whose documents are one phrase, and dictionaries of bare names, are read as published."""

from pathlib import Path

import corpora
import pytest
from phrases import read_dictionary, read_name_lists, read_phrase_table
from test_corpora import names

from spacy_bioel.corpus import read_texts
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import AnnotatedText, Concept, Mention

pytestmark = pytest.mark.usefixtures("project")
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
}


@pytest.mark.parametrize(("content", "concepts"), DICTIONARIES.values(), ids=[*DICTIONARIES])
def test_medic(write, content, concepts):
    assert list(read_dictionary(write(content), prefix="MESH")) == concepts


def test_name_lists(write):
    path = write(
        '{"10": [["synonym", "giddy"], ["primary", "Dizziness"]], "20": [["primary", "x"]]}'
    )
    assert list(read_name_lists(path, prefix="SNOMED")) == [
        Concept("SNOMED:10", ("Dizziness", "giddy")),
        Concept("SNOMED:20", ("x",)),
    ]


@pytest.mark.parametrize(
    ("read", "content", "found"),
    [
        (read_phrase_table, "10\tDizziness\tspins\n20\tAnorexia\n", "T030.*line 2"),
        (read_phrase_table, "10\tDizziness\t \n", "T030.*line 1"),
        (read_phrase_table, COMETA.replace('today"', "today"), "B126"),
        (read_dictionary, "D1||a\nD1|b\n", "B116.*line 2"),
        (read_dictionary, "D1||a\nD1||||\n", "B116.*line 2"),
        (read_name_lists, '{"10": [["primary", "x"]', "T031.*x.txt"),
        (read_name_lists, '{"10": ["x"]}', "T031.*x.txt"),
    ],
)
def test_malformed_files(write, read, content, found):
    with pytest.raises(BioelError, match=found):
        list(read(write(content)))


@pytest.fixture
def folds(tmp_path) -> Path:
    """Folds 0 and 2 of AskAPatient, with phrases in Latin-1, as they are published."""
    folder = tmp_path / "datasets"
    folder.mkdir()
    for fold in (0, 2):
        for split in ("train", "validation", "test"):
            path = folder / f"AskAPatient.fold-{fold}.{split}.txt"
            row = f"10\tMénière\tmy ear sörs {split} {fold}\n"
            path.write_text(row, encoding="latin-1")
    return folder


def test_a_phrase_is_a_document_that_is_one_mention(folds):
    corpora.fetch("askapatient", data=str(folds), fold=2)
    assert names(Path("assets/askapatient")) == [
        "dev.fold-2.jsonl",
        "kb/AskAPatient.fold-2.train.txt",
        "test.fold-2.jsonl",
        "train.fold-2.jsonl",
    ]
    corpora.convert("askapatient", "train")
    (text,) = read_texts(Path("corpus/askapatient/train.spacy"))
    assert text.text == "my ear sörs train 2"
    assert text.mentions == (Mention(0, 19, "Concept", ("SNOMED:10",)),)
    # Without a file of concept names they are the second column of the training rows.
    corpora.kb("askapatient")
    kb = KnowledgeBase.open("kb/askapatient")
    assert (list(kb.ids), list(kb.names)) == (["SNOMED:10"], ["Ménière"])


def test_an_absent_fold(folds, capsys):
    Path("project.yml").write_text("assets: []")
    corpora.fetch("askapatient", data=str(folds))
    with pytest.raises(ValueError, match=r"T004.*no fold 1 of askapatient .*only 0, 2"):
        corpora.fetch("askapatient", data=str(folds), fold=1)
    # What was fetched stays, and is complete for its own fold only.
    corpora.fetch("askapatient")
    assert "assets/askapatient is complete." in capsys.readouterr().err
    with pytest.raises(ValueError, match="T002.*fold-2"):
        corpora.fetch("askapatient", fold=2)
