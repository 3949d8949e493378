"""What is saved is what is loaded, also after a pipeline was initialised twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from test_failed_loads import MAKERS, answers
from tiny import VOCABULARY, examples, step

from spacy_bioel.types import AnnotatedText

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*W300")


def learn(nlp: Language, texts: list[AnnotatedText], *, updates: int = 3) -> Language:
    """Initialise and train, whatever the pipeline was before."""
    nlp.config["initialize"]["components"] = {"bioel_linker": VOCABULARY}
    optimizer = nlp.initialize(lambda: examples(nlp, texts))
    optimizer.learn_rate = 0.02
    for _ in range(updates):
        step(nlp, texts, optimizer)
    return nlp


def layers(nlp: Language) -> list[Any]:
    models: list[Any] = [pipe.model for _, pipe in nlp.pipeline]  # type: ignore[attr-defined]
    return [node for model in models for node in model.walk()]


def networks(nlp: Language) -> list[Any]:
    """The torch parts of the pipes; a shared transformer is kept, as it may be trained on."""
    with nlp.select_pipes(enable=[name for name in nlp.pipe_names if name != "tok2vec"]):
        return [shim for node in layers(nlp) for shim in node.shims]


@pytest.mark.parametrize("architecture", MAKERS)
def test_after_initialising_twice(
    architecture: str,
    kb_folder: Path,
    checkpoint: Path,
    texts: list[AnnotatedText],
    tmp_path: Path,
) -> None:
    updates = 60 if architecture == "multitask" else 3
    few = texts[:3]  # of fewer concepts, which are the classes of a multi-task model
    nlp = learn(MAKERS[architecture](kb_folder, checkpoint), few)
    once, before = [node.name for node in layers(nlp)], networks(nlp)
    learn(nlp, texts, updates=updates)
    assert [node.name for node in layers(nlp)] == once
    assert not [one for one in networks(nlp) if any(one is other for other in before)]
    expected = answers(nlp, texts)
    assert sum(map(len, expected)) > 30  # type: ignore[arg-type]
    nlp.to_disk(tmp_path / "twice")
    loaded = spacy.load(tmp_path / "twice")
    assert answers(loaded, texts) == expected

    learn(loaded, few, updates=updates)
    assert [node.name for node in layers(loaded)] == once
    loaded.to_disk(tmp_path / "thrice")
    expected = answers(loaded, texts)
    assert answers(spacy.load(tmp_path / "thrice"), texts) == expected
    # In the place of weights of other documents.
    assert answers(nlp.from_disk(tmp_path / "thrice"), texts) == expected


def test_in_the_place_of_a_detector_of_other_labels(
    kb_folder: Path, checkpoint: Path, texts: list[AnnotatedText], tmp_path: Path
) -> None:
    for architecture in ("light", "bio"):
        nlp = learn(MAKERS[architecture](kb_folder, checkpoint), texts)
        other = MAKERS[architecture](kb_folder, checkpoint)
        for label in ("Chemical", "Disease", "Gene"):
            other.get_pipe("bioel_mentions").add_label(label)  # type: ignore[attr-defined]
        learn(other, texts).to_disk(tmp_path / architecture)
        expected = answers(other, texts)
        assert answers(nlp.from_disk(tmp_path / architecture), texts) == expected
        assert nlp.get_pipe("bioel_mentions").labels == ("Chemical", "Disease", "Gene")  # type: ignore[attr-defined]
