"""Link given mentions, such as the gold mentions in an annotated corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.doc import get_links, with_gold_mentions
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.pipe import listens, with_token_vectors
from spacy_bioel.types import AnnotatedText, Link

DOCS_PER_BATCH = 32


def link_gold_mentions(
    nlp: Language, linker: Linker, texts: Iterable[AnnotatedText]
) -> Iterator[list[Link]]:
    """Yield the linker's links for each text, given the gold offsets and labels."""
    key: str = linker.cfg["spans_key"]
    docs: Iterable[Doc] = (
        with_gold_mentions(nlp.make_doc(t.text), t, spans_key=key) for t in texts
    )
    if listens(linker.model):
        docs = with_token_vectors(nlp, docs)
    # Override the `mentions` setting to link the gold spans, not entities or KB names.
    with changed_settings(linker.cfg, {"mentions": "spans"}):
        for doc in linker.pipe(docs, batch_size=DOCS_PER_BATCH):
            yield get_links(doc, spans_key=key)


@contextmanager
def changed_settings(cfg: dict[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Change a pipe's settings for the duration of a `with` block."""
    previous = {name: cfg[name] for name in values}
    try:
        cfg.update(values)
        yield
    finally:
        cfg.update(previous)
