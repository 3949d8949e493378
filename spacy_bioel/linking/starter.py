"""The encoder of biomedical names and the knowledge bases that come with the package.

Unset components of a linker default to the encoder and MeSH. A knowledge base is built at first
use, in the user's cache folder, and MeSH encoded: once, however many threads and processes come
first.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b

import srsly
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from spacy_bioel.errors import Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.bundled import ASSETS_FOLDER, DEFAULT_KB, bundled_name, cache_folder, is_starter
from spacy_bioel.kb.joined import parts_of
from spacy_bioel.kb.knowledge_base import KnowledgeBase
from spacy_bioel.kb.vector_files import is_encoded, stored_vectors, vectors_of
from spacy_bioel.kb.vectors import QuantizedVectors, quantize
from spacy_bioel.linking.evidence import AliasTable
from spacy_bioel.linking.searches import FrozenEncoder, needs_no_folder
from spacy_bioel.models.name_encoder import (
    NameEncoder,
    drop_encoder,
    encoder_parts,
    encoder_settings,
    read_encoder,
)
from spacy_bioel.settings import BY_DICTIONARY

ENCODER = ASSETS_FOLDER / "encoder"


def starter_alias_table() -> AliasTable:
    """Concepts that strings meant in the training documents that the package's encoder has seen."""
    return AliasTable(srsly.read_json(ASSETS_FOLDER / "alias_table.json"))


def ensure_vectors(kb: KnowledgeBase, encoder: FrozenEncoder) -> None:
    """Encode the knowledge base of MeSH, if vectors of this encoder, or their heads, are absent."""
    if bundled_name(kb) == DEFAULT_KB:
        stored = stored_vectors(kb, encoder.fingerprint)
        if not any(one.is_current and one.about["coarse"] for one in stored):
            encoder.write(kb)


def string_vectors(encoder: FrozenEncoder, names: Sequence[str]) -> QuantizedVectors:
    """Vectors of training strings: those of the strings that were last asked for are kept in the
    cache folder, since encoding them takes most of a first document."""
    about = "\n".join([encoder.fingerprint, *names])
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


def is_dense(kb: KnowledgeBase, encoder: FrozenEncoder, *, mentions: str = "auto") -> bool:
    """Whether names are also searched for by their vectors.

    Those of genes and organisms of the package have few spellings, and are many: their vectors
    would be most of the first use, and of the memory. Other large knowledge bases without vectors
    are linked without the package's encoder, with a warning [W064]; one's own encoder wants them.

    mentions (str): Setting of the linker. What is found by the names needs no encoder, and no
        warning.
    """
    if name := bundled_name(kb):
        return name == DEFAULT_KB
    if needs_no_folder(kb) or is_encoded(kb, fingerprint=encoder.fingerprint):
        return True
    parts = encoder_parts(encoder.model)
    if any((ENCODER / name).read_bytes() != part() for name, part in parts.items()):
        return True  # not the package's
    _warn_of(kb, mentions)
    return False


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
    if mentions != BY_DICTIONARY:
        warnings.warn(Warnings.W064.format(kb=kb.where, n=kb.n_names), stacklevel=3)


def read_starter_encoder(model: NameEncoder) -> None:
    """Take the package's encoder, with any knowledge base, if the model has its architecture."""
    if srsly.read_json(ENCODER / "encoder.json") == encoder_settings(model):
        read_encoder(model, ENCODER)
