"""Probe name encoders: accuracy with shuffled word pieces and with narrow attention.

python -m benchmarks.run probing SYSTEM CORPUS MODEL probes the linker of a pipeline on the
development documents of a corpus of the project; `spacy project run probe` does so for the trained
pipeline. Word pieces of mentions and names are shuffled in blocks of one, two or three, or
attention is limited to a window of 3 or 5 tokens. Only dense search is used: a mention is right if
its nearest name belongs to a gold concept. All names are encoded eight times.

Lai, Ji and Zhai (2021), BERT might be Overkill: A Tiny but Effective Biomedical Entity Linker
based on Residual Convolutional Neural Networks, https://aclanthology.org/2021.findings-emnlp.140,
table 1.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import spacy
import torch
from numpy.typing import NDArray
from spacy.language import Language
from torch import nn

from benchmarks.record import Row, SeedOption, question
from benchmarks.texts import dev
from spacy_bioel.batch import Batch
from spacy_bioel.kb.vectors import ExactIndex, quantize
from spacy_bioel.linking.pipe import Linker
from spacy_bioel.models.name_encoder import NameEncoder, encode_pieces, get_network, piece_ids
from spacy_bioel.settings import LinkerSettings
from spacy_bioel.text.normalize import normalize_name
from spacy_bioel.types import AnnotatedText

# (length, is last layer) -> True where a token (row) may look at a token (column). Shape
# (length, length); every token may look at itself.
Attention = Callable[[int, bool], NDArray[np.bool_]]
_NAMES_PER_BLOCK = 4096  # encoded at a time


class Perturbation(NamedTuple):
    """A perturbation of the encoder, one row of the table.

    block (int): Word pieces of a shuffled block; 0: no shuffling.
    window (int): Tokens that a token may attend to, centred on it; 0: all.
    cls_open (bool): True: [CLS] attends to all tokens, and they to it, in every layer (the code of
        the paper). False: [CLS] attends to all tokens in the last layer only (its text).
    """

    block: int = 0
    window: int = 0
    cls_open: bool = False


PERTURBATIONS = {
    "unperturbed": Perturbation(),
    "shuffle_unigram": Perturbation(block=1),
    "shuffle_bigram": Perturbation(block=2),
    "shuffle_trigram": Perturbation(block=3),
    "window_3_paper": Perturbation(window=3),
    "window_3_code": Perturbation(window=3, cls_open=True),
    "window_5_paper": Perturbation(window=5),
    "window_5_code": Perturbation(window=5, cls_open=True),
}


@question("probing", key=("system", "corpus", "protocol", "seed"))
def probing(system: str, corpus: str, model: Path, seed: SeedOption = 0) -> Iterator[Row]:
    nlp = spacy.load(model)
    linker: Any = nlp.get_pipe("bioel_linker")
    queries, gold = gold_queries(nlp, linker, dev(corpus))
    about: Row = {"system": system, "corpus": corpus, "split": "dev", "seed": seed}
    about |= {"n": len(queries), "metric": "accuracy@1", "kb_fingerprint": linker.kb.fingerprint}
    accuracies = probe(linker, queries, gold, seed=seed)
    whole = accuracies["unperturbed"]
    for name, value in accuracies.items():
        change = round(100 * (value - whole) / whole, 2) if name != "unperturbed" else None
        yield {**about, "protocol": name, "value": round(value, 2), "relative_change": change}


def gold_queries(
    nlp: Language, linker: Linker, texts: Iterable[AnnotatedText]
) -> tuple[list[str], list[frozenset[int]]]:
    """Return the looked-up strings of gold mentions with ids, and the rows of their concepts.

    A mention does not have rows if the knowledge base lacks its ids.
    """
    queries: list[str] = []
    gold: list[frozenset[int]] = []
    for text in texts:
        doc = nlp.make_doc(text.text)
        mentions = [mention for mention in text.mentions if mention.ids]
        spans = [doc.char_span(m.start, m.end, m.label, alignment_mode="expand") for m in mentions]
        known = [span for span in spans if span is not None]
        strings = iter(Batch.of([doc], [known], LinkerSettings.of(linker.cfg)).strings)
        for span, mention in zip(spans, mentions, strict=True):
            queries.append(next(strings) if span is not None else "")
            rows = linker.kb.find_all(list(mention.ids))
            gold.append(frozenset(rows[rows >= 0].tolist()))
    return queries, gold


def probe(
    linker: Linker, queries: Sequence[str], gold: Sequence[frozenset[int]], *, seed: int
) -> dict[str, float]:
    """Return the percentage of queries whose nearest name has a gold concept, by perturbation.

    Windows are measured only if the network uses attention.

    seed (int): Of the shuffles; every name and every mention is shuffled separately.
    """
    has_attention = bool(attention_layers(get_network(linker.model)))
    names = [normalize_name(name) for name in linker.kb.names]
    accuracies = {}
    for name, perturbation in PERTURBATIONS.items():
        if not perturbation.window or has_attention:
            nearest = _nearest(linker.model, names, queries, perturbation, seed)
            indptr, concepts, _ = linker.kb.concepts_of_names(nearest)
            right = sum(
                not rows.isdisjoint(concepts[indptr[i] : indptr[i + 1]].tolist())
                for i, rows in enumerate(gold)
            )
            accuracies[name] = 100 * right / len(queries)
    return accuracies


def _nearest(
    model: NameEncoder,
    names: Sequence[str],
    queries: Sequence[str],
    perturbation: Perturbation,
    seed: int,
) -> NDArray[np.int64]:
    """Return the row of the nearest name of each query; -1 for an empty one. Shape (n_queries,)."""
    generator = np.random.default_rng([seed, perturbation.block])
    strings = [*names, *queries]
    vectors = np.zeros((len(strings), model.get_dim("nO")), dtype=np.float32)
    with ExitStack() as stack:
        if perturbation.window:
            mask = partial(window_mask, window=perturbation.window, cls_open=perturbation.cls_open)
            stack.enter_context(restricted_attention(get_network(model), mask))
        for start in range(0, len(strings), _NAMES_PER_BLOCK):
            block = strings[start : start + _NAMES_PER_BLOCK]
            batches = list(_shuffled_batches(model, block, perturbation.block, generator))
            vectors[start : start + _NAMES_PER_BLOCK] = encode_pieces(model, batches)
    index = ExactIndex(quantize(vectors[: len(names)]))
    rows = index.search(vectors[len(names) :], 1)[0][:, 0]
    return np.where([query != "" for query in queries], rows, -1)


def _shuffled_batches(
    model: NameEncoder, names: Sequence[str], block: int, generator: np.random.Generator
) -> Iterator[list[list[int]]]:
    """Yield batches of shuffled word pieces of names; special pieces keep their place."""
    first, last = len(model.attrs["prefix"]), len(model.attrs["suffix"])
    size = model.attrs["batch_size"]
    for start in range(0, len(names), size):
        batch = piece_ids(model, names[start : start + size])
        if block:
            for ids in batch:
                inner = slice(first, len(ids) - last)
                ids[inner] = shuffle_blocks(ids[inner], block=block, generator=generator)
        yield batch


def shuffle_blocks(
    pieces: Sequence[int], *, block: int, generator: np.random.Generator
) -> list[int]:
    """Cut word pieces into blocks, the last of which may be shorter, and permute the blocks."""
    blocks = [pieces[start : start + block] for start in range(0, len(pieces), block)]
    return [piece for i in generator.permutation(len(blocks)) for piece in blocks[i]]


def window_mask(length: int, last: bool, *, window: int, cls_open: bool) -> NDArray[np.bool_]:
    """Return True where a token (row) may attend to a token (column); [CLS] is token 0.

    last (bool): Whether this is the last layer.
    RETURNS (NDArray): Shape (length, length).
    """
    places = np.arange(length)
    allowed = np.abs(places[:, None] - places) <= window // 2
    if cls_open or last:
        allowed[0] = True
    if cls_open:
        allowed[:, 0] = True
    return allowed


def attention_layers(network: nn.Module) -> list[nn.Module]:
    """Return the layers of the network's backbone, in order; [] if they do not take a mask.

    network (Module): A network of names, e.g. `contextual.networks.NameTransformer`.
    """
    backbone: Any = getattr(network, "backbone", None)
    if backbone is None:
        return []
    n = backbone.config.num_hidden_layers
    for module in backbone.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n:
            takes_mask = "attention_mask" in inspect.signature(module[0].forward).parameters
            return list(module) if takes_mask else []
    return []


@contextmanager
def restricted_attention(network: nn.Module, attention: Attention) -> Iterator[None]:
    """Give each layer its mask within the context.

    A mask depends only on the length of the layer's input, so that threads can share the network.
    """
    layers = attention_layers(network)
    with ExitStack() as hooks:
        for layer in layers:
            hook = partial(_set_mask, attention=attention, last=layer is layers[-1])
            hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _set_mask(
    layer: nn.Module, args: tuple, kwargs: dict[str, Any], *, attention: Attention, last: bool
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of the layer with an additive mask, by position or by name.

    The first argument is the hidden states, shape (n_names, length, dim).
    """
    bound = inspect.signature(layer.forward).bind(*args, **kwargs)
    states = next(iter(bound.arguments.values()))
    length = states.shape[1]
    allowed = torch.from_numpy(attention(length, last))
    mask = torch.zeros(1, 1, length, length).masked_fill(~allowed, -torch.inf)
    bound.arguments["attention_mask"] = mask.to(states.device)
    return bound.args, bound.kwargs
