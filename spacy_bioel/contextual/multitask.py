"""Multi-task linker: finds, types and links mentions over the token vectors of a tok2vec.

`contextual.token_networks` has the network, and the paper.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Model
from thinc.types import Floats2d, FloatsXd

from spacy_bioel.contextual import dual_encoder
from spacy_bioel.contextual.rescoring import (
    NetworkRescorer,
    PairScores,
    contextual_model,
    forward_over_tokens,
    weigh,
)
from spacy_bioel.doc import GoldSpan, annotated_labels, gold_spans
from spacy_bioel.entities import Mentions
from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.gazetteer import Gazetteer
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator, LinkerState
from spacy_bioel.linking.rescoring import Given
from spacy_bioel.linking.training import gold_mentions
from spacy_bioel.mentions.model import (
    N_FEATURES,
    MentionBatch,
    decode_bilou,
    encode_bilou,
    longest_spans,
)
from spacy_bioel.mentions.pipe import match_gazetteer
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.models.tok2vec import Tok2Vec, token_vectors
from spacy_bioel.models.torch_io import device_of, network_of, to_tensors
from spacy_bioel.pipe import require_token_vectors
from spacy_bioel.settings import LinkerSettings, TrainingSettings
from spacy_bioel.text.sentences import begins_sentence
from spacy_bioel.types import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor, nn

_TASKS = ("mentions", "types", "links")
_VOCABULARIES = ("open", "closed")
NIL, UNKNOWN = 0, -100  # see `contextual.token_networks`, which needs torch


@dataclass(frozen=True)
class Inventory:
    """Answers that a multi-task linker can give, as its training corpus has them: labels of
    mentions, ids of concepts, and the commonest of the types of each concept's mentions."""

    types: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    type_of: tuple[int, ...] = ()


class Lesson(NamedTuple):
    """Gold answers for a batch, and random classes beside them; see `contextual.token_networks`."""

    mentions: IntArray
    tags: IntArray
    types: IntArray
    classes: IntArray
    others: IntArray
    task: str | None


def build_hierarchical_linker_v1(
    tok2vec: Tok2Vec,
    names: NameEncoder,
    *,
    tasks: Sequence[str] = _TASKS,
    per_token: bool = False,
    vocabulary: str = "open",
    hidden: int = 128,
    layers: int = 2,
    one_task: bool = True,
    nil_weight: float = 0.125,
    random: int = 64,
    hard: int = 4,
    gazetteer: bool = True,
    max_width: int = 10,
    dropout: float = 0.3,
) -> Model:
    """Registered as `spacy-bioel.HierarchicalLinker.v1`; `contextual.token_networks` has the paper.

    A linker with this model finds mentions itself: set `mentions = "model"`.

    tok2vec (Model): A listener to a shared pipe `tok2vec`, or a tok2vec of its own.
    names (NameEncoder): Encoder of the names that mentions are compared with.
    tasks (Sequence[str]): "links", and before it "mentions", "types" or both; or "mentions" alone,
        which are then not linked. One task is the paper's single-task model.
    per_token (bool): Give each token a type and a class ("PT"): a mention is a run of tokens of one
        class, so that mentions cannot overlap. Else tag tokens (BILOU), and classify the mean of a
        mention's tokens ("PE").
    vocabulary (str): "closed": link to the concepts of the training mentions, as published; "open":
        compare the mention with all names of the knowledge base too, and link to the nearest.
    hidden, layers (int): Size of each direction, and depth, of the LSTM of each task, which reads
        what the task below has found; `hidden = 0`: all tasks read the token vectors.
    one_task (bool): Learn one task an update, drawn at random in proportion to its examples; the
        token vectors learn from linking alone. Else the sum of all.
    nil_weight (float): Weight of tokens outside mentions, and of mentions without a concept.
    random, hard (int): Classes that the right ones are told from, beside those of the batch: drawn
        for the batch, and those of highest score for each token or mention. 0 and 0: as published.
    gazetteer (bool): Add features of names of the knowledge base to the token vectors.
    max_width (int): The longest such name in tokens.
    dropout (float): On the vectors that each level reads, in training.
    RAISES BioelError: [B300] on settings that do not go together.
    """
    known = [task for task in _TASKS if task in tasks]
    problem = None
    if known != list(tasks) or (known[-1:] != ["links"] and known != ["mentions"]):
        problem = f"tasks = {list(tasks)}"
    elif vocabulary not in _VOCABULARIES:
        problem = f'vocabulary = "{vocabulary}"'
    elif vocabulary == "open" and (per_token or "links" not in known):
        problem = f'vocabulary = "open", per_token = {per_token} and tasks = {known}'
    if problem:
        raise BioelError(Errors.B300.format(problem=problem, tasks=list(_TASKS)))
    settings = {
        "tasks": known,
        "per_token": per_token,
        "hidden": hidden,
        "layers": layers,
        "nil_weight": nil_weight,
        "hard": hard,
        "max_width": max_width,
        "dropout": dropout,
    }
    return contextual_model(
        "multitask",
        MultitaskRescorer,
        {"tok2vec": tok2vec, "names": names},
        forward=_forward,
        settings=settings,
        vocabulary=vocabulary,
        one_task=one_task,
        random=random,
        uses_gazetteer=gazetteer,
        # Set together with the network.
        gazetteer=Gazetteer.empty(),
        inventory=Inventory(),
    )


def sentence_lengths(docs: Sequence[Doc]) -> IntArray:
    """Tokens of each sentence of the documents: what the levels read at a time, as published."""
    begins = [b for doc in docs for b in begins_sentence([token.text for token in doc])]
    return np.diff(np.append(np.flatnonzero(begins), len(begins)))


def of_states(
    model: Model, what: str, states: Mapping[str, Tensor], *arrays: NDArray
) -> FloatArray:
    """Compute from the result of `read_documents`. what (str): A method of `Multitask`."""
    import torch

    layer = model.get_ref("network")
    with torch.inference_mode():
        compute = getattr(network_of(layer), what)
        found: FloatArray = compute(states, *to_tensors(arrays, device_of(layer))).cpu().numpy()
    return found


def _forward(
    model: Model, inputs: tuple[MentionBatch, Lesson, Floats2d], is_train: bool
) -> tuple[tuple[Floats2d, float], Callable[[Floats2d], FloatsXd]]:
    """From a batch, its gold answers and vectors of the mentions' strings to vectors of the
    mentions, and the loss. The callback takes the gradient of the vectors; it adds that of the loss
    and returns that of the strings."""
    batch, lesson, strings = inputs
    others = (sentence_lengths(batch.docs), batch.spans, batch.words, strings, *lesson)
    (vectors, loss), backprop = forward_over_tokens(model, batch.docs, others, is_train)

    def backprop_strings(d_vectors: Floats2d) -> FloatsXd:
        return backprop((d_vectors, model.ops.xp.ones_like(loss)))[0]

    return (vectors, float(loss)), backprop_strings


Scores = NDArray[np.floating]
_ABSENT = -20.0  # log-odds of a concept that is no class
_UNTYPED = "Mention"  # label of what is neither typed nor linked


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


def read_documents(model: Model[Any, Any], docs: Sequence[Doc]) -> dict[str, Any]:
    """Vectors of the tokens of documents by task: torch tensors, shape (n_tokens, size) each.

    RAISES BioelError: [B174] when the pipe that reads the documents has not been there.
    """
    import torch

    require_token_vectors(model, docs)
    batch, layer = _matched(model, docs), model.get_ref("network")
    network = network_of(layer)
    vectors = token_vectors(model.get_ref("tok2vec"), batch.docs)
    arrays = (vectors, sentence_lengths(batch.docs), batch.spans, batch.words)
    tokens, *others = to_tensors(arrays, device_of(layer))
    if not len(tokens):
        return {task: tokens.new_zeros(0, network.size) for task in network.tasks}
    with torch.inference_mode():
        found: dict[str, Any] = network.states(tokens, *others)
    return found


def _matched(model: Model[Any, Any], docs: Sequence[Doc]) -> MentionBatch:
    width = model.attrs["settings"]["max_width"]
    return match_gazetteer(model.attrs["gazetteer"], list(docs), max_width=width)


def _runs(classes: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Runs of tokens of one class in a document: their places, shape (n, 2), and classes, (n,)."""
    is_first = np.diff(classes, prepend=-1) != 0
    is_first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    start = np.flatnonzero(is_first)
    places = np.stack([start, np.append(start, len(classes))[1:]], axis=1).astype(np.int64)
    found = classes[start]
    return places[found != NIL], found[found != NIL]


class Training(dual_encoder.Training):
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


class MultitaskRescorer(NetworkRescorer):
    training = Training
    file = "multitask.safetensors"
    stored = {
        "inventory": (
            "multitask.json",
            lambda inventory: json.dumps(vars(inventory)).encode("utf8"),
            lambda data: Inventory(**{k: tuple(v) for k, v in json.loads(data).items()}),
        ),
        "gazetteer": (
            "gazetteer.safetensors",
            lambda gazetteer: save(gazetteer.arrays()),
            lambda data: Gazetteer.from_arrays(load(data)),
        ),
    }

    @property
    def finds_mentions(self) -> bool:
        """Whether the model tags mentions, or classifies each token."""
        settings = self.model.attrs["settings"]
        return settings["per_token"] or "mentions" in settings["tasks"]

    def make_network(self) -> nn.Module:
        from spacy_bioel.contextual.token_networks import Multitask

        model = self.model
        inventory: Inventory = model.attrs["inventory"]
        is_open = model.attrs["vocabulary"] == "open"
        return Multitask(
            width=model.get_ref("tok2vec").get_dim("nO"),
            dim=model.get_ref("names").get_dim("nO") if is_open else 0,
            n_types=1 + len(inventory.types),
            n_classes=1 + len(inventory.classes),
            n_features=N_FEATURES,
            **model.attrs["settings"],
        )

    def collect(self, examples: Iterable[Example], kb: KnowledgeBase, *, gold_key: str) -> None:
        """Collect types, classes and the gazetteer.

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
        self.model.attrs["inventory"] = Inventory(
            tuple(names),
            tuple(classes),
            tuple(names.index(of_classes[id_].most_common(1)[0][0]) for id_ in classes),
        )
        if self.model.attrs["uses_gazetteer"]:
            self.model.attrs["gazetteer"] = Gazetteer.from_kb(kb)

    def find(self, docs: Iterable[Doc], settings: LinkerSettings) -> Mentions:
        """RAISES BioelError: [B174] when the pipe that reads the documents has not been there."""
        model, docs = self.model, list(docs)
        states = read_documents(model, docs)
        lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
        if model.attrs["settings"]["per_token"]:
            logits = of_states(model, "class_logits", states)
            places, classes = _runs(logits.argmax(axis=1), lengths)
        else:
            places, _, _ = decode_bilou(of_states(model, "tag_logits", states), lengths)
            classes = None
        labels = _labels(model, states, places, classes)
        offsets = np.cumsum(lengths) - lengths
        owners = np.searchsorted(offsets, places[:, 0], side="right") - 1
        spans: list[list[Span]] = [[] for _ in docs]
        within = places - offsets[owners, None]
        of_spans = zip(owners.tolist(), within.tolist(), labels, strict=True)
        for owner, (start, end), label in of_spans:
            spans[owner].append(Span(docs[owner], start, end, label=label))
        return Mentions.of(docs, spans, settings, states=states)

    def read(self, generator: CandidateGenerator, mentions: Mentions, given: Given) -> PairScores:
        """Pairs: the candidates of the strings, and those of the model's vocabulary."""
        model = self.model
        states = mentions.states or read_documents(model, mentions.docs)
        places = mentions.token_ranges()
        if "links" not in states:
            return weigh(generator.kb, given, lambda m, c: np.zeros(len(m)), temperature=1.0)
        if model.attrs["vocabulary"] == "open":
            words = dual_encoder.encode_strings(generator, mentions.strings)
            vectors = of_states(model, "mention_vectors", states, places, words)
            return dual_encoder.compare(generator, mentions, given, vectors)
        kb, logits = generator.kb, of_states(model, "class_logits", states, places)
        odds = logits[:, 1:] - logits[:, :1]  # of the classes against NIL
        rows = kb.find_all(model.attrs["inventory"].classes)  # -1: another knowledge base
        k = min(generator.state.settings.max_candidates, len(rows))
        best = np.argpartition(-odds, k - 1, axis=1)[:, :k] if k else np.zeros((len(odds), 0), int)
        owner, concept = np.repeat(np.arange(len(best)), k), rows[best.ravel()]
        owner, concept = owner[concept >= 0], concept[concept >= 0]
        may = generator.allowed(concept, mentions.labels, owner)
        order = np.argsort(rows, kind="stable")

        def score(mention: IntArray, concept: IntArray) -> Scores:
            place = np.minimum(np.searchsorted(rows, concept, sorter=order), len(rows) - 1)
            kind = order[place]
            return np.where(rows[kind] == concept, odds[mention, kind], _ABSENT)

        return weigh(kb, given, score, owner[may], concept[may], temperature=1.0)
