"""The interface for entity rules, such as the rules for genes, variants, composites and notes.

A rule set is an instance of a subclass of `EntityRules`, created by a registered function that the
pipe's config names:

    [components.bioel_linker.entities.antibodies]
    @misc = "my-antibodies.v1"

A pipe calls its rule sets in config order, with batches of documents or mentions, and does not
depend on what a rule set does. `bioel_mentions` calls `propose`; `bioel_linker` calls the other
functions, and also `propose` when it adds names from a knowledge base to the mentions.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc

from spacy_bioel.batch import Batch, LabelledString, Query, Ranked
from spacy_bioel.found import FoundSpans
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import Candidate

RULE_PROBABILITY = 0.9  # probability of mentions that rules infer from context


class Vocabulary(NamedTuple):
    """A knowledge base and a mask of the concepts that a label may link to (None: all concepts)."""

    kb: KnowledgeBase
    mask: NDArray[np.bool_] | None


class LinkerKnowledge(Protocol):
    """The linker's knowledge bases, as seen by entity rules."""

    @property
    def kb(self) -> KnowledgeBase:
        """The linker's knowledge base; if the linker has several, they are joined into one."""

    @property
    def vocabularies(self) -> dict[str, Vocabulary]:
        """The vocabulary for each label that may link to only part of `kb`."""

    @property
    def seen(self) -> Container[str]:
        """The normalised strings seen as mentions in training."""

    def rank(self, wanted: Sequence[LabelledString]) -> Ranked:
        """Return the candidates for each (normalised string, label) pair, using the cache for
        strings that `prepare` returned."""

    def kb_of(self, label: str) -> KnowledgeBase:
        """Return the knowledge base that a label's mentions are linked to."""

    def linked_kbs(self, labels: Collection[str]) -> dict[str, KnowledgeBase]:
        """Map each label to its knowledge base, skipping labels that are never linked."""


class EntityRules:
    """Rules for one kind of entity or text. Override what you need; each method has a default.

    labels (tuple[str, ...]): Labels of the mentions that the rules apply to.
    needs_label (bool): Run these rules only in pipelines that find or link mentions with one of
        `labels`; otherwise they run in every pipeline.
    fact_names (tuple[str, ...]): Names of all facts that `facts` may return; each becomes an
        extension, `span._.NAME`, a column in CSV files, and a key in JSON.
    completes_dictionary (bool): In pipelines without a detector, `propose` also runs on names
        found by the dictionary.
    outside_ids (bool): Candidates may have ids that the knowledge base lacks, with any score. If
        the `kb` setting omits one of `labels`, its candidates come only from these rules.
    knowledge (LinkerKnowledge | None): The linker's knowledge bases; None in `bioel_mentions`.
    """

    labels: tuple[str, ...] = ()
    needs_label: bool = False
    fact_names: tuple[str, ...] = ()
    completes_dictionary: bool = False
    outside_ids: bool = False
    knowledge: LinkerKnowledge | None = None

    def with_knowledge(self, knowledge: LinkerKnowledge) -> Self:
        """Return a copy of these rules bound to a linker's current knowledge bases."""
        bound = copy(self)
        bound.knowledge = knowledge
        return bound

    def propose(self, docs: Sequence[Doc], spans: Sequence[FoundSpans]) -> None:
        """Add or drop spans in each document by calling `add`, `add_places` or `drop` on
        `spans[i]`."""

    def short_forms(self, doc: Doc) -> dict[str, str]:
        """Map short forms that a document uses without defining them to their long forms."""
        return {}

    def why_other(
        self, doc: Doc, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Sequence[str]:
        """Return the reason why each character span cannot be a name, or "" if it can be one.

        starts, ends (NDArray[int64]): Character offsets. Shape (n,) each.
        """
        return [""] * len(starts)

    def prepare(self, batch: Batch) -> Sequence[Query]:
        """Return the query for each mention: the strings to look up.

        Parts of composites that other rules found are passed in a separate batch.
        """
        return batch.queries

    def rescore(self, batch: Batch) -> Sequence[Sequence[Candidate]]:
        """Return the candidates of each mention and part, rescored in context, best first.

        All concepts that have the mention as a name are candidates, however many there are.
        """
        return batch.candidates

    def facts(self, batch: Batch) -> Sequence[Mapping[str, Any]]:
        """Return additional facts about each link from the text, as JSON values by name."""
        return [{}] * len(batch.links)

    def explain(self, batch: Batch) -> Sequence[str]:
        """Return, for each link, a sentence that explains how these rules affected it, or ""."""
        return [""] * len(batch.links)
