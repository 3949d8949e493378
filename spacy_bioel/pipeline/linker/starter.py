"""The encoder of biomedical names and the knowledge bases that come with the package.

Unset components of a linker default to the encoder and MeSH. A knowledge base is built at first
use, in the user's cache folder, and MeSH encoded: once, however many threads and processes come
first.
"""

from __future__ import annotations

import gzip
import lzma
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

import srsly
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.build.build import build_once
from spacy_bioel.kb.columns.joined import parts_of
from spacy_bioel.kb.columns.layout import has_columns
from spacy_bioel.kb.columns.schema import SCHEMA_VERSION
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.index import BITS, QuantizedVectors, quantize
from spacy_bioel.kb.vectors.stored import is_encoded, stored_vectors, vectors_of
from spacy_bioel.models.name_encoder import (
    NameEncoder,
    drop_encoder,
    encoder_parts,
    encoder_settings,
    read_encoder,
)
from spacy_bioel.pipeline.linker.searches import FrozenEncoder, needs_no_folder
from spacy_bioel.pipeline.linker.settings import BY_KB
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.storage.atomic import replacing_file
from spacy_bioel.text.normalize import NORMALIZER_VERSION
from spacy_bioel.types import Concept

ASSETS = Path(__file__).parents[2] / "assets"
ENCODER = ASSETS / "encoder"
# As in the setting `kb`, where "" stands for the first too.
PREFIX = "starter:"
_MESH = "mesh"
# Files of the concepts; another beside each says what they are.
_NAMES = (_MESH, "genes", "species", "cells")
_CONCEPTS = {name: next(ASSETS.glob(f"{name}.jsonl.?z")) for name in _NAMES}
# Another folder for the cache than the system's usual one.
CACHE_VARIABLE = "SPACY_BIOEL_CACHE"


def starter_statistics() -> MentionStatistics:
    """Concepts that strings meant in the training documents that the package's encoder has seen."""
    return MentionStatistics(srsly.read_json(ASSETS / "memory.json"))


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


def ensure_vectors(kb: KnowledgeBase, encoder: FrozenEncoder) -> None:
    """Encode the knowledge base of MeSH, if vectors of this encoder, or their heads, are absent."""
    if _name_of(kb) == _MESH:
        stored = stored_vectors(kb, encoder.fingerprint)
        if not any(one.is_current and one.about["heads"] for one in stored):
            encoder.write(kb)


def string_vectors(encoder: FrozenEncoder, names: Sequence[str]) -> QuantizedVectors:
    """Vectors of training strings: those of the strings that were last asked for are kept in the
    cache folder, since encoding them takes most of a first document."""
    about = "\n".join([str(BITS), encoder.fingerprint, *names])
    digest = blake2b(about.encode("utf8", "surrogatepass"), digest_size=16).hexdigest()
    path = cache_folder() / f"strings-{digest}.safetensors"
    with suppress(OSError, SafetensorError):
        return vectors_of(load_file(path))
    vectors = quantize(encoder.encode(names))
    with suppress(OSError):  # an encoder of one's own may read a cache folder that is not there
        columns = {name: getattr(vectors, name) for name in ("codes", "fine", "scales")}
        with replacing_file(path, follow=False) as file:
            file.write_bytes(save(columns))
        for other in set(cache_folder().glob("strings-*.safetensors")) - {path}:
            other.unlink(missing_ok=True)
    return vectors


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


def is_dense(kb: KnowledgeBase, encoder: FrozenEncoder, *, mentions: str = "auto") -> bool:
    """Whether names are also searched for by their vectors.

    Those of genes and organisms of the package have few spellings, and are many: their vectors
    would be most of the first use, and of the memory. Other large knowledge bases without vectors
    are linked without the package's encoder, with a warning [W064]; one's own encoder wants them.

    mentions (str): Setting of the linker. What is found by the names needs no encoder, and no
        warning.
    """
    if name := _name_of(kb):
        return name == _MESH
    if needs_no_folder(kb) or is_encoded(kb, fingerprint=encoder.fingerprint):
        return True
    parts = encoder_parts(encoder.model)
    if any((ENCODER / name).read_bytes() != part() for name, part in parts.items()):
        return True  # not the package's
    _warn_of(kb, mentions)
    return False


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


def add_starter_encoder(model: NameEncoder, kb: KnowledgeBase, *, mentions: str) -> None:
    """Give the package's encoder to a model of its architecture and size; leave others alone.

    A large knowledge base without current vectors of this encoder is linked without it, see
    `is_dense`.
    """
    read_starter_encoder(model)
    for part in parts_of(kb) if model.attrs["tokenizer"] is not None else ():
        if needs_no_folder(part) or is_starter(part):
            continue
        if not is_encoded(part, fingerprint=FrozenEncoder.of(model).fingerprint):
            drop_encoder(model)
            _warn_of(part, mentions)
            return


def _warn_of(kb: KnowledgeBase, mentions: str) -> None:
    if mentions not in BY_KB:
        warnings.warn(Warnings.W064.format(kb=kb.where, n=kb.n_names), stacklevel=3)


def read_starter_encoder(model: NameEncoder) -> None:
    """Take the package's encoder, with any knowledge base, if the model has its architecture."""
    if srsly.read_json(ENCODER / "encoder.json") == encoder_settings(model):
        read_encoder(model, ENCODER)
