"""Contextual linker models, which read mentions in context: common part of all architectures.

Beside the name encoder, a model has either a network over the token vectors of a tok2vec, or a
reader, a model of word pieces with a `NetworkKind`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from spacy.pipeline.tok2vec import Tok2VecListener
from thinc.api import Model

from spacy_bioel.models.name_encoder import (
    EncoderSource,
    NameEncoder,
    Parts,
    add_encoder,
    encoder_parts,
    load_encoder,
)
from spacy_bioel.models.torch_io import require_torch, set_layer, torch_layer
from spacy_bioel.models.weights import reading_part, weights_from_bytes, weights_to_bytes

if TYPE_CHECKING:
    from torch import nn

_TOK2VEC = "tok2vec.msgpack"


@dataclass(frozen=True)
class ReadingKind:
    """A network over token vectors; module-level functions, so that it can be pickled.

    make (Callable): Makes the network, once the name encoder has its own.
    file (str): Of its weights.
    stored (Mapping): Attributes of the model that the network is made from: file, and functions to
        bytes and back.
    """

    make: Callable[[Model], nn.Module]
    file: str
    stored: Mapping[str, tuple[str, Callable[[Any], bytes], Callable[[bytes], object]]] = field(
        default_factory=dict
    )


def reading_model(
    name: str,
    forward: Callable,
    layers: dict[str, Model],
    *,
    evidence: str = "context",
    **attrs: object,
) -> Model:
    """Make a model without its contextual network, which `add_reading` adds.

    layers (dict): Layers by name; "names" is the name encoder.
    evidence (str): What its candidates are called, and the switch that it reads by.
    attrs: `kind`, a `ReadingKind`, or `reader`, the name of that layer, and the `prefix` of its
        files in a linker.
    """
    return Model(
        name,
        forward,
        layers=list(layers.values()),
        attrs={"evidence": evidence} | attrs,
        refs={"network": None} | layers,
    )


def name_side(model: Model) -> NameEncoder:
    """Name encoder of a linker's model; the model itself, if it is not contextual."""
    return model.get_ref("names") if may_read(model) else model


def may_read(model: Model) -> bool:
    """Whether the architecture of a linker's model is contextual."""
    return "evidence" in model.attrs


def reads(model: Model) -> bool:
    """Whether a linker's model is contextual and has its contextual network."""
    return may_read(model) and model.maybe_get_ref("network") is not None


def reading_evidence(model: Model) -> str:
    """The evidence that a contextual model brings; "" if the model is not contextual."""
    return str(model.attrs.get("evidence", ""))


def add_reading(model: Model, source: EncoderSource) -> None:
    """Add the contextual network to a contextual model, in the place of an earlier one."""
    if "reader" in model.attrs:
        add_encoder(_reader(model), source)
        model.set_ref("network", _reader(model))
    elif may_read(model):
        _add_network(model)


def _reader(model: Model) -> Model:
    return model.get_ref(model.attrs["reader"])


def _add_network(model: Model) -> None:
    require_torch()
    model.get_ref("tok2vec").initialize()
    set_layer(model, torch_layer(model.attrs["kind"].make(model)))


def reading_parts(model: Model) -> Parts:
    """Files for `load_reading`: bytes by file name; empty without a contextual network."""
    if not reads(model):
        return {}
    if "reader" in model.attrs:
        prefix = model.attrs["prefix"]
        return {prefix + name: part for name, part in encoder_parts(_reader(model)).items()}
    kind, tok2vec = model.attrs["kind"], model.get_ref("tok2vec")
    parts: Parts = {kind.file: lambda: weights_to_bytes(model.get_ref("network"))}
    for name, (file, to_bytes, _) in kind.stored.items():
        parts[file] = partial(to_bytes, model.attrs[name])
    if not isinstance(tok2vec, Tok2VecListener):  # which is saved with its pipe
        parts[_TOK2VEC] = tok2vec.to_bytes
    return parts


def load_reading(model: Model, parts: Mapping[str, bytes]) -> None:
    """Load the files of `reading_parts` into a model whose name encoder is loaded already."""
    if "reader" in model.attrs:
        prefix = model.attrs["prefix"]
        own = {k.removeprefix(prefix): part for k, part in parts.items() if k.startswith(prefix)}
        if own:
            load_encoder(_reader(model), own)
            model.set_ref("network", _reader(model))
    elif may_read(model):
        kind = model.attrs["kind"]
        if {kind.file, *(file for file, _, _ in kind.stored.values())} & parts.keys():
            for name, (file, _, from_bytes) in kind.stored.items():
                with reading_part(file):
                    model.attrs[name] = from_bytes(parts[file])
            _add_network(model)
            weights_from_bytes(model.get_ref("network"), parts[kind.file])
        if _TOK2VEC in parts:
            model.get_ref("tok2vec").from_bytes(parts[_TOK2VEC])


def reading_by(names: NameEncoder, reader: Model, *, name: str, ref: str, **attrs: str) -> Model:
    """Make a model that reads with another one. ref (str): What the other one is called."""
    return reading_model(name, _read_by, {"names": names, ref: reader}, reader=ref, **attrs)


def _read_by(model: Model, inputs: object, is_train: bool) -> tuple[object, Callable]:
    return _reader(model)(inputs, is_train)
