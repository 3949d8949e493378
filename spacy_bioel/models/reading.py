"""Contextual linker models, which read mentions in context, and the files of encoders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinc.api import Model
from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.name_encoder import EncoderSource, NameEncoder, Parts

_ABOUT = "encoder.json"


def encoder_parts(model: NameEncoder) -> Parts:
    """Files for `load_encoder`: bytes by file name; empty before `add_encoder`."""
    from spacy_bioel.models.torch_io import weights_to_bytes

    tokenizer = model.attrs["tokenizer"]
    if tokenizer is None:
        return {}
    # The order is part of a linker's fingerprint.
    return (
        {"tokenizer.json": lambda: tokenizer.to_str().encode("utf8")}
        | model.attrs["kind"].parts(model)
        | {"model.safetensors": lambda: weights_to_bytes(model)}
    )


def load_encoder(model: NameEncoder, parts: Mapping[str, bytes]) -> None:
    """Load the files of `encoder_parts`; without them the model has no encoder afterwards.

    RAISES BioelError: [B041] weights that do not fit, [B044] tables of another vocabulary, [B240]
        any other damaged file.
    """
    from spacy_bioel.models.torch_io import reading_part, weights_from_bytes

    if "tokenizer.json" not in parts:
        drop_encoder(model)
        return
    with reading_part("tokenizer.json"):
        tokenizer = Tokenizer.from_str(parts["tokenizer.json"].decode("utf8"))
    model.attrs["kind"].rebuild(model, tokenizer, parts)
    weights_from_bytes(model, parts["model.safetensors"])


def write_encoder(model: NameEncoder, folder: Path) -> None:
    """Write an encoder to a folder, for `read_encoder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in encoder_parts(model).items():
        (folder / name).write_bytes(part())
    (folder / _ABOUT).write_text(
        json.dumps(encoder_settings(model), indent=1) + "\n", encoding="utf8"
    )


def read_encoder(model: NameEncoder, folder: Path) -> None:
    """Load word pieces and weights from a folder of `write_encoder`.

    RAISES BioelError: [B046] when a file is missing, [B047] when architecture or size differ from
        those of `model`; those of `load_encoder`.
    """
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf8"))
        parts = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != _ABOUT}
    except (OSError, ValueError, RecursionError) as error:
        raise BioelError(Errors.B046.format(folder=folder, reason=error)) from error
    if about != encoder_settings(model):
        raise BioelError(
            Errors.B047.format(folder=folder, found=about, expected=encoder_settings(model))
        )
    if missing := {"tokenizer.json", "model.safetensors"} - set(parts):
        raise BioelError(Errors.B046.format(folder=folder, reason=f"no {sorted(missing)}"))
    try:
        load_encoder(model, parts)
    except KeyError as error:  # a file that only this architecture has
        raise BioelError(Errors.B046.format(folder=folder, reason=f"no {error}")) from error


def drop_encoder(model: NameEncoder) -> None:
    """Take word pieces and network away, as if `read_encoder` had not been called."""
    model.attrs["tokenizer"] = None
    model.layers.clear()
    model.set_ref("network", None)


def encoder_settings(model: NameEncoder) -> dict[str, Any]:
    """Settings that two encoders must share for one to load the weights of the other."""
    settings = {k: v for k, v in model.attrs["settings"].items() if k != "dropout"}
    return {"encoder": model.name, "max_tokens": model.attrs["max_tokens"], **settings}


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
    attrs: Settings of the architecture.
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
    """Add the contextual network to a contextual model, in the place of an earlier one.

    RAISES BioelError: [B040] without torch; those of the architecture.
    """
    if may_read(model):
        model.attrs["reading"].add(model, source)


def set_reading(model: Model, network: Model) -> None:
    """Set a contextual network that is a layer of the model, in the place of an earlier one."""
    before = model.maybe_get_ref("network")
    model.layers[:] = [*(layer for layer in model.layers if layer is not before), network]
    model.set_ref("network", network)


def reading_parts(model: Model) -> Parts:
    """Files for `load_reading`: bytes by file name; empty without a contextual network."""
    return model.attrs["reading"].parts(model) if reads(model) else {}


def load_reading(model: Model, parts: Mapping[str, bytes]) -> None:
    """Load the files of `reading_parts` into a model whose name encoder is loaded already."""
    if may_read(model):
        model.attrs["reading"].load(model, parts)
