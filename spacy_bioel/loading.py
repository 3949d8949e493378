"""Pipelines by folder or name, as people give them; and whether one is as it was saved."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spacy
from catalogue import RegistryError
from spacy.language import Language
from spacy.util import is_package, load_config, load_model_from_config, registry
from thinc.api import Config

from spacy_bioel.entities import RuleSet
from spacy_bioel.entities.notes.layout import words_to_exclude
from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.bundled import ASSETS
from spacy_bioel.kb.folder import has_columns
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.starter import read_starter_encoder
from spacy_bioel.pipe import CFG, MANIFEST, SavedFiles
from spacy_bioel.settings import CONTEXT, DETECTOR, LINKER, SPANS_KEY

if TYPE_CHECKING:
    from spacy_bioel.linking.pipe import Linker
    from spacy_bioel.mentions.pipe import MentionDetector

STARTER = "starter"
CLINICAL = "clinical"  # the preset
_CODE = "python_code"  # the name that spaCy gives to a file of --code, as a module
_UNKNOWN = re.compile("function '(.+?)' in function registry '(.+?)'")  # E893 of spaCy


def import_code(path: str) -> UserCode:
    """Import a Python file that registers functions which configs name, as `spacy train --code`.

    RAISES BioelError: [B502] when it is not there, or fails.
    """
    path = os.path.abspath(path)
    loader = SourceFileLoader(_CODE, path)
    spec = spec_from_loader(_CODE, loader)
    assert spec is not None
    # As a module that pickle finds.
    module = sys.modules[_CODE] = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except Exception as error:
        raise BioelError(Errors.B502.format(path=path, error=_place_of(error, path))) from error
    return UserCode()


def _place_of(error: Exception, path: str) -> str:
    """An error with the line of a file where it was raised, if it has one."""
    if isinstance(error, FileNotFoundError) and error.filename == path:
        return "there is no such file"
    stack = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in stack if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    where = f"line {lines[-1]}, " if lines else ""
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{where}{type(error).__name__}: {what}"


class UserCode:
    """The imported file of --code. A process that unpickles it imports the file too, so that it can
    unpickle after it what has classes of the file."""

    def __reduce__(self) -> tuple[Any, ...]:
        module = sys.modules.get(_CODE)
        return (UserCode, ()) if module is None else (import_code, (module.__file__,))


def load_model(model: str, *, more: Sequence[str] = (), preset: str | None = None) -> Language:
    """Load a pipeline by folder or package name; a knowledge base will do as a pipeline too.

    model (str): "starter" is that of the package, "starter:genes" one of its knowledge bases.
    more (Sequence[str]): Folders of further knowledge bases, beside one that is the model.
    preset (str | None): See `set_preset`.
    RAISES BioelError: [B071] when there is none, [B323] when a pipeline is given with knowledge
        bases beside it, [B501] when its config names a function that is not registered.
    """
    nlp = _load(model, more)
    if preset:
        set_preset(nlp, preset)
    return nlp


def _load(model: str, more: Sequence[str]) -> Language:
    if has_columns(Path(model)) or of_package(model):
        return dictionary_pipeline([model, *more] if more else model)
    if more:
        raise BioelError(Errors.B323.format(model=model))
    if model == STARTER and not Path(model).exists():
        return load_starter()
    try:
        return spacy.load(model)
    except BioelError:
        raise
    except RegistryError as error:
        if not (found := _UNKNOWN.search(str(error))):
            raise BioelError(Errors.B071.format(model=model, error=error)) from error
        name, registry = found.groups()
        raise BioelError(Errors.B501.format(model=model, name=name, registry=registry)) from error
    except Exception as error:  # a damaged folder can fail in many ways
        raise BioelError(Errors.B071.format(model=model, error=error)) from error


def of_package(name: str) -> bool:
    """Whether a name is that of a knowledge base of the package, such as "starter:genes"."""
    return name.startswith(f"{STARTER}:") and not Path(name).exists()


def check_there(model: str) -> None:
    """Refuse a model that `load_model` would not find, without loading it.

    RAISES BioelError: [B071]
    """
    if model != STARTER and not Path(model).exists() and not is_package(model):
        raise BioelError(Errors.B071.format(model=model, error="no such folder, and no package"))


def dictionary_pipeline(kb: str | list[str]) -> Language:
    """A pipeline that links the names of a knowledge base, or of several; nothing is trained."""
    tokenizer = {"@tokenizers": "spacy-bioel.BioTokenizer.v1"}
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})
    nlp.add_pipe(LINKER, config={"kb": kb, "mentions": "dictionary"})
    return nlp


def find_linker(nlp: Language) -> Linker | None:
    """The pipe that the factory "bioel_linker" made, under any name; None: there is none."""
    return _find(nlp, LINKER)


def add_context(nlp: Language) -> None:
    """Add the pipe `bioel_context` behind the linker, unless the pipeline has one."""
    if _find(nlp, CONTEXT) is None:
        nlp.add_pipe(CONTEXT, config={"spans_key": spans_key(find_linker(nlp))})


def set_preset(nlp: Language, preset: str) -> None:
    """Read texts as clinical notes: find their shorthand and measurements, and say of each mention
    what the note says of it.

    RAISES BioelError: [B492] on another preset than "clinical".
    """
    if preset != CLINICAL:
        raise BioelError(Errors.B492.format(found=preset))
    if linker := find_linker(nlp):
        clinical = {"clinical": True, "measurements": True}
        _change_rules(nlp, linker, "notes", {"@misc": "spacy-bioel.Notes.v1", **clinical})
    if detector := find_detector(nlp):
        detector.cfg["exclude"] = sorted({*detector.cfg["exclude"], *words_to_exclude()})
    add_context(nlp)


def _change_rules(nlp: Language, linker: Linker, name: str, config: dict[str, Any]) -> None:
    """Take other rules for a kind of text, in the pipeline and in its config."""
    linker.entities = RuleSet(linker.entities.rules | registry.resolve({name: config}))
    pipe = next(name for name, pipe in nlp.pipeline if pipe is linker)
    nlp._pipe_configs[pipe].setdefault("entities", {})[name] = config


def fact_names(nlp: Language) -> list[str]:
    """Names of the facts that the linkers of a pipeline may say of mentions."""
    linkers: list[Any] = [p for n, p in nlp.pipeline if nlp.get_pipe_meta(n).factory == LINKER]
    return list(dict.fromkeys(fact for one in linkers for fact in one.entities.fact_names))


def find_detector(nlp: Language) -> MentionDetector | None:
    """The same for the factory "bioel_mentions"."""
    return _find(nlp, DETECTOR)


def spans_key(linker: Linker | None) -> str:
    """Span group of the links of a pipeline; without a linker, of its detector's mentions."""
    return SPANS_KEY if linker is None else str(linker.cfg["spans_key"])


def _find(nlp: Language, factory: str) -> Any:
    pipes = (pipe for name, pipe in nlp.pipeline if nlp.get_pipe_meta(name).factory == factory)
    return next(pipes, None)


_FOLDER = ASSETS / "starter"


def load_starter(
    *,
    disable: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Language:
    """Make the pipeline, see `spacy_bioel.load`; its knowledge bases are built when it links for
    the first time.
    """
    meta = json.loads((_FOLDER / "meta.json").read_text(encoding="utf8"))
    changes = Config()
    for name, value in (config or {}).items():
        changes = changes.merge(_nested(name.split("."), value))
    whole = load_config(_FOLDER / "config.cfg").merge(changes)
    nlp = load_model_from_config(whole, meta=meta, auto_fill=True, disable=disable, exclude=exclude)
    pipes: dict[str, Any] = dict(nlp.components)
    if detector := pipes.get(DETECTOR):
        chosen = dict(detector.cfg)
        detector.from_disk(_FOLDER / DETECTOR)
        # Which has brought the settings that it was saved with.
        changed = changes.get("components", {}).get(DETECTOR, {})
        detector.cfg |= {key: chosen[key] for key in changed if key in chosen}
    if linker := pipes.get(LINKER):
        read_starter_encoder(linker.model)
        counts = json.loads((_FOLDER / "alias_table.json").read_text(encoding="utf8"))
        linker.alias_table = AliasTable(counts)
    return nlp


def _nested(names: Sequence[str], value: object) -> dict[str, Any]:
    """Sections round a setting: ["a", "b"], 1 to {"a": {"b": 1}}. spaCy's `dot_to_dict` would make
    the letters of labels small.
    """
    return {names[0]: _nested(names[1:], value) if names[1:] else value}


@dataclass(frozen=True)
class Verification:
    """What was found in each folder.

    whole (list[str]): All files are as they were saved; of the pipeline itself: it loads.
    without (list[str]): Pipes whose manifest was removed, as after an edit by hand.
    failed (dict[str, str]): Folder -> the first thing that is wrong.
    """

    whole: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def _add(self, folder: Path, check: Callable[[Path], object]) -> None:
        try:
            (self.without if check(folder) is False else self.whole).append(str(folder))
        except BioelError as error:
            self.failed[str(folder)] = str(error)


def verify(path: Path) -> Verification:
    """Compare what is saved in a folder with its digests, to the last byte.

    Of a pipeline its pipes of this package and their knowledge bases; the rest of it, which has no
    digests, is only loaded.

    path (Path): Folder of a pipeline or of a knowledge base.
    RAISES BioelError: [B468] when it is neither.
    """
    found = Verification()
    pipes = sorted({file.parent for name in (CFG, MANIFEST) for file in path.glob(f"*/{name}")})
    if pipes or (path / "config.cfg").is_file():
        for pipe in pipes:
            found._add(pipe, _verify_pipe)
            for kb in sorted(home for home in pipe.iterdir() if has_columns(home)):
                found._add(kb, _verify_folder)
        if not found.failed:
            found._add(path, lambda path: load_model(str(path)))
    elif has_columns(path):
        found._add(path, _verify_folder)
    else:
        raise BioelError(Errors.B468.format(path=path))
    return found


def _verify_folder(folder: Path) -> None:
    kb = KnowledgeBase.open(folder)
    kb.verify()
    kb.verify_homes()


def _verify_pipe(folder: Path) -> bool:
    files = SavedFiles(folder, whole=True)
    for name in files.manifest or ():
        files.read(name)
    return files.manifest is not None
