"""The corpora whose documents are one phrase: COMETA, AskAPatient, TwADR-L."""

from pathlib import Path

import corpora
import pytest
from test_corpora import labels_and_ids, names

from spacy_bioel.corpus import read_texts
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Mention

pytestmark = pytest.mark.usefixtures("project")
COMETA = "ID\tTerm\tGeneral SNOMED Label\tGeneral SNOMED ID\tExample\n"


@pytest.fixture
def cometa(tmp_path) -> Path:
    folder = tmp_path / "cometa" / "splits"
    for name, rows in {
        "stratified_general/train.csv": '0\tso dizzy\tDizziness\t10\t"so ""dizzy""\ntoday"\n',
        "stratified_general/dev.csv": "1\twoozy\tDizziness\t10\twoozy\n",
        "zeroshot_general/train.csv": "2\thungry\tHunger\t20\thungry\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(COMETA + rows)
    return folder.parent


def test_cometa_has_the_concepts_of_its_training_terms(cometa):
    corpora.fetch("cometa", data=str(cometa))
    assert names(Path("assets/cometa")) == ["dev.jsonl", "train.jsonl"]
    assert labels_and_ids("assets/cometa/dev.jsonl") == [("Concept", ("SNOMED:10",))]
    corpora.kb("cometa")
    kb = KnowledgeBase.open("kb/cometa")
    assert (list(kb.ids), list(kb.names)) == (["SNOMED:10"], ["so dizzy"])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("COMETA_id_sf_dictionary.txt", "10||dizziness\n10||giddy\n"),
        ("snomed_2020.jsonl", '{"id": "SNOMED:10", "names": ["dizziness", "giddy"]}\n'),
        ("snomed_2020.csv", "id,name,synonyms\n10,dizziness,giddy\n"),
        ("snomedct.rrf", "|||||||||||SNOMEDCT_US|PT|10|dizziness|\n|||||||||||||10|giddy|\n"),
    ],
)
def test_cometa_with_snomed(cometa, file, content):
    (cometa / file).write_text(content)
    corpora.fetch("cometa", data=str(cometa))
    corpora.kb("cometa")
    kb = KnowledgeBase.open("kb/cometa")
    assert (list(kb.ids), list(kb.names)) == (["SNOMED:10"], ["dizziness", "giddy"])


@pytest.fixture
def folds(tmp_path) -> Path:
    """Folds 0 and 2 of both sets, the phrases in Latin-1 where they are published so."""
    folder = tmp_path / "datasets"
    folder.mkdir()
    for fold in (0, 2):
        for split in ("train", "validation", "test"):
            row = f"10\tMénière\tmy ear sörs {split} {fold}\n"
            path = folder / f"AskAPatient.fold-{fold}.{split}.txt"
            path.write_text(row, encoding="latin-1")
            row = f"C1\tDizziness\twoozy {split} {fold}\n"
            (folder / f"TwADR-L.fold-{fold}.{split}.txt").write_text(row)
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


def test_concept_names_come_before_those_of_a_fold(folds):
    (folds / "twadrl.json").write_text('{"C1": [["primary", "Dizzy"]], "C2": [["primary", "x"]]}')
    corpora.fetch("twadrl", data=str(folds))
    assert labels_and_ids("assets/twadrl/train.fold-0.jsonl") == [("Concept", ("C1",))]
    corpora.kb("twadrl")
    kb = KnowledgeBase.open("kb/twadrl")
    assert (list(kb.ids), list(kb.names)) == (["C1", "C2"], ["Dizzy", "x"])


def test_an_absent_fold(folds, capsys):
    Path("project.yml").write_text("assets: []")
    corpora.fetch("twadrl", data=str(folds))
    with pytest.raises(ValueError, match=r"T004.*no fold 1 of twadrl .*only 0, 2"):
        corpora.fetch("twadrl", data=str(folds), fold=1)
    # What was fetched stays, and is complete for its own fold only.
    corpora.fetch("twadrl")
    assert "assets/twadrl is complete." in capsys.readouterr().err
    with pytest.raises(ValueError, match="T002.*fold-2"):
        corpora.fetch("twadrl", fold=2)
