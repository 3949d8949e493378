"""A pipeline run on gold documents: on their bare text, or on their gold mentions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from spacy_bioel.doc import get_links, with_gold_mentions
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.evaluation import protocols
from spacy_bioel.evaluation.evaluate import Figure, Knowledge, evaluate
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.loading import dictionary_pipeline, find_linker, spans_key
from spacy_bioel.mentions.pipe import MentionDetector
from spacy_bioel.pipe import listens, with_token_vectors
from spacy_bioel.settings import GOLD_KEY
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText, Link

_BATCH = 32
_N_SHOWN = 5  # unknown ids in a message
# Links of each document, by whether the linker was given the gold mentions.
Predicted = dict[bool, list[list[Link]]]
# Called with a description and, by name, a total; yields a function that is told how many are done.
ProgressBar = Callable[..., AbstractContextManager[Callable[[int], None]]]


@contextmanager
def silent(description: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A `ProgressBar` that shows nothing."""
    yield lambda n: None


def gold_key(nlp: Language) -> str:
    """The span group in which the trainable pipes expect gold mentions."""
    for _, pipe in nlp.pipeline:
        cfg = getattr(pipe, "cfg", None)
        if isinstance(cfg, Mapping) and "gold_key" in cfg:
            return str(cfg["gold_key"])
    return GOLD_KEY


def check_gold(texts: Sequence[AnnotatedText], linker: Linker | None, path: Path) -> None:
    """Refuse gold documents that nothing can be measured on.

    RAISES BioelError: [B076] without a gold mention, [B077] when a linker knows no gold id.
    """
    if not any(text.mentions for text in texts):
        raise BioelError(Errors.B076.format(path=path, n=len(texts)))
    ids = [id_ for text in texts for mention in text.mentions for id_ in mention.ids]
    if linker is None or not ids:
        return
    if (linker.kb.find_all(ids) < 0).all():
        first = ", ".join(list(dict.fromkeys(ids))[:_N_SHOWN])
        raise BioelError(Errors.B077.format(n=len(ids), path=path, first=first))


def measure_pipeline(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    chosen: Mapping[str, protocols.Protocol],
    *,
    progress: ProgressBar = silent,
) -> dict[tuple[str, str], float]:
    """Run a pipeline once a kind of protocol, and return its figures by protocol and metric."""
    links = predict_links(nlp, texts, chosen, progress=progress)
    rows = score_links(nlp, texts, links, chosen)
    return {(row.protocol, row.metric): row.value for row in rows if not row.label}


def predict_links(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    chosen: Mapping[str, protocols.Protocol],
    *,
    progress: ProgressBar = silent,
) -> Predicted:
    """Run a pipeline once a kind of protocol: on bare texts, and, if it has a linker, on given
    mentions.
    """
    link: dict[bool, Any] = {True: link_given, False: link_open}
    kinds = sorted({one.given_mentions for one in chosen.values()})
    linker = find_linker(nlp)
    return {given: list(link[given](nlp, linker, texts, progress=progress)) for given in kinds}


def score_links(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    links: Predicted,
    chosen: Mapping[str, protocols.Protocol],
    *,
    seed: int = 0,
) -> list[Figure]:
    """Score what `predict_links` returned, in the order of the protocols."""
    of_linker: dict[str, Any] = {}
    if (linker := find_linker(nlp)) is not None:
        kb = linker.kb
        of_linker = {"canonical": kb.canonical, "in_kb": lambda id_: kb.find(id_) >= 0}
        of_linker["max_candidates"] = linker.cfg["max_candidates"]
    found: list[Figure] = []
    for given, of_kind in links.items():
        names = [name for name, one in chosen.items() if one.given_mentions == given]
        found += evaluate(texts, of_kind, protocols=names, seed=seed, **of_linker)
    return sorted(found, key=lambda row: list(chosen).index(row.protocol))


def batches_before(
    nlp: Language, pipe: Linker | MentionDetector, texts: Iterable[AnnotatedText]
) -> Iterator[list[Doc]]:
    """Batches of documents as a pipe of the pipeline gets them."""
    later = nlp.pipe_names[nlp.pipe_names.index(pipe.name) :]
    docs = nlp.pipe((text.text for text in texts), batch_size=_BATCH, disable=later)
    return minibatch(docs, _BATCH)


def measure_names(
    nlp: Language,
    texts: Sequence[AnnotatedText],
    chosen: Mapping[str, protocols.Protocol],
    *,
    progress: ProgressBar = silent,
) -> dict[tuple[str, str], float]:
    """Measure what the names of a pipeline's knowledge base find alone, without any training, by
    the protocols that give no mentions.
    """
    alone = dictionary_pipeline("")
    linker, of_names = find_linker(nlp), find_linker(alone)
    assert linker is not None and of_names is not None
    of_names.set_kb(linker.kb)
    bare = {name: one for name, one in chosen.items() if not one.given_mentions}
    # Names have the types of the knowledge base for labels, and no corpus says those.
    texts = [replace(text, annotates=()) for text in texts]
    return measure_pipeline(alone, texts, bare, progress=progress)


def link_open(
    nlp: Language,
    linker: Linker | None,
    texts: Iterable[AnnotatedText],
    *,
    progress: ProgressBar = silent,
) -> Iterator[list[Link]]:
    """Links of the whole pipeline, which is shown nothing but the text; without a linker, the
    mentions of its detector.
    """
    key = spans_key(linker)
    bare = [text.text for text in texts]
    with progress("Running the pipeline", total=len(bare)) as advance:
        for doc in nlp.pipe(bare, batch_size=_BATCH):
            yield get_links(doc, spans_key=key)
            advance(1)


def link_given(
    nlp: Language,
    linker: Linker,
    texts: Sequence[AnnotatedText],
    *,
    progress: ProgressBar = silent,
) -> Iterator[list[Link]]:
    """Links of the linker alone, which is shown the places and labels of the gold mentions."""
    key = spans_key(linker)
    docs: Iterable[Doc] = (
        with_gold_mentions(nlp.make_doc(t.text), t, spans_key=key) for t in texts
    )
    if listens(linker.model):
        docs = with_token_vectors(nlp, docs)
    # Spans, and not entities, or names of the knowledge base.
    with (
        changed(linker.cfg, {"mentions": "spans"}),
        progress("Linking gold mentions", total=len(texts)) as advance,
    ):
        for doc in linker.pipe(docs, batch_size=_BATCH):
            yield get_links(doc, spans_key=key)
            advance(1)


@contextmanager
def changed(cfg: dict[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Change settings of a pipe, and restore them at the end of the block."""
    previous = {name: cfg[name] for name in values}
    try:
        cfg.update(values)
        yield
    finally:
        cfg.update(previous)


def knowledge_of(linker: Linker) -> Knowledge:
    """Answers of a linker's knowledge base and mention statistics, see `find_errors`."""
    kb, counts = linker.kb, linker.alias_table.counts
    linked = {id_ for ids in counts.values() for id_ in ids}

    def has_name(id_: str, name: str) -> bool:
        row = kb.find(id_)
        names = kb.names.take(kb.names_of(row)) if row >= 0 else []
        return normalize_name(name) in map(normalize_name, names)

    def is_seen(string: str, ids: Iterable[str]) -> bool:
        return normalize_name(string) in counts or not linked.isdisjoint(ids)

    return Knowledge(
        canonical=kb.canonical,
        knows=lambda id_: kb.find(id_) >= 0,
        has_name=has_name,
        is_seen=is_seen if counts else None,
    )
