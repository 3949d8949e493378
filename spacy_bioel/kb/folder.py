"""The folder of a knowledge base: its files, their schema, and checks against it.

    meta.json                           names the generation; replaced last, in one step
    columns.3f2a9c01b7d4/               the generation: all columns; never changed
    vectors/9f3a.18a0.../about.json     description of the vectors of one encoder
    vectors/9f3a.18a0.../codes.npy ...  vectors of the names of one generation; never changed
    tries/5b1e....3f2a9c01b7d4/         trie of the names of this generation by some word pieces

In memory a knowledge base is a mapping of files: columns by their names, those of a home (of
vectors, or of a trie) by their paths.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.arrays import (
    UNSEALED,
    RawFile,
    check_contents,
    check_seal,
    checksum,
    edited,
    map_folder,
    read_array,
    read_json,
    read_small,
    sealed_json,
)
from spacy_bioel.text.normalize import NORMALIZER_VERSION

# Raise it whenever a column is added, dropped or gets another meaning.
SCHEMA_VERSION = 3

META_FILE = "meta.json"
VECTOR_COLUMNS = {
    "codes": "int8",  # codes, fine and scales: see kb.vectors
    "fine": "uint8",
    "scales": "float32",
    "digests": "uint64",  # digests of the normalised names, see kb.vector_files
}
# Of many vectors without an approximate index: see kb.vectors.
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
    # Inverted index of character 3-grams, see kb.spelling.
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


def meta_of(folder: Path, *, counts: Mapping[str, int], **about: str) -> dict[str, Any]:
    """Describe the finished columns in a folder, for meta.json.

    counts (Mapping[str, int]): Counts of the build report.
    about (str): source, release and licence.
    """
    columns = {
        name: {"bytes": int(raw.size), "checksum": checksum(raw)}
        for name, raw in map_folder(folder, COLUMN_FILES).items()
    }
    return {
        "schema": SCHEMA_VERSION,
        "normalizer": NORMALIZER_VERSION,
        "fingerprint": fingerprint_of(columns),
        "created": datetime.now(UTC).date().isoformat(),
        **about,
        "counts": dict(counts),
        "columns": columns,
    }


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
    lengths = {
        name: _checked_length(name, files.get(name), columns.get(name), where=where)
        for name in COLUMN_FILES
    }
    for group in _SAME_ROWS:
        n_rows = {f"{name}.npy": lengths[f"{name}.npy"] - ("offsets" in name) for name in group}
        expected, *_ = n_rows.values()
        for name, n in n_rows.items():
            if n != expected:
                raise _bad_column(where, name, f"{expected} rows", f"{n} rows")
    fingerprint = fingerprint_of({name: columns[name] for name in COLUMN_FILES})
    if (found := meta.get("fingerprint")) != fingerprint:
        raise edited(where, META_FILE, expected=f"fingerprint {fingerprint}", found=found)
    return meta


def _check_text(text: bytes, meta: Mapping[str, Any], *, where: str) -> None:
    """Compare meta.json with its own checksum, and check the parts of it that are read."""
    counts = meta.get("counts")
    if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
        raise edited(where, META_FILE, expected="counts", found=counts)
    own = meta["columns"].get(META_FILE)
    seal = own.get("checksum") if isinstance(own, dict) else None
    check_seal(text, seal, where=where, file=META_FILE)


def _checked_length(name: str, raw: RawFile | None, recorded: object, *, where: str) -> int:
    """Compare a column with meta.json (its contents if it is small), and return its length.

    RAISES BioelError: [B023] missing, truncated or foreign, [B024] damaged.
    """
    about = recorded if isinstance(recorded, dict) else {}
    dtype = ARRAY_COLUMNS.get(name.removesuffix(".npy"))
    of = f" of {dtype}" if dtype else ""
    expected, n_bytes = f"{about.get('bytes')} bytes{of}", f"{0 if raw is None else raw.size} bytes"
    if raw is None or raw.size != about.get("bytes"):
        raise _bad_column(where, name, expected, "no file" if raw is None else n_bytes)
    array: NDArray[Any] = raw
    if dtype:
        try:
            array = read_array(raw)
        except ValueError as error:
            raise _bad_column(where, name, expected, f"{n_bytes} ({error})") from None
        if array.dtype != dtype or array.ndim != 1:
            found = f"{n_bytes} of {array.dtype} in {array.ndim} dimensions"
            raise _bad_column(where, name, expected, found)
    check_contents(raw, about.get("checksum"), where=where, file=name, if_small=True)
    return len(array)


def _bad_column(where: str, name: str, expected: str, found: str) -> BioelError:
    """Return error [B023] of a column."""
    return BioelError(Errors.B023.format(path=where, file=name, expected=expected, found=found))


ABOUT_FILE = "about.json"
TRIE_COLUMNS = ("first_child", "pieces", "leaves", "name_offsets", "names")
# Files of a home, by its kind: the folder that it is in.
PARTS = {
    "vectors": (ABOUT_FILE, *(f"{x}.npy" for x in (*VECTOR_COLUMNS, *HEAD_COLUMNS)), "ann"),
    "tries": (ABOUT_FILE, *(f"{name}.npy" for name in TRIE_COLUMNS)),
}
# Name of a home: of the encoder or the word pieces, and of the time or the names.
_HOMES = {
    "vectors": re.compile(r"[\w-]+\.[0-9a-f]{16}", re.ASCII),
    "tries": re.compile(r"[0-9a-f]{16}\.[0-9a-f]{12}"),
}
GENERATION = re.compile(r"columns\.[0-9a-f]{12}(\.\d+)?")
_LEFTOVERS = re.compile(rf"\.(lock|holder|encoding|new\..*|meta\.json\..*)|{GENERATION.pattern}")
# Attempts to open, attempts with the same meta.json, and seconds between attempts.
_MOST, _UNCHANGED, _PAUSE = 200, 3, 0.005


# -- Columns ------------------------------------------------------------------------------------


def map_columns(folder: Path) -> dict[str, RawFile]:
    """Map meta.json and the columns that it describes; missing files are left out.

    If a writer removes the columns meanwhile, meta.json has changed, and both are read again.
    """
    before, unchanged = None, 0
    for _ in range(_MOST):
        meta = read_small(folder, META_FILE)
        files = meta | map_folder(folder / generation_of(meta), COLUMN_FILES)
        now = bytes(meta.get(META_FILE, b""))
        unchanged = unchanged + 1 if now == before else 0
        if not meta or len(files) == len(KB_FILES) or unchanged == _UNCHANGED:
            break
        before = now
        time.sleep(_PAUSE)
    return files


def generation_of(files: Mapping[str, RawFile]) -> str:
    """Folder of the columns that meta.json names; "" without a readable meta.json."""
    name = str(_parsed(files, META_FILE).get("generation"))
    return name if GENERATION.fullmatch(name) else ""


def generation_name(fingerprint: str) -> str:
    """Name of the folder of columns, the same for the same columns."""
    return f"columns.{blake2b(fingerprint.encode('utf8'), digest_size=6).hexdigest()}"


def is_kb(folder: Path) -> bool:
    """Whether a folder holds a knowledge base of any schema, by its meta.json."""
    meta = _parsed(read_small(folder, META_FILE), META_FILE)
    columns = meta.get("columns")
    return (
        isinstance(meta.get("schema"), int) and isinstance(columns, dict) and "ids.txt" in columns
    )


def has_columns(folder: Path) -> bool:
    """Whether a folder has some files of a knowledge base, though others may be missing."""
    return is_kb(folder) or any(folder.glob("columns.*/*.npy"))


def check_replaceable(out: Path) -> None:
    """Refuse to overwrite anything but a knowledge base or an empty folder.

    RAISES BioelError: [B029].
    """
    if not out.exists() or is_kb(out):
        return
    is_empty = out.is_dir() and all(map(_is_leftover, out.iterdir()))
    if not is_empty and not is_kb(out):  # another writer may have finished meanwhile
        raise BioelError(Errors.B029.format(path=out))


def _is_leftover(path: Path) -> bool:
    """Whether a path is a leftover of a killed writer in a folder without a knowledge base."""
    if path.name == "vectors" and path.is_dir():
        return all(_HOMES["vectors"].fullmatch(home.name) for home in path.iterdir())
    return bool(_LEFTOVERS.fullmatch(path.name))


# -- Vectors and tries --------------------------------------------------------------------------


def vectors_name(fingerprint: str) -> str:
    """New name for vectors of an encoder; newer names sort after older ones.

    RAISES ValueError: When the fingerprint has characters other than letters, digits, "_" and "-".
    """
    name = f"{fingerprint}.{time.time_ns():016x}"
    if not _HOMES["vectors"].fullmatch(name):
        raise ValueError(f"{fingerprint!r} is no fingerprint of an encoder")
    return name


def trie_name(pieces: str, kb: str) -> str:
    """Name of a trie, by the fingerprints of its word pieces and of the knowledge base."""
    return f"{pieces}.{generation_name(kb).partition('.')[2]}"


def encoder_of(name: str) -> str:
    """Fingerprint of the encoder, from the name of its vectors."""
    return name.rpartition(".")[0]


def homes_in(folder: Path, kind: str) -> list[str]:
    """Names of the homes of a kind in a folder, described or not."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = sorted(path.name for path in (folder / kind).iterdir())
        return [name for name in names if _HOMES[kind].fullmatch(name)]
    return []


def homes_of(files: Mapping[str, RawFile], kind: str) -> dict[str, dict[str, RawFile]]:
    """Files of each home, by their names in its folder; newer vectors come after older ones."""
    found: dict[str, dict[str, RawFile]] = {}
    for path in sorted(files):
        name, _, part = path.removeprefix(f"{kind}/").partition("/")
        if _HOMES[kind].fullmatch(name) and part in PARTS[kind]:
            found.setdefault(name, {})[part] = files[path]
    return {name: parts for name, parts in found.items() if ABOUT_FILE in parts}


def describe_home(folder: Path, kind: str, about: Mapping[str, Any]) -> None:
    """Write about.json of a home beside its finished files, with all checksums, and its own."""
    files = map_folder(folder, PARTS[kind][1:])
    checksums = {name: checksum(raw) for name, raw in files.items()}
    sealed = sealed_json({**about, "checksums": checksums, "text": UNSEALED})
    (folder / ABOUT_FILE).write_bytes(sealed)


def described(parts: Mapping[str, RawFile], *, home: str, where: str) -> dict[str, Any]:
    """Read about.json of a home.

    RAISES BioelError: [B030] unreadable, [B210] edited.
    """
    text, file = parts[ABOUT_FILE].tobytes(), f"{home}/{ABOUT_FILE}"
    about = read_json(text, where=where, file=file)
    check_seal(text, about.get("text"), where=where, file=file)
    return about


def check_home(parts: Mapping[str, RawFile], *, home: str, where: str) -> None:
    """Read all files of a home, and compare checksums.

    RAISES BioelError: Those of `described`, [B024] with the first file that is missing or differs.
    """
    for name, expected in described(parts, home=home, where=where)["checksums"].items():
        check_contents(parts.get(name), expected, where=where, file=f"{home}/{name}")


def in_home(kind: str, name: str, parts: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Files of a home, by their paths."""
    return {f"{kind}/{name}/{part}": raw for part, raw in parts.items()}


def map_vectors(folder: Path, *, of: str | None = None) -> dict[str, RawFile]:
    """Map the vectors of all encoders.

    of (str | None): Only vectors of the knowledge base with this fingerprint; None: all.
    """
    files: dict[str, RawFile] = {}
    for name in homes_in(folder, "vectors"):
        home = folder / "vectors" / name
        parts = read_small(home, ABOUT_FILE) | map_folder(home, PARTS["vectors"][1:])
        is_wanted = of in (None, _parsed(parts, ABOUT_FILE).get("kb"))
        if is_wanted and (home / ABOUT_FILE).is_file():  # writers remove the description first
            files |= in_home("vectors", name, parts)
    return files


def map_tries(folder: Path, *, of: str) -> dict[str, RawFile]:
    """Map the tries of the names of the knowledge base with this fingerprint."""
    files: dict[str, RawFile] = {}
    for name in homes_in(folder, "tries"):
        if name == trie_name(name.partition(".")[0], of):
            files |= in_home("tries", name, map_folder(folder / "tries" / name, PARTS["tries"]))
    return files


def known_files(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Select the files of a knowledge base."""
    known = {name: files[name] for name in KB_FILES if name in files}
    for kind in PARTS:
        for name, parts in homes_of(files, kind).items():
            known |= in_home(kind, name, parts)
    return known


def _parsed(files: Mapping[str, RawFile], name: str) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing or unreadable."""
    with suppress(ValueError, KeyError, RecursionError):
        found = json.loads(bytes(files[name]))
        return found if isinstance(found, dict) else {}
    return {}
