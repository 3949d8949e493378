"""Open the bundled knowledge bases, building them on first use, and resolve `kb` settings.

The `kb` setting is a knowledge base folder or a name such as "starter:genes" ("" is MeSH). A list
of folders and names is opened as a joined knowledge base; a mapping has one for each mention label.
"""

from __future__ import annotations

import gzip
import lzma
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import srsly
from spacy.util import load_config
from tqdm import tqdm

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.build import BuildReport, merge_records, write_columns
from spacy_bioel.kb.columns import SCHEMA_VERSION
from spacy_bioel.kb.folder import check_replaceable, editing, has_columns, is_kb
from spacy_bioel.kb.joined import JoinedKnowledgeBase
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.parallel import without_collection
from spacy_bioel.text.normalize import NORMALIZER_VERSION
from spacy_bioel.types import Concept

ASSETS_FOLDER = Path(__file__).parents[1] / "assets"
# Prefix of a bundled knowledge base's name in the `kb` setting.
STARTER_PREFIX = "starter:"
DEFAULT_KB = "mesh"
_CONTENTS = {
    DEFAULT_KB: "diseases and chemicals",
    "genes": "genes of human, mouse, rat, zebrafish, fruit fly, nematode and yeasts",
    "species": "organisms",
    "cells": "cell lines",
}
# Each file contains the compressed concepts of a bundled knowledge base. A JSON file with the same
# name contains its source, release and licence.
_CONCEPT_FILES = {name: next(ASSETS_FOLDER.glob(f"{name}.jsonl.?z")) for name in _CONTENTS}
# Environment variable that overrides the cache folder.
CACHE_VARIABLE = "SPACY_BIOEL_CACHE"


def cache_folder() -> Path:
    """Return the cache folder set in `CACHE_VARIABLE`, or else the operating system's default."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "spacy-bioel"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/spacy-bioel"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spacy-bioel"


def open_setting(path: str, base: Path = Path(), *, builds: bool = True) -> KnowledgeBase:
    """Open the bundled knowledge base or folder that a string in the `kb` setting refers to.

    base (Path): Folder that relative paths are resolved against.
    builds (bool): Whether a bundled knowledge base may be built.
    RAISES BioelError: The same errors as `starter_kb` and `KnowledgeBase.open`; without `builds`,
        [B320] if a bundled knowledge base has not been built yet.
    """
    if path and not path.startswith(STARTER_PREFIX):
        return KnowledgeBase.open(base / path)
    name = path.removeprefix(STARTER_PREFIX) or DEFAULT_KB
    if not builds and name in _CONCEPT_FILES and not has_columns(_bundled_folder(name)):
        raise BioelError(Errors.B320.format(found=path or name))
    return starter_kb(path)


def starter_kb(setting: str = "") -> KnowledgeBase:
    """Open a bundled knowledge base, building it first if it is not in the cache.

    setting (str): "starter:mesh" or "" (diseases and chemicals), "starter:genes" (of human, mouse,
        rat, zebrafish, fruit fly, nematode and yeasts), "starter:species", "starter:cells" (cell
        lines).
    RAISES BioelError: [B334] unknown name, [B063] if the cache folder cannot be written; the same
        errors as `build_kb`.
    """
    if (name := setting.removeprefix(STARTER_PREFIX) or DEFAULT_KB) not in _CONCEPT_FILES:
        known = ", ".join(f"{STARTER_PREFIX}{known}" for known in _CONCEPT_FILES)
        raise BioelError(Errors.B334.format(found=setting, known=known))
    folder, about = _bundled_folder(name), srsly.read_json(ASSETS_FOLDER / f"{name}.json")
    try:
        if not is_kb(folder):
            check_replaceable(folder)
            with editing(folder, to="build it", make=True) as transaction, without_collection():
                if not is_kb(folder):  # another thread or process may have built the KB by now
                    concepts, report = _read_concepts(name, folder), BuildReport()
                    drafts = merge_records(concepts, report=report, source=about["source"])
                    write = partial(write_columns, drafts=drafts, report=report, about=about)
                    transaction.replace_columns(write)
    except OSError as error:
        message = Errors.B063.format(folder=folder.parent, error=error, variable=CACHE_VARIABLE)
        raise BioelError(message) from error
    return KnowledgeBase.open(folder)


def place_of(kb: KnowledgeBase) -> str:
    """Return the `kb` setting for a knowledge base, or "" if it is MeSH or in memory."""
    if (name := bundled_name(kb)) is None:
        return str(kb.path or "")
    return "" if name == DEFAULT_KB else f"{STARTER_PREFIX}{name}"


def bundled_name(kb: KnowledgeBase) -> str | None:
    """Return the name of a bundled knowledge base, such as "genes", or None for any other."""
    names = {_bundled_folder(name): name for name in _CONCEPT_FILES}
    return names.get(kb.path) if kb.path is not None else None


def _bundled_folder(name: str) -> Path:
    digest = _file_digest(_CONCEPT_FILES[name])
    # Resolve the path, as `KnowledgeBase.open` does, so that `bundled_name` can compare paths.
    return (cache_folder() / f"{name}-{digest}-{SCHEMA_VERSION}.{NORMALIZER_VERSION}").resolve()


@cache
def _file_digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=6).hexdigest()


def _read_concepts(name: str, folder: Path) -> Iterator[Concept]:
    """Log a warning that a bundled knowledge base is being built, and stream its concepts."""
    LOGGER.warning(Warnings.W351.format(kb=STARTER_PREFIX + name, folder=folder))
    path = _CONCEPT_FILES[name]
    unpack = lzma.decompress if path.suffix == ".xz" else gzip.decompress
    lines = unpack(path.read_bytes()).splitlines()
    # `disable=None` shows the progress bar only on a terminal.
    for line in tqdm(lines, f"Building {name}", leave=False, disable=None):
        record = srsly.json_loads(line)
        record |= {key: tuple(record.get(key, ())) for key in ("names", "types", "xrefs")}
        yield Concept(**record)


KbSetting = str | list[str] | dict[str, str]
INCLUDED = "kb"  # name of the knowledge base folder in a saved pipe


def map_folders(value: KbSetting, change: Callable[[str], str]) -> KbSetting:
    """Return the `kb` setting with `change` applied to each folder in it."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {label: change(folder) for label, folder in value.items()}
    return [change(folder) for folder in value]


def folders_of(value: KbSetting) -> list[str]:
    """Return the distinct folders in the `kb` setting, in the order in which they are joined."""
    if isinstance(value, str):
        return [value]
    return list(dict.fromkeys(value.values() if isinstance(value, dict) else value))


def open_kbs(value: KbSetting, open: Callable[[str], KnowledgeBase]) -> KnowledgeBase:
    """Open the knowledge bases in the `kb` setting, joining them if there are several.

    open (Callable): Opens the knowledge base in a folder.
    RAISES BioelError: [B321] value of another type; the same errors as `open`.
    """
    strings = [value] if isinstance(value, str) else value
    if isinstance(value, dict):
        strings = [*value, *value.values()]
    if not (isinstance(strings, list) and strings and all(isinstance(s, str) for s in strings)):
        raise BioelError(Errors.B321.format(found=value))
    if len(folders := folders_of(value)) == 1:
        return open(folders[0])
    labels = value if isinstance(value, dict) else {}
    numbers = {label: folders.index(folder) for label, folder in labels.items()}
    return JoinedKnowledgeBase([open(folder) for folder in folders], labels=numbers)


def setting_of(kb: KnowledgeBase, places: Sequence[str], *, before: KbSetting) -> KbSetting:
    """Return the `kb` setting for a knowledge base whose parts are in these folders.

    places (Sequence[str]): Folder of each part of the knowledge base.
    before (KbSetting): Setting that opened the knowledge base; its labels are kept.
    """
    if isinstance(kb, JoinedKnowledgeBase):
        return {label: places[part] for label, part in kb.labels.items()} or list(places)
    return dict.fromkeys(before, places[0]) if isinstance(before, dict) else places[0]


def find_included(folder: Path, place: str) -> str:
    """Return the path of a knowledge base saved in a pipe. RAISES BioelError: [B056] if missing."""
    if not (folder / place).is_dir():
        raise BioelError(Errors.B056.format(path=folder / place))
    return str(folder / place)


def forget_paths(pipe: Path, **included: Any) -> None:
    """Update the pipeline's config so that the paths of included files point into a saved pipe.

    spaCy writes the config next to the pipe's folder, with the original paths, which may not exist
    on other machines.
    """
    path = pipe.parent / "config.cfg"
    if not path.is_file():
        return  # the pipe was saved without its pipeline
    config = load_config(path)
    if pipe.name in config.get("components", {}):
        config["components"][pipe.name] |= included
        with replacing_file(path) as temporary:
            config.to_disk(temporary, interpolate=False)


def list_bundled() -> list[dict[str, str | int | None]]:
    """Describe the bundled knowledge bases as JSON values, without building them.

    RETURNS (list[dict]): "name" (such as "starter:genes"), "contents", "source", "release",
        "licence" and "concepts" (their number; None if the knowledge base is not built yet).
    """
    kbs: list[dict[str, str | int | None]] = []
    for name, contents in _CONTENTS.items():
        meta, folder = srsly.read_json(ASSETS_FOLDER / f"{name}.json"), _bundled_folder(name)
        facts = {key: meta[key] for key in ("source", "release", "licence")}
        n = len(KnowledgeBase.open(folder)) if has_columns(folder) else None
        kbs.append({"name": STARTER_PREFIX + name, "contents": contents, **facts, "concepts": n})
    return kbs
