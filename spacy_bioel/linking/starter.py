"""The bundled name encoder and alias table, for linkers without their own.

Bundled knowledge bases are built in the user's cache folder on first use, and MeSH is also encoded.
This happens only once, even if several threads and processes start at the same time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b

import srsly
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from tqdm import tqdm

from spacy_bioel.errors import LOGGER, Warnings
from spacy_bioel.files import replacing_file
from spacy_bioel.kb.bundled import ASSETS_FOLDER, DEFAULT_KB, bundled_name, cache_folder
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
    """Load the alias table built from the bundled encoder's training documents."""
    return AliasTable(srsly.read_json(ASSETS_FOLDER / "alias_table.json"))


def ensure_vectors(kb: KnowledgeBase, encoder: FrozenEncoder) -> None:
    """Encode the bundled MeSH if it lacks vectors from this encoder."""
    if bundled_name(kb) == DEFAULT_KB:
        stored = stored_vectors(kb, encoder.fingerprint)
        if not any(vectors.is_current for vectors in stored):
            if not stored:
                LOGGER.warning(Warnings.W352.format(n=kb.n_names, kb=kb.where))
            with tqdm(desc="Encoding", total=kb.n_names, leave=False, disable=None) as bar:
                encoder.write(kb, progress=bar.update)


def string_vectors(encoder: FrozenEncoder, names: Sequence[str]) -> QuantizedVectors:
    """Encode alias-table strings, or load their cached vectors.

    The latest vectors are cached on disk, because encoding would otherwise take up most of the time
    for the first document.
    """
    content = "\n".join([encoder.fingerprint, *names])
    digest = blake2b(content.encode("utf8", "surrogatepass"), digest_size=16).hexdigest()
    path = cache_folder() / f"strings-{digest}.safetensors"
    with suppress(OSError, SafetensorError):
        return vectors_of(load_file(path))
    vectors = quantize(encoder.encode(names))
    with suppress(OSError):  # the cache folder may be missing or read-only
        columns = {name: getattr(vectors, name) for name in ("codes", "fine", "scales")}
        with replacing_file(path, follow=False) as file:
            file.write_bytes(save(columns))
        for other in set(cache_folder().glob("strings-*.safetensors")) - {path}:
            other.unlink(missing_ok=True)
    return vectors


def is_dense(kb: KnowledgeBase, encoder: FrozenEncoder, *, mentions: str = "auto") -> bool:
    """Return whether to use the dense search for a knowledge base.

    Among the bundled knowledge bases, only MeSH has a dense search. Genes and organisms have many
    names that vary little in spelling, so their vectors would cost more memory and time on first
    use than everything else. If another large knowledge base has no vectors, the bundled encoder is
    switched off with warning [W064]; any other encoder needs vectors.

    mentions (str): The linker's `mentions` setting. With "dictionary", there is no warning.
    """
    if name := bundled_name(kb):
        return name == DEFAULT_KB
    if needs_no_folder(kb) or is_encoded(kb, fingerprint=encoder.fingerprint):
        return True
    parts = encoder_parts(encoder.model)
    if any((ENCODER / name).read_bytes() != part() for name, part in parts.items()):
        return True  # not the bundled encoder
    _warn_of_no_vectors(kb, mentions)
    return False


def add_starter_encoder(model: NameEncoder, kb: KnowledgeBase, *, mentions: str) -> None:
    """Load the bundled encoder into a model with the same architecture and size.

    The encoder is dropped again if a large knowledge base lacks current vectors from it (see
    `is_dense`).
    """
    read_starter_encoder(model)
    for part in parts_of(kb) if model.attrs["tokenizer"] is not None else ():
        if needs_no_folder(part) or bundled_name(part):
            continue
        if not is_encoded(part, fingerprint=FrozenEncoder.of(model).fingerprint):
            drop_encoder(model)
            _warn_of_no_vectors(part, mentions)
            return


def _warn_of_no_vectors(kb: KnowledgeBase, mentions: str) -> None:
    if mentions != BY_DICTIONARY:
        warnings.warn(Warnings.W064.format(kb=kb.where, n=kb.n_names), stacklevel=3)


def read_starter_encoder(model: NameEncoder) -> None:
    """Load the bundled encoder if the architecture fits, regardless of the knowledge base."""
    if srsly.read_json(ENCODER / "encoder.json") == encoder_settings(model):
        read_encoder(model, ENCODER)
