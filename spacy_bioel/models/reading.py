"""Contextual linker models, which read mentions in context: common part of all architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from thinc.api import Model

from spacy_bioel.models.name_encoder import (
    EncoderSource,
    NameEncoder,
    Parts,
    add_encoder,
    encoder_parts,
    load_encoder,
)


@dataclass(frozen=True)
class ReadingKind:
    """Strategy of an architecture; module-level functions, so that it can be pickled.

    add (Callable): Adds the contextual network. Called after the name encoder has its network.
    parts (Callable): Files of the contextual network: bytes by file name.
    load (Callable): Loads the files of `parts`.
    """

    add: Callable[[Model, EncoderSource], None]
    parts: Callable[[Model], Parts]
    load: Callable[[Model, Mapping[str, bytes]], None]


def reading_model(
    name: str,
    kind: ReadingKind,
    forward: Callable,
    layers: dict[str, Model],
    *,
    evidence: str = "context",
    **attrs: object,
) -> Model:
    """Make a model without its contextual network, which `add_reading` adds.

    layers (dict): Layers by name; "names" is the name encoder.
    evidence (str): What its candidates are called, and the switch that it reads by.
    """
    return Model(
        name,
        forward,
        layers=list(layers.values()),
        attrs={"reading": kind, "evidence": evidence} | attrs,
        refs={"network": None} | layers,
    )


def name_side(model: Model) -> NameEncoder:
    """Name encoder of a linker's model; the model itself, if it is not contextual."""
    return model.get_ref("names") if may_read(model) else model


def may_read(model: Model) -> bool:
    """Whether the architecture of a linker's model is contextual."""
    return "reading" in model.attrs


def reads(model: Model) -> bool:
    """Whether a linker's model is contextual and has its contextual network."""
    return may_read(model) and model.maybe_get_ref("network") is not None


def reading_evidence(model: Model) -> str:
    """The evidence that a contextual model brings; "" if the model is not contextual."""
    return str(model.attrs["evidence"]) if may_read(model) else ""


def add_reading(model: Model, source: EncoderSource) -> None:
    """Add the contextual network to a contextual model, in the place of an earlier one."""
    if may_read(model):
        model.attrs["reading"].add(model, source)


def reading_parts(model: Model) -> Parts:
    """Files for `load_reading`: bytes by file name; empty without a contextual network."""
    return model.attrs["reading"].parts(model) if reads(model) else {}


def load_reading(model: Model, parts: Mapping[str, bytes]) -> None:
    """Load the files of `reading_parts` into a model whose name encoder is loaded already."""
    if may_read(model):
        model.attrs["reading"].load(model, parts)


# A model of word pieces, beside the name encoder, that reads by itself.


def reading_by(name: str, names: NameEncoder, part: str, reader: Model, **settings: str) -> Model:
    """Make a model that reads with another one, which has a `NetworkKind`.

    part (str): What the other one is called.
    settings: `prefix` of its files in a linker; `evidence`, see `reading_model`.
    """
    kind = ReadingKind(add=_add_reader, parts=_reader_parts, load=_load_reader)
    layers: dict[str, Model] = {"names": names, part: reader}
    return reading_model(name, kind, _forward, layers, reader=part, **settings)


def _reader(model: Model) -> Model:
    return model.get_ref(model.attrs["reader"])


def _forward(model: Model, inputs: object, is_train: bool) -> tuple[object, Callable]:
    return _reader(model)(inputs, is_train)


def _add_reader(model: Model, source: EncoderSource) -> None:
    add_encoder(_reader(model), source)
    model.set_ref("network", _reader(model))


def _reader_parts(model: Model) -> Parts:
    prefix = model.attrs["prefix"]
    return {prefix + name: part for name, part in encoder_parts(_reader(model)).items()}


def _load_reader(model: Model, parts: Mapping[str, bytes]) -> None:
    prefix = model.attrs["prefix"]
    own = {k.removeprefix(prefix): part for k, part in parts.items() if k.startswith(prefix)}
    if own:
        load_encoder(_reader(model), own)
        model.set_ref("network", _reader(model))
