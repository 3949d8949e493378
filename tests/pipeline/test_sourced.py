"""Pipes taken over from another pipeline, with `source`, are checked like those that are made."""

from typing import Any

import pytest
import spacy
from spacy.language import Language
from tiny import blank, linking_nlp, links

from spacy_bioel.errors import BioelError

TEXT = "Aspirin can cause a cold."


def other(trained: Language, *pipes: str) -> Language:
    nlp = spacy.blank("en", config={"nlp": trained.config["nlp"] | {"pipeline": []}})
    for name in pipes:
        nlp.add_pipe(name, source=trained)
    return nlp


def test_in_order(trained):
    nlp = other(trained, "bioel_mentions", "bioel_linker")
    assert links(nlp(TEXT)) == links(trained(TEXT))
    assert nlp.get_pipe("bioel_linker").name == "bioel_linker"


def test_before_the_detector(trained):
    _ = trained(TEXT)  # its own order is checked
    nlp = other(trained, "bioel_linker", "bioel_mentions")
    with pytest.warns(UserWarning, match=r"\[W271\].*bioel_linker.*bioel_mentions"):
        nlp(TEXT)


def test_without_a_detector(trained):
    with pytest.warns(UserWarning, match=r"\[W323\].*bioel_linker"):
        other(trained, "bioel_linker")(TEXT)


def test_beside_a_linker_of_the_same_group(trained, kb_folder):
    nlp = linking_nlp(kb_folder, ["aspirin"])
    nlp.add_pipe("bioel_linker", name="second", source=trained)
    with pytest.raises(BioelError, match=r"\[B271\].*second"):
        nlp(TEXT)


def test_from_a_config(trained_folder):
    config = {
        "nlp": {"lang": "en", "pipeline": ["links", "bioel_mentions"]},
        "components": {
            "links": {"source": str(trained_folder), "component": "bioel_linker"},
            "bioel_mentions": {"source": str(trained_folder)},
        },
    }
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    with pytest.warns(UserWarning, match=r"\[W271\].*links.*bioel_mentions"):
        nlp(TEXT)


def test_without_the_vectors_it_listens_to(dual_folder):
    trained = spacy.load(dual_folder)
    assert trained.pipe_names[0] == "tok2vec"
    nlp = other(trained, *trained.pipe_names[1:])
    with pytest.raises(BioelError, match=r"\[B174\]"):
        nlp(TEXT)


def test_moved_while_its_first_pipeline_lives_on(trained):
    linker: Any = trained.get_pipe("bioel_linker")
    expected = links(trained(TEXT))
    nlp = blank()
    nlp.add_pipe("bioel_linker", name="mine", source=trained)
    assert linker.name == "mine"
    linker.cfg["nil_threshold"] = 0.75
    assert nlp.config["components"]["mine"]["nil_threshold"] == 0.75
    linker.cfg["nil_threshold"] = 0.25
    assert links(trained(TEXT)) == expected
