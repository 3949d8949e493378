"""What the commands ask of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from spacy.language import Language


def load_model(model: str) -> Language:
    """As `pipeline.loading.load_model`; spaCy is imported now, and not for `bioel --help`."""
    from spacy_bioel.pipeline import loading

    return loading.load_model(model)


def find_linker(nlp: Language) -> Any:
    """As `pipeline.loading.find_linker`."""
    from spacy_bioel.pipeline import loading

    return loading.find_linker(nlp)


def require_linker(nlp: Language, model: str) -> Any:
    """As `find_linker`. RAISES BioelError: [B072] when the pipeline has no linker."""
    linker = find_linker(nlp)
    if linker is None:
        raise BioelError(Errors.B072.format(model=model, pipes=", ".join(nlp.pipe_names) or "none"))
    return linker
