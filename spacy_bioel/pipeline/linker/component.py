"""The pipe `bioel_linker`: mentions -> candidates from a knowledge base -> `span._.cui`."""

# No `from __future__ import annotations`: spaCy reads the annotations of `initialize` as types.

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.vocab import Vocab
from thinc.api import Model, Optimizer, set_dropout_rate

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.pipeline.annotate import register_extensions, set_ent_links, set_links
from spacy_bioel.pipeline.gold import mention_spans
from spacy_bioel.pipeline.linker.decision import Query, decide, mention_queries
from spacy_bioel.pipeline.linker.settings import LinkerSettings, TrainingSettings
from spacy_bioel.pipeline.linker.storage import StoredLinker
from spacy_bioel.types import Link

if TYPE_CHECKING:
    from spacy_bioel.kb.columns.store import KnowledgeBase
    from spacy_bioel.kb.vectors.writing import Encoded
    from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
    from spacy_bioel.pipeline.linker.names import FrozenEncoder
    from spacy_bioel.pipeline.linker.queries import Mentions
    from spacy_bioel.pipeline.linker.spelling import MakeSearch
    from spacy_bioel.pipeline.linker.state import LinkerState, MakeIndex
    from spacy_bioel.pipeline.linker.training import NameTraining


class Linker(StoredLinker):
    """Links mentions; see `make_linker` for the settings and `pipeline.annotate` for the result.

    Weights (`fusion`, `reading`), mention statistics and settings (`cfg`) may be assigned at any
    time: the next batch is linked by them. Prediction may be called by many threads.
    """

    def __init__(
        self,
        vocab: Vocab,
        model: Model[Any, Any],
        name: str,
        *,
        index: "MakeIndex",
        spelling: "MakeSearch",
        settings: dict[str, Any],
        scorer: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        from spacy_bioel.pipeline.linker.statistics import MentionStatistics

        register_extensions()
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg = settings
        self.statistics = MentionStatistics()
        self.fusion = None
        self.reading = None
        self._index = index
        self._spelling = spelling
        self._base = Path.cwd()  # of a relative path to the knowledge base
        self._kb: KnowledgeBase | None = None
        self._is_equipped = False
        self._frozen: tuple[Model[Any, Any], FrozenEncoder] | None = None
        self._generator: CandidateGenerator | None = None
        self._training: NameTraining | None = None
        self._nlp: ReferenceType[Language] | None = None
        self._checked: list[str] = []
        self._lock = RLock()

    def _loaded(self) -> None:
        with self._lock:
            self._kb, self._is_equipped = None, False
            self._frozen = self._generator = self._training = None

    def join(self, nlp: Language) -> None:
        """Remember the pipeline, whose order is checked at first use, and when it has changed."""
        self._nlp = ref(nlp)

    def _check_order(self) -> None:
        nlp = self._nlp() if self._nlp else None
        if nlp is not None and nlp.pipe_names != self._checked:
            from spacy_bioel.pipeline.linker.checks import check_order

            self._checked = list(nlp.pipe_names)
            check_order(nlp, self)

    # State: composed of what is assigned, never told that something changed.

    @property
    def state(self) -> "LinkerState":
        """All that decides, as it is now; opens the knowledge base at first use.

        RAISES BioelError: Those of `KnowledgeBase.open`, `starter_kb` and `LinkerSettings.of`.
        """
        from spacy_bioel.pipeline.linker.state import LinkerState

        with self._lock:
            self._check_order()
            self._open()
            assert self._kb is not None
            return LinkerState(
                kb=self._kb,
                encoder=self._freeze() if self.has_encoder else None,
                statistics=self.statistics,
                fusion=self.fusion,
                reading=self.reading,
                settings=LinkerSettings.of(self.cfg),
                make_index=self._index,
                make_spelling=self._spelling,
            )

    @property
    def generator(self) -> "CandidateGenerator":
        """Candidate generation by the state as it is now.

        While a large knowledge base is trained on, it searches a pool of its names, see
        `linker.training`; until `encode_kb` or `set_kb` ends the training.
        """
        from spacy_bioel.pipeline.linker.candidates import CandidateGenerator

        with self._lock:
            state = self.state
            if self._generator is None or self._generator.state != state:
                pool = self._training.pool_of(state) if self._training else None
                self._generator = CandidateGenerator(state, before=self._generator, pool=pool)
            return self._generator

    def _open(self) -> None:
        """Open the knowledge base; unset components default to those of the package."""
        if self._kb is not None and self._is_equipped:
            return
        from spacy_bioel.kb.columns.store import KnowledgeBase
        from spacy_bioel.pipeline.linker import starter
        from spacy_bioel.pipeline.linker.checks import check_types

        kb = self._kb
        if kb is None:
            path = self.cfg["kb"]
            kb = KnowledgeBase.open(self._base / path) if path else starter.starter_kb()
        if not self.has_encoder:
            starter.add_starter_encoder(self.encoder, kb)
            if starter.is_starter(kb) and not self.statistics.counts:
                self.statistics = starter.starter_statistics()
        if starter.is_starter(kb) and self.has_encoder and self.cfg["evidence"]["dense"]:
            starter.ensure_vectors(kb, self._freeze())
        check_types(kb, self.cfg["label_types"])
        self._kb, self._is_equipped = kb, True

    def _freeze(self) -> "FrozenEncoder":
        from spacy_bioel.pipeline.linker.names import FrozenEncoder

        network = self.encoder.get_ref("network")
        if self._frozen is None or self._frozen[0] is not network:
            self._frozen = network, FrozenEncoder.of(self.encoder)
        return self._frozen[1]

    @property
    def kb(self) -> "KnowledgeBase":
        """The knowledge base."""
        return self.state.kb

    def set_kb(self, kb: "KnowledgeBase | str | Path") -> None:
        """Link against another knowledge base, without training; ends a training.

        kb (KnowledgeBase | str | Path): Needs vectors of this pipe's encoder, unless it is small.
        RAISES BioelError: Those of `KnowledgeBase.open`.
        """
        from spacy_bioel.kb.columns.store import open_kb
        from spacy_bioel.pipeline.linker.starter import is_starter

        opened = open_kb(kb)
        with self._lock:
            self._kb, self._is_equipped = opened, False
            self._training = self._generator = None
            # The cache folder of this machine means nothing elsewhere.
            self.cfg["kb"] = "" if is_starter(opened) else str(opened.path or "")

    def encode_kb(
        self, kb: "KnowledgeBase | str | Path", *, progress: Callable[[int], None] | None = None
    ) -> "Encoded":
        """Write vectors of all names of a knowledge base into its folder; ends a training.

        progress (Callable | None): Is told the number of names each time that some are done.
        RETURNS (kb.vectors.writing.Encoded): How many names were new, and the approximate index.
        RAISES BioelError: [B053] without an encoder, its own or the package's; those of
            `kb.vectors.writing.write_vectors`.
        """
        from spacy_bioel.kb.columns.store import open_kb
        from spacy_bioel.pipeline.linker.starter import read_starter_encoder

        with self._lock:
            if not self.has_encoder:
                read_starter_encoder(self.encoder)
            if not self.has_encoder:
                raise BioelError(Errors.B053.format(name=self.name))
            self._training = self._generator = None
            encoder = self._freeze()
        return encoder.write(open_kb(kb), progress=progress)

    @property
    def reads(self) -> bool:
        """Whether mentions are read in their documents."""
        from spacy_bioel.models.reading import reads

        return reads(self.model) and self.cfg["evidence"].get("context", True)

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder.

        RAISES BioelError: [B053] without one.
        """
        encoder = self.state.encoder
        if encoder is None:
            raise BioelError(Errors.B053.format(name=self.name))
        return encoder.fingerprint

    # Prediction.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Links of each document, in the order of its mentions."""
        from spacy_bioel.pipeline.contextual.methods import read_mentions
        from spacy_bioel.pipeline.linker.labels import with_labels
        from spacy_bioel.pipeline.linker.queries import given_candidates, rank_mentions

        generator = self.generator
        settings = generator.state.settings
        mentions = self.mentions(docs)
        ranked = rank_mentions(generator, mentions, coherence=settings.coherence)
        candidates = given_candidates(mentions, ranked)
        if self.reads and candidates:
            reading = read_mentions(self.model, generator, mentions, candidates)
            candidates = reading.rank(generator.state.reading, top=settings.max_candidates)
        found = iter(candidates)
        links = [
            [
                decide(span, query, next(found), of_doc, nil_threshold=settings.nil_threshold)
                for span, query in zip(spans, queries, strict=True)
            ]
            for spans, queries, of_doc in zip(mentions.spans, mentions.queries, ranked, strict=True)
        ]
        return with_labels(links, generator.kb) if settings.mentions == "kb" else links

    def mentions(self, docs: Iterable[Doc]) -> "Mentions":
        """The mentions that are to be linked."""
        from spacy_bioel.pipeline.linker.queries import Mentions

        docs = list(docs)
        spans = [self._find_mentions(doc) for doc in docs]
        return Mentions(docs, spans, [self.queries(of_doc) for of_doc in spans])

    def _find_mentions(self, doc: Doc) -> list[Span]:
        if self.cfg["mentions"] == "kb":
            from spacy_bioel.pipeline.mentions.dictionary import longest_names

            return longest_names(doc, self.kb)
        return mention_spans(doc, self.cfg["mentions"], spans_key=self.cfg["spans_key"])

    def queries(self, spans: Sequence[Span]) -> list[Query]:
        """Strings to look up for the mentions of one document."""
        return mention_queries(
            spans, abbreviations=self.cfg["abbreviations"], composites=self.cfg["composites"]
        )

    def set_annotations(self, docs: Iterable[Doc], scores: list[list[Link]]) -> None:
        """Write links as the span group `spans_key`, and to the entities that were linked."""
        key = self.cfg["spans_key"]
        for doc, links in zip(docs, scores, strict=True):
            from_ents = self.cfg["mentions"] == "ents" or (
                self.cfg["mentions"] == "auto" and key not in doc.spans
            )
            set_links(doc, links, spans_key=key)
            if from_ents:
                set_ent_links(doc, spans_key=key)

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
        """Set the knowledge base, count the training mentions, make vocabulary and network.

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
        from spacy_bioel.pipeline.linker.starter import ENCODER, starter_kb
        from spacy_bioel.pipeline.linker.statistics import MentionStatistics

        validate_get_examples(get_examples, "Linker.initialize")
        with self._lock:
            self.set_kb(kb or self._kb or self.cfg["kb"] or starter_kb())
            assert self._kb is not None
            self.statistics = MentionStatistics()
            self.count_mentions(get_examples())
            if encoder is not None:
                read_encoder(self.encoder, ENCODER if encoder == "starter" else Path(encoder))
            else:
                source = EncoderSource(
                    self._kb,
                    more_names=self.statistics.names,
                    embeddings=embeddings,
                    vocabulary=vocabulary,
                    width=width,
                )
                add_encoder(self.encoder, source)
            add_reading(self.model)
            self._weights_changed()
            self._start_training()

    def count_mentions(self, examples: Iterable[Example]) -> None:
        """Add training mentions to the statistics, with abbreviations written out too."""
        from spacy_bioel.pipeline.linker.training import training_strings

        kb, settings = self._kb or self.kb, LinkerSettings.of(self.cfg)
        self.statistics = self.statistics.with_mentions(
            (string, kb.canonical(concept_id))
            for example in examples
            for string, concept_id in training_strings([example], settings)
        )

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Learn from a batch. RAISES BioelError: [B053] before `initialize`."""
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, "Linker.update")
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        with self._lock:
            training = self._training or self._start_training()
        set_dropout_rate(self.model, drop)
        loss = training.update(examples)
        self._weights_changed()
        if loss is not None:
            losses[self.name] += loss
            if sgd is not None:
                self.finish_update(sgd)
        return losses

    def _start_training(self) -> "NameTraining":
        from spacy_bioel.pipeline.contextual.methods import make_training

        self._training = make_training(self.model, self.state, TrainingSettings.of(self.cfg))
        return self._training

    def finish_update(self, sgd: Optimizer) -> None:
        """Change the weights."""
        super().finish_update(sgd)
        self._weights_changed()

    def use_params(self, params: Any) -> Iterator[None]:
        """Predict by other weights, such as averages, until asked for the next item.

        `Language.use_params` calls it so: spaCy's own pipes are no context managers either.
        """
        with self.model.use_params(params):
            self._weights_changed()
            yield
        self._weights_changed()

    def _weights_changed(self) -> None:
        """Let go of the fused copy; the only three ways to other weights are above and loading."""
        with self._lock:
            self._frozen = None

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Scores by the pipe's scorer, which is told the current id of each retired one."""
        scores: dict[str, Any] = super().score(examples, canonical=self.kb.canonical, **kwargs)
        return scores
