"""The pipe `bioel_linker`: mentions -> candidates from a knowledge base -> `span._.cui`."""

# No `from __future__ import annotations`: spaCy reads the annotations of `initialize` as types.

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.annotate import register_extensions, set_links
from spacy_bioel.pipeline.gold import mention_spans
from spacy_bioel.pipeline.linker.decision import Query, decide, mention_queries
from spacy_bioel.pipeline.linker.storage import StoredLinker
from spacy_bioel.types import Candidate, Link


class Linker(StoredLinker):
    """Links mentions; see `make_linker` for the settings and `pipeline.annotate` for the result."""

    def __init__(
        self,
        vocab: Vocab,
        model: Model,
        name: str,
        *,
        index: Callable,
        spelling: Callable,
        settings: dict[str, Any],
        scorer: Callable | None = None,
    ) -> None:
        from spacy_bioel.pipeline.linker.statistics import Memory

        register_extensions()
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg = settings
        self.memory = Memory()
        self._ranker: Any = None
        # Weights fitted on development documents; None: those that come with the package.
        self.fusion = None
        # The same for what is read in documents.
        self.reading: Any = None
        self._index = index
        self._spelling = spelling
        self._training: Any = None

    # Knowledge base and encoder.

    @property
    def ranker(self) -> Any:
        """From strings to candidates (`linker.candidates`); opens the knowledge base at first use.

        A knowledge base or an encoder that was not set is the package's own, `linker.starter`.

        RAISES BioelError: Those of `KnowledgeBase.open` and of `starter_kb`.
        """
        if self._ranker is None:
            from spacy_bioel.kb.columns.store import open_kb
            from spacy_bioel.pipeline.linker import starter

            is_starter = not self.cfg["kb"]
            kb = starter.starter_kb() if is_starter else open_kb(self.cfg["kb"])
            if not self.has_encoder:
                starter.add_starter_encoder(self.encoder, kb)
                if is_starter and not self.memory.counts:
                    self.memory = starter.starter_memory()
            self.set_kb(kb)
            if is_starter:
                self.ranker.ensure_vectors()
        return self._ranker

    @property
    def kb(self) -> Any:
        """The knowledge base."""
        return self.ranker.kb

    def set_kb(self, kb: Any) -> None:
        """Link against another knowledge base, without training.

        kb (KnowledgeBase | str | Path): Must have vectors of this pipe's encoder, unless small.
        """
        from spacy_bioel.kb.columns.store import open_kb
        from spacy_bioel.pipeline.linker.candidates import Ranker
        from spacy_bioel.pipeline.linker.starter import is_starter

        opened = open_kb(kb)
        # The cache folder of this machine means nothing elsewhere.
        self.cfg["kb"] = "" if is_starter(opened) else str(opened.path or "")
        self._training = None
        self._ranker = Ranker(
            opened,
            self.encoder,
            self.memory,
            fusion=self.fusion,
            cfg=self.cfg,
            make_index=self._index,
            make_spelling=self._spelling,
        )

    @property
    def fusion(self) -> Any:
        """Weights of the evidence, a `linker.fusion.Fusion`; assigned ones take effect at once."""
        return self._fusion

    @fusion.setter
    def fusion(self, fusion: Any) -> None:
        self._fusion = fusion
        if self._ranker is not None:
            self._ranker.fusion = fusion

    def set_fusion(self, fusion: Any) -> None:
        """Weigh the evidence by a `linker.fusion.Fusion`, as fitted on development documents."""
        self.fusion = fusion

    @property
    def has_encoder(self) -> bool:
        return self.encoder.attrs["tokenizer"] is not None

    @property
    def reads(self) -> bool:
        """Whether mentions are read in their documents."""
        from spacy_bioel.models.reading import reads

        return reads(self.model) and self.cfg["evidence"].get("context", True)

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder."""
        return self.ranker.fingerprint

    def encode_kb(self, kb: Any, *, progress: Callable[[int], None] | None = None) -> Any:
        """Write vectors of all names of a knowledge base into its folder.

        progress (Callable | None): Is told the number of names each time that some are done.
        RETURNS (kb.vectors.Encoded): How many names were new, and the approximate index.
        RAISES BioelError: [B053] without an encoder, its own or the package's; those of
            `kb.vectors.writing.write_vectors`.
        """
        from spacy_bioel.pipeline.linker.starter import read_starter_encoder

        if not self.has_encoder:
            read_starter_encoder(self.encoder)
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        self.ranker.encoder_changed()
        return self.ranker.encode_kb(kb, progress=progress)

    # Prediction.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Links of each document, in the order of its mentions."""
        from spacy_bioel.pipeline.linker.queries import given_candidates, rank_mentions

        mentions = self.mentions(docs)
        ranked = rank_mentions(self.ranker, mentions, coherence=self.cfg["coherence"])
        candidates = given_candidates(mentions, ranked)
        if self.reads and candidates:
            reading = self.read(mentions, candidates)
            candidates = reading.rank(self.reading, top=self.cfg["max_candidates"])
        found = iter(candidates)
        threshold = self.cfg["nil_threshold"]
        return [
            [
                decide(span, query, next(found), of_doc, nil_threshold=threshold)
                for span, query in zip(spans, queries, strict=True)
            ]
            for spans, queries, of_doc in zip(mentions.spans, mentions.queries, ranked, strict=True)
        ]

    def mentions(self, docs: Iterable[Doc]) -> Any:
        """What is to be linked, a `pipeline.linker.queries.Mentions`."""
        from spacy_bioel.pipeline.linker.queries import Mentions

        docs = list(docs)
        spans = [self._find_mentions(doc) for doc in docs]
        return Mentions(docs, spans, [self.queries(of_doc) for of_doc in spans])

    def read(self, mentions: Any, given: Sequence[tuple[Candidate, ...]]) -> Any:
        """What is to be weighed of all mentions, a `pipeline.contextual.weighing.Reading`.

        mentions (Mentions): At least one.
        given (Sequence): Candidates that the string of each was given.
        """
        if self.model.name == "reranker":
            from spacy_bioel.pipeline.contextual.cross_encoder import read_pairs

            return read_pairs(self.model, self.kb, mentions, given)
        from spacy_bioel.pipeline.contextual.bi_encoder import read_collectively

        return read_collectively(
            self.model, self.ranker, mentions, given, k=self.cfg["search_names"]
        )

    def _find_mentions(self, doc: Doc) -> list[Span]:
        if self.cfg["mentions"] == "kb":
            from spacy_bioel.pipeline.mentions.dictionary import longest_names

            return longest_names(doc, self.kb)
        return mention_spans(doc, self.cfg["mentions"], spans_key=self.cfg["spans_key"])

    def queries(self, spans: Sequence[Span]) -> list[Query]:
        """What to look up for the mentions of one document."""
        return mention_queries(
            spans, abbreviations=self.cfg["abbreviations"], composites=self.cfg["composites"]
        )

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
        encoder: str | None = None,
        embeddings: str | None = None,
        vocabulary: int = 16000,
        width: int = 256,
    ) -> None:
        """Set the knowledge base, remember the training mentions, make vocabulary and network.

        kb (KnowledgeBase | str | None): Or its folder; None: the one of the component's config.
        encoder (str | None): Folder of an encoder to start from, see training/scripts/pretrain.py,
            or "starter", the package's; then the arguments below have no meaning.
        embeddings (str | None): A Hugging Face model directory to take word pieces and frozen
            embeddings from; None: make them from the names of the knowledge base. For an encoder
            that is a transformer: its checkpoint, unless its own settings name one.
        vocabulary, width (int): Word pieces and size of embeddings made from the names.
        """
        from spacy_bioel.models.encoder_storage import read_encoder
        from spacy_bioel.models.name_encoder import EncoderSource, add_encoder
        from spacy_bioel.models.reading import add_reading
        from spacy_bioel.pipeline.linker.starter import ENCODER
        from spacy_bioel.pipeline.linker.statistics import Memory
        from spacy_bioel.pipeline.linker.training import make_training

        validate_get_examples(get_examples, "Linker.initialize")
        self.memory = Memory()
        self.set_kb(kb or self.cfg["kb"] or self.kb)
        self.remember(get_examples())
        if encoder is not None:
            read_encoder(self.encoder, ENCODER if encoder == "starter" else Path(encoder))
        else:
            names = sorted(self.memory.counts)
            source = EncoderSource(
                self.kb, more_names=names, embeddings=embeddings, vocabulary=vocabulary, width=width
            )
            add_encoder(self.encoder, source)
        add_reading(self.model)
        self._training = make_training(self)

    def remember(self, examples: Iterable[Example]) -> None:
        """Count the training mentions, as written and with abbreviations written out."""
        from spacy_bioel.pipeline.linker.statistics import Memory
        from spacy_bioel.pipeline.linker.training import training_strings

        memory = Memory(self.memory.counts)
        for example in examples:
            for string, concept_id in training_strings(self, [example]):
                memory.add(string, self.kb.canonical(concept_id))
        self.memory = memory
        self.set_kb(self.kb)  # what was made of the memory before is made anew

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        from spacy_bioel.pipeline.linker.training import make_training

        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, "Linker.update")
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        if self._training is None:
            self._training = make_training(self)
        set_dropout_rate(self.model, drop)
        loss = self._training.update(examples)
        if loss is not None:
            losses[self.name] += loss
            if sgd is not None:
                self.finish_update(sgd)
        return losses

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Scores by the pipe's scorer, which is told the current id of each retired one."""
        return super().score(examples, canonical=self.kb.canonical, **kwargs)
