"""Files of a name encoder, within a saved pipeline or in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.models.name_encoder import NameEncoder, Parts

_ABOUT = "encoder.json"


def encoder_parts(model: NameEncoder) -> Parts:
    """Files for `load_encoder`: bytes by file name; empty before `add_encoder`."""
    from spacy_bioel.models.weights import weights_to_bytes

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
    from spacy_bioel.models.weights import reading_part, weights_from_bytes

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
