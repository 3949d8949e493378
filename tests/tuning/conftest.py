"""A knowledge base of a few concepts, and pipes whose answers are set by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept, Link

CONCEPTS = [
    Concept("X:A", ("alpha fever",), types=("D",)),
    Concept("X:B", ("beta fever",), types=("D",)),
    Concept("X:C", ("gamma ache",), types=("D",)),
    Concept("X:OLD", (), replaced_by="X:C"),
]
TOKENIZER = {"nlp": {"tokenizer": {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}}}


@pytest.fixture(scope="session")
def kb_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kb") / "kb"
    build_kb(CONCEPTS, folder)
    return folder


@pytest.fixture()
def make_linker(kb_folder) -> Callable[..., Language]:
    """Make a pipeline with only a linker, which finds and links the names of the knowledge base."""

    def make(**settings: Any) -> Language:
        nlp = spacy.blank("en", config=TOKENIZER)
        config = {"kb": str(kb_folder), "mentions": "dictionary", "evidence": {"dense": False}}
        nlp.add_pipe("bioel_linker", config=config | {"model": {"dim": 16}} | settings)
        return nlp

    return make


@dataclass
class Ranked:
    """A ranking with candidates set by hand."""

    linker: Any
    ranked: list[list[Link]]

    def links(self, *, nil_threshold: float | None = None) -> list[list[Link]]:
        threshold = self.linker.cfg["nil_threshold"] if nil_threshold is None else nil_threshold
        return [[decided(link, threshold) for link in links] for links in self.ranked]


def decided(link: Link, nil_threshold: float) -> Link:
    is_linked = link.candidates[0].score >= nil_threshold
    return link if is_linked else replace(link, ids=())


@pytest.fixture()
def answering(monkeypatch) -> Callable[..., Any]:
    """Make a detector return these spans, or a linker these candidates, by text."""

    def patch(pipe: Any, answers: Mapping[str, Sequence[Any]]) -> Any:
        def scored(docs: Sequence[Doc], **_: Any) -> list[list[Any]]:
            return [list(answers[doc.text]) for doc in docs]

        def ranked(docs: Sequence[Doc]) -> Ranked:
            return Ranked(pipe, scored(list(docs)))

        is_linker = hasattr(pipe, "ranking")
        monkeypatch.setattr(pipe, *(("ranking", ranked) if is_linker else ("score_spans", scored)))
        return pipe

    return patch
