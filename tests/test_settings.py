"""A wrong setting is refused, and the message says which, what is expected, and what was meant."""

import pickle
from typing import Any

import pytest
from spacy.cli._util import show_validation_error
from tiny import blank

import spacy_bioel
from spacy_bioel.errors import BioelError
from spacy_bioel.loading import load_model
from spacy_bioel.settings import LinkerSettings, MentionSettings

WRONG = [
    ({"max_candidates": True}, "max_candidates = True: expected an integer from 1 to 10000"),
    ({"max_candidates": 2.0}, "max_candidates = 2.0: expected an integer from 1 to 10000"),
    ({"nil_threshold": 2}, "nil_threshold = 2: expected a number from 0 to 1"),
    ({"coherence": -1}, "coherence = -1: expected a number of at least 0"),
    ({"coherence": float("inf")}, "coherence = inf: expected a number of at least 0"),
    ({"abbreviations": 1}, "abbreviations = 1: expected true or false"),
    ({"set_ents": "all"}, "set_ents = 'all': expected true or false or \"links\""),
    ({"spans_key": None}, "spans_key = None: expected a string"),
    (
        {"dictionary": {"typo": 1}},
        "dictionary.typo = 1: unknown, did you mean typos?",
    ),
    ({"evidence": ["exact"]}, "evidence = ['exact']: expected a table"),
    ({"training": {"loss": 3}}, 'training.loss = 3: expected "info_nce", "multi_similarity" or "m'),
    (
        {"label_types": {"Disease": {"C"}, "Gene": 3}},
        "label_types = {'Disease': {'C'}, 'Gene': 3}: expected a value such as {\"Disease\": ",
    ),
    ({"kb": []}, 'kb = []: expected a value such as "kb/mondo", ["kb/mondo", "kb/hp"] or {"Disea'),
    ({3: 1}, "3 = 1: unknown, expected one of kb, mentions, "),
    ({"thresold": 1}, "thresold = 1: unknown, did you mean nil_threshold?"),
    ({"training": {"synonims": 1}}, "training.synonims = 1: unknown, did you mean synonyms?"),
]


@pytest.mark.parametrize(("cfg", "line"), WRONG, ids=lambda value: str(value)[:40])
def test_a_message_names_the_setting_and_what_is_expected(cfg, line):
    with pytest.raises(BioelError) as caught:
        LinkerSettings.of(cfg)
    first, found, last = str(caught.value).splitlines()
    assert first == "[B270] Invalid settings for bioel_linker:"
    assert found.startswith(line)
    assert last.startswith("Correct them")


def test_an_error_in_another_process():
    with pytest.raises(BioelError) as caught:
        LinkerSettings.of({"max_candidates": 0})
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, BioelError) and str(again) == str(caught.value)


def test_a_message_has_a_line_for_each_wrong_setting():
    wrong = {
        "threshold": "high",
        "label_people": "yes",
        "include": {"Species": ["", 3]},
        "exclude": "2015",
    }
    with pytest.raises(BioelError) as caught:
        MentionSettings.of(wrong)
    assert str(caught.value).splitlines()[1:-1] == [
        "threshold = 'high': expected a number from 0 to 1",
        "include = {'Species': ['', 3]}: expected a value such as {\"Species\": [\"patients\"]}",
        "exclude = '2015': expected a value such as [\"2015\"]",
        "label_people = 'yes': expected true or false or null",
    ]


HALF = "é\ud800"


@pytest.mark.parametrize(
    ("settings", "cfg"),
    [
        (MentionSettings, {"threshold": 0.5, "abbreviations": HALF}),
        (MentionSettings, {"include": {"Species": ["rat", HALF]}}),
        (MentionSettings, {"include": {HALF: ["rat"]}}),
        (LinkerSettings, {"kb": [HALF]}),
        (LinkerSettings, {"dictionary": {"exclude": ["\udce9"]}}),
        (LinkerSettings, {HALF: 1}),
    ],
)
def test_half_of_a_surrogate_pair_is_no_setting(settings, cfg):
    with pytest.raises(BioelError, match=r"\[B270\].*\n.*= .*surrogate") as caught:
        settings.of(cfg)
    str(caught.value).encode("utf8")
    assert f"{settings.pipe}:\n{ascii([*cfg][-1])[1:-1]} = " in str(caught.value)


def test_characters_outside_the_basic_plane_are_settings():
    assert MentionSettings.of({"exclude": ["\U0001f9ec", "\\ud800"]}).exclude[0] == "\U0001f9ec"


def test_options_do_not_apply_to_a_knowledge_base():
    with pytest.raises(BioelError, match=r"\[B541\].*starter:cells.*config"):
        spacy_bioel.load("starter:cells", config={"components.bioel_linker.nil_threshold": 0.5})


def test_settings_are_copies_and_have_defaults():
    types = {"Disease": ["C"]}
    settings = LinkerSettings.of({"label_types": types, "evidence": {"dense": False}})
    types["Disease"].append("F03")
    assert settings.label_types == {"Disease": ("C",)}
    assert "exact" in settings.evidence.names and "dense" not in settings.evidence.names
    assert (settings.dictionary.threshold, settings.nil_threshold) == (0.5, 0.25)


def test_settings_are_checked_when_they_have_changed():
    linker = blank().add_pipe("bioel_linker")
    before = linker.check_settings()
    assert linker.check_settings() is before
    linker.cfg["dictionary"]["typos"] = False
    assert not linker.check_settings().dictionary.typos


def test_spacy_train_shows_wrong_settings_without_a_traceback(capsys):
    with pytest.raises(SystemExit), show_validation_error("config.cfg"):
        blank().add_pipe("bioel_linker", config={"training": {"synonims": 1}})
    assert capsys.readouterr().out.split("\n", 1)[1].splitlines() == [
        "training.synonims = 1: unknown, did you mean synonyms?",
        "Correct them; until then the pipe cannot be used or saved.",
    ]


META = '{"lang": "en", "name": "x", "version": "1"}'
UNKNOWN: list[tuple[dict[str, Any], str]] = [
    ({"thresold": 1}, "bioel_linker.thresold: unknown, did you mean nil_threshold?"),
    ({"ngram_search": {"@misc": "spacy-bioel.Ngrams.v1", "n": 4}}, "bioel_linker.ngram_search.n: "),
    ({"entities": {"genes": {"exclde": []}}}, "genes.exclde: unknown, "),
    ({"model": {"filterz": 3}}, "bioel_linker.model.filterz: unknown, did you mean filters?"),
    ({"model": {"dim": "wide"}}, "bioel_linker.model.dim: "),
]


@pytest.mark.parametrize(("config", "line"), UNKNOWN, ids=lambda value: str(value)[:40])
def test_an_unknown_setting_of_a_saved_pipeline(tmp_path, config, line):
    nlp = blank()
    nlp.add_pipe("bioel_linker", config={"include_kb": False, "kb": "starter:cells"})
    nlp.config.merge({"components": {"bioel_linker": config}}).to_disk(tmp_path / "config.cfg")
    (tmp_path / "meta.json").write_text(META, encoding="utf8")
    with pytest.raises(BioelError) as caught:
        load_model(str(tmp_path))
    first, found, last = str(caught.value).splitlines()
    assert first == f"[B540] The config of {tmp_path} has wrong settings:"
    assert found.startswith(line) and len(found) < 200
    assert last == "Correct them in the config."


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"components": {"bioel_linkr": {"max_candidates": 5}}},
            "B540.*bioel_linkr: .*bioel_linker",
        ),
        ({"components.bioel_linkr.max_candidates": 5}, "B540.*bioel_linkr: .*mean bioel_linker"),
        ({"components.bioel_linker.thresold": 1}, "B540.*did you mean nil_threshold"),
        ({"components.bioel_mentions.abbreviations": HALF}, "B270.*abbreviations"),
    ],
)
def test_a_wrong_setting_of_the_starter(config, expected):
    with pytest.raises(BioelError, match=f"(?s){expected}"):
        spacy_bioel.load(config=config)
