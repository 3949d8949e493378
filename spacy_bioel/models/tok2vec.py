"""Token vectors that a network is trained on, and the files of the tok2vec that they come from.

The tok2vec is a listener to a pipe `tok2vec`, which is saved with that pipe, or the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from spacy_bioel.models.name_encoder import Parts

_OWN = "tok2vec.msgpack"


def is_listener(tok2vec: Model) -> bool:
    """Whether a model is a listener to a pipe `tok2vec`."""
    return isinstance(tok2vec, Tok2VecListener)


def read_tokens(
    tok2vec: Model, docs: list[Doc], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], Any]]:
    """Vectors of the tokens of all documents, shape (n_tokens, width), and their callback."""
    lengths: Any = [len(doc) for doc in docs]
    found, backprop = tok2vec(docs, is_train)
    # Some tok2vec models return a row for an empty document: cut each array to its document.
    flat = tok2vec.ops.flatten([v[:n] for v, n in zip(found, lengths, strict=True)])

    def backprop_tokens(d_flat: Floats2d) -> Any:
        return backprop(tok2vec.ops.unflatten(d_flat, lengths))

    return flat, backprop_tokens


def forward_over_tokens(
    model: Model, docs: list[Doc], others: tuple[Any, ...], is_train: bool
) -> tuple[Any, Callable[[Any], Any]]:
    """Run the layer "network" of a model on the token vectors of its layer "tok2vec".

    others (tuple): Further inputs of the network, the last of which are vectors of strings.
    RETURNS (tuple): Its output, and a callback from the gradient of the output to that of the
        strings.
    """
    tokens, backprop_tokens = read_tokens(model.get_ref("tok2vec"), docs, is_train)
    found, backprop = model.get_ref("network")((tokens, *others), is_train)

    def backprop_strings(d_found: Any) -> Any:
        d_tokens, d_strings = backprop(d_found)
        backprop_tokens(d_tokens)
        return d_strings

    return found, backprop_strings


def tok2vec_parts(tok2vec: Model) -> Parts:
    """Files for `load_tok2vec`; empty for a listener."""
    return {} if is_listener(tok2vec) else {_OWN: tok2vec.to_bytes}


def load_tok2vec(tok2vec: Model, parts: Mapping[str, bytes]) -> None:
    """Load the files of `tok2vec_parts`, if there are any."""
    if _OWN in parts:
        tok2vec.from_bytes(parts[_OWN])
