"""Models of a linker that read mentions in their documents: what the architectures share.

Such a model is an encoder of names, as any linker has, and a network that reads; see
`models.bi_encoder` and `models.cross_encoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from thinc.api import Model

from spacy_bioel.models.name_encoder import NameEncoder, Parts


@dataclass(frozen=True)
class ReadingKind:
    """What an architecture does its own way; functions of a module, so that it can be pickled.

    add (Callable): Makes the network that reads, where there is none; the encoder of names has its
        own by then.
    parts (Callable): What is stored of that network, as bytes by file name.
    load (Callable): Takes back what `parts` gave.
    """

    add: Callable[[Model], None]
    parts: Callable[[Model], Parts]
    load: Callable[[Model, Mapping[str, bytes]], None]


def reading_model(
    name: str, kind: ReadingKind, forward: Callable, layers: dict[str, Model], **attrs: Any
) -> Model:
    """A model without its network that reads, which exists after `add_reading`.

    layers (dict): By name; "names" is the encoder of names.
    attrs: Settings of the architecture.
    """
    return Model(
        name,
        forward,
        layers=list(layers.values()),
        attrs={"reading": kind} | attrs,
        refs={"network": None} | layers,
    )


def name_side(model: Model) -> NameEncoder:
    """The encoder of names of a linker's model, which may be all there is of it."""
    return model.get_ref("names") if may_read(model) else model


def may_read(model: Model) -> bool:
    """Whether a linker's model is one that reads mentions in their documents."""
    return "reading" in model.attrs


def reads(model: Model) -> bool:
    """Whether it has the network to do so."""
    return may_read(model) and model.maybe_get_ref("network") is not None


def add_reading(model: Model) -> None:
    """Give a model that may read the network to do so, once.

    RAISES BioelError: [B040] without torch; those of the architecture.
    """
    if may_read(model) and not reads(model):
        model.attrs["reading"].add(model)


def reading_parts(model: Model) -> Parts:
    """What `load_reading` needs, as bytes by file name; nothing where nothing reads."""
    return model.attrs["reading"].parts(model) if reads(model) else {}


def load_reading(model: Model, parts: Mapping[str, bytes]) -> None:
    """Take back what `reading_parts` gave; the encoder of names is there already."""
    if may_read(model):
        model.attrs["reading"].load(model, parts)
