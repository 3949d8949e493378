"""A knowledge base of a few concepts, and pipes whose answers a test sets by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.kb.build.build import build_kb
from spacy_bioel.types import Concept

CONCEPTS = [
    Concept("X:A", ("alpha fever",), types=("D",)),
    Concept("X:B", ("beta fever",), types=("D",)),
    Concept("X:C", ("gamma ache",), types=("D",)),
    Concept("X:OLD", (), replaced_by="X:C"),
]
TOKENIZER = {"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}


@pytest.fixture(scope="session")
def kb_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    build_kb(CONCEPTS, folder)
    return folder


@pytest.fixture()
def make_linker(kb_folder: Path) -> Callable[..., Language]:
    """A pipeline of a linker alone, which links names of the knowledge base by their strings."""

    def make(**settings: Any) -> Language:
        nlp = spacy.blank("en", config=TOKENIZER)
        config = {"kb": str(kb_folder), "mentions": "kb", "evidence": {"dense": False}}
        nlp.add_pipe("bioel_linker", config=config | {"model": {"dim": 16}} | settings)
        return nlp

    return make


@pytest.fixture()
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let a pipe predict these answers for texts, whatever its settings are."""

    def patch(pipe: Any, answers: Mapping[str, Sequence[Any]]) -> Any:
        def predict(docs: Sequence[Doc]) -> list[list[Any]]:
            return [list(answers[doc.text]) for doc in docs]

        monkeypatch.setattr(pipe, "predict", predict)
        return pipe

    return patch
