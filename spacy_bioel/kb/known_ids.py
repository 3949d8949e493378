"""Count the gold ids of a corpus that a knowledge base has, and suggest the prefix they lack."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.types import DBSNP

_MAX_IDS_SHOWN = 5
_MAX_IDS_TRIED = 1000  # gold ids to try a prefix on, and concepts to take prefixes from


@dataclass(frozen=True, slots=True)
class KnownIds:
    """How many gold ids a knowledge base has.

    n, known (int): Number of gold ids, and of those in the knowledge base, with repetitions.
    missing (tuple[str, ...]): Distinct ids that the knowledge base lacks, the most frequent first.
    """

    n: int
    known: int
    missing: tuple[str, ...]

    @classmethod
    def of(cls, kb: KnowledgeBase, counts: Mapping[str, int]) -> KnownIds:
        """Count gold ids. Ids that linkers read from the text, such as rs numbers, are known.

        counts (Mapping[str, int]): How often each id occurs in a corpus.
        """
        ids = sorted(counts, key=lambda id: (-counts[id], id))
        rows = kb.find_all(ids).tolist()
        is_missing = [r < 0 and not id.startswith(DBSNP) for id, r in zip(ids, rows, strict=True)]
        missing = tuple(id for id, is_one in zip(ids, is_missing, strict=True) if is_one)
        n, n_missing = sum(counts.values()), sum(counts[id] for id in missing)
        return cls(n, n - n_missing, missing)

    @property
    def are_few(self) -> bool:
        """Whether the knowledge base has less than half of the gold ids."""
        return 2 * self.known < self.n

    def message(self, template: str, kb: KnowledgeBase, path: object) -> str:
        """Format error B077 or warning W340, which suggest what to change."""
        first = ", ".join(f"{id:.40}" for id in self.missing[:_MAX_IDS_SHOWN])
        hint = "Correct the ids (--prefix adds a prefix), or choose another knowledge base (--kb)."
        if prefix := _likely_prefix(kb, self.missing):
            hint = f"They lack a prefix: try --prefix {prefix} (before training: in bioel convert)."
        about = {"known": self.known, "n": self.n, "example": kb.ids[0], "first": first}
        return template.format(**about, path=path, hint=hint)


def _likely_prefix(kb: KnowledgeBase, missing: Iterable[str]) -> str:
    """Return the prefix with which a knowledge base has at least half of some ids; "": none."""
    bare = [id for id in missing if ":" not in id][:_MAX_IDS_TRIED]
    rows = np.linspace(0, len(kb) - 1, min(len(kb), _MAX_IDS_TRIED) if bare else 0).astype(int)
    prefixes = Counter(id.partition(":")[0] for id in kb.ids_of(rows) if ":" in id)
    for prefix, _ in prefixes.most_common():
        if 2 * (kb.find_all([f"{prefix}:{id}" for id in bare]) >= 0).sum() >= len(bare):
            return prefix
    return ""


def check_gold_ids(kb: KnowledgeBase, counts: Mapping[str, int], path: object) -> None:
    """Warn [W340] if a knowledge base has less than half of the gold ids of a corpus.

    counts (Mapping[str, int]): How often each id occurs in the corpus.
    path (object): The corpus, for messages.
    RAISES BioelError: [B077] if the knowledge base has none of them.
    """
    found = KnownIds.of(kb, counts)
    if found.are_few and not found.known:
        raise BioelError(found.message(Errors.B077, kb, path))
    if found.are_few:
        warnings.warn(found.message(Warnings.W340, kb, path), stacklevel=3)
