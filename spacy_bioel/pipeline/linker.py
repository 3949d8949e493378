"""The pipe `bioel_linker`: mentions -> candidates from a knowledge base -> `span._.cui`."""

# No `from __future__ import annotations`: spaCy reads the annotations of `initialize` as types.

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from numpy.typing import NDArray
from spacy.language import Language
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Config, Model, Optimizer, set_dropout_rate

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.annotate import register_extensions, set_links
from spacy_bioel.pipeline.gold import GOLD_KEY, SPANS_KEY, gold_spans, mention_spans
from spacy_bioel.pipeline.storage import arrays_from_bytes, arrays_to_bytes, load_parts, save_parts
from spacy_bioel.text.abbreviations import expand_abbreviations, find_abbreviations
from spacy_bioel.text.normalize import NORMALIZER_VERSION, normalize_name
from spacy_bioel.types import Candidate, Link

DEFAULT_MODEL = Config().from_str(
    """
[model]
@architectures = "spacy-bioel.ResCNN.v1"
dim = 256
blocks = 4
filters = 100
widths = [1, 3, 5]
pooling = "max"
dropout = 0.2
max_tokens = 25
"""
)["model"]

DEFAULT_TRAINING = {
    "synonyms": 128,
    "negatives": 2,
    "refresh_every": 200,
    "pool_names": 50000,
    "seed": 0,
}

# A knowledge base of up to this many names is encoded in memory when it comes without vectors.
_ENCODE_ON_LOAD = 60_000


@Language.factory(
    "bioel_linker",
    assigns=["doc.spans", "doc.ents", "span._.cui", "span._.cuis", "span._.candidates"],
    default_config={
        "model": DEFAULT_MODEL,
        "kb": "",
        "index": {"@misc": "spacy-bioel.ExactIndex.v1"},
        "mentions": "auto",
        "label_types": {},
        "nil_threshold": 0.15,
        "weights": {},
        "search_names": 32,
        "max_candidates": 5,
        "abbreviations": True,
        "include_kb": True,
        "training": DEFAULT_TRAINING,
        "spans_key": SPANS_KEY,
        "gold_key": GOLD_KEY,
        "scorer": {"@scorers": "spacy-bioel.link_scorer.v1"},
    },
    default_score_weights={
        "bioel_link_f": 1.0,
        "bioel_link_p": 0.0,
        "bioel_link_r": 0.0,
        "bioel_link_acc": 0.0,
    },
)
def make_linker(
    nlp: Language,
    name: str,
    model: Model,
    kb: str,
    index: Callable,
    mentions: str,
    label_types: dict[str, list[str]],
    nil_threshold: float,
    weights: dict[str, float],
    search_names: int,
    max_candidates: int,
    abbreviations: bool,
    include_kb: bool,
    training: dict[str, int],
    spans_key: str,
    gold_key: str,
    scorer: Callable | None,
) -> "Linker":
    """Factory of `bioel_linker`.

    model (Model): Encoder of names, see `spacy-bioel.ResCNN.v1`.
    kb (str): Folder of a knowledge base, opened at first use.
    index (Callable): Makes the nearest-name search from the vectors of the knowledge base.
    mentions (str): What to link: "spans" (the group `spans_key`), "ents", "auto" (the group if it
        is there, else the entities), or "kb" (every longest name of the knowledge base in the
        text, for use without a mention detector).
    label_types (dict): Mention label -> semantic types of the knowledge base that it may link to.
        A label that is not listed may link to all.
    nil_threshold (float): Probability below which the best candidate is not linked (NIL).
    weights (dict): Weights of the evidence, see `pipeline.fusion`; missing ones are the default.
    search_names (int): Nearest names that are looked at for a mention.
    max_candidates (int): Candidates kept for a mention.
    abbreviations (bool): Write short forms out that the document defines.
    include_kb (bool): Save the knowledge base with the pipeline; else only its path.
    training (dict): synonyms, negatives, refresh_every (updates between minings), pool_names,
        seed; see `pipeline.linker_training`.
    """
    settings = {
        "kb": kb,
        "mentions": mentions,
        "label_types": dict(label_types),
        "nil_threshold": nil_threshold,
        "weights": dict(weights),
        "search_names": search_names,
        "max_candidates": max_candidates,
        "abbreviations": abbreviations,
        "include_kb": include_kb,
        "training": DEFAULT_TRAINING | dict(training),
        "spans_key": spans_key,
        "gold_key": gold_key,
    }
    if mentions not in ("auto", "spans", "ents", "kb"):
        raise BioelError(Errors.B054.format(mentions=mentions))
    return Linker(nlp.vocab, model, name, index=index, settings=settings, scorer=scorer)


class Linker(TrainablePipe):
    """Links mentions; see `make_linker` for the settings and `pipeline.annotate` for the result."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        name: str,
        *,
        index: Callable,
        settings: dict[str, Any],
        scorer: Callable | None = None,
    ) -> None:
        register_extensions()
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg = settings
        self._make_index = index
        self._reset()

    def _reset(self) -> None:
        from spacy_bioel.pipeline.evidence import Memory

        self._kb: Any = None
        self.memory = Memory()
        self._sampler: Any = None
        self._pool: Any = None
        self._updates = 0
        self._forget_encoder()

    def _forget_encoder(self) -> None:
        """Drop what was computed with the encoder, the knowledge base or the memory as it was."""
        self._search: Any = None
        self._recall: Any = None
        self._fingerprint = ""
        self._prior: Any = None

    # Knowledge base and encoder.

    @property
    def kb(self) -> Any:
        """The knowledge base. RAISES BioelError: [B055] when none is set, or as it opens."""
        if self._kb is None:
            from spacy_bioel.kb.store import KnowledgeBase

            if not self.cfg["kb"]:
                raise BioelError(Errors.B055.format(name=self.name))
            self._kb = KnowledgeBase.open(self.cfg["kb"])
        return self._kb

    def set_kb(self, kb: Any) -> None:
        """Link against another knowledge base, without training.

        kb (KnowledgeBase | str | Path): Must have vectors of this pipe's encoder, unless small.
        """
        from spacy_bioel.kb.store import open_kb

        self._kb = open_kb(kb)
        self.cfg["kb"] = str(self._kb.path or "")
        self._pool = self._sampler = None
        self._forget_encoder()

    @property
    def has_encoder(self) -> bool:
        return self.model.attrs["tokenizer"] is not None

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder: weights, word pieces and the normalisation of names."""
        from hashlib import blake2b

        if not self._fingerprint:
            digest = blake2b(str(NORMALIZER_VERSION).encode(), digest_size=8)
            for name, part in self._encoder_parts().items():
                digest.update(name.encode() + part())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def encode(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of normalised names. Shape (n_names, dim)."""
        from spacy_bioel.models.linker import encode_names

        return encode_names(self.model, names)

    def encode_kb(self, kb: Any, *, progress: Callable[[int], None] | None = None) -> None:
        """Write vectors of all names of a knowledge base into its folder.

        progress (Callable | None): Is told the number of names after each batch.
        RAISES BioelError: [B053] without a trained encoder.
        """
        from spacy_bioel.kb.vectors import write_vectors

        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        dim = self.model.get_dim("nO")
        write_vectors(kb, self.encode, fingerprint=self.fingerprint, dim=dim, progress=progress)
        self._search = None

    def _nearest(self, queries: Sequence[str]) -> tuple[Any, Any]:
        """Nearest names, and nearest training strings, of each query, by the encoder."""
        if not self.has_encoder:
            return None, None
        if self._search is None:
            self._search = self._training_search() if self._pool else self._open_search()
            self._recall = self._make_index(self.encode(self.memory.names))
        vectors = self.encode(queries)
        k = self.cfg["search_names"]
        return self._search.search(vectors, k), self._recall.search(vectors, k)

    def _open_search(self) -> Any:
        """The search over all names, with the vectors that came with the knowledge base."""
        from spacy_bioel.kb.schema import VECTOR_FILES
        from spacy_bioel.kb.vectors import open_vectors

        has_vectors = all(name in self.kb.files() for name in VECTOR_FILES)
        if not has_vectors and self.kb.n_names <= _ENCODE_ON_LOAD:
            return self._make_index(self.encode([normalize_name(n) for n in self.kb.names]))
        return self._make_index(open_vectors(self.kb, fingerprint=self.fingerprint))

    def _training_search(self) -> Any:
        self._pool.refresh(self.encode, self._make_index)
        return self._pool

    # Prediction: queries -> candidates -> decision.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Links of each document, in the order of its mentions."""
        spans = [self._mentions(doc) for doc in docs]
        queries = [self.queries(mentions) for mentions in spans]
        wanted = {
            (query, span.label_)
            for mentions, strings in zip(spans, queries, strict=True)
            for span, query in zip(mentions, strings, strict=True)
        }
        ranked = self.link_strings(sorted(wanted))
        return [
            [
                self._link(span, ranked[query, span.label_])
                for span, query in zip(*pair, strict=True)
            ]
            for pair in zip(spans, queries, strict=True)
        ]

    def _mentions(self, doc: Doc) -> list[Span]:
        if self.cfg["mentions"] == "kb":
            from spacy_bioel.pipeline.dictionary import longest_names

            return longest_names(doc, self.kb)
        return mention_spans(doc, self.cfg["mentions"], spans_key=self.cfg["spans_key"])

    def queries(self, spans: Sequence[Span]) -> list[str]:
        """Strings to look up for the mentions of one document."""
        if not spans:
            return []
        long_forms = _long_forms(spans[0].doc) if self.cfg["abbreviations"] else {}
        return [normalize_name(expand_abbreviations(span.text, long_forms)) for span in spans]

    def gather(self, queries: Sequence[str]) -> Any:
        """All evidence about different normalised strings; see `evidence.Candidates`."""
        from spacy_bioel.pipeline.evidence import gather_candidates

        if self._prior is None:
            self._prior = self.memory.prior(self.kb)
        dense, recalled = self._nearest(queries)
        return gather_candidates(
            queries,
            self.kb,
            memory=self.memory,
            prior=self._prior,
            dense=dense,
            recalled=recalled,
            k=self.cfg["search_names"],
        )

    def link_strings(
        self, wanted: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[Candidate, ...]]:
        """Rank candidates for (normalised string, label) pairs, in one batch."""
        from spacy_bioel.pipeline.fusion import DEFAULT_WEIGHTS, rank, score

        ranked: dict[tuple[str, str], tuple[Candidate, ...]] = dict.fromkeys(wanted, ())
        queries = list(dict.fromkeys(query for query, _ in wanted if query))
        if not queries:
            return ranked
        candidates = self.gather(queries)
        scores = score(candidates.features, DEFAULT_WEIGHTS | self.cfg["weights"])
        for label in {label for _, label in wanted}:
            allowed = self.allowed(candidates, label)
            masked = np.where(allowed, scores, -np.inf)
            rows = rank(candidates, masked, top=self.cfg["max_candidates"])
            described = self._describe(candidates, scores, rows[allowed[rows]])
            for query, found in described.items():
                if (queries[query], label) in ranked:
                    ranked[queries[query], label] = tuple(found)
        return ranked

    def allowed(self, candidates: Any, label: str) -> NDArray[np.bool_]:
        """Candidates whose semantic types a mention of this label may link to. Shape (n,)."""
        types = self.cfg["label_types"].get(label)
        if types is None:
            return np.ones(len(candidates.concept), dtype=bool)
        return self.kb.type_mask(types)[candidates.concept]

    def _describe(
        self, candidates: Any, scores: NDArray, rows: NDArray
    ) -> dict[int, list[Candidate]]:
        from spacy_bioel.pipeline.evidence import SOURCES

        described: dict[int, list[Candidate]] = {}
        ids = self.kb.ids_of(candidates.concept[rows])
        for row, concept_id in zip(rows.tolist(), ids, strict=True):
            name_row = int(candidates.name[row])
            name = (
                self.kb.name(name_row)
                if name_row >= 0
                else self.kb.preferred_name(int(candidates.concept[row]))
            )
            evidence = "+".join(s for bit, s in SOURCES.items() if candidates.sources[row] & bit)
            candidate = Candidate(concept_id, round(float(scores[row]), 4), name, evidence)
            described.setdefault(int(candidates.query[row]), []).append(candidate)
        return described

    def _link(self, span: Span, candidates: tuple[Candidate, ...]) -> Link:
        known = candidates and candidates[0].score >= self.cfg["nil_threshold"]
        ids = (candidates[0].id,) if known else ()
        return Link(span.start_char, span.end_char, span.label_, ids, candidates)

    def set_annotations(self, docs: Iterable[Doc], scores: list[list[Link]]) -> None:
        for doc, links in zip(docs, scores, strict=True):
            key = self.cfg["spans_key"]
            from_ents = self.cfg["mentions"] == "ents" or (
                self.cfg["mentions"] == "auto" and key not in doc.spans
            )
            set_links(doc, links, spans_key=key)
            if from_ents:
                # A copy of the entities, with their ids of an entity ruler.
                doc.ents = [
                    Span(doc, ent.start, ent.end, ent.label, kb_id=linked.kb_id, span_id=ent.id)
                    for ent, linked in zip(doc.ents, doc.spans[key], strict=True)
                ]

    # Training.

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        kb: Any = None,
        embeddings: str | None = None,
        vocabulary: int = 16000,
        width: int = 256,
    ) -> None:
        """Set the knowledge base, remember the training mentions, make vocabulary and network.

        kb (KnowledgeBase | str | None): Or its folder; None: the one of the component's config.
        embeddings (str | None): A Hugging Face model directory to take word pieces and frozen
            embeddings from; None: make them from the names of the knowledge base.
        vocabulary, width (int): Word pieces and size of embeddings made from the names.
        """
        from spacy_bioel.models.linker import add_rescnn
        from spacy_bioel.pipeline.evidence import Memory

        validate_get_examples(get_examples, "Linker.initialize")
        if kb is not None:
            self.set_kb(kb)
        self.memory = Memory()
        self._remember(get_examples())
        self._forget_encoder()
        max_tokens = self.model.attrs["max_tokens"]
        if embeddings is not None:
            from spacy_bioel.models.vocabulary import load_huggingface

            tokenizer, tables = load_huggingface(Path(embeddings), max_tokens=max_tokens)
        else:
            from spacy_bioel.models.vocabulary import embed_vocabulary, train_vocabulary

            names = [normalize_name(name) for name in self.kb.names]
            tokenizer = train_vocabulary(names + sorted(self.memory.counts), size=vocabulary)
            first_concepts = self.kb.name_concepts[self.kb.name_offsets[:-1]].astype(np.int64)
            tables = embed_vocabulary(
                tokenizer, names, first_concepts, width=width, max_tokens=max_tokens
            )
        add_rescnn(self.model, tokenizer, tables)
        self._start_training()

    def _remember(self, examples: Iterable[Example]) -> None:
        """Count the training mentions, as written and with abbreviations written out."""
        for example in examples:
            for strings, ids in self._gold_mentions(example):
                if len(ids) == 1:
                    for string in strings:
                        self.memory.add(string, self.kb.canonical(ids[0]))

    def _gold_mentions(self, example: Example) -> list[tuple[set[str], tuple[str, ...]]]:
        gold = list(gold_spans(example, key=self.cfg["gold_key"]))
        spans = [example.predicted[span.start : span.end] for span in gold]
        queries = self.queries(spans)
        return [
            ({normalize_name(span.text), query} - {""}, g.ids)
            for span, query, g in zip(spans, queries, gold, strict=True)
        ]

    def _start_training(self) -> None:
        from spacy_bioel.pipeline.linker_training import NamePool, NameSampler

        settings = self.cfg["training"]
        self._pool = NamePool(self.kb, self.memory, size=settings["pool_names"])
        self._sampler = NameSampler(
            self.kb,
            self.memory,
            n_synonyms=settings["synonyms"],
            n_negatives=settings["negatives"],
            seed=settings["seed"],
        )
        self._updates = 0

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, "Linker.update")
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        if self._sampler is None:
            self._start_training()
        if self._updates and self._updates % self.cfg["training"]["refresh_every"] == 0:
            self._sampler.mine(self.encode, self._training_search())
        self._updates += 1
        mentions = self._training_mentions(examples)
        names, concepts = self._sampler.draw(mentions)
        if not names:
            return losses
        set_dropout_rate(self.model, drop)
        vectors, backprop = self.model.begin_update(names)
        loss, d_vectors = self._name_loss(vectors, concepts)
        backprop(d_vectors)
        if sgd is not None:
            self.finish_update(sgd)
        losses[self.name] += loss
        # Vectors and fingerprint are of the encoder before this update.
        self._search, self._fingerprint = None, ""
        return losses

    def _training_mentions(self, examples: Sequence[Example]) -> list[tuple[str, int]]:
        gold = [
            (string, ids[0])
            for example in examples
            for strings, ids in self._gold_mentions(example)
            if len(ids) == 1
            for string in sorted(strings)
        ]
        rows = self.kb.find_all([concept_id for _, concept_id in gold])
        return [(s, int(row)) for (s, _), row in zip(gold, rows, strict=True) if row >= 0]

    def _name_loss(self, vectors: Any, concepts: NDArray[np.int64]) -> tuple[float, Any]:
        import torch
        from thinc.api import torch2xp, xp2torch

        from spacy_bioel.nn.losses import multi_similarity_loss

        tensor = xp2torch(vectors, requires_grad=True)
        loss = multi_similarity_loss(tensor, torch.from_numpy(concepts).to(tensor.device))
        loss.backward()
        gradient: Any = tensor.grad
        return float(loss.detach()), torch2xp(gradient)

    # Serialisation: JSON and safetensors; the knowledge base as its own folder.

    def _encoder_parts(self) -> dict[str, Callable[[], bytes]]:
        from spacy_bioel.models.weights import weights_to_bytes

        if not self.has_encoder:
            return {}
        embeddings = self.model.get_ref("network").shims[0]._model.embeddings
        tables = {name: table.cpu().numpy() for name, table in embeddings.tables().items()}
        return {
            "tokenizer.json": lambda: self.model.attrs["tokenizer"].to_str().encode("utf8"),
            "embeddings.safetensors": lambda: arrays_to_bytes(tables),
            "model.safetensors": lambda: weights_to_bytes(self.model),
        }

    def _parts(self) -> dict[str, Callable[[], bytes]]:
        cfg = self.cfg | {"has_encoder": self.has_encoder}
        return {
            "cfg.json": lambda: srsly.json_dumps(cfg, indent=1).encode("utf8"),
            "memory.json": lambda: srsly.json_dumps(self.memory.counts).encode("utf8"),
        } | self._encoder_parts()

    def _load(self, parts: dict[str, bytes]) -> None:
        from tokenizers import Tokenizer

        from spacy_bioel.models.linker import add_rescnn
        from spacy_bioel.models.weights import weights_from_bytes
        from spacy_bioel.pipeline.evidence import Memory

        self._reset()
        self.cfg.update(srsly.json_loads(parts["cfg.json"]))
        self.memory = Memory(srsly.json_loads(parts["memory.json"]))
        if self.cfg.pop("has_encoder"):
            tokenizer = Tokenizer.from_str(parts["tokenizer.json"].decode("utf8"))
            tables = arrays_from_bytes(parts["embeddings.safetensors"])
            add_rescnn(self.model, tokenizer, tables)
            weights_from_bytes(self.model, parts["model.safetensors"])

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        parts = {name: part() for name, part in self._parts().items()}
        if self._has_kb and self.cfg["include_kb"] and "kb" not in exclude:
            parts["kb"] = self.kb.to_bytes()
        return srsly.msgpack_dumps(parts)

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> "Linker":
        from spacy_bioel.kb.store import KnowledgeBase

        parts = srsly.msgpack_loads(data)
        self._load(parts)
        if "kb" in parts:
            self._kb = KnowledgeBase.from_bytes(parts["kb"])
        return self

    @property
    def _has_kb(self) -> bool:
        return self._kb is not None or bool(self.cfg["kb"])

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        save_parts(Path(path), self._parts())
        if self._has_kb and self.cfg["include_kb"] and "kb" not in exclude:
            self.kb.save_to(Path(path) / "kb")

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "Linker":
        path = Path(path)
        cfg = srsly.json_loads(load_parts(path, ["cfg.json"])["cfg.json"])
        names = ["cfg.json", "memory.json"]
        if cfg["has_encoder"]:
            names += ["tokenizer.json", "embeddings.safetensors", "model.safetensors"]
        self._load(load_parts(path, names))
        has_kb = (path / "kb").is_dir()
        if self.cfg["include_kb"] and (self.cfg["kb"] or has_kb):
            if not has_kb:
                raise BioelError(Errors.B056.format(path=path / "kb"))
            self.cfg["kb"] = str(path / "kb")
        return self

    def __reduce__(self) -> tuple:
        # The knowledge base goes by path, so that workers share its pages.
        data = self.to_bytes(exclude=["kb"])
        scorer, index = self.scorer, self._make_index
        return _unpickle, (self.vocab, self.model, self.name, index, scorer, data, self._kb)


def _unpickle(
    vocab: Vocab, model: Model, name: str, index: Callable, scorer: Any, data: bytes, kb: Any
) -> Linker:
    linker = Linker(vocab, model, name, index=index, settings={}, scorer=scorer)
    linker.from_bytes(data)
    linker._kb = kb
    return linker


def _long_forms(doc: Doc) -> dict[str, str]:
    """Short forms that the document defines; scispacy's detector is believed if it ran."""
    if Doc.has_extension("abbreviations") and doc._.abbreviations:
        return {short.text: str(short._.long_form) for short in doc._.abbreviations}
    return {short: found.long for short, found in find_abbreviations(doc.text).items()}
