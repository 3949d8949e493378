"""Schema of the files of a knowledge base, and checks of the files against it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.arrays import RawFile
from spacy_bioel.kb.columns.files import (
    UNSEALED,
    check_contents,
    check_seal,
    checksum,
    edited,
    map_folder,
    read_array,
    read_json,
    sealed_json,
)
from spacy_bioel.text.normalize import NORMALIZER_VERSION

# Raise it whenever a column is added, dropped or gets another meaning.
SCHEMA_VERSION = 2

META_FILE = "meta.json"
VECTOR_COLUMNS = {
    "codes": "int8",  # codes, fine and scales: see kb.vectors.index
    "fine": "uint8",
    "scales": "float32",
    "digests": "uint64",  # digests of the normalised names, see kb.vectors.writing
}
# Of many vectors without an approximate index: see kb.vectors.heads.
HEAD_COLUMNS = {"heads": "int8", "projection": "float32"}
STRING_COLUMNS = (
    "ids", "names", "definitions", "type_names", "retired",
    "xrefs",  # of each concept, separated by `XREF_SEPARATOR`
    "sources",  # that names came from: of the build, and of each later addition
)  # fmt: skip
XREF_SEPARATOR = "\t"
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
    "name_sources": "int32",  # row of the source of each entry of concept_names
    "type_offsets": "int64",
    "type_ids": "int32",
    "parent_offsets": "int64",
    "parents": "int32",
    # Inverted index of character 3-grams, see kb.words.ngrams.
    "ngram_codes": "uint32",
    "ngram_offsets": "int64",
    "ngram_names": "int32",
    "ngram_norms": "float32",
} | {f"{name}.offsets": "uint64" for name in STRING_COLUMNS}

# Columns with the same number of rows; offsets have one entry more.
_SAME_ROWS = (
    ("names.offsets", "name_offsets", "name_keys", "name_key_rows", "ngram_norms"),
    ("ids.offsets", "definitions.offsets", "concept_offsets", "type_offsets", "parent_offsets")
    + ("id_keys", "id_key_rows", "xrefs.offsets"),
    ("name_concepts", "name_is_preferred", "concept_names", "name_sources"),
    ("retired.offsets", "retired_keys", "retired_key_rows", "retired_targets"),
    ("ngram_codes", "ngram_offsets"),
)

COLUMN_FILES = tuple(f"{name}.txt" for name in STRING_COLUMNS) + tuple(
    f"{name}.npy" for name in ARRAY_COLUMNS
)
KB_FILES = (META_FILE, *COLUMN_FILES)


def write_meta(folder: Path, *, counts: Mapping[str, int], **about: str) -> str:
    """Write meta.json beside finished columns, as the last file of a build.

    counts (Mapping[str, int]): Counts of the build report.
    about (str): source, release and licence.
    RETURNS (str): Fingerprint of the columns.
    """
    columns = {
        name: _describe(name, raw) | {"checksum": checksum(raw)}
        for name, raw in map_folder(folder, COLUMN_FILES).items()
    }
    fingerprint = fingerprint_of(columns)
    meta = {
        "schema": SCHEMA_VERSION,
        "normalizer": NORMALIZER_VERSION,
        "fingerprint": fingerprint,
        "created": datetime.now(UTC).date().isoformat(),
        **about,
        "counts": dict(counts),
        "columns": columns,
    }
    (folder / META_FILE).write_bytes(sealed_meta(meta))
    return fingerprint


def sealed_meta(meta: Mapping[str, Any]) -> bytes:
    """Contents of meta.json, with its own checksum among those of the columns."""
    columns = {**meta["columns"], META_FILE: {"checksum": UNSEALED}}
    return sealed_json({**meta, "columns": columns})


def fingerprint_of(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Fingerprint of columns: a hash over their checksums, the same for the same contents."""
    lines = "".join(f"{name} {columns[name]['checksum']}\n" for name in sorted(columns))
    return blake2b(lines.encode("utf8"), digest_size=16).hexdigest()


def checked_meta(files: Mapping[str, RawFile], *, where: str) -> dict[str, Any]:
    """Read meta.json, and compare the presence, size, type and length of every column with it.

    RAISES BioelError: [B020] no knowledge base, [B409] the name of one of the package, [B408] a
        saved pipeline, [B030] unreadable meta.json, [B021] another schema, [B022] another
        normaliser, [B210] edited meta.json, [B023] missing, truncated or foreign column, [B024]
        damaged small column.
    """
    if META_FILE not in files:
        of_package = Path(where).name.startswith("starter:")
        raise BioelError((Errors.B409 if of_package else Errors.B020).format(path=where))
    text = files[META_FILE].tobytes()
    meta = read_json(text, where=where, file=META_FILE)
    try:
        schema, normalizer, columns = meta["schema"], meta["normalizer"], dict(meta["columns"])
    except (ValueError, KeyError, TypeError) as error:
        if {"lang", "pipeline"} <= set(meta):  # spaCy's
            raise BioelError(Errors.B408.format(path=where)) from None
        raise BioelError(Errors.B030.format(path=where, file=META_FILE, error=error)) from None
    if type(schema) is not int or schema != SCHEMA_VERSION:
        raise BioelError(Errors.B021.format(path=where, found=schema, expected=SCHEMA_VERSION))
    if normalizer != NORMALIZER_VERSION:
        raise BioelError(
            Errors.B022.format(path=where, found=normalizer, expected=NORMALIZER_VERSION)
        )
    _check_text(text, meta, where=where)
    for name in COLUMN_FILES:
        _check_column(name, files.get(name), columns.get(name), where=where)
    for group in _SAME_ROWS:
        rows = [columns[f"{name}.npy"]["length"] - ("offsets" in name) for name in group]
        for name, found in zip(group, rows, strict=True):
            if found != rows[0]:
                raise _bad_column(where, f"{name}.npy", f"{rows[0]} rows", f"{found} rows")
    expected = fingerprint_of({name: columns[name] for name in COLUMN_FILES})
    if (found := meta.get("fingerprint")) != expected:
        raise edited(where, META_FILE, expected=f"fingerprint {expected}", found=found)
    return meta


def check_columns(files: Mapping[str, RawFile], meta: Mapping[str, Any], *, where: str) -> None:
    """Compare every column with its checksum; `checked_meta` has compared that of meta.json.

    RAISES BioelError: [B024] with the first column that differs.
    """
    for name in COLUMN_FILES:
        check_contents(files[name], meta["columns"][name]["checksum"], where=where, file=name)


def _check_text(text: bytes, meta: Mapping[str, Any], *, where: str) -> None:
    """Compare meta.json with its own checksum, which those of earlier versions lack."""
    columns = meta["columns"]
    if unknown := columns.keys() - set(KB_FILES):
        expected, found = f"entries of {len(COLUMN_FILES)} files", f"one of {min(unknown)!r}"
        raise edited(where, META_FILE, expected=expected, found=found)
    counts = meta.get("counts")
    if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
        raise edited(where, META_FILE, expected="counts", found=counts)
    if META_FILE in columns:
        own = columns[META_FILE]
        seal = own.get("checksum") if isinstance(own, dict) else None
        check_seal(text, seal, where=where, file=META_FILE)


def _check_column(name: str, raw: RawFile | None, recorded: object, *, where: str) -> None:
    if not isinstance(recorded, dict):
        raise _bad_column(where, name, "an entry in meta.json", "none")
    expected = {key: value for key, value in recorded.items() if key != "checksum"}
    if raw is None:
        raise _bad_column(where, name, expected, "no file")
    if raw.size != expected.get("bytes"):
        raise _bad_column(where, name, expected, f"{raw.size} bytes")
    try:
        found = _describe(name, raw)
    except ValueError as error:
        raise _bad_column(where, name, expected, str(error)) from None
    if found != expected or found.get("dtype") != ARRAY_COLUMNS.get(name.removesuffix(".npy")):
        raise _bad_column(where, name, expected, found)
    check_contents(raw, recorded.get("checksum"), where=where, file=name, if_small=True)


def _describe(name: str, raw: RawFile) -> dict[str, Any]:
    if not name.endswith(".npy"):
        return {"bytes": int(raw.size)}
    array = read_array(raw)
    if array.ndim != 1:
        raise ValueError(f"{array.ndim} dimensions")
    return {"bytes": int(raw.size), "dtype": array.dtype.name, "length": int(array.size)}


def _bad_column(where: str, name: str, *values: str | dict[str, Any]) -> BioelError:
    """Error [B023] of a column; values: what was expected and what was found."""
    expected, found = (
        value if isinstance(value, str) else ", ".join(f"{k} {v}" for k, v in value.items())
        for value in values
    )
    return BioelError(Errors.B023.format(path=where, file=name, expected=expected, found=found))
