"""Pipelines by folder or name, as people give them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.util import is_package

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.layout import has_columns
from spacy_bioel.pipeline.gold import SPANS_KEY

LINKER = "bioel_linker"
DETECTOR = "bioel_mentions"
STARTER = "starter"


def load_model(model: str, *, more: Sequence[str] = ()) -> Language:
    """Load a pipeline by folder or package name; a knowledge base will do as a pipeline too.

    model (str): "starter" is the pipeline of the package, "starter:genes" one of its knowledge
        bases.
    more (Sequence[str]): Folders of further knowledge bases, beside one that is the model.
    RAISES BioelError: [B071] when there is none, [B323] when a pipeline is given with knowledge
        bases beside it.
    """
    if has_columns(Path(model)) or of_package(model):
        return dictionary_pipeline([model, *more] if more else model)
    if more:
        raise BioelError(Errors.B323.format(model=model))
    if model == STARTER and not Path(model).exists():
        from spacy_bioel.pipeline.starter import load_starter

        return load_starter()
    try:
        return spacy.load(model)
    except BioelError:
        raise
    except Exception as error:  # a damaged folder can fail in many ways
        raise BioelError(Errors.B071.format(model=model, error=error)) from error


def of_package(name: str) -> bool:
    """Whether a name is that of a knowledge base of the package, such as "starter:genes"."""
    return name.startswith(f"{STARTER}:") and not Path(name).exists()


def check_there(model: str) -> None:
    """Refuse a model that `load_model` would not find, without loading it.

    RAISES BioelError: [B071]
    """
    if model != STARTER and not Path(model).exists() and not is_package(model):
        raise BioelError(Errors.B071.format(model=model, error="no such folder, and no package"))


def dictionary_pipeline(kb: str | list[str]) -> Language:
    """A pipeline that links the names of a knowledge base, or of several; nothing is trained."""
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    nlp.add_pipe(LINKER, config={"kb": kb, "mentions": "kb"})
    return nlp


def find_linker(nlp: Language) -> Any:
    """The pipe that was made by the factory "bioel_linker", under whatever name; None: no such."""
    return _find(nlp, LINKER)


def find_detector(nlp: Language) -> Any:
    """The same for the factory "bioel_mentions"."""
    return _find(nlp, DETECTOR)


def spans_key(linker: Any) -> str:
    """Span group of the links of a pipeline.

    linker (Linker | None): The one of the pipeline; None: the group of a detector's mentions.
    """
    return SPANS_KEY if linker is None else str(linker.cfg["spans_key"])


def _find(nlp: Language, factory: str) -> Any:
    for name, pipe in nlp.pipeline:
        if nlp.get_pipe_meta(name).factory == factory:
            return pipe
    return None
