"""What the folder of a knowledge base holds, and the check that it is all there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.files import RawFile, checksum, map_folder, read_array
from spacy_bioel.text.normalize import NORMALIZER_VERSION

# Raise it whenever a column is added, dropped or changes its meaning.
SCHEMA_VERSION = 1

META_FILE = "meta.json"
VECTOR_COLUMNS = {
    "codes": "int8",  # this one and the next two: see kb.quantized
    "fine": "uint8",
    "scales": "float32",
    "digests": "uint64",  # of the normalised names, to know them again; see kb.encoding
}
STRING_COLUMNS = ("ids", "names", "definitions", "type_names", "retired")
ARRAY_COLUMNS = {
    # Sorted keys and the row of each, for binary search.
    "name_keys": "uint64",
    "name_key_rows": "int32",
    "id_keys": "uint64",
    "id_key_rows": "int32",
    "retired_keys": "uint64",
    "retired_key_rows": "int32",
    "retired_targets": "int32",  # the current concept of each retired id
    # Ragged (CSR) columns: offsets and values.
    "name_offsets": "int64",
    "name_concepts": "int32",
    "name_is_preferred": "bool",  # one per entry of name_concepts
    "concept_offsets": "int64",
    "concept_names": "int32",  # the preferred name first
    "type_offsets": "int64",
    "type_ids": "int32",
    "parent_offsets": "int64",
    "parents": "int32",
    # Inverted index of character 3-grams, see kb.ngrams.
    "ngram_codes": "uint32",
    "ngram_offsets": "int64",
    "ngram_names": "int32",
    "ngram_norms": "float32",
} | {f"{name}.offsets": "uint64" for name in STRING_COLUMNS}

COLUMN_FILES = tuple(f"{name}.txt" for name in STRING_COLUMNS) + tuple(
    f"{name}.npy" for name in ARRAY_COLUMNS
)
KB_FILES = (META_FILE, *COLUMN_FILES)


def write_meta(folder: Path, *, counts: Mapping[str, int], **about: str) -> str:
    """Write meta.json beside finished columns; the last file of a build.

    folder (Path): Holds every file of COLUMN_FILES.
    counts (Mapping[str, int]): The build report.
    about (str): source, release and licence.
    RETURNS (str): The fingerprint of the columns.
    """
    columns = {}
    for name, raw in map_folder(folder, COLUMN_FILES).items():
        columns[name] = _describe(name, raw) | {"checksum": checksum(raw)}
    meta = {
        "schema": SCHEMA_VERSION,
        "normalizer": NORMALIZER_VERSION,
        "fingerprint": fingerprint_of(columns),
        "created": datetime.now(UTC).date().isoformat(),
        **about,
        "counts": dict(counts),
        "columns": columns,
    }
    (folder / META_FILE).write_text(json.dumps(meta, indent=1), encoding="utf8")
    return str(meta["fingerprint"])


def fingerprint_of(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """One hash over the checksums of all columns: equal contents, equal fingerprint."""
    lines = "".join(f"{name} {columns[name]['checksum']}\n" for name in sorted(columns))
    return blake2b(lines.encode("utf8"), digest_size=16).hexdigest()


def checked_meta(files: Mapping[str, RawFile], *, where: str) -> dict[str, Any]:
    """Read meta.json and hold every column's presence, size, type and length against it.

    files (Mapping[str, RawFile]): The files of a knowledge base by name.
    where (str): The folder, for messages.
    RETURNS (dict[str, Any]): The parsed meta.json.
    RAISES BioelError: [B020] no knowledge base, [B030] unreadable meta.json, [B021] another
        schema, [B022] another normaliser, [B023] a column that is missing, cut or foreign.
    """
    if META_FILE not in files:
        raise BioelError(Errors.B020.format(path=where))
    try:
        meta = json.loads(files[META_FILE].tobytes())
        schema, normalizer, columns = meta["schema"], meta["normalizer"], dict(meta["columns"])
    except (ValueError, KeyError, TypeError) as error:
        raise BioelError(Errors.B030.format(path=where, file=META_FILE, error=error)) from None
    if schema != SCHEMA_VERSION:
        raise BioelError(Errors.B021.format(path=where, found=schema, expected=SCHEMA_VERSION))
    if normalizer != NORMALIZER_VERSION:
        raise BioelError(
            Errors.B022.format(path=where, found=normalizer, expected=NORMALIZER_VERSION)
        )
    for name in COLUMN_FILES:
        _check_column(name, files.get(name), columns.get(name), where=where)
    return dict(meta)


def _check_column(
    name: str, raw: RawFile | None, recorded: Mapping[str, Any] | None, *, where: str
) -> None:
    if recorded is None:
        raise _bad_column(where, name, expected="an entry in meta.json", found="none")
    expected = {key: value for key, value in recorded.items() if key != "checksum"}
    if raw is None:
        raise _bad_column(where, name, expected=_words(expected), found="no file")
    if raw.size != expected.get("bytes"):
        raise _bad_column(where, name, expected=_words(expected), found=f"{raw.size} bytes")
    try:
        found = _describe(name, raw)
    except ValueError as error:
        raise _bad_column(where, name, expected=_words(expected), found=str(error)) from None
    dtype = ARRAY_COLUMNS.get(name.removesuffix(".npy"))
    if found != expected or found.get("dtype") != dtype:
        raise _bad_column(where, name, expected=_words(expected), found=_words(found))


def _describe(name: str, raw: RawFile) -> dict[str, Any]:
    if not name.endswith(".npy"):
        return {"bytes": int(raw.size)}
    array = read_array(raw)
    return {"bytes": int(raw.size), "dtype": np.dtype(array.dtype).name, "length": int(array.size)}


def _words(description: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in description.items())


def _bad_column(where: str, name: str, *, expected: str, found: str) -> BioelError:
    return BioelError(Errors.B023.format(path=where, file=name, expected=expected, found=found))
