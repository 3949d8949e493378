"""What pipes share: files with a manifest of sizes and digests, so that damage is told, and the
token vectors that they listen to.

    manifest.json   {"files": {"cfg.json": {"bytes": 512, "sha256": "9f3a..."}, ...}}

Loading compares all sizes, and the digests of files of up to `CHECKED` bytes; `bioel verify`
compares all digests. Remove the manifest after editing a file: a pipe without one is not compared.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from weakref import ref

import srsly
from spacy.language import Language
from spacy.pipeline.tok2vec import Tok2Vec, Tok2VecListener
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example, validate_examples
from thinc.api import Model, Optimizer, set_dropout_rate

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.models.torch_io import unchanged_on_error
from spacy_bioel.settings import Settings

Parts = Mapping[str, Callable[[], bytes]]
S = TypeVar("S", bound=Settings)
MANIFEST = "manifest.json"
_BATCH = 32
CHECKED = 1 << 22  # hashing them is 2 % of loading the pipeline of the package


class SavedFiles:
    """The files of a saved pipe; `manifest` is None if there is nothing to compare them with.

    whole (bool): Compare the digests of large files too.
    RAISES BioelError: [B466] when the manifest is damaged.
    """

    def __init__(self, folder: Path, *, whole: bool = False) -> None:
        self.folder = folder
        self._most = sys.maxsize if whole else CHECKED
        self.manifest: dict[str, Any] | None = None
        if (path := folder / MANIFEST).is_file():
            try:
                self.manifest = dict(json.loads(path.read_bytes())["files"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise _changed(path, expected="a table of files", found=error) from None

    def read(self, name: str) -> bytes:
        """RAISES BioelError: [B042] the file is missing, [B466] it is not as it was saved."""
        path = self.folder / name
        if not path.is_file():
            raise BioelError(Errors.B042.format(path=path))
        data = path.read_bytes()
        if self.manifest is not None:
            saved = self.manifest.get(name)
            found = _describe(data) if len(data) <= self._most else {"bytes": len(data)}
            if not (isinstance(saved, dict) and found.items() <= saved.items()):
                expected, actual = (
                    ", ".join(f"{key} {value}" for key, value in file.items())
                    if isinstance(file, dict)
                    else "no such file"
                    for file in (saved, found)
                )
                raise _changed(path, expected=expected, found=actual)
        return data


def _changed(path: Path, *, expected: str, found: object) -> BioelError:
    return BioelError(
        Errors.B466.format(path=path, expected=expected, found=found, manifest=MANIFEST)
    )


def save_files(folder: Path, parts: Parts) -> None:
    """Write each part to its own file, by way of a temporary name, and the manifest last."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {}
    manifest = {MANIFEST: lambda: json.dumps({"files": files}, indent=1).encode("utf8")}
    for name, part in {**parts, **manifest}.items():
        data = part()
        with replacing_file(folder / name, follow=False) as temporary:
            temporary.write_bytes(data)
        files[name] = _describe(data)


def _describe(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": sha256(data).hexdigest()}


CFG = "cfg.json"


class Pipeline:
    """The pipeline that a pipe is in, if any."""

    def __init__(self) -> None:
        self._nlp: Callable[[], Language | None] = lambda: None
        self._checked: list[str] = []  # its pipes when their order was checked
        self._has_mentions = False

    def join(self, nlp: Language) -> None:
        self._nlp = ref(nlp)

    def check_order(self, check: Callable[[Language], None]) -> None:
        """Check the order of the pipes at first use, and when it has changed."""
        nlp = self._nlp()
        if nlp is not None and nlp.pipe_names != self._checked:
            check(nlp)
            self._checked = list(nlp.pipe_names)

    def forget_order(self) -> None:
        self._checked = []

    def check_mentions(self, docs: Iterable[Doc], n_mentions: int, linker: str) -> None:
        """Warn [W323], once, when the linker is the only pipe and documents have no mentions."""
        # Where mentions come with the documents, some documents have none.
        self._has_mentions = self._has_mentions or n_mentions > 0
        nlp = None if self._has_mentions or not any(map(len, docs)) else self._nlp()
        # Pipes that are switched off too: rulers read their patterns with the pipes before them.
        if nlp is not None and nlp.component_names == [linker]:
            self._has_mentions = True
            warnings.warn(Warnings.W323.format(linker=linker), stacklevel=3)


class StoredPipe(TrainablePipe, Generic[S]):
    """A TrainablePipe stored as named parts: its settings as JSON, and the result of `parts`.

    What could not be loaded is not saved, and a load that fails leaves the pipe as it was.
    """

    cfg: dict[str, Any]
    _settings: tuple[str, S] | None = None  # what they were read from, and the result

    def parts(self) -> Parts:
        """Parts that are stored beside the settings, by file name."""
        raise NotImplementedError

    def load_parts(self, parts: Mapping[str, bytes]) -> None:
        """Take back what `parts` gave; the settings are in `self.cfg` already."""
        raise NotImplementedError

    def check_settings(self) -> S:
        """Return the settings as they are now, checked if they have changed: when the pipe is made,
        used, saved and loaded. RAISES BioelError: [B270] and others, see `read_settings`."""
        found, now = self._settings, repr(self.cfg)
        if found is None or found[0] != now:
            found = self._settings = now, self.read_settings()
        return found[1]

    def read_settings(self) -> S:
        """Check the settings in `self.cfg`."""
        raise NotImplementedError

    def stored_cfg(self) -> dict[str, Any]:
        """The settings as they are stored."""
        return self.cfg

    def _all_parts(self) -> Parts:
        self.check_settings()
        parts = self.parts()
        cfg = json.dumps({"cfg": self.stored_cfg(), "parts": sorted(parts)}, indent=1)
        return dict(parts) | {CFG: lambda: cfg.encode("utf8")}

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Learn from a batch; RAISES what `learn` does."""
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, f"{type(self).__name__}.update")
        set_dropout_rate(self.model, drop)
        loss = self.learn(examples)
        if loss is not None:
            losses[self.name] += loss
            if sgd is not None:
                self.finish_update(sgd)
        return losses

    def learn(self, examples: Sequence[Example]) -> float | None:
        """Add the gradients of a batch. RETURNS (float | None): Its loss; None: no gradient."""
        raise NotImplementedError

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


def with_token_vectors(nlp: Language, docs: Iterable[Doc]) -> Iterator[Doc]:
    """Documents after the pipes whose token vectors ours may listen to, and no others."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, Tok2Vec):
            docs = pipe.pipe(docs, batch_size=_BATCH)
    yield from docs


def listens(model: Model) -> bool:
    """Whether a part of the model reads the token vectors of another pipe."""
    return any(isinstance(layer, Tok2VecListener) for layer in model.walk())


def require_token_vectors(model: Model, docs: Iterable[Doc]) -> None:
    """Refuse documents of which a listener in the model would get zeros, in silence.

    RAISES BioelError: [B174] when the pipe that it listens to has not been there.
    """
    if listens(model) and any(len(doc) and not doc.tensor.size for doc in docs):
        raise BioelError(Errors.B174.format(model=model.name))
