"""Linking of the mentions that texts have, in place of those that a pipeline finds."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial

from spacy.language import Language
from spacy.tokens import Doc

from spacy_bioel.distributed.rows import (
    LinkedText,
    checked_text,
    failed_text,
    in_batches,
    zone_of,
)
from spacy_bioel.pipeline.annotate import get_links
from spacy_bioel.pipeline.gold import with_gold_mentions
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.loading import find_linker, spans_key
from spacy_bioel.pipeline.measuring import changed
from spacy_bioel.pipeline.stored_pipe import listens, with_token_vectors
from spacy_bioel.types import AnnotatedText


def link_given(
    nlp: Language, texts: Iterable[AnnotatedText], *, batch_size: int = 64, n_process: int = 1
) -> Generator[LinkedText, None, None]:
    """Link the mentions of texts by the linker alone; their ids are not looked at.

    The label of a mention chooses its knowledge base, where the linker has several, and its
    semantic types. Links have the offsets of the mentions, also where these cut a token.

    nlp (Language): A pipeline with a linker. Otherwise as `distributed.rows.link_texts`.
    YIELDS (LinkedText): One per text, with a link per mention, in their order.
    """
    work = partial(_link_batch, nlp)
    yield from in_batches(work, texts, batch_size=batch_size, n_process=n_process)


def _link_batch(nlp: Language, texts: list[AnnotatedText]) -> list[LinkedText]:
    """Link a batch; if it fails, its texts one by one."""
    linker = find_linker(nlp)
    assert linker is not None
    with zone_of(nlp), changed(linker.cfg, {"mentions": "spans"}):
        try:
            return _link(nlp, linker, texts)
        except Exception:  # of one text or of several: `_link_alone` reports it
            return [_link_alone(nlp, linker, text) for text in texts]


def _link_alone(nlp: Language, linker: Linker, text: AnnotatedText) -> LinkedText:
    try:
        return _link(nlp, linker, [text])[0]
    except Exception as error:  # of any pipe: the job continues
        return failed_text((text.text, text.id), error)


def _link(nlp: Language, linker: Linker, texts: Sequence[AnnotatedText]) -> list[LinkedText]:
    key = spans_key(linker)
    docs: list[Doc] = [
        with_gold_mentions(nlp.make_doc(checked_text((text.text, text.id))), text, spans_key=key)
        for text in texts
    ]
    if listens(linker.model):
        docs = list(with_token_vectors(nlp, docs))
    linker.set_annotations(docs, linker.predict(docs))
    linked = []
    for doc, text in zip(docs, texts, strict=True):
        # The linker has seen whole tokens.
        links = tuple(
            replace(link, start=mention.start, end=mention.end)
            for link, mention in zip(get_links(doc, key), text.mentions, strict=True)
        )
        linked.append(LinkedText(text.id, text.text, links))
    return linked
