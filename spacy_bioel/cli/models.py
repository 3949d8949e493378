"""Loading of pipelines, linkers and gold documents for the commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.types import AnnotatedText

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_bioel.kb.columns.store import KnowledgeBase
    from spacy_bioel.pipeline.linker.component import Linker


def load_model(model: str, *, more: Sequence[str] = ()) -> Language:
    """Call `pipeline.loading.load_model`; a late import keeps `bioel --help` free of spaCy."""
    from spacy_bioel.pipeline import loading

    return loading.load_model(model, more=more)


def load_with_gold(
    model: str, gold: Path, *, format: str | None, prefix: str
) -> tuple[Language, list[AnnotatedText]]:
    """Load a pipeline and gold documents, with mentions from the pipeline's own `gold_key`.

    The documents are read first, so that errors in them are reported without delay.
    """
    from spacy_bioel.corpus import read_texts
    from spacy_bioel.pipeline.gold import GOLD_KEY
    from spacy_bioel.pipeline.measuring import gold_key

    texts = list(read_texts(gold, format=format, prefix=prefix))
    nlp = load_model(model)
    key = gold_key(nlp)
    if key != GOLD_KEY:
        texts = list(read_texts(gold, format=format, prefix=prefix, gold_key=key))
    return nlp, texts


def open_kb(kb: Path) -> KnowledgeBase:
    """Open a knowledge base for reading: a folder, or one of the package, as "starter:genes".

    RAISES BioelError: Those of `pipeline.linker.starter.open_setting`.
    """
    from spacy_bioel.pipeline.loading import of_package

    if of_package(str(kb)):
        from spacy_bioel.pipeline.linker.starter import starter_kb

        return starter_kb(str(kb))
    return KnowledgeBase.open(kb)


def find_linker(nlp: Language) -> Linker | None:
    """Call `pipeline.loading.find_linker`, with a late import."""
    from spacy_bioel.pipeline import loading

    return loading.find_linker(nlp)


def require_linker(nlp: Language, model: str) -> Linker:
    """Find the linker of a pipeline. RAISES BioelError: [B072] when it has none."""
    linker = find_linker(nlp)
    if linker is None:
        raise BioelError(Errors.B072.format(model=model, pipes=", ".join(nlp.pipe_names) or "none"))
    return linker
