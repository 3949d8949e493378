"""Storage of pipes: named parts as bytes, the same on disk and in memory, no pickle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
from spacy_bioel.models.weights import unchanged_on_error
from spacy_bioel.pipeline.manifest import Parts, SavedFiles, save_files

CFG = "cfg.json"


class StoredPipe(TrainablePipe):
    """A TrainablePipe stored as named parts: its settings as JSON, and the result of `parts`.

    What could not be loaded is not saved, and a load that fails leaves the pipe as it was.
    """

    cfg: dict[str, Any]

    def parts(self) -> Parts:
        """Parts that are stored beside the settings, by file name."""
        raise NotImplementedError

    def load_parts(self, parts: Mapping[str, bytes]) -> None:
        """Take back what `parts` gave; the settings are in `self.cfg` already."""
        raise NotImplementedError

    def check_settings(self) -> object:
        """Refuse settings that cannot be: when the pipe is made, used, saved and loaded."""
        raise NotImplementedError

    def stored_cfg(self) -> dict[str, Any]:
        """The settings as they are stored."""
        return self.cfg

    def _all_parts(self) -> Parts:
        self.check_settings()
        parts = self.parts()
        cfg = json.dumps({"cfg": self.stored_cfg(), "parts": sorted(parts)}, indent=1)
        return dict(parts) | {CFG: lambda: cfg.encode("utf8")}

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
        with self._loading("bytes"):
            self.read_bytes(bytes_data)
        return self

    def read_bytes(self, bytes_data: bytes) -> None:
        """Take all from the result of `to_bytes`; what it changes before it fails is undone."""
        parts = srsly.msgpack_loads(bytes_data)
        self._take_parts(json.loads(parts[CFG])["cfg"], parts)

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        save_files(Path(path), self._all_parts())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        with self._loading(path):
            self.read_folder(Path(path))
        return self

    def read_folder(self, folder: Path) -> None:
        """Take all from a folder of `to_disk`; what it changes before it fails is undone."""
        files = SavedFiles(folder)
        stored = json.loads(files.read(CFG))
        self._take_parts(stored["cfg"], {name: files.read(name) for name in stored["parts"]})

    def _take_parts(self, cfg: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
        self.cfg.update(cfg)
        self.check_settings()
        self.load_parts(parts)

    @contextmanager
    def _loading(self, path: object) -> Iterator[None]:
        """Give the pipe back all that it had when the block fails.

        path (object): What is loaded from, for the message.
        RAISES BioelError: [B058] in place of errors without a code.
        """
        had, cfg = dict(self.__dict__), dict(self.cfg)
        try:
            with unchanged_on_error(self.model):
                yield
        except BaseException as error:
            self.__dict__.clear()
            self.__dict__.update(had)
            self.cfg.clear()
            self.cfg.update(cfg)
            if isinstance(error, BioelError) or not isinstance(error, Exception):
                raise
            # Each kind of file has its own for one that was cut.
            raise BioelError(Errors.B058.format(path=path, error=error)) from error


def arrays_to_bytes(arrays: Mapping[str, NDArray]) -> bytes:
    """Named arrays in safetensors format."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def arrays_from_bytes(data: bytes) -> dict[str, NDArray]:
    return load(data)
