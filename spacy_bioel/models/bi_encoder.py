"""The dual encoder: an encoder of names, and one of mentions that reads the document.

`models.name_encoder.NameEncoder` stays as it is, and is one of the two towers; the other takes the
token vectors of a pipe `tok2vec` that the mention detector may share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.name_encoder import NameEncoder, Parts
from spacy_bioel.models.reading import ReadingKind, add_reading, reading_model
from spacy_bioel.models.torch_io import output_from_torch, require_torch, wrap_torch
from spacy_bioel.models.weights import weights_from_bytes, weights_to_bytes

IntArray = NDArray[np.int64]
DualEncoder = Model[Any, Floats2d]
TEMPERATURE = 0.05
_PART, _TOK2VEC = "mentions.safetensors", "tok2vec.msgpack"
# Tokens on each side of a mention that is read by itself.
_CONTEXT = 64


def build_dual_encoder_v1(
    tok2vec: Model[list[Doc], list[Floats2d]],
    names: NameEncoder,
    *,
    pooling: str = "ends",
    from_words: bool = True,
    collective: bool = True,
) -> DualEncoder:
    """Registered as `spacy-bioel.DualEncoder.v1`; see `nn.bi_encoder` for the paper.

    tok2vec (Model): A listener to the pipe that reads the documents; or, when mentions are read
        one by one, a model of its own.
    names (NameEncoder): Encodes names of concepts, e.g. `spacy-bioel.TransformerNames.v1` as in the
        paper, or the small `spacy-bioel.ResCNN.v1`.
    pooling (str): "ends" or "mean" of the mention's tokens.
    from_words (bool): Start from the vector of the mention's own words; else, as in the paper, a
        mention is only what was read in the document.
    collective (bool): Read a document once for all of its mentions. Else each mention is read by
        itself, with `_CONTEXT` tokens before and after it: the variant that the paper compares to.
    RAISES BioelError: [B175] on an unknown pooling, [B177] when a listener, which has what was read
        of whole documents, should read mentions one by one.
    """
    if pooling not in ("ends", "mean"):
        raise BioelError(Errors.B175.format(pooling=pooling))
    if not collective and is_listener(tok2vec):
        raise BioelError(Errors.B177)
    kind = ReadingKind(add=_add_tower, parts=_tower_parts, load=_load_tower)
    settings = {"pooling": pooling, "from_words": from_words}
    layers: dict[str, Model] = {"tok2vec": tok2vec, "names": names}
    return reading_model(
        "dual_encoder", kind, _forward, layers, settings=settings, collective=collective
    )


def _add_tower(model: DualEncoder) -> None:
    """The mention side; the size of the names' vectors is known now."""
    require_torch()
    model.get_ref("tok2vec").initialize()
    from spacy_bioel.nn.bi_encoder import MentionTower

    tower = MentionTower(
        width=model.get_ref("tok2vec").get_dim("nO"),
        dim=model.get_ref("names").get_dim("nO"),
        **model.attrs["settings"],
    )
    wrapper = wrap_torch(tower, convert_inputs=_to_torch, convert_outputs=output_from_torch)
    model.layers.append(wrapper)
    model.set_ref("network", wrapper)


def encode_mentions(
    model: DualEncoder, docs: Sequence[Doc], spans: IntArray, words: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Unit vectors of the mentions of a batch of documents, read in one pass.

    spans (IntArray): First token and the one after the last, counted over all documents. Shape
        (n_mentions, 2).
    words (NDArray[float32]): Vectors of the mentions' strings. Shape (n_mentions, dim).
    """
    if not len(spans):
        return words
    vectors = model.predict((list(docs), spans, words))
    return np.asarray(model.ops.to_numpy(vectors), dtype=np.float32)


def collective_loss(mentions: Any, names: Any, right: NDArray[np.bool_]) -> tuple[float, Any, Any]:
    """Loss of mentions against candidates, with its gradients by the vectors of both.

    mentions (Floats2d): Shape (n_mentions, dim).
    names (Floats2d): Shape (n_candidates, dim).
    right (NDArray[bool]): Shape (n_mentions, n_candidates).
    """
    import torch

    from spacy_bioel.nn.losses import collective_loss as loss

    left, other = xp2torch(mentions, requires_grad=True), xp2torch(names, requires_grad=True)
    value = loss(left, other, torch.from_numpy(right).to(left.device), temperature=TEMPERATURE)
    value.backward()
    d_left: Any = left.grad
    d_other: Any = other.grad
    return float(value.detach()), torch2xp(d_left), torch2xp(d_other)


def _tower_parts(model: DualEncoder) -> Parts:
    tok2vec = model.get_ref("tok2vec")
    own = {} if is_listener(tok2vec) else {_TOK2VEC: tok2vec.to_bytes}
    return {_PART: lambda: weights_to_bytes(model.get_ref("network"))} | own


def _load_tower(model: DualEncoder, parts: Mapping[str, bytes]) -> None:
    if _PART in parts:
        add_reading(model)
        weights_from_bytes(model.get_ref("network"), parts[_PART])
    if _TOK2VEC in parts:
        model.get_ref("tok2vec").from_bytes(parts[_TOK2VEC])


def is_listener(tok2vec: Model) -> bool:
    """Whether a model takes its token vectors from a pipe of the pipeline."""
    return isinstance(tok2vec, Tok2VecListener)


def one_by_one(docs: Sequence[Doc], spans: IntArray) -> tuple[list[Doc], IntArray]:
    """A document for each mention, of the words around it.

    spans (IntArray): Counted over all documents, here and in what is returned. Shape
        (n_mentions, 2).
    """
    offsets = np.cumsum([0, *(len(doc) for doc in docs)])
    owners = np.searchsorted(offsets, spans[:, 0], side="right") - 1
    alone, places, n_tokens = [], [], 0
    for owner, (start, end) in zip(owners, spans - offsets[owners, None], strict=True):
        first = max(0, int(start) - _CONTEXT)
        alone.append(docs[owner][first : int(end) + _CONTEXT].as_doc())
        places.append((n_tokens + start - first, n_tokens + end - first))
        n_tokens += len(alone[-1])
    return alone, np.array(places, dtype=np.int64).reshape(-1, 2)


def _forward(
    model: DualEncoder, inputs: tuple[list[Doc], IntArray, Any], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], Any]]:
    docs, spans, words = inputs
    if not model.attrs["collective"]:
        docs, spans = one_by_one(docs, spans)
    lengths: Any = [len(doc) for doc in docs]
    tokens, backprop_tokens = model.get_ref("tok2vec")(docs, is_train)
    # A tok2vec may return a row for an empty document; the concatenation must not have it.
    flat = model.ops.flatten([v[:n] for v, n in zip(tokens, lengths, strict=True)])
    vectors, backprop = model.get_ref("network")((flat, spans, words), is_train)

    def backprop_mentions(d_vectors: Floats2d) -> Any:
        """RETURNS (Floats2d): Gradient by `words`."""
        d_flat, d_words = backprop(d_vectors)
        backprop_tokens(model.ops.unflatten(d_flat, lengths))
        return d_words

    return vectors, backprop_mentions


def _to_torch(
    wrapper: Model, inputs: tuple[Any, IntArray, Any], is_train: bool
) -> tuple[ArgsKwargs, Callable[[ArgsKwargs], Any]]:
    import torch

    flat, spans, words = inputs
    tokens = xp2torch(flat, requires_grad=is_train)
    strings = xp2torch(words, requires_grad=is_train)
    args = (tokens, torch.from_numpy(spans).to(tokens.device), strings)

    def backprop(d_args: ArgsKwargs) -> Any:
        d_tokens, _, d_words = d_args.args
        # The words are left out of a tower that does not start from them.
        gradients = (
            torch.zeros_like(x) if d is None else d
            for x, d in ((tokens, d_tokens), (strings, d_words))
        )
        return tuple(torch2xp(d) for d in gradients)

    return ArgsKwargs(args=args, kwargs={}), backprop
