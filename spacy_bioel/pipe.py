"""Base class for trainable pipes: how they are saved, loaded and updated.

A saved pipe has a manifest with the sizes and digests of its files, to detect damage:

    manifest.json   {"files": {"cfg.json": {"bytes": 512, "sha256": "9f3a..."}, ...}}

Loading checks all sizes, and the digests of files of up to `MAX_BYTES_CHECKED`; `bioel verify`
checks all digests. After editing a file by hand, remove the manifest to turn these checks off.
"""

from __future__ import annotations

import gc
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
from spacy.pipeline.pipe import Pipe
from spacy.pipeline.tok2vec import Tok2Vec, Tok2VecListener
from spacy.pipeline.trainable_pipe import TrainablePipe
from spacy.tokens import Doc
from spacy.training import Example, validate_examples
from thinc.api import Config, Model, Optimizer, set_dropout_rate

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.parallel import memory_errors
from spacy_bioel.settings import Settings

SavedParts = Mapping[str, Callable[[], bytes]]  # file name -> function returning its contents
S = TypeVar("S", bound=Settings)
CFG = "cfg.json"
MANIFEST = "manifest.json"
MAX_BYTES_CHECKED = 1 << 22  # hashing files up to this size takes 2 % of the starter's loading time


class SavedFiles:
    """Files of a saved pipe, checked against the manifest (if it exists) when read.

    whole (bool): Check the digests of large files too.
    RAISES BioelError: [B466] if the manifest is damaged.
    """

    def __init__(self, folder: Path, *, whole: bool = False) -> None:
        self.folder = folder
        self._max_bytes_checked = sys.maxsize if whole else MAX_BYTES_CHECKED
        self.manifest: dict[str, Any] | None = None
        if (path := folder / MANIFEST).is_file():
            try:
                self.manifest = dict(json.loads(path.read_bytes())["files"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise _changed_file(path, expected="a table of files", found=error) from None

    def read(self, name: str) -> bytes:
        """Return a file's contents. RAISES BioelError: [B042] if missing, [B466] if changed."""
        path = self.folder / name
        if not path.is_file():
            raise BioelError(Errors.B042.format(path=path))
        data = path.read_bytes()
        if self.manifest is not None:
            saved, found = self.manifest.get(name), {"bytes": len(data)}
            if len(data) <= self._max_bytes_checked:
                found = _size_and_digest(data)
            if not (isinstance(saved, dict) and found.items() <= saved.items()):
                expected = _properties_text(saved) if isinstance(saved, dict) else "no such file"
                raise _changed_file(path, expected=expected, found=_properties_text(found))
        return data


def _properties_text(properties: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in properties.items())


def _changed_file(path: Path, *, expected: str, found: object) -> BioelError:
    about = {"expected": expected, "found": found, "manifest": MANIFEST}
    return BioelError(Errors.B466.format(path=path, **about))


def save_files(folder: Path, parts: SavedParts) -> None:
    """Write each part to its own file, then the manifest, replacing old files atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {}
    manifest = {MANIFEST: lambda: json.dumps({"files": files}, indent=1).encode("utf8")}
    for name, part in {**parts, **manifest}.items():
        data = part()
        with replacing_file(folder / name, follow=False) as temporary:
            temporary.write_bytes(data)
        files[name] = _size_and_digest(data)


def _size_and_digest(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": sha256(data).hexdigest()}


class _CurrentConfigs(dict[str, Config]):
    """The configs of a pipeline's pipes, with the current settings of this package's pipes.

    Users change the settings in `pipe.cfg`; spaCy reads the configs for `nlp.config`, and to save
    the pipeline. A setting keeps its variables, such as ${system.seed}, until its value changes.
    """

    def __init__(self, nlp: Language) -> None:
        super().__init__(nlp._pipe_configs)
        self._nlp = ref(nlp)

    def __getitem__(self, name: str) -> Config:
        config, nlp = super().__getitem__(name), self._nlp()
        pipe: Any = dict(nlp.components).get(name) if nlp is not None else None
        if hasattr(pipe, "current_settings"):
            for key, value in pipe.current_settings().items():
                if "${" not in str(config.get(key)) or value != pipe.created_with[key]:
                    config[key] = value
        return config

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def keep_config_current(nlp: Language, pipe: Any) -> None:
    """Make `nlp.config` show a pipe's `current_settings`, even after they change."""
    if not hasattr(pipe, "created_with"):  # otherwise, the pipe is from another pipeline
        pipe.created_with = pipe.current_settings()
    if not isinstance(nlp._pipe_configs, _CurrentConfigs):
        nlp._pipe_configs = _CurrentConfigs(nlp)


def note_origin(nlp: Language, source: Language) -> None:
    """Record that a pipe comes from another pipeline: add that pipeline and its own origins to
    nlp.meta["bioel"]["origins"], for the model card.

    source (Language): The other pipeline; ignored if it has no name, as when training is resumed.
    """
    meta = source.meta
    origins = [*meta.get("bioel", {}).get("origins", ())]
    if meta["name"] != "pipeline":  # spaCy's default
        about: dict[str, Any] = {"name": f"{meta['lang']}_{meta['name']}"}
        about |= {key: meta.get(key) or "" for key in ("version", "license")}
        origins.append(about | {"sources": meta.get("sources") or []})
    if origins:
        known = nlp.meta.setdefault("bioel", {}).setdefault("origins", [])
        known += [origin for origin in origins if origin not in known]


class Pipeline:
    """Checks on the pipeline that a pipe belongs to, if any."""

    def __init__(self, nlp: Language | None = None) -> None:
        self._nlp: Callable[[], Language | None] = (lambda: None) if nlp is None else ref(nlp)
        self._checked: list[str] = []  # names of the pipes when their order was last checked
        self._has_mentions = False

    def made_by(self, factory: str) -> list[Any]:
        """Return the pipes that a factory created, including disabled pipes."""
        nlp = self._nlp()
        if nlp is None:
            return []
        return [pipe for name, pipe in nlp.components if nlp.get_pipe_meta(name).factory == factory]

    def check_order(self, check: Callable[[Language], None]) -> None:
        """Check the pipe order on first use, and again whenever it changes."""
        nlp = self._nlp()
        if nlp is not None and nlp.pipe_names != self._checked:
            check(nlp)
            self._checked = list(nlp.pipe_names)

    def forget_order(self) -> None:
        self._checked = []

    def check_mentions(self, docs: Iterable[Doc], n_mentions: int, linker: str) -> None:
        """Warn once [W323] if the linker is the only pipe and the documents have no mentions."""
        # Once any document has had mentions, documents without mentions are normal.
        self._has_mentions = self._has_mentions or n_mentions > 0
        nlp = None if self._has_mentions or not any(map(len, docs)) else self._nlp()
        # Disabled pipes count too: a ruler disables the other pipes while it reads its patterns.
        if nlp is not None and nlp.component_names == [linker]:
            self._has_mentions = True
            warnings.warn(Warnings.W323.format(linker=linker), stacklevel=3)


class JoiningPipe:
    """A pipe with a reference to its pipeline, updated if another pipeline takes over the pipe."""

    pipeline: Pipeline
    created_with: dict[str, Any]  # the settings that the pipe was created with

    @property
    def name(self) -> str:  # type: ignore[override]
        return Pipe.name.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @name.setter
    def name(self, name: str) -> None:
        Pipe.name.__set__(self, name)  # type: ignore[attr-defined]
        # A pipeline that takes a pipe from another pipeline (`source`) only sets the pipe's name.
        caller = sys._getframe(1).f_locals
        if isinstance(nlp := caller.get("self"), Language):
            self.join(nlp)
            if isinstance(source := caller.get("source"), Language):
                note_origin(nlp, source)

    def join(self, nlp: Language) -> None:
        """Attach this pipe to a pipeline, and keep its settings current in `nlp.config`."""
        self.pipeline = Pipeline(nlp)
        keep_config_current(nlp, self)


class StoredPipe(JoiningPipe, TrainablePipe, Generic[S]):
    """A TrainablePipe that is saved as named parts: its state in JSON, and the result of `parts`.

    Settings are saved only in the pipeline's config; if they could not be loaded again, the pipe is
    not saved. If loading fails after some parts were replaced, the pipe refuses to be used
    until a load succeeds.
    """

    cfg: dict[str, Any]
    _settings: tuple[str, S] | None = None  # the repr of `cfg`, and the settings read from it
    _is_whole = True  # False while parts are being replaced

    def parts(self) -> SavedParts:
        """Return the parts to save in addition to the state."""
        raise NotImplementedError

    def load_parts(self, parts: Mapping[str, bytes], state: Mapping[str, Any]) -> None:
        """Restore what `parts` and `saved_state` returned."""
        raise NotImplementedError

    def check_settings(self) -> S:
        """Return the current settings, rechecking them if they changed since the last call.

        RAISES BioelError: [B270] if a setting is wrong; the same errors as `read_settings`; [B059]
            if loading has failed.
        """
        if not self._is_whole:
            raise BioelError(Errors.B059.format(name=self.name))
        cfg = repr(self.cfg)
        if self._settings is None or self._settings[0] != cfg:
            self._settings = cfg, self.read_settings()
        return self._settings[1]

    def read_settings(self) -> S:
        """Check and return the settings in `self.cfg`."""
        raise NotImplementedError

    def current_settings(self) -> dict[str, Any]:
        """Return the current settings in the form used in configs."""
        return self.read_settings().model_dump(mode="json")

    def saved_state(self) -> dict[str, Any]:
        """Return the state to save in cfg.json, as JSON values."""
        raise NotImplementedError

    def _all_parts(self) -> SavedParts:
        self.check_settings()
        parts = self.parts()
        state = json.dumps({"state": self.saved_state(), "parts": sorted(parts)}, indent=1)
        return dict(parts) | {CFG: lambda: state.encode("utf8")}

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Learn from a batch, or warn [W345] if it has no gold mentions. RAISES: As `learn`."""
        examples = list(examples)
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        validate_examples(examples, f"{type(self).__name__}.update")
        key, references = self.cfg["gold_key"], [example.reference for example in examples]
        found = sorted({group for doc in references for group in doc.spans if doc.spans[group]})
        found += ["doc.ents"] * any(doc.ents for doc in references)
        if found and not any(key in doc.spans for doc in references):
            message = Warnings.W345.format(name=self.name, key=key, found=", ".join(found))
            warnings.warn(message, stacklevel=2)
            return losses
        set_dropout_rate(self.model, drop)
        loss = self.learn(examples)
        if loss is not None:
            losses[self.name] += loss
            if sgd is not None:
                self.finish_update(sgd)
        return losses

    def learn(self, examples: Sequence[Example]) -> float | None:
        """Accumulate a batch's gradients. RETURNS (float | None): Loss; None if there are none."""
        raise NotImplementedError

    def finish_update(self, sgd: Optimizer) -> None:
        """Update the weights, and release the token vectors used in this step."""
        super().finish_update(sgd)
        for layer in self.model.walk():
            if isinstance(layer, Tok2VecListener):
                # The listener holds a local function from spaCy's tok2vec pipe, which would make
                # this pipe impossible to pickle for worker processes.
                layer.receive(None, None, None)  # type: ignore[arg-type]

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        return srsly.msgpack_dumps({name: part() for name, part in self._all_parts().items()})

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        with self._loading("bytes"):
            self.read_bytes(bytes_data)
        return self

    def read_bytes(self, bytes_data: bytes) -> None:
        """Load the result of `to_bytes`; call this inside `_loading`."""
        parts = srsly.msgpack_loads(bytes_data)
        self._replace_parts(parts, json.loads(parts[CFG])["state"])

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        save_files(Path(path), self._all_parts())

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        with self._loading(path):
            self.read_folder(Path(path))
        return self

    def read_folder(self, folder: Path) -> None:
        """Load a folder that `to_disk` wrote; call this inside `_loading`."""
        files = SavedFiles(folder)
        stored = json.loads(files.read(CFG))
        self._replace_parts({name: files.read(name) for name in stored["parts"]}, stored["state"])

    def _replace_parts(self, parts: Mapping[str, bytes], state: Mapping[str, Any]) -> None:
        self._is_whole = False  # until `_loading` ends
        self.load_parts(parts, state)

    @contextmanager
    def _loading(self, path: object) -> Iterator[None]:
        """Check settings before loading. RAISES BioelError: [B058] for errors without a code."""
        collects = gc.isenabled()
        try:
            self.read_settings()
            with memory_errors():
                yield
            self._is_whole = True
        except BioelError:
            raise
        except Exception as error:  # truncated files raise a different error in each format
            raise BioelError(Errors.B058.format(path=path, error=error)) from error
        finally:
            if collects:  # srsly leaves garbage collection disabled after an error
                gc.enable()


def with_token_vectors(nlp: Language, docs: Iterable[Doc]) -> Iterator[Doc]:
    """Run a pipeline's tok2vec pipes, which our pipes may listen to, and skip the others."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, Tok2Vec):
            docs = pipe.pipe(docs, batch_size=32)
    yield from docs


def listens(model: Model) -> bool:
    """Return whether a layer of the model listens to token vectors from another pipe."""
    return any(isinstance(layer, Tok2VecListener) for layer in model.walk())


def require_token_vectors(model: Model, docs: Iterable[Doc]) -> None:
    """Reject documents without token vectors: a listener would silently return zeros for them.

    RAISES BioelError: [B174] if the pipe that the model listens to has not run.
    """
    if listens(model) and any(len(doc) and not doc.tensor.size for doc in docs):
        raise BioelError(Errors.B174.format(model=model.name))
