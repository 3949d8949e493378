"""`bioel card`: the model card of a pipeline, from the scores of `bioel evaluate`."""

import shutil
from pathlib import Path

import pytest
import spacy
from browser import check_page, chromium

from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.plugins.evaluation.card import Facts


@pytest.fixture()
def tuned(bioel, tuned_model, corpus, tmp_path) -> Path:
    """A tuned pipeline, and its scores beside it."""
    folder = shutil.copytree(tuned_model, tmp_path / "tuned")
    scores = ("--seed", 3, "--json", tmp_path / "scores.json")
    bioel("evaluate", folder, corpus, "--prefix", "MESH", *scores)
    return folder


def test_the_card(bioel, tuned, corpus, tmp_path):
    about = ("--name", "mine", "--version", "1.2.3", "--author", "A. Person")
    about += ("--corpus", "My notes", "--licence", "CC BY 4.0", "--domain", "letters")
    about += ("--train", corpus, "--limit", "Knows no <b>children</b>.")
    assert "[W311]" not in bioel("card", tuned, tmp_path / "scores.json", *about).err
    card = (tuned / "README.md").read_text("utf8")
    fingerprint = KnowledgeBase.open(tuned / "bioel_linker" / "kb").fingerprint
    for said in (
        "# en_mine\n",
        "| version | 1.2.3 |",
        f"3 concepts with 5 names; fingerprint `{fingerprint}` |",
        "| trained on | My notes: train 2 documents, 6 mentions |",
        "| domain | letters |",
        "| authors | A. Person |",
        "| `end_to_end` | `recall` | 80.0 | ",
        "Intervals: bootstrap over documents, seed 3.",
        "Chosen by `bioel tune` on 2 documents with 6 mentions.",
        "| `bioel_linker` | `nil_threshold` 0.",
        "- Knows no <b>children</b>.\n",
        "whose ids the knowledge base lacks: 0.",
    ):
        assert said in card
    page = (tuned / "card.html").read_text("utf8")
    assert "<h1>en_mine</h1>" in page and 'data-name="end to end recall" data-value="80.0"' in page
    assert "<li>Knows no &lt;b&gt;children&lt;/b&gt;.</li>" in page and "<td>1.2.3</td>" in page
    with chromium() as browser:
        check_page(browser, (tuned / "card.html").as_uri())
    # Names of the knowledge base have no label to be right or wrong.
    assert "`mention`" not in card
    meta = spacy.load(tuned).meta
    assert (meta["name"], meta["version"], meta["author"]) == ("mine", "1.2.3", "A. Person")
    assert meta["performance"]["end_to_end_recall"] == 0.8
    assert meta["sources"][0] == {"name": "My notes", "license": "CC BY 4.0"}
    assert "not for decisions about patients" in meta["description"]


def test_a_card_is_replaced_on_request_and_scores_are_those_of_the_pipeline(bioel, tuned, tmp_path):
    scores = tmp_path / "scores.json"
    (tuned / "README.md").write_text("Mine.", encoding="utf8")
    assert "[B367]" in bioel("card", tuned, scores, status=2).err
    assert (tuned / "README.md").read_text("utf8") == "Mine."
    # The card does not change the fingerprint, anything else does.
    bioel("card", tuned, scores, "--replace")
    assert "| authors | not stated |" in (tuned / "README.md").read_text("utf8")
    assert "[W311]" not in bioel("card", tuned, scores, "--replace").err
    (tuned / "other").write_text("x", encoding="utf8")
    assert "[W311]" in bioel("card", tuned, scores, "--replace").err


@pytest.mark.parametrize("text", ["[]", "{}", '[{"protocol": "gold"}]', "no JSON"])
def test_files_without_scores(text, bioel, tmp_path):
    (tmp_path / "scores.json").write_text(text, encoding="utf8")
    assert "[B366]" in bioel("card", tmp_path, tmp_path / "scores.json", status=2).err


def test_scores_that_say_nothing_of_names_and_a_folder_that_is_no_pipeline(
    bioel, tuned, corpus, tmp_path
):
    options = ("--prefix", "MESH", "--protocol", "mention", "--json", tmp_path / "scores.json")
    bioel("evaluate", tuned, corpus, *options)
    assert "[B366]" in bioel("card", tuned, tmp_path / "scores.json", status=2).err
    assert not (tuned / "README.md").exists()
    assert "[B365]" in bioel("card", tmp_path, tmp_path / "scores.json", status=2).err


def test_scores_of_other_pipelines_are_beside_those_of_the_same_metric():
    def row(protocol: str, value: float, label: str = "") -> dict[str, object]:
        return {"protocol": protocol, "metric": "f1", "value": value, "label": label}

    others = {"before": [row("mention", 50.04), row("gold", 30)], "scratch": [row("gold", 40, "A")]}
    facts = Facts("x", "1", "", [], {}, {}, [], {}, others=others)
    assert facts.of_others(row("mention", 60)) == ["50.0", ""]
    assert facts.of_others(row("gold", 60)) == ["30.0", ""]
    assert facts.of_others(row("end_to_end", 60)) == ["", ""]
