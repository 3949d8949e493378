"""The config of a pipeline is the only source of its pipes' settings, saved or not."""

import json
from typing import Any

import pytest
import spacy
from spacy.lang.en import English
from spacy.language import Language
from spacy.util import load_config, load_model_from_config
from tiny import LINKER, blank, links

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.settings import LinkerSettings, MentionSettings

TEXT = "Aspirin can cause a cold."
PIPES: dict[str, Any] = {"bioel_mentions": MentionSettings, "bioel_linker": LinkerSettings}
CHANGES: dict[str, dict[str, Any]] = {
    "bioel_mentions": {
        "threshold": 0.875,
        "exclude": ["fever"],
        "include": {"Disease": ["a cold"]},
    },
    "bioel_linker": {
        "nil_threshold": 0.625,
        "label_types": {"Disease": ["Disease"], "Chemical": []},
        "evidence": LinkerSettings.defaults()["evidence"] | {"prior": False},
        "coherence": 0.25,
    },
}


def settings_of(nlp: Language) -> dict[str, dict[str, Any]]:
    """What the pipes use, other than the location of the knowledge base."""
    pipes: Any = {name: nlp.get_pipe(name) for name in PIPES}
    return {name: pipes[name].check_settings().model_dump(exclude={"kb"}) for name in PIPES}


def in_config(nlp: Language) -> dict[str, dict[str, Any]]:
    components = nlp.config.interpolate()["components"]
    read = {name: {k: components[name][k] for k in PIPES[name].model_fields} for name in PIPES}
    return {name: PIPES[name].of(read[name]).model_dump(exclude={"kb"}) for name in PIPES}


def change(nlp: Language) -> None:
    for name, settings in CHANGES.items():
        nlp.get_pipe(name).cfg |= settings  # type: ignore[attr-defined]
    nlp.get_pipe("bioel_linker").cfg["training"]["seed"] = 5  # type: ignore[attr-defined]


def test_changes_are_in_the_config_at_once(trained):
    assert in_config(trained) == settings_of(trained)
    change(trained)
    assert in_config(trained) == settings_of(trained)
    linker = trained.config["components"]["bioel_linker"]
    assert linker["label_types"] == {"Disease": ["Disease"], "Chemical": []}
    assert (linker["evidence"]["prior"], linker["training"]["seed"]) == (False, 5)
    trained.get_pipe("bioel_linker").cfg["nil_threshold"] = 0.25  # as at first
    assert in_config(trained) == settings_of(trained)
    again = load_model_from_config(trained.config)
    assert settings_of(again) == settings_of(trained)
    assert settings_of(English.from_config(trained.config)) == settings_of(trained)


def test_the_saved_config_says_what_is_used(trained, tmp_path):
    change(trained)
    trained.to_disk(tmp_path / "m")
    loaded = spacy.load(tmp_path / "m")
    assert settings_of(loaded) == settings_of(trained) == in_config(loaded)
    from_bytes = load_model_from_config(trained.config).from_bytes(trained.to_bytes())
    assert settings_of(from_bytes) == settings_of(trained)
    for name in PIPES:  # nothing that could contradict the config
        stored = (tmp_path / "m" / name / "cfg.json").read_text("utf8")
        assert not set(PIPES[name].model_fields) - {"kb"} & json.loads(stored)["state"].keys()


def test_an_edited_config_takes_effect(trained, tmp_path):
    trained.get_pipe("bioel_linker").cfg["nil_threshold"] = 0.5
    trained.to_disk(tmp_path / "m")
    path = tmp_path / "m" / "config.cfg"
    config = load_config(path)
    config["components"]["bioel_linker"] |= {"nil_threshold": 0.75, "max_candidates": 2}
    config["components"]["bioel_mentions"]["threshold"] = 0.125
    config.to_disk(path)
    edited = settings_of(spacy.load(tmp_path / "m"))
    assert edited["bioel_linker"]["nil_threshold"] == 0.75
    assert edited["bioel_linker"]["max_candidates"] == 2
    assert edited["bioel_mentions"]["threshold"] == 0.125
    changes = {"components.bioel_linker.nil_threshold": 0.875}
    changed = spacy.load(tmp_path / "m", config=changes)
    assert settings_of(changed)["bioel_linker"]["nil_threshold"] == 0.875


def test_an_edited_knowledge_base_takes_effect(trained, kb_folder, tmp_path):
    trained.to_disk(tmp_path / "m")
    other = KnowledgeBase.open(kb_folder)
    other.save_to(tmp_path / "other")
    included: Any = spacy.load(tmp_path / "m").get_pipe("bioel_linker")
    assert included.kb.path == (tmp_path / "m" / "bioel_linker" / "kb").resolve()
    changes = {"components.bioel_linker.kb": str(tmp_path / "other")}
    moved: Any = spacy.load(tmp_path / "m", config=changes).get_pipe("bioel_linker")
    assert moved.kb.path == (tmp_path / "other").resolve()
    made: Any = load_model_from_config(spacy.load(tmp_path / "m").config)
    assert made.get_pipe("bioel_linker").kb.path == included.kb.path
    moved.set_kb([str(tmp_path / "other"), str(kb_folder)])
    assert moved.cfg["kb"] == [str((tmp_path / "other").resolve()), str(kb_folder.resolve())]


def test_variables_are_kept_until_their_value_changes(kb_folder):
    nlp = blank()
    nlp.add_pipe("bioel_linker", config=LINKER | {"kb": str(kb_folder)})
    config = nlp.config.copy()
    config["system"]["seed"] = 7
    config["components"]["bioel_linker"]["training"]["seed"] = "${system.seed}"
    again = load_model_from_config(config)
    linker: Any = again.get_pipe("bioel_linker")
    assert linker.cfg["training"]["seed"] == 7
    linker.cfg["nil_threshold"] = 0.5
    written = again.config["components"]["bioel_linker"]
    assert (written["nil_threshold"], written["training"]["seed"]) == (0.5, "${system.seed}")
    linker.cfg["training"]["seed"] = 8
    assert again.config["components"]["bioel_linker"]["training"]["seed"] == 8


def test_renamed_and_sourced_pipes_have_their_own_settings(trained, tmp_path):
    linker: Any = trained.get_pipe("bioel_linker")
    linker.cfg["nil_threshold"] = 0.5
    trained.rename_pipe("bioel_linker", "links")
    linker.cfg["coherence"] = 0.125
    config = trained.config["components"]["links"]
    assert (config["nil_threshold"], config["coherence"]) == (0.5, 0.125)
    before = links(trained(TEXT))
    other = blank()
    other.add_pipe("links", name="sourced", source=trained)
    assert links(trained(TEXT)) == before != []
    linker.cfg["nil_threshold"] = 0.75
    for nlp, name in ((trained, "links"), (other, "sourced")):
        assert nlp.config["components"][name]["nil_threshold"] == 0.75


def test_a_setting_that_could_not_be_loaded_is_not_in_a_config(trained, tmp_path):
    trained.get_pipe("bioel_linker").cfg["nil_threshold"] = 3
    with pytest.raises(BioelError, match=r"\[B270\].*\n.*nil_threshold = 3"):
        _ = trained.config
    with pytest.raises(BioelError, match=r"\[B270\]"):
        trained.to_disk(tmp_path / "m")
