"""training/scripts/pretrain_seq2seq.py: its examples, and a run that goes on where it stopped."""

from pathlib import Path
from typing import Any

import numpy as np
import pretrain_seq2seq as pretrain
import pytest
from safetensors.numpy import load_file
from tables import cases

from spacy_bioel.kb.build import build_kb
from spacy_bioel.models.name_encoder import add_encoder
from spacy_bioel.plugins.contextual.generative import MarkedMention, build_seq2seq_v1
from spacy_bioel.types import Concept

pytest.importorskip("transformers")
SETTINGS = {"same": 0.0, "misspelt": 0.0, "context": 1.0, "weights": [1.0], "seed": 0}
CONFIG = cases(__file__, "pretraining")


@pytest.fixture
def kb(tmp_path) -> Path:
    concepts = [
        Concept("X:1", ("Heart attack", "Cardiac infarction"), (), definition="Death of muscle."),
        Concept("X:2", ("Renal failure", "Kidney failure", "Failure of the kidney"), ()),
        Concept("X:3", ("Headache",), ()),
    ]
    build_kb(concepts, tmp_path / "kb")
    return tmp_path / "kb"


@pytest.fixture
def examples(kb) -> Any:
    opened = [pretrain.KnowledgeBase.open(kb)]
    names = pretrain.join_names([pretrain.names_of_kb(one) for one in opened])
    definitions = pretrain.read_definitions(opened, names)
    assert list(definitions.values()) == ["death of muscle"]
    return pretrain.Examples(names, definitions, SETTINGS)


def test_templates(examples):
    drawn = set(examples.draw(200))
    attack = MarkedMention("", "cardiac infarction", "is defined as death of muscle")
    assert (attack, "heart attack") in drawn
    defined = MarkedMention("death of muscle defines", "heart attack", "")
    assert (defined, "cardiac infarction") in drawn
    for others in (
        MarkedMention("", "renal failure", "also known as kidney failure"),
        MarkedMention("renal failure also called", "kidney failure", ""),
    ):
        assert (others, "failure of the kidney") in drawn
    assert {target for mention, target in drawn if "headache" in mention.mention} <= {"headache"}


def test_the_same_string_or_a_misspelt_one(examples):
    examples.settings = {**SETTINGS, "same": 1.0, "context": 0.0}
    assert all(mention == MarkedMention("", target, "") for mention, target in examples.draw(50))
    chance = np.random.default_rng(0)
    found = {pretrain.misspell("renal failures", chance) for _ in range(300)}
    assert {"renal failure", "failures", "failures renal", "enal failures"} <= found
    assert "" not in {pretrain.misspell("a", chance) for _ in range(100)}


def test_stopped_and_gone_on_is_the_same(kb, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config = tmp_path / "small.cfg"
    config.write_text(CONFIG, encoding="utf8")
    pretrain.main(tmp_path / "whole", [kb], config)
    saved = pretrain.Pretraining.save

    def save_and_stop(self: Any, folder: Path) -> None:
        saved(self, folder)
        if self.step == 16:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretrain.Pretraining, "save", save_and_stop)
        pretrain.main(tmp_path / "parts", [kb], config)
    assert (tmp_path / "parts-checkpoint").is_dir()
    assert not (tmp_path / "parts").exists()
    pretrain.main(tmp_path / "parts", [kb], config)
    assert not (tmp_path / "parts-checkpoint").exists()
    whole, parts = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)
    model: Any = build_seq2seq_v1(path=str(tmp_path / "parts"), max_pieces=20)
    add_encoder(model, None)  # type: ignore[arg-type]  # all is in the folder
    losses = model.predict(([MarkedMention("", "renal failure", "")], ["kidney failure"]))
    assert losses.shape == (1,)
