"""Load pipelines by folder or name, adapt them with presets, and verify saved pipelines."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spacy
from catalogue import RegistryError
from spacy.language import Language
from spacy.util import is_package, load_config, load_model_from_config
from thinc.api import Config, ConfigValidationError

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.bundled import ASSETS_FOLDER
from spacy_bioel.kb.folder import has_columns, label_and_folder
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.starter import read_starter_encoder
from spacy_bioel.parallel import gpu_in_use, memory_errors, require_gpu
from spacy_bioel.pipe import CFG, MANIFEST, SavedFiles
from spacy_bioel.registered import PRESETS, SPACY, load_registered, refuse_if_missing
from spacy_bioel.settings import (
    BY_DICTIONARY,
    DETECTOR,
    LINKER,
    NAMES,
    SPANS_KEY,
    check_utf8,
    suggest,
)

if TYPE_CHECKING:
    from spacy_bioel.linking.pipe import Linker
    from spacy_bioel.mentions.pipe import MentionDetector

STARTER = "starter"
_CODE_MODULE = "python_code"  # spaCy's module name for a --code file
_UNREGISTERED = re.compile("function '([^']+)' in function registry '([^']+)'")  # spaCy's E893
_NO_FACTORY = re.compile(r"\[E002\] Can't find factory for '([^']+)'")


def import_code(path: str) -> UserCode:
    """Import a Python file that registers functions for configs, like `spacy train --code`.

    RAISES BioelError: [B502] if the file is missing or raises an error.
    """
    path = os.path.abspath(path)
    loader = SourceFileLoader(_CODE_MODULE, path)
    spec = spec_from_loader(_CODE_MODULE, loader)
    assert spec is not None
    # Add the module to `sys.modules`, because pickle looks up a class's module there.
    module = sys.modules[_CODE_MODULE] = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except Exception as error:
        described = _describe_code_error(error, path)
        raise BioelError(Errors.B502.format(path=path, error=described)) from error
    return UserCode()


def _describe_code_error(error: Exception, path: str) -> str:
    """Describe an error, including the line in the file that raised it, if known."""
    if isinstance(error, FileNotFoundError) and error.filename == path:
        return "there is no such file"
    stack = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in stack if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    line = f"line {lines[-1]}, " if lines else ""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{line}{type(error).__name__}: {message}"


class UserCode:
    """The imported --code file, and the GPU in use.

    Unpickling a UserCode in another process imports the file and uses the GPU there too.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        module = sys.modules.get(_CODE_MODULE)
        return _unpickle_code, (module and module.__file__, gpu_in_use())


def _unpickle_code(path: str | None, gpu_id: int) -> UserCode:
    require_gpu(gpu_id)
    return import_code(path) if path else UserCode()


def load_model(
    model: str, *, more: Sequence[str] = (), preset: str | None = None, **options: Any
) -> Language:
    """Load a pipeline, or create one that links the names in a knowledge base.

    model (str): Folder or package name of a pipeline, or "starter"; or a knowledge base folder, or
        a bundled knowledge base such as "starter:genes".
    more (Sequence[str]): Additional knowledge bases: folders or bundled ones if the model is a
        knowledge base, or "LABEL=FOLDER" if it is a pipeline.
    preset (str | None): See `set_preset`.
    options: `disable`, `exclude` and `config`, as for `spacy.load`.
    RAISES BioelError: [B071] if there is no such pipeline, [B323] if a knowledge base without a
        label is added to a pipeline, [B501] if the config uses an unregistered function, [B541] if
        options are given for a knowledge base, [B661] if something comes from a plugin that is
        missing; the same errors as `set_kb`.
    """
    labelled = [kb for kb in more if label_and_folder(kb)[0]]
    others = [kb for kb in more if kb not in labelled]
    nlp = _load_or_make(model, others, {k: v for k, v in options.items() if v})
    for kb in labelled:
        set_kb(nlp, kb, model)
    if preset:
        set_preset(nlp, preset)
    return nlp


def _load_or_make(model: str, more: Sequence[str], options: Mapping[str, Any]) -> Language:
    if has_columns(Path(model)) or is_bundled(model):
        if options:
            raise BioelError(Errors.B541.format(model=model, options=", ".join(options)))
        return dictionary_pipeline([model, *more] if more else model)
    if more:
        raise BioelError(Errors.B323.format(model=model, kb=more[0]))
    if model == STARTER and not Path(model).exists():
        return load_starter(**options)
    try:
        with config_errors(model), memory_errors():
            return spacy.load(model, **options)
    except BioelError:
        raise
    except RegistryError as error:
        if not (match := _UNREGISTERED.search(str(error))):
            raise BioelError(Errors.B071.format(model=model, error=error)) from error
        name, registry = match.groups()
        refuse_if_missing(SPACY, name)
        raise BioelError(Errors.B501.format(model=model, name=name, registry=registry)) from error
    except Exception as error:  # loading a damaged folder can fail in many ways
        if match := _NO_FACTORY.search(str(error)):
            refuse_if_missing(SPACY, match[1])
        config: dict[str, Any] = {}
        with suppress(Exception):  # the config itself may be damaged
            config = load_config(Path(model) / "config.cfg").get("components", {})
        for name, cfg in config.items():
            check_utf8(cfg, pipe=name)
        raise BioelError(Errors.B071.format(model=model, error=error)) from error


@contextmanager
def config_errors(where: object) -> Iterator[None]:
    """Shorten spaCy's config errors, which quote the whole config, and suggest valid names.

    where (object): The config or its pipeline, for the message.
    RAISES BioelError: [B540] if the config is wrong.
    """
    try:
        yield
    except BioelError:
        raise
    except ConfigValidationError as error:
        wrong = []
        for item in error.errors or ({"msg": error.title},):
            *blocks, name = map(str, item.get("loc") or ("config",))
            message = str(item["msg"])
            if message.startswith("unexpected argument") and isinstance(error.config, dict):
                known = {key for key in error.config if key[0] != "@"} - {name, "nlp", "name"}
                message = f"unknown, {suggest(name, sorted(known))}"
            wrong.append(f"{'.'.join((*blocks, name))}: {message}")
        raise BioelError(Errors.B540.format(where=where, wrong="\n".join(wrong))) from None


def is_bundled(name: str) -> bool:
    """Return whether a name refers to a bundled knowledge base, such as "starter:genes"."""
    return name.startswith(f"{STARTER}:") and not Path(name).exists()


def check_there(model: str) -> None:
    """Check that a model exists, without loading it. RAISES BioelError: [B071] if not."""
    is_bundled_model = model == STARTER or is_bundled(model)
    if not (is_bundled_model or Path(model).exists() or is_package(model)):
        raise BioelError(Errors.B071.format(model=model, error="no such folder or package"))


def dictionary_pipeline(kb: str | list[str]) -> Language:
    """Create a pipeline that finds and links knowledge base names without any training."""
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    nlp.add_pipe(LINKER, config={"kb": kb, "mentions": "dictionary"})
    return nlp


def find_linker(nlp: Language) -> Linker | None:
    """Return the first linker in a pipeline, whatever its name, or None."""
    return next(pipes_made_by(LINKER, nlp), None)


def require_linker(nlp: Language, model: str = "") -> Linker:
    """Find a pipeline's linker. RAISES BioelError: [B072] if there is none."""
    linker = find_linker(nlp)
    if linker is None:
        pipes = ", ".join(nlp.pipe_names) or "none"
        raise BioelError(Errors.B072.format(model=model or nlp.meta["name"], pipes=pipes))
    return linker


def set_kb(nlp: Language, kb: str, model: str) -> None:
    """Switch a pipeline to another knowledge base; "LABEL=KB" switches only that label.

    RAISES BioelError: [B072] if there is no linker, [B325] if no label has a knowledge base of its
        own; the same errors as `Linker.set_kb`.
    """
    linker, (label, folder) = require_linker(nlp, model), label_and_folder(kb)
    if not label:
        return linker.set_kb(folder)
    detector, of_labels = find_detector(nlp), linker.cfg["kb"]
    if detector and isinstance(of_labels, str):
        of_labels = dict.fromkeys(detector.labels, of_labels)
    if not isinstance(of_labels, dict):
        raise BioelError(Errors.B325.format(label=label, folder=folder))
    linker.set_kb({**of_labels, label: folder})


def finds_names(nlp: Language) -> bool:
    """Return whether a pipeline's mentions are knowledge base names, and so lack gold labels."""
    if any(pipe.cfg["names"] == "all" for pipe in pipes_made_by(NAMES, nlp)):
        return True
    return (linker := find_linker(nlp)) is not None and linker.cfg["mentions"] == BY_DICTIONARY


def set_preset(nlp: Language, preset: str) -> None:
    """Adapt a pipeline in place by calling the function that a plugin registered for the preset.

    RAISES BioelError: [B661, B662] if there is no such preset.
    """
    load_registered(PRESETS, preset)(nlp)


def fact_names(nlp: Language) -> list[str]:
    """Return the names of facts that a pipeline's linkers may add to links."""
    linkers = pipes_made_by(LINKER, nlp)
    return list(dict.fromkeys(fact for pipe in linkers for fact in pipe.entities.fact_names))


def find_detector(nlp: Language) -> MentionDetector | None:
    """Return the first mention detector in a pipeline, whatever its name, or None."""
    return next(pipes_made_by(DETECTOR, nlp), None)


def spans_key(linker: Linker | None) -> str:
    """Return the key of the linker's span group, or the default key if there is no linker."""
    return SPANS_KEY if linker is None else str(linker.cfg["spans_key"])


def pipes_made_by(factory: str, nlp: Language) -> Iterator[Any]:
    """Yield the pipes that a factory created, whatever their names."""
    return (pipe for name, pipe in nlp.pipeline if nlp.get_pipe_meta(name).factory == factory)


_STARTER_FOLDER = ASSETS_FOLDER / "starter"


@config_errors(STARTER)
def load_starter(
    *,
    disable: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Language:
    """Load the starter (see `spacy_bioel.load`); its KBs are built when it first links mentions."""
    meta = json.loads((_STARTER_FOLDER / "meta.json").read_text(encoding="utf8"))
    changes = Config()
    check_utf8(config or {}, pipe="the starter")  # spaCy would crash on invalid text
    for name, value in (config or {}).items():
        # Turn "a.b" into {"a": {"b": 1}}; spaCy's `dot_to_dict` would lowercase labels.
        keys = reversed(name.split("."))
        changes = changes.merge(reduce(lambda inner, key: {key: inner}, keys, value))
    whole = load_config(_STARTER_FOLDER / "config.cfg").merge(changes)
    for name in {*whole["components"]}.difference(whole["nlp"]["pipeline"]):
        wrong = f"components.{name}: unknown, {suggest(name, whole['nlp']['pipeline'])}"
        raise BioelError(Errors.B540.format(where=STARTER, wrong=wrong))
    nlp = load_model_from_config(whole, meta=meta, auto_fill=True, disable=disable, exclude=exclude)
    pipes: dict[str, Any] = dict(nlp.components)
    if detector := pipes.get(DETECTOR):
        detector.from_disk(_STARTER_FOLDER / DETECTOR)
    if linker := pipes.get(LINKER):
        read_starter_encoder(linker.model)
        counts = json.loads((_STARTER_FOLDER / "alias_table.json").read_text(encoding="utf8"))
        linker.alias_table = AliasTable(counts)
    return nlp


@dataclass(frozen=True)
class Verification:
    """Results of `verify_saved` by folder.

    whole (list[str]): Folders with unchanged files, and the pipeline folder if the pipeline loads.
    without (list[str]): Pipe folders without a manifest, which must have been removed by hand.
    failed (dict[str, str]): Folder -> first error.
    """

    whole: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def _add(self, folder: Path, check: Callable[[Path], object]) -> None:
        try:
            (self.without if check(folder) is False else self.whole).append(str(folder))
        except BioelError as error:
            self.failed[str(folder)] = str(error)


def verify_saved(path: Path) -> Verification:
    """Check all bytes of saved files against their digests.

    In a pipeline, only this package's pipes and their knowledge bases have digests; other pipes are
    only loaded.

    path (Path): Pipeline folder or knowledge base folder.
    RAISES BioelError: [B468] if the folder is neither.
    """
    result = Verification()
    pipes = sorted({file.parent for name in (CFG, MANIFEST) for file in path.glob(f"*/{name}")})
    if pipes or (path / "config.cfg").is_file():
        for pipe in pipes:
            result._add(pipe, _verify_pipe)
            for kb in sorted(filter(has_columns, pipe.iterdir())):
                result._add(kb, _verify_kb)
        if not result.failed:
            result._add(path, lambda path: load_model(str(path)))
    elif has_columns(path):
        result._add(path, _verify_kb)
    else:
        raise BioelError(Errors.B468.format(path=path))
    return result


def _verify_kb(folder: Path) -> None:
    KnowledgeBase.open(folder).verify(homes=True)


def _verify_pipe(folder: Path) -> bool:
    files = SavedFiles(folder, whole=True)
    for name in files.manifest or ():
        files.read(name)
    return files.manifest is not None
