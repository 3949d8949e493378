"""From normalised strings to ranked candidates: knowledge base, encoder, memory and decision."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thinc.api import Model

from spacy_bioel.errors import Warnings
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.quantized import QuantizedVectors, quantize
from spacy_bioel.kb.vectors.writing import (
    Encoded,
    are_outdated,
    has_vectors,
    is_encoded,
    open_vectors,
    write_vectors,
)
from spacy_bioel.pipeline.linker.evidence import (
    SOURCES,
    Candidates,
    NameSearch,
    gather_candidates,
)
from spacy_bioel.pipeline.linker.fusion import Fusion, default_fusion, rank, share
from spacy_bioel.pipeline.linker.names import EncodedNames
from spacy_bioel.pipeline.linker.spelling import MakeSearch
from spacy_bioel.pipeline.linker.statistics import Memory
from spacy_bioel.text.normalize import NORMALIZER_VERSION, normalize_name
from spacy_bioel.types import Candidate

# A knowledge base of up to this many names is encoded in memory when it comes without vectors.
ENCODE_ON_LOAD = 60_000
# Strings whose candidates are remembered: some 25 MB.
REMEMBERED = 10_000
_TOGETHER = 1024  # strings that are ranked together: bounds the table of their candidates


class Ranker:
    """Ranks the concepts of one knowledge base for strings.

    What is computed with the encoder is kept until `encoder_changed`.

    kb (KnowledgeBase): Concepts and names.
    model (Model): Encoder of names; without a vocabulary it is left out of the evidence.
    memory (Memory): Training mentions.
    fusion (Fusion | None): Weighs the evidence; None: the weights of the package.
    cfg (dict): The linker's settings: label_types, evidence, search_names.
    make_index (Callable): From vectors to a `NameSearch`.
    make_spelling (Callable): From the knowledge base to a `SpellingSearch`.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        model: Model,
        memory: Memory,
        *,
        fusion: Fusion | None,
        cfg: dict[str, Any],
        make_index: Callable[[QuantizedVectors], NameSearch],
        make_spelling: MakeSearch,
    ) -> None:
        self.kb = kb
        self.model = model
        self.memory = memory
        self.fusion = fusion
        self.cfg = cfg
        self.make_index = make_index
        self.spelling = make_spelling(kb)
        # While training, a `NamePool` that stands for the knowledge base; see sampling.
        self.pool: Any = None
        self.encoder_changed()

    def encoder_changed(self) -> None:
        self._ranked: dict[tuple[str, str], tuple[Candidate, ...]] = {}
        self._ranked_with: tuple[str, Fusion | None] = "", None
        self._network: Any = None
        self._names: EncodedNames | None = None
        self._recall: NameSearch | None = None
        self._fingerprint = ""

    @property
    def evidence(self) -> set[str]:
        """What is switched on, now."""
        return {name for name, used in self.cfg["evidence"].items() if used}

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder: weights, word pieces and the normalisation of names."""
        from spacy_bioel.models.encoder_storage import encoder_parts

        if not self._fingerprint:
            digest = blake2b(str(NORMALIZER_VERSION).encode(), digest_size=8)
            for name, part in encoder_parts(self.model).items():
                digest.update(name.encode() + part())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of normalised names. Shape (n_names, dim)."""
        from spacy_bioel.models.name_encoder import encode_names, fast_network

        if self._network is None:
            self._network = fast_network(self.model)
        return encode_names(self.model, names, network=self._network)

    def encode_kb(
        self,
        kb: KnowledgeBase,
        *,
        wait: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Encoded:
        """See `kb.vectors.writing.write_vectors`."""
        self._names = None
        return write_vectors(
            kb,
            self.encode,
            fingerprint=self.fingerprint,
            dim=self.model.get_dim("nO"),
            wait=wait,
            progress=progress,
        )

    def ensure_vectors(self) -> None:
        """Encode the knowledge base, if vectors are wanted and those of this encoder are absent."""
        if self._uses_encoder and not is_encoded(self.kb, fingerprint=self.fingerprint):
            self.encode_kb(self.kb, wait=True)

    @property
    def _uses_encoder(self) -> bool:
        return "dense" in self.evidence and self.model.attrs["tokenizer"] is not None

    def _nearest(self, queries: Sequence[str]) -> tuple[Any, Any]:
        """Nearest names, and nearest training strings, of each query, by the encoder."""
        if not self._uses_encoder:
            return None, None
        if self._recall is None:
            self._recall = self.make_index(quantize(self.encode(self.memory.names)))
        vectors = self.encode(queries)
        k = self.cfg["search_names"]
        return self.names.search(vectors, k), self._recall.search(vectors, k)

    @property
    def names(self) -> EncodedNames:
        """The names of the knowledge base, encoded; while training, those of the pool."""
        if self._names is None:
            self._names = self._encoded_names()
        return self._names

    def _encoded_names(self) -> EncodedNames:
        if self.pool:
            return self.pool.encoded(self.encode, self.make_index)
        outdated = are_outdated(self.kb, self.fingerprint)
        has_any = has_vectors(self.kb, self.fingerprint)
        if self.kb.n_names <= ENCODE_ON_LOAD and (outdated or not has_any):
            if outdated:
                warnings.warn(Warnings.W181.format(path=self.kb.where), stacklevel=2)
            vectors = quantize(self.encode([normalize_name(name) for name in self.kb.names]))
        else:
            vectors = open_vectors(self.kb, fingerprint=self.fingerprint)
        return EncodedNames(vectors, self.make_index(vectors))

    @cached_property
    def _prior(self) -> NDArray[np.float32]:
        return self.memory.prior(self.kb)

    def gather(self, queries: Sequence[str]) -> Candidates:
        """All evidence about different normalised strings."""
        dense, recalled = self._nearest(queries)
        return gather_candidates(
            queries,
            self.kb,
            memory=self.memory,
            prior=self._prior,
            dense=dense,
            recalled=recalled,
            spelling=self.spelling,
            k=self.cfg["search_names"],
            evidence=self.evidence,
        )

    def allowed(self, concepts: NDArray[np.int64], label: str) -> NDArray[np.bool_]:
        """Concepts whose semantic types a mention of this label may link to. Shape (n,)."""
        types = self.cfg["label_types"].get(label)
        if types is None:
            return np.ones(len(concepts), dtype=bool)
        return self.kb.type_mask(types)[concepts]

    def rank(
        self, wanted: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[Candidate, ...]]:
        """Best candidates of (normalised string, label) pairs, in one batch.

        wanted (Sequence): Different pairs.
        RETURNS (dict): Best first; empty where nothing is known or the string is "".
        """
        known = self._remembered()
        # What is asked for again goes to the end; what was not for longest goes first.
        ranked = {pair: known.pop(pair) for pair in wanted if pair in known}
        new = [pair for pair in wanted if pair not in ranked]
        for start in range(0, len(new), _TOGETHER):
            ranked |= self._rank(new[start : start + _TOGETHER])
        known |= ranked
        for pair in list(islice(known, max(0, len(known) - REMEMBERED))):
            del known[pair]
        return ranked

    def _remembered(self) -> dict[tuple[str, str], tuple[Candidate, ...]]:
        """What was ranked with the settings as they are now; mentions repeat themselves."""
        cfg = {name: self.cfg[name] for name in ("search_names", "max_candidates", "label_types")}
        settings = f"{sorted(self.evidence)} {cfg}"
        if self._ranked_with[0] != settings or self._ranked_with[1] is not self.fusion:
            self._ranked_with, self._ranked = (settings, self.fusion), {}
        return self._ranked

    def _rank(
        self, wanted: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[Candidate, ...]]:
        ranked: dict[tuple[str, str], tuple[Candidate, ...]] = dict.fromkeys(wanted, ())
        queries = list(dict.fromkeys(query for query, _ in wanted if query))
        if not queries:
            return ranked
        candidates = self.gather(queries)
        scores = (self.fusion or default_fusion()).scores(candidates.features)
        for label in {label for _, label in wanted}:
            allowed = self.allowed(candidates.concept, label)
            shares = share(np.where(allowed, scores, -np.inf), candidates.query)
            rows = rank(candidates, shares, top=self.cfg["max_candidates"])
            described = self._describe(candidates, shares, rows[allowed[rows]])
            for query, found in described.items():
                if (queries[query], label) in ranked:
                    ranked[queries[query], label] = tuple(found)
        return ranked

    def _describe(
        self, candidates: Candidates, scores: NDArray, rows: NDArray
    ) -> dict[int, list[Candidate]]:
        """Rows of the table as records, by query."""
        described: dict[int, list[Candidate]] = {}
        concepts, names = candidates.concept[rows], candidates.name[rows]
        # What was seen in training is called by the preferred name.
        names = np.where(names >= 0, names, self.kb.preferred_rows(concepts))
        columns = (
            candidates.query[rows].tolist(),
            self.kb.ids_of(concepts),
            scores[rows].tolist(),
            self.kb.names.take(names),
            candidates.sources[rows].tolist(),
        )
        for query, id, score, name, sources in zip(*columns, strict=True):
            candidate = Candidate(id, round(score, 4), name, _evidence(sources))
            described.setdefault(query, []).append(candidate)
        return described


@cache
def _evidence(sources: int) -> str:
    return "+".join(name for bit, name in SOURCES.items() if sources & bit)
