"""`bioel train`: labels of one's own beside those of the starter."""

import json

import pytest
import spacy
from spacy.util import load_config

from spacy_bioel.doc import get_links
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

ORGANS = ["spleen", "pancreas", "gizzard", "hypophysis"]
SENTENCES = [
    "Aspirin reaches the {}.",
    "The {} of mice was removed.",
    "We stained each {} for insulin.",
    "A lesion of the {} was seen in asthma.",
]


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_kb([Concept(f"ORG:{n}", (name,)) for n, name in enumerate(ORGANS)], "organs")
    rows = []
    for n, organ in enumerate(ORGANS):
        for sentence in SENTENCES:
            text = sentence.format(organ)
            start = text.index(organ)
            mention = {"start": start, "end": start + len(organ), "label": "Organ", "ids": [str(n)]}
            rows.append(json.dumps({"text": text, "mentions": [mention]}))
    (tmp_path / "train.jsonl").write_text("\n".join(rows[:12]))
    (tmp_path / "dev.jsonl").write_text("\n".join(rows[12:]))
    return tmp_path


def found(nlp, text):
    return {(text[x.start : x.end], x.label, x.ids[:1]) for x in get_links(nlp(text))}


TEXT = "The gizzard of mice with asthma after aspirin."
KEPT = {
    ("mice", "Species", ("NCBITaxon:10090",)),
    ("asthma", "Disease", ("MESH:D001249",)),
    ("aspirin", "Chemical", ("MESH:D001241",)),
}


@pytest.mark.slow
def test_a_label_is_added_to_those_of_the_starter(bioel, corpora, caplog):
    options = ["--kb", "Organ=organs", "--prefix", "ORG:"]
    done = bioel("train", "starter", "train.jsonl", "dev.jsonl", "models/mine", *options)
    assert "The best pipeline -> models/mine" in done.err and " 0/150 " in done.out
    assert "'Organ' starts from none" in caplog.text and ".training" not in done.out
    nlp = spacy.load("models/mine")
    assert KEPT | {("gizzard", "Organ", ("ORG:2",))} <= found(nlp, TEXT)
    # Nothing is left behind, and the config shows the files that were named.
    assert [path.name for path in (corpora / "models").iterdir()] == ["mine"]
    paths = load_config("models/mine/config.cfg")["paths"]
    assert (paths["start"], paths["train"], paths["dev"]) == (
        *("starter", "train.jsonl", "dev.jsonl"),
    )
    gold = ["dev.jsonl", *options[2:], "--protocol", "mention"]
    done = bioel("evaluate", "models/mine", *gold, "--annotates", "Organ")
    assert "100.00" in done.out and "W458" not in caplog.text
    bioel("evaluate", "models/mine", *gold, "--kb", "Orgam=organs")
    assert "[W458]" in caplog.text and "leave them out: --annotates Organ" in caplog.text
    assert "'Orgam', but no gold mention has it (their labels: Organ)" in caplog.text


def test_a_failed_training_leaves_nothing(bioel, corpora):
    done = bioel("train", "starter", "train.jsonl", "train.jsonl", "models/mine", status=2)
    assert "[B572]" in done.err
    assert not list((corpora / "models").iterdir())
