"""The pipe `bioel_linker`: mentions -> candidates from a knowledge base -> `span._.cui`."""

# No `from __future__ import annotations`: spaCy reads the annotations of `initialize` as types.

from collections import ChainMap
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
from spacy_bioel.pipeline.decision import Query, Ranked, agree_in_document, decide, mention_queries
from spacy_bioel.pipeline.gold import GoldSpan, gold_spans, mention_spans
from spacy_bioel.pipeline.linker_storage import StoredLinker
from spacy_bioel.text.normalize import normalize_name
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
        from spacy_bioel.models.dual_encoder import name_side
        from spacy_bioel.pipeline.memory import Memory

        register_extensions()
        self.vocab = vocab
        self.model = model
        # All of the model, or its side that encodes names.
        self.encoder = name_side(model)
        self.name = name
        self.scorer = scorer
        self.cfg = settings
        self.memory = Memory()
        # Weights fitted on development documents; None: those that come with the package.
        self.fusion: Any = None
        # The same for what a dual encoder reads.
        self.reading: Any = None
        self._index = index
        self._spelling = spelling
        self._ranker: Any = None
        self._sampler: Any = None
        self._contrast: Any = None
        self._updates = 0

    # Knowledge base and encoder.

    @property
    def ranker(self) -> Any:
        """From strings to candidates, see `pipeline.ranker`; opens the knowledge base at first use.

        A knowledge base or an encoder that was not set is the package's own, `pipeline.starter`.

        RAISES BioelError: Those of `KnowledgeBase.open` and of `starter_kb`.
        """
        if self._ranker is None:
            from spacy_bioel.kb.store import open_kb
            from spacy_bioel.pipeline import starter

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
        from spacy_bioel.kb.store import open_kb
        from spacy_bioel.pipeline.ranker import Ranker
        from spacy_bioel.pipeline.starter import is_starter

        opened = open_kb(kb)
        # The cache folder of this machine means nothing elsewhere.
        self.cfg["kb"] = "" if is_starter(opened) else str(opened.path or "")
        self._sampler = None
        self._ranker = Ranker(
            opened,
            self.encoder,
            self.memory,
            fusion=self.fusion,
            cfg=self.cfg,
            make_index=self._index,
            make_spelling=self._spelling,
        )

    def set_fusion(self, fusion: Any) -> None:
        """Weigh the evidence by a `pipeline.fusion.Fusion`, as fitted on development documents."""
        self.fusion = fusion
        self.ranker.fusion = fusion

    @property
    def has_encoder(self) -> bool:
        return self.encoder.attrs["tokenizer"] is not None

    @property
    def reads(self) -> bool:
        """Whether mentions are read in their documents, by a dual encoder."""
        from spacy_bioel.models.dual_encoder import has_mention_tower

        return has_mention_tower(self.model)

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder."""
        return self.ranker.fingerprint

    def encode_kb(self, kb: Any, *, progress: Callable[[int], None] | None = None) -> None:
        """Write vectors of all names of a knowledge base into its folder.

        progress (Callable | None): Is told the number of names after each batch.
        RAISES BioelError: [B053] without an encoder, its own or the package's.
        """
        from spacy_bioel.pipeline.starter import read_starter_encoder

        if not self.has_encoder:
            read_starter_encoder(self.encoder)
        if not self.has_encoder:
            raise BioelError(Errors.B053.format(name=self.name))
        self.ranker.encoder_changed()
        self.ranker.encode_kb(kb, progress=progress)

    # Prediction.

    def predict(self, docs: Iterable[Doc]) -> list[list[Link]]:
        """Links of each document, in the order of its mentions."""
        docs = list(docs)
        spans = [self._mentions(doc) for doc in docs]
        queries = [self.queries(mentions) for mentions in spans]
        ranked = self.rank(spans, queries)
        candidates = self.candidates(docs, spans, queries, ranked)
        threshold = self.cfg["nil_threshold"]
        return [
            [
                decide(span, query, found, of_doc, nil_threshold=threshold)
                for span, query, found in zip(*mentions, strict=True)
            ]
            for *mentions, of_doc in zip(spans, queries, candidates, ranked, strict=True)
        ]

    def candidates(
        self,
        docs: list[Doc],
        spans: list[list[Span]],
        queries: list[list[Query]],
        ranked: list[Ranked],
    ) -> list[list[tuple[Candidate, ...]]]:
        """Of each mention of each document: those of its string, and those of what was read."""
        given = self.given(spans, queries, ranked)
        if not self.reads or not any(spans):
            return given
        reading = self.read(docs, spans, queries, given)
        found = iter(reading.rank(self.reading, top=self.cfg["max_candidates"]))
        return [[next(found) for _ in of_doc] for of_doc in given]

    @staticmethod
    def given(
        spans: list[list[Span]], queries: list[list[Query]], ranked: list[Ranked]
    ) -> list[list[tuple[Candidate, ...]]]:
        """Candidates that the string of each mention of each document was given."""
        return [
            [of_doc[query.whole, span.label_] for span, query in zip(*mentions, strict=True)]
            for *mentions, of_doc in zip(spans, queries, ranked, strict=True)
        ]

    def read(
        self,
        docs: list[Doc],
        spans: list[list[Span]],
        queries: list[list[Query]],
        given: list[list[tuple[Candidate, ...]]],
    ) -> Any:
        """What is to be weighed of all mentions, one document after the other; a `Reading`."""
        from spacy_bioel.pipeline.reading import read_candidates, read_mentions

        strings = [query.whole for of_doc in queries for query in of_doc]
        vectors = read_mentions(self.model, self.ranker, docs, spans, strings)
        labels = [span.label_ for of_doc in spans for span in of_doc]
        return read_candidates(
            self.ranker,
            vectors,
            labels,
            [found for of_doc in given for found in of_doc],
            k=self.cfg["search_names"],
        )

    def rank(self, spans: list[list[Span]], queries: list[list[Query]]) -> list[Ranked]:
        """For each document, the candidates of its strings, see `decision.Ranked`."""
        wanted = {
            (string, span.label_)
            for pair in zip(spans, queries, strict=True)
            for span, query in zip(*pair, strict=True)
            for string in query.strings()
        }
        ranked = self.ranker.rank(sorted(wanted)) if wanted else {}
        return [self._agreed(*pair, ranked) for pair in zip(spans, queries, strict=True)]

    def _agreed(self, spans: list[Span], queries: list[Query], ranked: Ranked) -> Ranked:
        """Candidates of the strings of one document."""
        pairs = {(q.whole, span.label_): None for span, q in zip(spans, queries, strict=True)}
        if self.cfg["coherence"] and len(pairs) > 1:
            agreed = agree_in_document(pairs, ranked, weight=self.cfg["coherence"])
            seen: Any = ranked
            return ChainMap(agreed, seen)
        return ranked

    def _mentions(self, doc: Doc) -> list[Span]:
        if self.cfg["mentions"] == "kb":
            from spacy_bioel.pipeline.dictionary import longest_names

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
        from spacy_bioel.models.dual_encoder import add_mention_tower, is_dual
        from spacy_bioel.models.encoder_storage import read_encoder
        from spacy_bioel.models.linker import EncoderSource, add_encoder
        from spacy_bioel.pipeline.memory import Memory
        from spacy_bioel.pipeline.starter import ENCODER

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
        if is_dual(self.model):
            self.model.get_ref("tok2vec").initialize()
            add_mention_tower(self.model)
        self._start_training()

    def remember(self, examples: Iterable[Example]) -> None:
        """Count the training mentions, as written and with abbreviations written out."""
        for example in examples:
            for strings, concept_id in self._gold_mentions(example):
                for string in strings:
                    self.memory.add(string, self.kb.canonical(concept_id))

    def _gold_mentions(self, example: Example) -> list[tuple[set[str], str]]:
        """Strings and id of the gold mentions that have one id."""
        gold = self._single_gold(example)
        spans = [example.predicted[g.start : g.end] for g in gold]
        return [
            ({normalize_name(span.text), query.whole} - {""}, g.ids[0])
            for span, query, g in zip(spans, self.queries(spans), gold, strict=True)
        ]

    def _single_gold(self, example: Example) -> list[GoldSpan]:
        return [g for g in gold_spans(example, key=self.cfg["gold_key"]) if len(g.ids) == 1]

    def _start_training(self) -> None:
        from spacy_bioel.pipeline.linker_training import ConceptSampler, NamePool, NameSampler

        settings = self.cfg["training"]
        self.ranker.pool = NamePool(self.kb, self.memory, size=settings["pool_names"])
        self._sampler = NameSampler(
            self.kb,
            self.memory,
            n_synonyms=settings["synonyms"],
            n_negatives=settings["negatives"],
            seed=settings["seed"],
        )
        self._contrast = ConceptSampler(
            self.kb, n_candidates=settings["candidates"], seed=settings["seed"]
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
            self._sampler.mine(self.ranker.encode, self.ranker.refreshed_pool())
            self._contrast.mine(self.ranker.nearest_concepts)
        self._updates += 1
        set_dropout_rate(self.model, drop)
        batch = self._sampler.draw(self._training_mentions(examples))
        if self.reads:
            losses[self.name] += self._learn_to_read(examples, *batch)
        elif batch[0]:
            losses[self.name] += self._learn_names(*batch)
        else:
            return losses
        if sgd is not None:
            self.finish_update(sgd)
        self.ranker.encoder_changed()
        return losses

    def _learn_names(self, names: list[str], concepts: Any) -> float:
        from spacy_bioel.models.linker import name_loss

        vectors, backprop = self.encoder.begin_update(names)
        loss, d_vectors = name_loss(vectors, concepts, loss=self.cfg["training"]["loss"])
        backprop(d_vectors)
        return loss

    def _learn_to_read(self, examples: list[Example], names: list[str], concepts: Any) -> float:
        """One update of both sides of a dual encoder, by the loss of names and that of mentions."""
        from spacy_bioel.pipeline.linker_training import learn_to_read

        docs = [example.predicted for example in examples]
        gold = [self._single_gold(example) for example in examples]
        spans = [
            [doc[g.start : g.end] for g in found] for doc, found in zip(docs, gold, strict=True)
        ]
        strings = [query.whole for of_doc in spans for query in self.queries(of_doc)]
        rows = self.kb.find_all([g.ids[0] for found in gold for g in found])
        return learn_to_read(
            self.model,
            self.kb,
            self._contrast,
            docs=docs,
            spans=spans,
            strings=strings,
            concepts=rows,
            names=names,
            name_concepts=concepts,
            loss=self.cfg["training"]["loss"],
        )

    def _training_mentions(self, examples: Sequence[Example]) -> list[tuple[str, int]]:
        """Strings and concept rows of the gold mentions that the knowledge base knows."""
        gold = [
            (string, concept_id)
            for example in examples
            for strings, concept_id in self._gold_mentions(example)
            for string in sorted(strings)
        ]
        rows = self.kb.find_all([concept_id for _, concept_id in gold])
        return [(s, int(row)) for (s, _), row in zip(gold, rows, strict=True) if row >= 0]

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Scores by the pipe's scorer, which is told the current id of each retired one."""
        return super().score(examples, canonical=self.kb.canonical, **kwargs)

    def __reduce__(self) -> tuple:
        # For worker processes under spawn. The knowledge base goes by its path, so that the
        # workers share its pages.
        kb = self.kb if self._includes_kb or self.cfg["kb"] else None
        data = self.to_bytes(exclude=["kb"])
        made_of = (self.vocab, self.model, self.name, self._index, self._spelling, self.scorer)
        return _unpickle, (*made_of, data, kb)


def _unpickle(
    vocab: Vocab,
    model: Model,
    name: str,
    index: Callable,
    spelling: Callable,
    scorer: Any,
    data: bytes,
    kb: Any,
) -> Linker:
    linker = Linker(vocab, model, name, index=index, spelling=spelling, settings={}, scorer=scorer)
    linker.from_bytes(data)
    if kb is not None:
        linker.set_kb(kb)
    return linker
