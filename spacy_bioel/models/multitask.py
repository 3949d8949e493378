"""Multi-task linker: finds, types and links mentions over the token vectors of a tok2vec.

`nn.multitask` has the network, and the paper.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, FloatsXd

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.words.lexicon import Lexicon
from spacy_bioel.models.detector import N_FEATURES, MentionBatch
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.models.reading import ReadingKind, reading_model
from spacy_bioel.models.tok2vec import Tok2Vec, forward_over_tokens, token_vectors
from spacy_bioel.models.torch_io import device_of, network_of, to_tensors
from spacy_bioel.text.windows import begins_sentence

if TYPE_CHECKING:
    from torch import Tensor, nn

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
_TASKS = ("mentions", "types", "links")
_VOCABULARIES = ("open", "closed")
NIL, UNKNOWN = 0, -100  # see `nn.multitask`, which needs torch


@dataclass(frozen=True)
class Inventory:
    """Answers that a multi-task linker can give, as its training corpus has them: labels of
    mentions, ids of concepts, and the commonest of the types of each concept's mentions."""

    types: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    type_of: tuple[int, ...] = ()


class Lesson(NamedTuple):
    """Gold answers for a batch, and random classes beside them; see `nn.multitask`."""

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
    lexicon: bool = True,
    max_width: int = 10,
    dropout: float = 0.3,
) -> Model:
    """Registered as `spacy-bioel.HierarchicalLinker.v1`; see `nn.multitask` for the paper.

    A linker with this model finds mentions itself: set `mentions = "read"`.

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
    lexicon (bool): Add features of names of the knowledge base to the token vectors.
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
    return reading_model(
        "multitask",
        _forward,
        {"tok2vec": tok2vec, "names": names},
        kind=_KIND,
        settings=settings,
        vocabulary=vocabulary,
        one_task=one_task,
        random=random,
        uses_lexicon=lexicon,
        # Set together with the network.
        lexicon=Lexicon.empty(),
        inventory=Inventory(),
    )


def _network(model: Model) -> nn.Module:
    from spacy_bioel.nn.multitask import Multitask

    inventory: Inventory = model.attrs["inventory"]
    is_open = model.attrs["vocabulary"] == "open"
    return Multitask(
        width=model.get_ref("tok2vec").get_dim("nO"),
        dim=model.get_ref("names").get_dim("nO") if is_open else 0,
        n_types=1 + len(inventory.types),
        n_classes=1 + len(inventory.classes),
        n_features=N_FEATURES,
        context=0,
        **model.attrs["settings"],
    )


def _inventory_to_bytes(inventory: Inventory) -> bytes:
    return json.dumps(vars(inventory)).encode("utf8")


def _inventory_from_bytes(data: bytes) -> Inventory:
    return Inventory(**{k: tuple(v) for k, v in json.loads(data.decode("utf8")).items()})


def _lexicon_to_bytes(lexicon: Lexicon) -> bytes:
    return save(lexicon.arrays())


def _lexicon_from_bytes(data: bytes) -> Lexicon:
    return Lexicon.from_arrays(load(data))


_KIND = ReadingKind(
    _network,
    "multitask.safetensors",
    {
        "inventory": ("multitask.json", _inventory_to_bytes, _inventory_from_bytes),
        "lexicon": ("lexicon.safetensors", _lexicon_to_bytes, _lexicon_from_bytes),
    },
)


def sentence_lengths(docs: Sequence[Doc]) -> IntArray:
    """Tokens of each sentence of the documents: what the levels read at a time, as published."""
    begins = [b for doc in docs for b in begins_sentence([token.text for token in doc])]
    return np.diff(np.append(np.flatnonzero(begins), len(begins)))


def read_states(model: Model, batch: MentionBatch) -> dict[str, Tensor]:
    """Vectors of the tokens of a batch by task: torch tensors, shape (n_tokens, size) each."""
    import torch

    layer = model.get_ref("network")
    network = network_of(layer)
    vectors = token_vectors(model.get_ref("tok2vec"), batch.docs)
    arrays = (vectors, sentence_lengths(batch.docs), batch.spans, batch.words)
    tokens, *others = to_tensors(arrays, device_of(layer))
    if not len(tokens):
        return {task: tokens.new_zeros(0, network.size) for task in network.tasks}
    with torch.inference_mode():
        found: dict[str, Tensor] = network.states(tokens, *others)
    return found


def of_states(
    model: Model, what: str, states: Mapping[str, Tensor], *arrays: NDArray
) -> FloatArray:
    """Compute from states, see `read_states`. what (str): A method of `nn.multitask.Multitask`."""
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
