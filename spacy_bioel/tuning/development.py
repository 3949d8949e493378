"""Development mentions: what the weights of the evidence are fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from spacy_bioel.pipeline.contextual.methods import read_mentions
from spacy_bioel.pipeline.gold import GOLD_KEY, split_ids
from spacy_bioel.pipeline.linker.queries import Mentions, given_candidates, rank_mentions
from spacy_bioel.pipeline.tokens import with_token_vectors


@dataclass(frozen=True)
class Development:
    """Evidence about gold mentions.

    features (NDArray[float32]): Of all candidates. Shape (n, len(FEATURES)).
    rows (Sequence): For each mention, the rows of its candidates.
    right (Sequence): For each mention, which of these are right.
    """

    features: NDArray[np.float32]
    rows: Sequence[NDArray[np.int64]]
    right: Sequence[NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, mentions: Iterable[int]) -> Development:
        """The part with these mentions."""
        chosen = list(mentions)
        return Development(
            self.features, [self.rows[i] for i in chosen], [self.right[i] for i in chosen]
        )


def pool(parts: Sequence[Development]) -> Development:
    """Mentions of several corpora, or of one by several kinds of evidence, as if they were one."""
    starts = np.cumsum([0, *(len(part.features) for part in parts)]).tolist()
    return Development(
        np.concatenate([part.features for part in parts]),
        [
            rows + start
            for part, start in zip(parts, starts[:-1], strict=True)
            for rows in part.rows
        ],
        [right for part in parts for right in part.right],
    )


def gold_queries(linker: Any, doc: Doc) -> list[tuple[str, str, set[str]]]:
    """Normalised string, label and canonical ids of the gold mentions of a document."""
    spans = list(doc.spans[GOLD_KEY])
    return [
        (query.whole, span.label_, {linker.kb.canonical(i) for i in split_ids(span.kb_id_)})
        for span, query in zip(spans, linker.queries(spans), strict=True)
        if query.whole
    ]


def gather_development(linker: Any, docs: Iterable[Doc]) -> Development:
    """What a linker has to say about the gold mentions of documents."""
    mentions = [mention for doc in docs for mention in gold_queries(linker, doc)]
    queries = list(dict.fromkeys(query for query, *_ in mentions))
    generator = linker.generator
    candidates = generator.gather(queries)
    first = np.searchsorted(candidates.query, np.arange(len(queries) + 1))
    rows_of = {q: np.arange(first[i], first[i + 1]) for i, q in enumerate(queries)}
    allowed = {label: generator.allowed(candidates.concept, label) for _, label, _ in mentions}
    rows = [rows_of[q][allowed[label][rows_of[q]]] for q, label, _ in mentions]
    right = [
        np.isin(candidates.concept[r], linker.kb.find_all(sorted(gold)))
        for r, (_, _, gold) in zip(rows, mentions, strict=True)
    ]
    return Development(candidates.features, rows, right)


def gather_reading(nlp: Language, docs: Iterable[Doc], *, batch_size: int = 32) -> Development:
    """What a linker that reads has to say about the gold mentions of documents.

    nlp (Language): With pipes `tok2vec` and `bioel_linker`.
    """
    linker: Any = nlp.get_pipe("bioel_linker")
    parts = []
    for batch in minibatch(docs, size=batch_size):
        golds = [list(doc.spans[GOLD_KEY]) for doc in batch]
        bare = list(with_token_vectors(nlp, (nlp.make_doc(doc.text) for doc in batch)))
        spans = [
            [Span(doc, g.start, g.end, label=g.label) for g in gold]
            for doc, gold in zip(bare, golds, strict=True)
        ]
        if not any(spans):
            continue
        mentions = Mentions(bare, spans, [linker.queries(of_doc) for of_doc in spans])
        generator = linker.generator
        ranked = rank_mentions(generator, mentions, coherence=linker.cfg["coherence"])
        given = given_candidates(mentions, ranked)
        reading = read_mentions(linker.model, generator, mentions, given)
        ids = [
            {linker.kb.canonical(i) for i in split_ids(g.kb_id_)} for gold in golds for g in gold
        ]
        starts = np.searchsorted(reading.mention, np.arange(len(ids) + 1))
        rows = [np.arange(*pair) for pair in pairwise(starts.tolist())]
        right = [
            np.isin(reading.concept[r], linker.kb.find_all(sorted(gold)))
            for r, gold in zip(rows, ids, strict=True)
        ]
        parts.append(Development(reading.features, rows, right))
    return pool(parts)
