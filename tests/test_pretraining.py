"""Pre-training joins the synonyms of vocabularies, learns them, and goes on after a stop."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pretrain
import pytest
import spacy
import synonyms
import typer
from safetensors.numpy import load_file
from spacy.tokens import DocBin

from spacy_bioel.doc import add_gold
from spacy_bioel.kb.build import build_kb
from spacy_bioel.models.name_encoder import build_rescnn_v1, encode_names, read_encoder
from spacy_bioel.types import AnnotatedText, Concept, Mention


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


JOINED = {
    "through a shared name": (
        [
            [("A:1", ["Heart attack", "Cardiac infarction"]), ("A:2", ["Headache"])],
            [("B:1", ["heart  ATTACK", "Infarction of heart"]), ("B:2", ["Fever of unknown"])],
            [("C:1", ["infarction of heart", "third name"])],
        ],
        [
            {"heart attack", "cardiac infarction", "infarction of heart", "third name"},
            {"headache"},
            {"fever of unknown"},
        ],
    ),
    # Through B:1, A:1 and A:2 would be one; "kidney stones" then is a name of two concepts.
    "two concepts of one vocabulary are never joined": (
        [
            [("A:1", ["renal failure", "renal collapse"]), ("A:2", ["kidney stones", "calculi"])],
            [("B:1", ["renal failure", "kidney stones"])],
        ],
        [{"renal failure", "renal collapse"}, {"calculi"}],
    ),
    "ambiguous names are left out": (
        [
            [("A:1", ["common cold", "shared name"]), ("A:2", ["cold weather", "shared name"])],
            [("B:1", ["shared name", "other name"])],
        ],
        [{"common cold"}, {"cold weather"}, {"other name"}],
    ),
    "short names join nothing": (
        [[("A:1", ["AKI", "acute injury"])], [("B:1", ["aki", "a k intake"])]],
        [{"acute injury"}, {"a k intake"}],
    ),
    "the same id is the same concept": (
        [[("A:1", ["renal failure"])], [("A:1", ["kidney gave up", "renal failure"])]],
        [{"renal failure", "kidney gave up"}],
    ),
}


@pytest.mark.parametrize("case", JOINED)
def test_vocabularies_are_joined(case):
    vocabularies, expected = JOINED[case]
    joined = synonyms.join_names(vocabularies)
    found: list[set[str]] = [set() for _ in joined.sources]
    for name, concept in zip(joined.names, joined.concepts, strict=True):
        found[concept].add(name)
    assert sorted(found, key=min) == sorted(expected, key=min)


def test_names_of_mentions():
    mentions = [
        ("Renal Failure", "A:1"),
        ("renal failure", "A:1"),
        ("renal  failure", "A:2"),  # A:1 two times of three is not sure enough
        *[("headaches", "A:3")] * 7,
        *[("headaches", "A:4")] * 3,
        ("migraine", "A:3"),
        ("MI", "A:5"),  # too short
    ]
    assert list(synonyms.names_of_mentions(mentions)) == [("A:3", ["headaches", "migraine"])]


DISEASES = ["failure", "infection", "cancer", "injury", "stone", "bleeding"]


@pytest.fixture
def kbs(tmp_path) -> list[Path]:
    """Two knowledge bases of six concepts each, of which they share one name."""
    organs = {"A": ("renal", "kidney"), "B": ("hepatic", "liver")}
    for vocabulary, (adjective, noun) in organs.items():
        concepts = [
            Concept(f"{vocabulary}:{n}", (f"{adjective} {disease}", f"{noun} {disease}"))
            for n, disease in enumerate(DISEASES)
        ]
        if vocabulary == "B":
            concepts[1] = Concept("B:1", ("renal failure", "kidney insufficiency"))
        build_kb(concepts, tmp_path / "kb" / vocabulary)
    return [tmp_path / "kb" / vocabulary for vocabulary in organs]


CONFIG = """
[model]
@architectures = "spacy-bioel.ResCNN.v1"
dim = 8
blocks = 1
filters = 4
widths = [1,3]
pooling = "max"
dropout = 0.1
max_tokens = 8

[vocabulary]
size = 200
width = 16
path = null

[pretraining]
seed = 0
steps = 4
concepts = 8
confusable = 1
refresh_every = 2
pool = 100
learn_rate = 0.01
warmup = 2
weight_decay = 0.01
weights = [1.0,0.5]
mixed_precision = false
"""


@pytest.fixture
def config(tmp_path) -> Path:
    (tmp_path / "pretrain.cfg").write_text(CONFIG, encoding="utf8")
    return tmp_path / "pretrain.cfg"


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Make the update of this step fail, as if someone had pulled the plug."""
    update = pretrain.Pretraining._loss

    def stopped(self: Any, concepts: np.ndarray) -> float:
        if self.step == step:
            raise KeyboardInterrupt
        return update(self, concepts)

    monkeypatch.setattr(pretrain.Pretraining, "_loss", stopped)


def test_a_run_that_was_stopped_goes_on(kbs, config, tmp_path):
    pretrain.main(tmp_path / "whole", kbs, config=config)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            pretrain.main(tmp_path / "resumed", kbs, config=config)
    assert not (tmp_path / "resumed").exists()
    assert (tmp_path / "resumed-checkpoint").is_dir()
    pretrain.main(tmp_path / "resumed", kbs, config=config)
    assert not (tmp_path / "resumed-checkpoint").exists()

    whole, resumed = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "resumed"))
    assert whole.keys() == resumed.keys()
    assert all(np.array_equal(whole[key], resumed[key]) for key in whole)


def test_a_checkpoint_of_other_settings(kbs, config, tmp_path, monkeypatch):
    stop_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        pretrain.main(tmp_path / "out", kbs, config=config)
    config.write_text(CONFIG.replace("learn_rate = 0.01", "learn_rate = 0.02"), encoding="utf8")
    with pytest.raises(typer.BadParameter, match="other settings"):
        pretrain.main(tmp_path / "out", kbs, config=config)


def test_the_encoder_learns_synonyms(kbs, config, tmp_path, caplog):
    text = CONFIG.replace("steps = 4", "steps = 60").replace(
        "refresh_every = 2", "refresh_every = 20"
    )
    config.write_text(text, encoding="utf8")
    with caplog.at_level(logging.INFO, logger="pretrain"):
        pretrain.main(tmp_path / "out", kbs, mentions=[corpus(tmp_path)], config=config)
    # 6 concepts of 2 names, 5 of 2 others, "kidney insufficiency", and one name of the corpus.
    assert "24 names of 11 concepts" in caplog.text
    model = build_rescnn_v1(dim=8, blocks=1, filters=4, widths=[1, 3], max_tokens=8)
    read_encoder(model, tmp_path / "out")
    renal, kidney, hepatic = encode_names(model, ["renal cancer", "kidney cancer", "hepatic stone"])
    assert renal @ kidney > renal @ hepatic + 0.2


def corpus(folder: Path) -> Path:
    """A document with a mention by a new name, one of two concepts, and one without any."""
    doc = spacy.blank("en").make_doc("Renal shutdown with kidney trouble and rats")
    mentions = (
        Mention(0, 14, "Disease", ("A:0",)),
        Mention(20, 34, "Disease", ("A:1", "A:2")),
        Mention(39, 43, "Species", ()),
    )
    add_gold(doc, AnnotatedText("1", doc.text, mentions))
    DocBin(docs=[doc], store_user_data=True).to_disk(folder / "train.spacy")
    return folder / "train.spacy"
