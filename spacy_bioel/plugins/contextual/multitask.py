"""Multi-task linker: finds, types and links mentions with token vectors from a single tok2vec.

See `contextual.token_networks` for the network and the paper.
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

from spacy_bioel.batch import Batch
from spacy_bioel.doc import GoldSpan, annotated_labels, gold_spans
from spacy_bioel.errors import BioelError, Warnings
from spacy_bioel.kb.columns import find_sorted
from spacy_bioel.kb.gazetteer import Gazetteer
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.candidates import CandidateGenerator
from spacy_bioel.linking.training import gold_mentions
from spacy_bioel.mentions.model import (
    N_FEATURES,
    MentionBatch,
    decode_bilou,
    encode_bilou,
    longest_spans,
)
from spacy_bioel.mentions.pipe import match_gazetteer
from spacy_bioel.models.inference import Tok2Vec, token_vectors
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.models.torch_io import device_of, network_of, to_tensors
from spacy_bioel.pipe import require_token_vectors
from spacy_bioel.plugins.contextual import dual_encoder
from spacy_bioel.plugins.contextual.errors import ContextualErrors
from spacy_bioel.plugins.contextual.rescoring import (
    PairScores,
    TokenVectorRescorer,
    contextual_model,
    forward_over_tokens,
    rescore_pairs,
    token_ranges,
)
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.text.sentences import begins_sentence
from spacy_bioel.types import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor, nn

_TASKS = ("mentions", "types", "links")
# Copies of NIL_CLASS and UNKNOWN_CLASS, because importing `token_networks` would import torch.
_NIL_TARGET, _UNKNOWN_TARGET = 0, -100


@dataclass(frozen=True)
class Inventory:
    """Labels (`types`) and concepts (`classes`) that a model can predict, taken from its training
    corpus. `type_of` is the index of the most frequent label among each concept's mentions."""

    types: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    type_of: tuple[int, ...] = ()


class MultitaskTargets(NamedTuple):
    """Targets for a batch, with random additional classes (`others`) and the task to train. See
    `token_networks.Multitask`."""

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
    """Registered as `spacy-bioel.HierarchicalLinker.v1`; see `contextual.token_networks`.

    A linker with this model can find mentions itself: set `mentions = "model"`.

    tok2vec (Model): A listener to a shared `tok2vec` pipe, or a separate tok2vec.
    names (NameEncoder): Encoder of the names that mentions are compared with.
    tasks (Sequence[str]): "links", optionally preceded by "mentions", "types" or both; or
        "mentions" alone, without linking. A single task is the paper's single-task model.
    per_token (bool): Assign a type and a class to each token ("PT"): a mention is a run of tokens
        with the same class, so mentions cannot overlap. Otherwise tag tokens (BILOU), and classify
        the mean of a mention's tokens ("PE").
    vocabulary (str): "closed": link only to concepts of the training mentions, as published;
        "open": compare the mention with all names of the knowledge base, and link to the nearest.
    hidden, layers (int): Size of each direction, and number of layers, of each task's LSTM, whose
        input includes the output of the task below. `hidden = 0`: tasks use token vectors directly.
    one_task (bool): Train one random task in each update, and the token vectors by linking only.
        Otherwise train all tasks in each update, with the sum of their losses.
    nil_weight (float): Weight of tokens outside mentions, and of mentions without a concept.
    random, hard (int): Number of wrong classes that the loss includes in addition to the classes in
        the batch: random classes for the batch, and the highest-scoring classes for each token or
        mention. Both are 0 in the paper.
    gazetteer (bool): Add features for knowledge base names to the token vectors.
    max_width (int): Maximum length of a name in the gazetteer, in tokens.
    dropout (float): Dropout on the input of each level during training.
    RAISES BioelError: [B300] if settings are incompatible.
    """
    sorted_tasks = [task for task in _TASKS if task in tasks]
    problem = None
    is_complete = sorted_tasks[-1:] == ["links"] or sorted_tasks == ["mentions"]
    if sorted_tasks != list(tasks) or not is_complete:
        problem = f"tasks = {list(tasks)}"
    elif vocabulary not in ("open", "closed"):
        problem = f'vocabulary = "{vocabulary}"'
    elif vocabulary == "open" and (per_token or "links" not in sorted_tasks):
        problem = f'vocabulary = "open", per_token = {per_token} and tasks = {sorted_tasks}'
    if problem:
        raise BioelError(ContextualErrors.B300.format(problem=problem, tasks=list(_TASKS)))
    settings = {
        "tasks": sorted_tasks,
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
        forward=_multitask_forward,
        settings=settings,
        vocabulary=vocabulary,
        one_task=one_task,
        random=random,
        uses_gazetteer=gazetteer,
        # The next two attributes are set together with the network.
        gazetteer=Gazetteer(),
        inventory=Inventory(),
    )


def sentence_lengths(docs: Sequence[Doc]) -> IntArray:
    """Return each sentence's token count. As in the paper, LSTMs read one sentence at a time."""
    is_first = [b for doc in docs for b in begins_sentence([token.text for token in doc])]
    return np.diff(np.append(np.flatnonzero(is_first), len(is_first)))


def compute_from_states(
    model: Model, method: str, states: Mapping[str, Tensor], *arrays: NDArray
) -> FloatArray:
    """Call a `Multitask` method with the states from `encode_documents` and additional arrays."""
    import torch

    layer = model.get_ref("network")
    with torch.inference_mode():
        compute = getattr(network_of(layer), method)
        return compute(states, *to_tensors(arrays, device_of(layer))).cpu().numpy()


def _multitask_forward(
    model: Model, inputs: tuple[MentionBatch, MultitaskTargets, Floats2d], is_train: bool
) -> tuple[tuple[Floats2d, float], Callable[[Floats2d], FloatsXd]]:
    """Compute a batch's mention vectors and loss. The callback takes the mention vectors' gradient
    and returns the gradient of the mention strings' vectors."""
    batch, targets, strings = inputs
    more_inputs = (sentence_lengths(batch.docs), batch.spans, batch.words, strings, *targets)
    (vectors, loss), backprop = forward_over_tokens(model, batch.docs, more_inputs, is_train)

    def backprop_strings(d_vectors: Floats2d) -> FloatsXd:
        return backprop((d_vectors, model.ops.xp.ones_like(loss)))[0]

    return (vectors, float(loss)), backprop_strings


_NO_CLASS_LOG_ODDS = -20.0  # score of a concept that is not among the model's classes
_UNTYPED_LABEL = "Mention"  # label used if neither types nor links are predicted


def _mention_labels(
    model: Model[Any, Any], states: dict[str, Any], spans: IntArray, classes: IntArray | None
) -> list[str]:
    """Return a label for each mention: the predicted type or, if types are not predicted, the most
    frequent label of its class. If `classes` is None, the most probable class is used."""
    inventory: Inventory = model.attrs["inventory"]
    if "types" in states:
        types = compute_from_states(model, "type_logits", states, spans)[:, 1:].argmax(axis=1)
    elif "links" not in states:
        return [_UNTYPED_LABEL] * len(spans)
    else:
        if classes is None:
            logits = compute_from_states(model, "class_logits", states, spans)
            classes = 1 + logits[:, 1:].argmax(axis=1)
        types = np.array(inventory.type_of, dtype=np.int64)[classes - 1]
    return [inventory.types[i] for i in types.tolist()]


def encode_documents(model: Model[Any, Any], docs: Sequence[Doc]) -> dict[str, Any]:
    """Return the token vectors for each task, as torch tensors of shape (n_tokens, size).

    RAISES BioelError: [B174] if the `tok2vec` pipe did not run on the documents.
    """
    import torch

    require_token_vectors(model, docs)
    batch, layer = _match_names(model, docs), model.get_ref("network")
    network = network_of(layer)
    vectors = token_vectors(model.get_ref("tok2vec"), batch.docs)
    arrays = (vectors, sentence_lengths(batch.docs), batch.spans, batch.words)
    tokens, *more_inputs = to_tensors(arrays, device_of(layer))
    if not len(tokens):
        return {task: tokens.new_zeros(0, network.size) for task in network.tasks}
    with torch.inference_mode():
        return network.states(tokens, *more_inputs)


def _match_names(model: Model[Any, Any], docs: Sequence[Doc]) -> MentionBatch:
    width = model.attrs["settings"]["max_width"]
    return match_gazetteer(model.attrs["gazetteer"], list(docs), max_width=width)


def _class_runs(classes: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Return runs of tokens with the same non-NIL class, (n, 2), and their classes, (n,)."""
    is_first = np.diff(classes, prepend=-1) != 0
    is_first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    start = np.flatnonzero(is_first)
    spans = np.stack([start, np.append(start, len(classes))[1:]], axis=1).astype(np.int64)
    span_classes = classes[start]
    is_mention = span_classes != _NIL_TARGET
    return spans[is_mention], span_classes[is_mention]


class MultitaskTraining(dual_encoder.DualEncoderTraining):
    """Trains all tasks and, with an open vocabulary, both towers of a dual encoder."""

    with_all_mentions = True
    _task: str | None = None  # the task that the current update trains; None: all tasks

    def update(self, examples: Sequence[Example]) -> float | None:
        if not any(len(example.predicted) for example in examples):
            return None
        # The paper draws each task in proportion to its number of examples. Here, all tasks have
        # the same documents, so they are equally likely.
        tasks = self.model.attrs["settings"]["tasks"]
        self._task = str(self._random.choice(tasks)) if self.model.attrs["one_task"] else None
        if self.model.attrs["vocabulary"] == "open" and self._task in (None, "links"):
            return super().update(examples)
        gold, _ = gold_mentions(examples, self.state.settings, with_all=True)
        no_strings = self.model.ops.alloc2f(len(gold), 0)
        vectors, backprop, loss = self.encode_gold(examples, gold, no_strings)
        backprop(vectors)
        return loss

    def encode_gold(
        self, examples: Sequence[Example], gold: Batch, string_vectors: Floats2d
    ) -> tuple[Any, Any, float]:
        batch = _match_names(self.model, gold.docs)
        inputs = (batch, self._targets(examples), string_vectors)
        (vectors, loss), backprop = self.model.begin_update(inputs)
        return vectors, backprop, loss

    def _targets(self, examples: Sequence[Example]) -> MultitaskTargets:
        inventory: Inventory = self.model.attrs["inventory"]
        type_of = {label: 1 + i for i, label in enumerate(inventory.types)}
        class_of = {id_: 1 + i for i, id_ in enumerate(inventory.classes)}
        spans_by_doc, type_targets, class_targets = [], [], []
        n_tokens = 0
        for example in examples:
            gold = list(gold_spans(example, key=self.state.settings.gold_key))
            spans_by_doc.append(_span_bounds(gold) + n_tokens)
            type_targets += [type_of.get(g.label, _UNKNOWN_TARGET) for g in gold]
            class_targets += [self._class(g, class_of) for g in gold]
            n_tokens += len(example.predicted)
        spans = np.concatenate(spans_by_doc)
        kept = longest_spans(spans)
        types, classes = np.array(type_targets, np.int64), np.array(class_targets, np.int64)
        if self.model.attrs["settings"]["per_token"]:
            types = _targets_by_token(spans[kept], types[kept], n_tokens)
            classes = _targets_by_token(spans[kept], classes[kept], n_tokens)
        n_classes = len(inventory.classes)
        n_others = self.model.attrs["random"] if n_classes else 0
        others = self._random.integers(1, 1 + n_classes, size=n_others)
        tags = encode_bilou(spans[kept], n_tokens)
        return MultitaskTargets(spans, tags, types, classes, others, self._task)

    def _class(self, gold: GoldSpan, class_of: dict[str, int]) -> int:
        if len(gold.ids) == 1:
            return class_of.get(self.kb.canonical(gold.ids[0]), _UNKNOWN_TARGET)
        return _UNKNOWN_TARGET if gold.ids else _NIL_TARGET


def _span_bounds(gold: Sequence[GoldSpan]) -> IntArray:
    return np.array([(g.start, g.end) for g in gold], dtype=np.int64).reshape(-1, 2)


def _targets_by_token(spans: IntArray, targets: IntArray, n_tokens: int) -> IntArray:
    """Return the target for each token, or NIL outside the spans. The spans must not overlap."""
    by_token = np.full(n_tokens, _NIL_TARGET)
    for (start, end), target in zip(spans.tolist(), targets.tolist(), strict=True):
        by_token[start:end] = target
    return by_token


class MultitaskRescorer(TokenVectorRescorer):
    """Rescores candidates by predicted classes, or by the similarity of mentions and names."""

    training = MultitaskTraining
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
        """Whether the model can find mentions: it must tag them or classify each token."""
        settings = self.model.attrs["settings"]
        return settings["per_token"] or "mentions" in settings["tasks"]

    def make_network(self) -> nn.Module:
        from spacy_bioel.plugins.contextual.token_networks import Multitask

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
        """Collect types and classes from the training mentions, and build the gazetteer.

        Warns [W300] about gold mentions that tags cannot represent.
        RAISES BioelError: [B332] if documents annotate different labels.
        """
        types: Counter[str] = Counter()
        types_of_classes: dict[str, Counter[str]] = {}
        n_overlapping = 0
        annotated: set[tuple[str, ...]] = set()
        for example in examples:
            annotated.add(annotated_labels(example.reference, key=gold_key))
            gold = list(gold_spans(example, key=gold_key))
            n_overlapping += int((~longest_spans(_span_bounds(gold))).sum())
            for span in gold:
                types[span.label] += 1
                if len(span.ids) == 1 and kb.find(span.ids[0]) >= 0:
                    id_ = kb.canonical(span.ids[0])
                    types_of_classes.setdefault(id_, Counter())[span.label] += 1
        if len(annotated) > 1:
            found = "; ".join(sorted(", ".join(labels) or "all" for labels in annotated))
            raise BioelError(ContextualErrors.B332.format(found=found))
        if n_overlapping:
            n = sum(types.values())
            warnings.warn(Warnings.W300.format(n=n_overlapping, of=n), stacklevel=2)
        labels, classes = sorted(types), sorted(types_of_classes)
        main_labels = [types_of_classes[id_].most_common(1)[0][0] for id_ in classes]
        self.model.attrs["inventory"] = Inventory(
            tuple(labels), tuple(classes), tuple(labels.index(label) for label in main_labels)
        )
        if self.model.attrs["uses_gazetteer"]:
            self.model.attrs["gazetteer"] = Gazetteer.from_kb(kb)

    def find(self, docs: Iterable[Doc], settings: LinkerSettings) -> Batch:
        """Find mentions, labelled with their types. RAISES BioelError: See `encode_documents`."""
        model, docs = self.model, list(docs)
        states = encode_documents(model, docs)
        lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
        if model.attrs["settings"]["per_token"]:
            logits = compute_from_states(model, "class_logits", states)
            bounds, classes = _class_runs(logits.argmax(axis=1), lengths)
        else:
            logits = compute_from_states(model, "tag_logits", states)
            bounds, _, _ = decode_bilou(logits, lengths)
            classes = None
        labels = _mention_labels(model, states, bounds, classes)
        offsets = np.cumsum(lengths) - lengths
        owners = np.searchsorted(offsets, bounds[:, 0], side="right") - 1
        bounds_in_doc = (bounds - offsets[owners, None]).tolist()
        spans: list[list[Span]] = [[] for _ in docs]
        for owner, (start, end), label in zip(owners.tolist(), bounds_in_doc, labels, strict=True):
            spans[owner].append(Span(docs[owner], start, end, label=label))
        return Batch.of(docs, spans, settings, states=states)

    def score(self, generator: CandidateGenerator, batch: Batch) -> PairScores:
        """Score the string candidates and the concepts that the model proposes."""
        model, kb = self.model, generator.kb
        states = batch.states or encode_documents(model, batch.docs)
        spans = token_ranges(batch)
        if "links" not in states:
            return rescore_pairs(kb, batch.candidates, lambda m, _: 0.0 * m, temperature=1.0)
        if model.attrs["vocabulary"] == "open":
            strings = dual_encoder.encode_strings(generator, batch.strings)
            vectors = compute_from_states(model, "mention_vectors", states, spans, strings)
            return dual_encoder.rescore_by_vectors(generator, batch, vectors)
        logits = compute_from_states(model, "class_logits", states, spans)
        log_odds = logits[:, 1:] - logits[:, :1]  # log-odds of each class against NIL
        class_rows = kb.find_all(model.attrs["inventory"].classes)  # -1: concept not in this KB
        k = min(generator.state.settings.max_candidates, len(class_rows))
        best = np.zeros((len(spans), 0), np.int64)
        if k:  # argpartition fails if there are no classes
            best = np.argpartition(-log_odds, k - 1, axis=1)[:, :k]
        owner, concept = np.repeat(np.arange(len(best)), k), class_rows[best.ravel()]
        owner, concept = owner[concept >= 0], concept[concept >= 0]
        is_allowed = generator.allowed(concept, batch.labels, owner)
        owner, concept = owner[is_allowed], concept[is_allowed]
        order = np.argsort(class_rows, kind="stable")

        def pair_log_odds(mention: IntArray, concept: IntArray) -> NDArray[np.floating]:
            position, is_class = find_sorted(class_rows[order], concept)
            return np.where(is_class, log_odds[mention, order[position]], _NO_CLASS_LOG_ODDS)

        return rescore_pairs(kb, batch.candidates, pair_log_odds, owner, concept, temperature=1.0)
