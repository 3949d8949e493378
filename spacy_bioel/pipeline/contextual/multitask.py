"""Reading with a multi-task model, which finds, types and links the mentions of a document."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats2d

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.words.lexicon import Lexicon
from spacy_bioel.models.bio_tagger import decode_bilou, encode_bilou, longest_spans
from spacy_bioel.models.detector import MentionBatch
from spacy_bioel.models.multitask import NIL, UNKNOWN, Inventory, Lesson, of_states, read_states
from spacy_bioel.pipeline.annotate import GoldSpan, annotated_labels, gold_spans
from spacy_bioel.pipeline.contextual import bi_encoder
from spacy_bioel.pipeline.contextual.weighing import Reading, weigh
from spacy_bioel.pipeline.linker.candidates import CandidateGenerator
from spacy_bioel.pipeline.linker.queries import Mentions
from spacy_bioel.pipeline.linker.settings import LinkerSettings, TrainingSettings
from spacy_bioel.pipeline.linker.state import LinkerState
from spacy_bioel.pipeline.linker.training import gold_mentions
from spacy_bioel.pipeline.mentions.detector import match_lexicon
from spacy_bioel.pipeline.stored_pipe import require_token_vectors
from spacy_bioel.types import Candidate

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.floating]
PROPOSES = True
_ABSENT = -20.0  # log-odds of a concept that is no class
_UNTYPED = "Mention"  # label of what is neither typed nor linked


def finds(model: Model[Any, Any]) -> bool:
    """Whether the model tags mentions, or classifies each token."""
    settings = model.attrs["settings"]
    return settings["per_token"] or "mentions" in settings["tasks"]


def prepare(
    model: Model[Any, Any], examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str
) -> None:
    """Collect types, classes and the lexicon, before the network is made.

    Warns [W300] of gold mentions that tags cannot represent.
    RAISES BioelError: [B332] when documents annotate different labels.
    """
    types: Counter[str] = Counter()
    of_classes: dict[str, Counter[str]] = {}
    n_overlapping = 0
    annotated: set[tuple[str, ...]] = set()
    for example in examples:
        annotated.add(annotated_labels(example.reference, key=gold_key))
        gold = list(gold_spans(example, key=gold_key))
        n_overlapping += int((~longest_spans(_places(gold))).sum())
        for span in gold:
            types[span.label] += 1
            if len(span.ids) == 1 and kb.find(span.ids[0]) >= 0:
                of_classes.setdefault(kb.canonical(span.ids[0]), Counter())[span.label] += 1
    if len(annotated) > 1:
        found = "; ".join(sorted(", ".join(labels) or "all" for labels in annotated))
        raise BioelError(Errors.B332.format(found=found))
    if n_overlapping:
        n = sum(types.values())
        warnings.warn(Warnings.W300.format(n=n_overlapping, of=n), stacklevel=2)
    names = sorted(types)
    classes = sorted(of_classes)
    model.attrs["inventory"] = Inventory(
        tuple(names),
        tuple(classes),
        tuple(names.index(of_classes[id_].most_common(1)[0][0]) for id_ in classes),
    )
    if model.attrs["uses_lexicon"]:
        model.attrs["lexicon"] = Lexicon.from_kb(kb)


def find(model: Model[Any, Any], docs: Iterable[Doc], settings: LinkerSettings) -> Mentions:
    """Mentions that the model finds in documents, with their types as labels.

    RAISES BioelError: [B174] when the pipe that reads the documents has not been there.
    """
    docs = list(docs)
    states = read_documents(model, docs)
    lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
    if model.attrs["settings"]["per_token"]:
        places, classes = _runs(of_states(model, "class_logits", states).argmax(axis=1), lengths)
    else:
        places, _, _ = decode_bilou(of_states(model, "tag_logits", states), lengths)
        classes = None
    labels = _labels(model, states, places, classes)
    offsets = np.cumsum(lengths) - lengths
    owners = np.searchsorted(offsets, places[:, 0], side="right") - 1
    spans: list[list[Span]] = [[] for _ in docs]
    within = places - offsets[owners, None]
    for owner, (start, end), label in zip(owners.tolist(), within.tolist(), labels, strict=True):
        spans[owner].append(Span(docs[owner], start, end, label=label))
    return Mentions.of(docs, spans, settings, states)


def _labels(
    model: Model[Any, Any], states: dict[str, Any], places: IntArray, classes: IntArray | None
) -> list[str]:
    """Types of mentions: as they are told, or else those of their classes, where there are some."""
    inventory: Inventory = model.attrs["inventory"]
    if "types" in states:
        kinds = of_states(model, "type_logits", states, places)[:, 1:].argmax(axis=1)
    elif "links" not in states:
        return [_UNTYPED] * len(places)
    else:
        if classes is None:
            logits = of_states(model, "class_logits", states, places)
            classes = 1 + logits[:, 1:].argmax(axis=1)
        kinds = np.array(inventory.type_of, dtype=np.int64)[classes - 1]
    return [inventory.types[kind] for kind in kinds.tolist()]


def read(
    model: Model[Any, Any],
    generator: CandidateGenerator,
    mentions: Mentions,
    given: Sequence[Sequence[Candidate]],
) -> Reading:
    """Pairs to weigh: the candidates of the strings, and those of the model's vocabulary."""
    states = mentions.states or read_documents(model, mentions.docs)
    places = mentions.token_ranges()
    if "links" not in states:
        return weigh(generator.kb, given, lambda m, c: np.zeros(len(m)), temperature=1.0)
    if model.attrs["vocabulary"] == "open":
        words = bi_encoder.encode_strings(generator, mentions.strings)
        vectors = of_states(model, "mention_vectors", states, places, words)
        return bi_encoder.compare(generator, mentions, given, vectors)
    kb, logits = generator.kb, of_states(model, "class_logits", states, places)
    odds = logits[:, 1:] - logits[:, :1]  # of the classes against NIL
    rows = kb.find_all(model.attrs["inventory"].classes)  # -1: another knowledge base
    k = min(generator.state.settings.max_candidates, len(rows))
    best = np.argpartition(-odds, k - 1, axis=1)[:, :k] if k else np.zeros((len(odds), 0), int)
    owner, concept = np.repeat(np.arange(len(best)), k), rows[best.ravel()]
    owner, concept = owner[concept >= 0], concept[concept >= 0]
    may = generator.allowed(concept, mentions.labels, owner)
    order = np.argsort(rows, kind="stable")

    def score(mention: IntArray, concept: IntArray) -> FloatArray:
        place = np.minimum(np.searchsorted(rows, concept, sorter=order), len(rows) - 1)
        kind = order[place]
        return np.where(rows[kind] == concept, odds[mention, kind], _ABSENT)

    return weigh(kb, given, score, owner[may], concept[may], temperature=1.0)


def read_documents(model: Model[Any, Any], docs: Sequence[Doc]) -> dict[str, Any]:
    """Vectors of the tokens of documents, see `models.multitask_layers.read_states`.

    RAISES BioelError: [B174] when the pipe that reads the documents has not been there.
    """
    require_token_vectors(model, docs)
    return read_states(model, _matched(model, docs))


def _matched(model: Model[Any, Any], docs: Sequence[Doc]) -> MentionBatch:
    width = model.attrs["settings"]["max_width"]
    return match_lexicon(model.attrs["lexicon"], list(docs), max_width=width)


def _runs(classes: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Runs of tokens of one class in a document: their places, shape (n, 2), and classes, (n,)."""
    is_first = np.diff(classes, prepend=-1) != 0
    is_first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    start = np.flatnonzero(is_first)
    places = np.stack([start, np.append(start, len(classes))[1:]], axis=1).astype(np.int64)
    found = classes[start]
    return places[found != NIL], found[found != NIL]


class Training(bi_encoder.Training):
    """Trains all tasks; with an open vocabulary, names and mentions as a bi-encoder does too."""

    def __init__(
        self, model: Model[Any, Any], state: LinkerState, settings: TrainingSettings
    ) -> None:
        super().__init__(model, state, settings)
        self._task: str | None = None

    def update(self, examples: Sequence[Example]) -> float | None:
        if not any(len(example.predicted) for example in examples):
            return None
        # All tasks are learnt from the same documents: in proportion means equally often.
        tasks = self.model.attrs["settings"]["tasks"]
        self._task = str(self._random.choice(tasks)) if self.model.attrs["one_task"] else None
        if self.model.attrs["vocabulary"] == "open" and self._task in (None, "links"):
            return super().update(examples)
        gold, _ = self.gold(examples)
        vectors, backprop, loss = self.read(examples, gold, self.model.ops.alloc2f(len(gold), 0))
        backprop(vectors)
        return loss

    def gold(self, examples: Sequence[Example]) -> tuple[Mentions, list[str]]:
        """All gold mentions, and the id of each; "" for none and for several."""
        return gold_mentions(examples, self.state.settings, with_all=True)

    def read(
        self, examples: Sequence[Example], gold: Mentions, words: Floats2d
    ) -> tuple[Any, Any, float]:
        inputs = (_matched(self.model, gold.docs), self._lesson(examples), words)
        (vectors, loss), backprop = self.model.begin_update(inputs)
        return vectors, backprop, loss

    def _lesson(self, examples: Sequence[Example]) -> Lesson:
        inventory: Inventory = self.model.attrs["inventory"]
        type_of = {label: 1 + i for i, label in enumerate(inventory.types)}
        class_of = {id_: 1 + i for i, id_ in enumerate(inventory.classes)}
        places, types, classes = [], [], []
        offset = 0
        for example in examples:
            gold = list(gold_spans(example, key=self.state.settings.gold_key))
            places.append(_places(gold) + offset)
            types += [type_of.get(g.label, UNKNOWN) for g in gold]
            classes += [self._class(g, class_of) for g in gold]
            offset += len(example.predicted)
        spans = np.concatenate(places)
        kept = longest_spans(spans)
        of_types, of_classes = (np.array(x, dtype=np.int64) for x in (types, classes))
        if self.model.attrs["settings"]["per_token"]:
            of_types, of_classes = (
                _of_tokens(spans[kept], answers[kept], offset) for answers in (of_types, of_classes)
            )
        n_classes = len(inventory.classes)
        n_others = self.model.attrs["random"] if n_classes else 0
        others = self._random.integers(1, 1 + n_classes, size=n_others)
        tags = encode_bilou(spans[kept], offset)
        return Lesson(spans, tags, of_types, of_classes, others, self._task)

    def _class(self, gold: GoldSpan, class_of: dict[str, int]) -> int:
        if len(gold.ids) == 1:
            return class_of.get(self.kb.canonical(gold.ids[0]), UNKNOWN)
        return UNKNOWN if gold.ids else NIL


def _places(gold: Sequence[GoldSpan]) -> IntArray:
    return np.array([(g.start, g.end) for g in gold], dtype=np.int64).reshape(-1, 2)


def _of_tokens(spans: IntArray, answers: IntArray, n_tokens: int) -> IntArray:
    """Answer for each token; NIL outside the spans, which do not overlap."""
    found = np.full(n_tokens, NIL)
    for (start, end), answer in zip(spans.tolist(), answers.tolist(), strict=True):
        found[start:end] = answer
    return found
