"""The knowledge bases of the package, built at first use, and the setting `kb` that opens some.

The setting is the folder of a knowledge base or a name such as "starter:genes" ("": that of MeSH),
a list of these for a joined one, or a table of these by the labels of mentions.
"""

from __future__ import annotations

import gzip
import lzma
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

import srsly
from spacy.util import load_config

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.build import build_once
from spacy_bioel.kb.columns import SCHEMA_VERSION
from spacy_bioel.kb.folder import has_columns
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.text.normalize import NORMALIZER_VERSION
from spacy_bioel.types import Concept

ASSETS = Path(__file__).parents[1] / "assets"
# As in the setting `kb`, where "" stands for the first too.
PREFIX = "starter:"
_MESH = "mesh"
# Files of the concepts; another beside each says what they are.
_NAMES = (_MESH, "genes", "species", "cells")
_CONCEPTS = {name: next(ASSETS.glob(f"{name}.jsonl.?z")) for name in _NAMES}
# Another folder for the cache than the system's usual one.
CACHE_VARIABLE = "SPACY_BIOEL_CACHE"


def cache_folder() -> Path:
    """The folder for what can be made again, by the conventions of the system."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "spacy-bioel"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/spacy-bioel"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spacy-bioel"


def open_setting(path: str, base: Path = Path(), *, builds: bool = True) -> KnowledgeBase:
    """Open what a value of the setting `kb` stands for: one of the package, or a folder.

    base (Path): What the folder is relative to.
    RAISES BioelError: Those of `starter_kb` and `KnowledgeBase.open`; without `builds` [B320] where
        one of the package would have to be built.
    """
    if path and not path.startswith(PREFIX):
        return KnowledgeBase.open(base / path)
    name = path.removeprefix(PREFIX) or _MESH
    if not builds and name in _CONCEPTS and not has_columns(_folder(name)):
        raise BioelError(Errors.B320.format(found=path or name))
    return starter_kb(path)


def starter_kb(setting: str = "") -> KnowledgeBase:
    """A knowledge base of the package, which is built if this is the first time.

    setting (str): "starter:mesh" or "" (diseases and chemicals), "starter:genes" (of man,
        mouse, rat, zebrafish, fly, worm and yeasts), "starter:species", "starter:cells" (cell
        lines).
    RAISES BioelError: [B334] on another, [B063] when the cache folder cannot be written; those of
        `build_kb`.
    """
    name = setting.removeprefix(PREFIX) or _MESH
    if name not in _CONCEPTS:
        known = ", ".join(f"{PREFIX}{known}" for known in _CONCEPTS)
        raise BioelError(Errors.B334.format(found=setting, known=known))
    folder, about = _folder(name), srsly.read_json(ASSETS / f"{name}.json")
    try:
        build_once(lambda: _read(_CONCEPTS[name]), folder, about=about)
    except OSError as error:
        about = {"folder": folder.parent, "error": error, "variable": CACHE_VARIABLE}
        raise BioelError(Errors.B063.format(**about)) from error
    return KnowledgeBase.open(folder)


def place_of(kb: KnowledgeBase) -> str:
    """The setting `kb` that opens a knowledge base: "" for that of MeSH, and for one in memory."""
    name = _name_of(kb)
    if name is None:
        return str(kb.path or "")
    return "" if name == _MESH else f"{PREFIX}{name}"


def is_starter(kb: KnowledgeBase) -> bool:
    """Whether this is a knowledge base of the package, without building it."""
    return _name_of(kb) is not None


def _name_of(kb: KnowledgeBase) -> str | None:
    places = {_folder(name): name for name in _CONCEPTS}
    return places.get(kb.path) if kb.path is not None else None


def _folder(name: str) -> Path:
    full = f"{name}-{_digest(_CONCEPTS[name])}-{SCHEMA_VERSION}.{NORMALIZER_VERSION}"
    # As `KnowledgeBase.open` has it, so that paths can be compared.
    return (cache_folder() / full).resolve()


@cache
def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=6).hexdigest()


def _read(path: Path) -> Iterator[Concept]:
    opened = lzma.open if path.suffix == ".xz" else gzip.open
    with opened(path, "rt", encoding="utf8") as lines:
        for record in map(srsly.json_loads, lines):
            names, types = (tuple(record.get(column, ())) for column in ("names", "types"))
            yield Concept(record["id"], names, types, replaced_by=record.get("replaced_by", ""))


KbSetting = str | list[str] | dict[str, str]
INCLUDED = "kb"  # folder in a saved pipe


def map_folders(value: KbSetting, change: Callable[[str], str]) -> KbSetting:
    """The setting with other folders."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {label: change(folder) for label, folder in value.items()}
    return [change(folder) for folder in value]


def folders_of(value: KbSetting) -> list[str]:
    """Different folders, in the order of the parts of a joined knowledge base."""
    if isinstance(value, str):
        return [value]
    return list(dict.fromkeys(value.values() if isinstance(value, dict) else value))


def open_kbs(value: KbSetting, open: Callable[[str], KnowledgeBase]) -> KnowledgeBase:
    """Open the knowledge bases of the setting, several as a joined one.

    open (Callable): From a folder to its knowledge base.
    RAISES BioelError: [B321] on another value; those of `open`.
    """
    strings = [value] if isinstance(value, str) else value
    if isinstance(value, dict):
        strings = [*value, *value.values()]
    if not (isinstance(strings, list) and strings and all(isinstance(s, str) for s in strings)):
        raise BioelError(Errors.B321.format(found=value))
    folders = folders_of(value)
    if len(folders) == 1:
        return open(folders[0])
    labels = value if isinstance(value, dict) else {}
    numbers = {label: folders.index(folder) for label, folder in labels.items()}
    return JoinedKnowledgeBase([open(folder) for folder in folders], labels=numbers)


def only_labels(value: KbSetting) -> tuple[str, ...]:
    """Labels of the mentions that may be linked, where all of them have the same folder; ():
    mentions of all labels may be.
    """
    return tuple(value) if isinstance(value, dict) and len(folders_of(value)) == 1 else ()


def setting_of(kb: KnowledgeBase, places: Sequence[str], *, before: KbSetting) -> KbSetting:
    """The setting that opens a knowledge base.

    places (Sequence[str]): Folder of each of its parts.
    before (KbSetting): The setting that it was opened by, for the labels of a single folder.
    """
    if isinstance(kb, JoinedKnowledgeBase):
        return {label: places[n] for label, n in kb.labels.items()} or list(places)
    return dict.fromkeys(only_labels(before), places[0]) or places[0]


def find_included(folder: Path, place: str) -> str:
    """Folder of a knowledge base that came with a pipe. RAISES BioelError: [B056] without it."""
    if not (folder / place).is_dir():
        raise BioelError(Errors.B056.format(path=folder / place))
    return str(folder / place)


def forget_folder(pipe: Path, kb: KbSetting) -> None:
    """Correct the config of a pipeline that includes its knowledge base, which spaCy has written
    beside the pipe, with the folder that the knowledge base was in on this machine.
    """
    path = pipe.parent / "config.cfg"
    if not path.is_file():
        return  # the pipe is saved alone
    config = load_config(path)
    if "kb" in (settings := config.get("components", {}).get(pipe.name, {})):
        settings["kb"] = kb
        with replacing_file(path) as temporary:
            config.to_disk(temporary, interpolate=False)


_CONTENTS = {
    "mesh": "diseases and chemicals",
    "genes": "genes of human, mouse, rat, zebrafish, fruit fly, nematode and yeasts",
    "species": "organisms",
    "cells": "cell lines",
}


def list_bundled() -> list[dict[str, str | int | None]]:
    """Describe the bundled knowledge bases, without building them, as JSON values.

    RETURNS (list[dict]): "name", such as "starter:genes", "contents", "source", "release",
        "licence" and "concepts", their number; None for a knowledge base that is not built yet.
    """
    kbs: list[dict[str, str | int | None]] = []
    for name, contents in _CONTENTS.items():
        meta, folder = srsly.read_json(ASSETS / f"{name}.json"), _folder(name)
        facts = {key: meta[key] for key in ("source", "release", "licence")}
        n_concepts = len(KnowledgeBase.open(folder)) if has_columns(folder) else None
        kbs.append({"name": PREFIX + name, "contents": contents, **facts, "concepts": n_concepts})
    return kbs
