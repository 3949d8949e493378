"""Settings of `bioel_context`, and those that the preset changes."""

import json
from typing import Any

import pytest
import spacy
from tiny import blank

import spacy_bioel
from spacy_bioel.errors import BioelError
from spacy_bioel.loading import set_preset
from spacy_bioel.plugins.clinical.factories import ContextSettings

HALF = "\ud800"


def test_a_saved_config_with_half_of_a_surrogate_pair_is_refused(tmp_path):
    nlp = blank()
    nlp.add_pipe("bioel_context")
    nlp.to_disk(tmp_path)
    path = tmp_path / "config.cfg"
    path.write_text(path.read_text().replace('rules = ""', f"rules = {json.dumps(HALF)}"))
    with pytest.raises(BioelError, match=r"\[B270\] .*bioel_context:\nrules = .*surrogate"):
        spacy_bioel.load(tmp_path)


def test_options_apply_to_saved_pipelines_too(tmp_path):
    nlp = blank()
    nlp.add_pipe("bioel_context")
    nlp.add_pipe("sentencizer")
    nlp.to_disk(tmp_path)
    config = {"components.bioel_context.spans_key": "mine"}
    changed = spacy_bioel.load(tmp_path, config=config, exclude="sentencizer")
    assert changed.pipe_names == ["bioel_context"]
    assert changed.config["components"]["bioel_context"]["spans_key"] == "mine"
    with pytest.raises(BioelError, match=r"\[B540\](?s:.*)bioel_contxt"):
        spacy_bioel.load(tmp_path, config={"components.bioel_contxt.spans_key": "mine"})


def test_a_config_with_a_key_twice_is_refused(tmp_path):
    nlp = blank()
    nlp.add_pipe("bioel_context")
    nlp.to_disk(tmp_path)
    path = tmp_path / "config.cfg"
    path.write_text(path.read_text().replace('rules = ""', 'rules = ""\nrules = ""'))
    with pytest.raises(BioelError, match=r"\[B071\].*rules"):
        spacy_bioel.load(tmp_path)


def test_the_starter_and_the_preset_for_notes():
    nlp = spacy_bioel.load()
    config = nlp.config["components"]["bioel_mentions"]
    assert config["threshold"] == nlp.get_pipe("bioel_mentions").cfg["threshold"] == 0.3  # type: ignore[attr-defined]
    set_preset(nlp, "clinical")
    detector: Any = nlp.get_pipe("bioel_mentions")
    assert nlp.config["components"]["bioel_mentions"]["exclude"] == detector.cfg["exclude"] != []


def test_the_context_pipe(tmp_path):
    nlp = blank()
    pipe: Any = nlp.add_pipe("bioel_context", config={"spans_key": "mine"})
    pipe.cfg["spans_key"] = "other"
    nlp.to_disk(tmp_path / "m")
    loaded: Any = spacy.load(tmp_path / "m")
    assert loaded.get_pipe("bioel_context").cfg["spans_key"] == "other"
    changes = {"components.bioel_context.spans_key": "third"}
    changed: Any = spacy.load(tmp_path / "m", config=changes).get_pipe("bioel_context")
    assert changed.cfg["spans_key"] == "third"
    assert ContextSettings.defaults()["spans_key"] == ""
