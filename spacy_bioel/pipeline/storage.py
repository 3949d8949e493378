"""How our pipes are written: named parts as bytes, the same on disk and in memory, no pickle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from spacy_bioel.errors import BioelError, Errors


def arrays_to_bytes(arrays: Mapping[str, NDArray]) -> bytes:
    """Named arrays in safetensors format."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def arrays_from_bytes(data: bytes) -> dict[str, NDArray]:
    return load(data)


def save_parts(path: Path, parts: Mapping[str, Callable[[], bytes]]) -> None:
    """Write each part to its own file, by way of a temporary name."""
    path.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        temporary = path / f".{name}.tmp"
        temporary.write_bytes(part())
        os.replace(temporary, path / name)


def load_parts(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Read the files that `save_parts` wrote. RAISES BioelError: [B042] when one is missing."""
    parts = {}
    for name in names:
        file = path / name
        if not file.is_file():
            raise BioelError(Errors.B042.format(path=file))
        parts[name] = file.read_bytes()
    return parts


def pickle_pipe(pipe: Any) -> tuple:
    """`__reduce__` of our pipes: the model's structure by thinc, everything else by `to_bytes`.

    `nlp.pipe(n_process=2)` pickles every pipe under the start method "spawn".
    """
    return _unpickle_pipe, (
        type(pipe),
        pipe.vocab,
        pipe.model,
        pipe.name,
        pipe.scorer,
        pipe.to_bytes(),
    )


def _unpickle_pipe(
    cls: type, vocab: Any, model: Any, name: str, scorer: Callable | None, data: bytes
) -> Any:
    return cls(vocab, model, name, scorer=scorer).from_bytes(data)
