"""Storage of pipes: named parts as bytes, the same on disk and in memory, no pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import srsly
from numpy.typing import NDArray
from safetensors.numpy import load, save
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.pipeline.trainable_pipe import TrainablePipe
from thinc.api import Optimizer

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.storage.atomic import replacing_file

Parts = Mapping[str, Callable[[], bytes]]
_CFG = "cfg.json"


class StoredPipe(TrainablePipe):
    """A TrainablePipe stored as named parts: its settings as JSON, and the result of `parts`."""

    cfg: dict[str, Any]

    def parts(self) -> Parts:
        """Parts that are stored beside the settings, by file name."""
        raise NotImplementedError

    def load_parts(self, parts: Mapping[str, bytes]) -> None:
        """Take back what `parts` gave; the settings are in `self.cfg` already."""
        raise NotImplementedError

    def stored_cfg(self) -> dict[str, Any]:
        """The settings as they are stored."""
        return self.cfg

    def _all_parts(self) -> Parts:
        parts = self.parts()
        cfg = {"cfg": self.stored_cfg(), "parts": sorted(parts)}
        return dict(parts) | {_CFG: lambda: json.dumps(cfg, indent=1).encode("utf8")}

    def finish_update(self, sgd: Optimizer) -> None:
        """Change the weights, and let go of the step's token vectors."""
        super().finish_update(sgd)
        for layer in self.model.walk():
            if isinstance(layer, Tok2VecListener):
                # As new: what spaCy's pipe tok2vec sent for this step has a local function in it,
                # which keeps pipe and listener from worker processes under spawn.
                layer.receive(None, None, None)  # type: ignore[arg-type]

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        return srsly.msgpack_dumps({name: part() for name, part in self._all_parts().items()})

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        parts = srsly.msgpack_loads(bytes_data)
        self.cfg.update(json.loads(parts[_CFG])["cfg"])
        self.load_parts(parts)
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        save_files(Path(path), self._all_parts())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        try:
            stored = json.loads(read_file(Path(path) / _CFG))
            self.cfg.update(stored["cfg"])
            self.load_parts({name: read_file(Path(path) / name) for name in stored["parts"]})
        except BioelError:
            raise
        except Exception as error:  # each kind of file has its own for a file that was cut
            raise BioelError(Errors.B058.format(path=path, error=error)) from error
        return self


def arrays_to_bytes(arrays: Mapping[str, NDArray]) -> bytes:
    """Named arrays in safetensors format."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def arrays_from_bytes(data: bytes) -> dict[str, NDArray]:
    return load(data)


def save_files(folder: Path, parts: Parts) -> None:
    """Write each part to its own file, by way of a temporary name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        with replacing_file(folder / name, follow=False) as temporary:
            temporary.write_bytes(part())


def read_file(path: Path) -> bytes:
    """A file of a saved pipe. RAISES BioelError: [B042] when it is missing."""
    if not path.is_file():
        raise BioelError(Errors.B042.format(path=path))
    return path.read_bytes()
