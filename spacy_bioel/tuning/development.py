"""Development mentions: features and gold candidates on which the fusion is fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from spacy_bioel.pipeline.contextual.methods import read_mentions
from spacy_bioel.pipeline.contextual.weighing import READ_FEATURES
from spacy_bioel.pipeline.gold import add_gold, split_ids
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.component import Linker
from spacy_bioel.pipeline.linker.queries import Mentions, rank_mentions
from spacy_bioel.pipeline.loading import find_linker
from spacy_bioel.pipeline.tokens import with_token_vectors
from spacy_bioel.types import AnnotatedText

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
        return Development(
            self.features,
            [self.rows[i] for i in chosen],
            [self.right[i] for i in chosen],
            [self.strings[i] for i in chosen],
            [self.documents[i] for i in chosen],
        )

    def of_documents(self, numbers: Iterable[int]) -> Development:
        """Select the mentions of some documents."""
        wanted = set(numbers)
        return self.take(i for i, number in enumerate(self.documents) if number in wanted)


def pool(parts: Sequence[Development]) -> Development:
    """Concatenate the mentions of several corpora, or of one corpus with several sets of evidence.

    Documents are numbered consecutively over all parts.
    """
    starts = np.cumsum([0, *(len(part.features) for part in parts)]).tolist()
    n_documents = [max(part.documents, default=-1) + 1 for part in parts]
    first = np.cumsum([0, *n_documents]).tolist()
    return Development(
        np.concatenate([part.features for part in parts]),
        [
            rows + start
            for part, start in zip(parts, starts[:-1], strict=True)
            for rows in part.rows
        ],
        [right for part in parts for right in part.right],
        [string for part in parts for string in part.strings],
        [start + i for part, start in zip(parts, first, strict=False) for i in part.documents],
    )


def gold_docs(nlp: Language, texts: Iterable[AnnotatedText]) -> list[Doc]:
    """Tokenise documents and add their gold mentions in the linker's group `gold_key`.

    Mentions are aligned by characters; a mention that cuts a token is widened to whole tokens.
    """
    linker = find_linker(nlp)
    assert linker is not None
    docs = []
    for text in texts:
        doc = nlp.make_doc(text.text)
        add_gold(doc, text, widen=True, key=linker.cfg["gold_key"])
        docs.append(doc)
    return docs


def gold_queries(linker: Linker, doc: Doc) -> list[tuple[str, str, tuple[str, ...]]]:
    """Query, label and ids of the gold mentions of a document."""
    spans = _gold_spans(linker, doc)
    return [
        (query.whole, span.label_, split_ids(span.kb_id_))
        for span, query in zip(spans, linker.queries(spans), strict=True)
        if query.whole
    ]


def gather_development(linker: Linker, docs: Iterable[Doc]) -> Development:
    """Gather the evidence of candidate generation for the gold mentions of documents.

    docs (Iterable[Doc]): Documents with gold mentions in the linker's group `gold_key`.
    """
    of_generators: dict[CandidateGenerator, list[_Gold]] = {}
    for number, doc in enumerate(docs):
        for query, label, ids in gold_queries(linker, doc):
            generator = linker.generator.of(label)
            of_generators.setdefault(generator, []).append((number, query, label, ids))
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


def gather_reading(nlp: Language, docs: Sequence[Doc], *, batch_size: int = 32) -> Development:
    """Gather the evidence of a contextual linker for the gold mentions of documents.

    nlp (Language): A pipeline with a `bioel_linker`, and the pipes that it listens to.
    docs (Sequence[Doc]): Documents with gold mentions in the linker's group `gold_key`. Their texts
        are tokenised again, and their mentions are aligned by characters.
    """
    linker = find_linker(nlp)
    assert linker is not None
    parts = []
    for batch in minibatch(docs, size=batch_size):
        golds = [_gold_spans(linker, doc) for doc in batch]
        bare = list(with_token_vectors(nlp, (nlp.make_doc(doc.text) for doc in batch)))
        spans = [[_span_of(doc, g) for g in gold] for doc, gold in zip(bare, golds, strict=True)]
        parts.append(_read_batch(linker, bare, spans))
    numbers = [number for number, doc in enumerate(docs) for _ in _gold_spans(linker, doc)]
    return replace(pool(parts), documents=numbers)


def _read_batch(
    linker: Linker, docs: Sequence[Doc], spans: Sequence[Sequence[Span]]
) -> Development:
    """Gather the evidence for a batch of documents with token vectors.

    spans (Sequence): For each document, its gold mentions with their gold ids.
    """
    mentions = Mentions.of(docs, spans, linker.check_settings())
    if not len(mentions):
        return Development(np.zeros((0, len(READ_FEATURES)), np.float32), [], [], [], [])
    generator = linker.generator
    given = rank_mentions(generator, mentions, n=len(mentions), coherence=linker.cfg["coherence"])
    reading = read_mentions(linker.model, generator, mentions, given)
    ids = [split_ids(span.kb_id_) for span in mentions.spans]
    starts = np.searchsorted(reading.mention, np.arange(len(ids) + 1))
    rows = [np.arange(*pair) for pair in pairwise(starts.tolist())]
    right = [
        np.isin(reading.concept[r], generator.kb.find_all(gold))
        for r, gold in zip(rows, ids, strict=True)
    ]
    return Development(reading.features, rows, right, mentions.strings, mentions.owners)


def _gold_spans(linker: Linker, doc: Doc) -> list[Span]:
    key = linker.cfg["gold_key"]
    return list(doc.spans[key]) if key in doc.spans else []


def _span_of(doc: Doc, gold: Span) -> Span:
    """Span of whole tokens that covers a gold span, in another tokenisation of the same text."""
    span = doc.char_span(
        gold.start_char,
        gold.end_char,
        label=gold.label_,
        kb_id=gold.kb_id_,
        alignment_mode="expand",
    )
    assert span is not None  # the texts are equal, so the offsets are valid
    return span
