"""The bundled starter: an encoder of biomedical names, and a knowledge base of the MeSH descriptors
of diseases and chemicals. Unset components of a linker default to it, offline.

The knowledge base is built and encoded at first use, in the user's cache folder: once, however many
threads and processes come first.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

import srsly

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.build.build import build_once
from spacy_bioel.kb.columns.joined import parts_of
from spacy_bioel.kb.columns.schema import SCHEMA_VERSION
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.kb.vectors.writing import is_encoded
from spacy_bioel.models.encoder_storage import drop_encoder, encoder_settings, read_encoder
from spacy_bioel.models.name_encoder import NameEncoder
from spacy_bioel.pipeline.linker.names import FrozenEncoder, needs_no_folder
from spacy_bioel.pipeline.linker.statistics import MentionStatistics
from spacy_bioel.text.normalize import NORMALIZER_VERSION
from spacy_bioel.types import Concept

ASSETS = Path(__file__).parents[2] / "assets"
ENCODER = ASSETS / "encoder"
_CONCEPTS = ASSETS / "mesh.jsonl.gz"
_ABOUT = ASSETS / "mesh.json"
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


def starter_kb() -> KnowledgeBase:
    """The knowledge base of the package, which is built if this is the first time.

    RAISES BioelError: [B063] when the cache folder cannot be written; those of `build_kb`.
    """
    folder = _folder()
    try:
        build_once(_concepts, folder, about=srsly.read_json(_ABOUT))
    except OSError as error:
        raise BioelError(
            Errors.B063.format(folder=folder.parent, error=error, variable=CACHE_VARIABLE)
        ) from error
    return KnowledgeBase.open(folder)


def ensure_vectors(kb: KnowledgeBase, encoder: FrozenEncoder) -> None:
    """Encode the knowledge base, if vectors of this encoder are absent."""
    if not is_encoded(kb, fingerprint=encoder.fingerprint):
        encoder.write(kb)


def is_starter(kb: KnowledgeBase) -> bool:
    """Whether this is the package's own knowledge base, without building it."""
    return kb.path == _folder()


def _folder() -> Path:
    name = f"mesh-{_digest(_CONCEPTS)}-{SCHEMA_VERSION}.{NORMALIZER_VERSION}"
    # As `KnowledgeBase.open` has it, so that paths can be compared.
    return (cache_folder() / name).resolve()


@cache
def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=6).hexdigest()


def _concepts() -> Iterator[Concept]:
    for record in srsly.read_gzip_jsonl(_CONCEPTS):
        yield Concept(record["id"], tuple(record["names"]), tuple(record["types"]))


def add_starter_encoder(model: NameEncoder, kb: KnowledgeBase) -> None:
    """Give the package's encoder to a model of its architecture and size; leave others alone.

    A large knowledge base without current vectors of this encoder is linked without it, with a
    warning [W064].
    """
    read_starter_encoder(model)
    large = [part for part in parts_of(kb) if not (needs_no_folder(part) or is_starter(part))]
    if model.attrs["tokenizer"] is None or not large:
        return
    fingerprint = FrozenEncoder.of(model).fingerprint
    for part in large:
        if not is_encoded(part, fingerprint=fingerprint):
            drop_encoder(model)
            warnings.warn(Warnings.W064.format(kb=part.where, n=part.n_names), stacklevel=2)
            return


def read_starter_encoder(model: NameEncoder) -> None:
    """Take the package's encoder, whatever the knowledge base, if the model is as it."""
    if _is_fit(model):
        read_encoder(model, ENCODER)


def _is_fit(model: NameEncoder) -> bool:
    return bool(srsly.read_json(ENCODER / "encoder.json") == encoder_settings(model))
