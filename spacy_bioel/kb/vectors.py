"""One unit vector for each name of a knowledge base, as a float16 column in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns import (
    RawFile,
    checksum,
    map_folder,
    npy_bytes,
    read_array,
    replacing_file,
)
from spacy_bioel.kb.schema import VECTOR_FILES
from spacy_bioel.kb.store import KnowledgeBase
from spacy_bioel.text.normalize import normalize_name

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
Vectors = NDArray[np.float16]

_VECTORS, _ABOUT = VECTOR_FILES
_EXPONENT = np.uint16(0x7C00)
_BLOCK = 1 << 16  # names that are sorted by length together


def write_vectors(
    kb: KnowledgeBase,
    encode: Encode,
    *,
    fingerprint: str,
    dim: int,
    batch_size: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Encode all names and keep the vectors with the knowledge base, in place of any before.

    kb (KnowledgeBase): Its folder gets vectors.npy and vectors.json; in memory it carries them.
    encode (Encode): From n names, as `normalize_name` returns them, to vectors of shape (n, dim).
    fingerprint (str): Of the encoder; `open_vectors` compares it.
    batch_size (int): Names in one call of `encode`.
    progress (Callable | None): Called after each batch with the number of its names.
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape; vectors
        from before are then as they were.
    """
    shape = kb.n_names, dim
    about = {"fingerprint": fingerprint, "kb": kb.fingerprint, "n": kb.n_names, "dim": dim}
    if kb.path is None:
        vectors = np.empty(shape, np.float16)
        encode_names(kb, encode, out=vectors, batch_size=batch_size, progress=progress)
        raw = npy_bytes(vectors)
        kb.attach({_VECTORS: raw, _ABOUT: _to_json(about | {"checksum": checksum(raw)})})
        return
    with replacing_file(kb.path / _VECTORS) as path:
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
        encode_names(kb, encode, out=mapped, batch_size=batch_size, progress=progress)
        mapped.flush()
        del mapped
        raw = map_folder(path.parent, [path.name])[path.name]
        about["checksum"] = checksum(raw)
        # Vectors without a description are no vectors, whereas those of one encoder under the
        # description of another would be believed.
        (kb.path / _ABOUT).unlink(missing_ok=True)
    with replacing_file(kb.path / _ABOUT) as path:
        path.write_bytes(_to_json(about).tobytes())


def encode_names(
    kb: KnowledgeBase,
    encode: Encode,
    *,
    out: Vectors,
    batch_size: int = 4096,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Fill `out` with the unit vectors of all names, in row order.

    Within large blocks, names of like length go into one batch, which wastes less padding.

    out (Vectors): Written to. Shape (n_names, dim).
    RAISES BioelError: [B035] when the encoder returns NaN, infinity or another shape.
    """
    for start in range(0, kb.n_names, _BLOCK):
        rows = range(start, min(start + _BLOCK, kb.n_names))
        names = [normalize_name(name) for name in kb.names.take(rows)]
        order = sorted(range(len(names)), key=lambda i: len(names[i]))
        for at in range(0, len(order), batch_size):
            batch = order[at : at + batch_size]
            texts = [names[i] for i in batch]
            vectors = np.asarray(encode(texts), dtype=np.float32)
            _check_encoded(vectors, texts, dim=out.shape[1])
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            unit = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
            out[start + np.array(batch)] = unit.astype(np.float16)
            if progress is not None:
                progress(len(batch))


def has_vectors(kb: KnowledgeBase) -> bool:
    """Whether names of this knowledge base were encoded, by whatever encoder."""
    return all(name in kb.files() for name in VECTOR_FILES)


def is_encoded(kb: KnowledgeBase, *, fingerprint: str) -> bool:
    """Whether the vectors of a knowledge base are of these names, by this encoder.

    RAISES BioelError: [B030] an unreadable vectors.json.
    """
    if not has_vectors(kb):
        return False
    _, about = _read(kb)
    return about["fingerprint"] == fingerprint and about["kb"] == kb.fingerprint


def open_vectors(kb: KnowledgeBase | str | Path, *, fingerprint: str | None) -> Vectors:
    """Map the vectors of a knowledge base.

    kb (KnowledgeBase | str | Path): The knowledge base, or its folder.
    fingerprint (str | None): Of the encoder that will embed the queries; None: any encoder.
    RETURNS (Vectors): Read-only unit vectors. Shape (n_names, dim).
    RAISES BioelError: [B031] another encoder's, [B032] no vectors, [B033] cut or foreign,
        [B034] another knowledge base's, [B030] an unreadable vectors.json.
    """
    if not isinstance(kb, KnowledgeBase):
        kb = KnowledgeBase.open(kb)
    raw, about = _read(kb)
    if fingerprint is not None and about["fingerprint"] != fingerprint:
        found = about["fingerprint"]
        raise BioelError(Errors.B031.format(path=kb.where, found=found, expected=fingerprint))
    if about["kb"] != kb.fingerprint:
        raise BioelError(
            Errors.B034.format(path=kb.where, found=about["kb"], expected=kb.fingerprint)
        )
    expected = f"float16 of shape {(kb.n_names, about['dim'])}"
    try:
        vectors = read_array(raw)
    except ValueError as error:
        raise _bad_vectors(kb, expected, f"{raw.size} bytes ({error})") from None
    found = f"{vectors.dtype.name} of shape {vectors.shape}"
    if found != expected:
        raise _bad_vectors(kb, expected, found)
    for start in range(0, len(vectors), _BLOCK):
        # All bits of the exponent: NaN or infinity. Faster than asking for float16 numbers.
        bits = vectors[start : start + _BLOCK].view(np.uint16) & _EXPONENT
        if (bits == _EXPONENT).any():
            raise _bad_vectors(kb, "numbers", f"NaN or infinity after row {start}")
    return vectors


def verify_vectors(kb: KnowledgeBase) -> None:
    """Read all vectors and compare their checksum.

    RAISES BioelError: [B024] when it differs, [B032] when there are none.
    """
    raw, about = _read(kb)
    expected, found = about["checksum"], checksum(raw)
    if found != expected:
        raise BioelError(
            Errors.B024.format(path=kb.where, file=_VECTORS, expected=expected, found=found)
        )


def _read(kb: KnowledgeBase) -> tuple[RawFile, dict[str, Any]]:
    files = kb.files()
    if _VECTORS not in files or _ABOUT not in files:
        raise BioelError(Errors.B032.format(path=kb.where))
    try:
        about = json.loads(files[_ABOUT].tobytes())
        about = {key: about[key] for key in ("fingerprint", "kb", "n", "dim", "checksum")}
    except (ValueError, KeyError, TypeError) as error:
        raise BioelError(Errors.B030.format(path=kb.where, file=_ABOUT, error=error)) from None
    return files[_VECTORS], about


def _check_encoded(vectors: NDArray[np.float32], names: Sequence[str], *, dim: int) -> None:
    expected = len(names), dim
    if vectors.shape != expected:
        found = f"numbers of shape {vectors.shape}"
    elif not np.isfinite(vectors).all():
        found = "NaN or infinity"
    else:
        return
    raise BioelError(
        Errors.B035.format(found=found, first=names[0], last=names[-1], expected=expected)
    )


def _bad_vectors(kb: KnowledgeBase, expected: str, found: str) -> BioelError:
    return BioelError(Errors.B033.format(path=kb.where, expected=expected, found=found))


def _to_json(about: dict[str, Any]) -> RawFile:
    return np.frombuffer(json.dumps(about, indent=1).encode("utf8"), dtype=np.uint8)
