"""Development mentions: features and gold candidates on which the fusion is fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from spacy_bioel.pipeline.annotate import add_gold, split_ids
from spacy_bioel.pipeline.contextual.methods import METHODS
from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.queries import Mentions, mention_queries, rank_mentions
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.measuring import link_open
from spacy_bioel.pipeline.stored_pipe import with_token_vectors
from spacy_bioel.types import AnnotatedText

_BATCH = 32  # documents that are read at once
_Gold = tuple[int, str, str, tuple[str, ...]]  # number of the document, query, label, ids


@dataclass(frozen=True)
class Development:
    """Evidence for the candidates of gold mentions.

    features (NDArray[float32]): Features of all candidates. Shape (n, len(FEATURES)).
    rows (Sequence): For each mention, the rows of its candidates.
    right (Sequence): For each mention, whether each of these candidates is right.
    strings (Sequence[str]): Query of each mention.
    documents (Sequence[int]): Index of the document of each mention.
    """

    features: NDArray[np.float32]
    rows: Sequence[NDArray[np.int64]]
    right: Sequence[NDArray[np.bool_]]
    strings: Sequence[str]
    documents: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, mentions: Iterable[int]) -> Development:
        """Select mentions by index."""
        chosen = list(mentions)
        columns: tuple[Sequence[Any], ...] = (self.rows, self.right, self.strings, self.documents)
        return Development(self.features, *([column[i] for i in chosen] for column in columns))

    def of_documents(self, numbers: Iterable[int]) -> Development:
        """Select the mentions of some documents."""
        wanted = set(numbers)
        return self.take(i for i, number in enumerate(self.documents) if number in wanted)


def pool(parts: Sequence[Development]) -> Development:
    """Concatenate the mentions of several corpora, or of one corpus with several sets of evidence.

    Documents are numbered consecutively over all parts.
    """
    rows: list[NDArray[np.int64]] = []
    documents: list[int] = []
    n_features = n_documents = 0
    for part in parts:
        rows += [own + n_features for own in part.rows]
        documents += [n_documents + number for number in part.documents]
        n_features += len(part.features)
        n_documents += max(part.documents, default=-1) + 1
    return Development(
        np.concatenate([part.features for part in parts]),
        rows,
        [right for part in parts for right in part.right],
        [string for part in parts for string in part.strings],
        documents,
    )


def linker_of(nlp: Language) -> Linker:
    """Return the linker of a pipeline that has one."""
    linker = find_linker(nlp)
    assert linker is not None
    return linker


def gold_docs(nlp: Language, texts: Iterable[AnnotatedText]) -> list[Doc]:
    """Tokenise documents and add their gold mentions in the linker's group `gold_key`.

    Mentions are aligned by characters; a mention that cuts a token is widened to whole tokens.
    """
    key, docs = linker_of(nlp).cfg["gold_key"], []
    for text in texts:
        docs.append(doc := nlp.make_doc(text.text))
        add_gold(doc, text, widen=True, key=key)
    return docs


def _gold_spans(linker: Linker, doc: Doc) -> list[Span]:
    key = linker.cfg["gold_key"]
    return list(doc.spans[key]) if key in doc.spans else []


def gather_development(linker: Linker, docs: Iterable[Doc]) -> Development:
    """Gather the evidence of candidate generation for the mentions in documents' `gold_key`."""
    of_generators: dict[CandidateGenerator, list[_Gold]] = {}
    settings = linker.check_settings()
    for number, doc in enumerate(docs):
        spans = _gold_spans(linker, doc)
        for span, query in zip(spans, mention_queries(spans, settings), strict=True):
            if query.whole:
                gold = (number, query.whole, span.label_, split_ids(span.kb_id_))
                generator = linker.generator.of(span.label_)
                of_generators.setdefault(generator, []).append(gold)
    parts = [_gather(*mentions) for mentions in of_generators.items()]
    if len(parts) < 2:
        return parts[0] if parts else _gather(linker.generator, [])
    return replace(pool(parts), documents=[number for part in parts for number in part.documents])


def _gather(generator: CandidateGenerator, mentions: Sequence[_Gold]) -> Development:
    queries = list(dict.fromkeys(query for _, query, *_ in mentions))
    candidates = generator.gather(queries)
    first = np.searchsorted(candidates.query, np.arange(len(queries) + 1))
    rows_of = {q: np.arange(first[i], first[i + 1]) for i, q in enumerate(queries)}
    rows = []
    for _, query, label, _ in mentions:
        concepts = candidates.concept[rows_of[query]]
        rows.append(rows_of[query][generator.allowed(concepts, [label], np.zeros_like(concepts))])
    right = [
        np.isin(candidates.concept[r], generator.kb.find_all(gold))
        for r, (*_, gold) in zip(rows, mentions, strict=True)
    ]
    strings, documents = [q for _, q, *_ in mentions], [number for number, *_ in mentions]
    return Development(candidates.features, rows, right, strings, documents)


def gather_reading(nlp: Language, docs: Sequence[Doc]) -> Development:
    """Gather the evidence of a contextual linker, as `gather_development` does of the others."""
    linker, parts = linker_of(nlp), []
    for batch in minibatch(docs, size=_BATCH):
        # Copies, so that their token vectors do not stay in memory.
        copies = list(with_token_vectors(nlp, [doc.copy() for doc in batch]))
        spans = [_gold_spans(linker, doc) for doc in copies]
        parts.append(_read_batch(linker, copies, spans))
    numbers = [number for number, doc in enumerate(docs) for _ in _gold_spans(linker, doc)]
    return replace(pool(parts), documents=numbers)


def _read_batch(
    linker: Linker, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]
) -> Development:
    """Gather the evidence for the gold mentions of a batch of documents with token vectors."""
    mentions = Mentions.of(docs, spans, linker.check_settings())
    if not len(mentions):
        return Development(np.zeros((0, len(READ_FEATURES)), np.float32), [], [], [], [])
    generator = linker.generator
    given = rank_mentions(generator, mentions, n=len(mentions), coherence=linker.cfg["coherence"])
    reading = METHODS[linker.model.name].read(linker.model, generator, mentions, given)
    ids = [split_ids(span.kb_id_) for span in mentions.spans]
    starts = np.searchsorted(reading.mention, np.arange(len(ids) + 1))
    rows = [np.arange(*pair) for pair in pairwise(starts.tolist())]
    right = [
        np.isin(reading.concept[r], generator.kb.find_all(gold))
        for r, gold in zip(rows, ids, strict=True)
    ]
    return Development(reading.features, rows, right, mentions.strings, mentions.owners)


def gather_names(nlp: Language, texts: Sequence[AnnotatedText]) -> list[list[tuple[str, bool]]]:
    """The names that each document is found to have, and whether each is right."""
    linker, found = linker_of(nlp), []
    for text, links in zip(texts, link_open(nlp, linker, texts), strict=True):
        gold = {
            (mention.start, mention.end, linker.kb.canonical(id))
            for mention in text.mentions
            for id in mention.ids
        }
        linked = [link for link in links if link.ids]
        right = [any((link.start, link.end, id) in gold for id in link.ids) for link in linked]
        names = [link.candidates[0].name for link in linked]
        found.append(list(zip(names, right, strict=True)))
    return found
