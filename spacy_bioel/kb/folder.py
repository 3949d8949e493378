"""The knowledge base folder: where its files are, and transactions that change them.

    meta.json                           refers to the generation; replaced last, in one step
    columns.3f2a9c01b7d4/               the generation: all columns; never changed
    vectors/9f3a.18a0.../about.json     description of the vectors of one encoder
    vectors/9f3a.18a0.../codes.npy ...  vectors of one generation's names; never changed
    tries/5b1e....3f2a9c01b7d4/         trie of this generation's names, in word pieces

A folder in vectors/ or tries/ is called a home: it contains one set of vectors, or one trie. In
memory, a knowledge base is a mapping of files: columns by name, files in homes by path.

Only one transaction runs at a time, whatever it changes. Readers need no lock: their open files
never change, since nothing writes to a file after it is put in place. A reader that opens the
folder gets either the old or the new generation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file, scratch_folder, sync
from spacy_bioel.kb.columns import (
    COLUMN_FILES,
    KB_FILES,
    META_FILE,
    UNSEALED,
    Origin,
    RawFile,
    check_contents,
    check_seal,
    checksum,
    map_folder,
    read_json,
    read_small,
    sealed_json,
    sealed_meta,
)

VECTOR_COLUMNS = {
    "codes": "int8",  # codes, fine and scales: see `kb.vectors`
    "fine": "uint8",
    "scales": "float32",
    "digests": "uint64",  # digests of the normalised names (see `kb.vector_files`)
}
# Used for many vectors without an approximate index; see `kb.vectors`.
COARSE_COLUMNS = {"coarse": "int8", "projection": "float32"}
ABOUT_FILE = "about.json"
TRIE_COLUMNS = ("first_child", "pieces", "leaves", "name_offsets", "names")
# Files of each kind of home.
HOME_FILES = {
    "vectors": (ABOUT_FILE, *(f"{x}.npy" for x in (*VECTOR_COLUMNS, *COARSE_COLUMNS)), "ann"),
    "tries": (ABOUT_FILE, *(f"{name}.npy" for name in TRIE_COLUMNS)),
}
# Names of homes: an encoder fingerprint and a time, or a word-piece fingerprint and a generation.
_HOME_NAMES = {
    "vectors": re.compile(r"[\w-]+\.[0-9a-f]{16}", re.ASCII),
    "tries": re.compile(r"[0-9a-f]{16}\.[0-9a-f]{12}"),
}
GENERATION = re.compile(r"columns\.[0-9a-f]{12}(\.\d+)?")
_LEFTOVERS = re.compile(rf"\.(lock|holder|encoding|new\..*|meta\.json\..*)|{GENERATION.pattern}")
# Max. attempts to map the columns, max. attempts with the same meta.json, and seconds in between.
_MAX_ATTEMPTS, _MAX_UNCHANGED, _PAUSE = 200, 3, 0.005


# -- Columns ------------------------------------------------------------------------------------


def map_columns(folder: Path) -> dict[str, RawFile]:
    """Map meta.json and the columns that it describes; missing files are left out.

    If a writer removes the columns in the meantime, meta.json has changed, and both are read again.
    """
    old_text, unchanged = None, 0
    for _ in range(_MAX_ATTEMPTS):
        meta = read_small(folder, META_FILE)
        files = meta | map_folder(folder / generation_of(meta), COLUMN_FILES)
        text = bytes(meta.get(META_FILE, b""))
        unchanged = unchanged + 1 if text == old_text else 0
        if not meta or len(files) == len(KB_FILES) or unchanged == _MAX_UNCHANGED:
            break
        old_text = text
        time.sleep(_PAUSE)
    return files


def generation_of(files: Mapping[str, RawFile]) -> str:
    """Return the name of the column folder in meta.json; "" without a readable meta.json."""
    name = str(_parse_json(files, META_FILE).get("generation"))
    return name if GENERATION.fullmatch(name) else ""


def generation_name(fingerprint: str) -> str:
    """Return the name of the folder for columns with this fingerprint."""
    return f"columns.{blake2b(fingerprint.encode('utf8'), digest_size=6).hexdigest()}"


def is_kb(folder: Path) -> bool:
    """Return whether a folder contains the meta.json of a knowledge base, of any schema."""
    meta = _parse_json(read_small(folder, META_FILE), META_FILE)
    schema, columns = meta.get("schema"), meta.get("columns")
    return isinstance(schema, int) and isinstance(columns, dict) and "ids.txt" in columns


def has_columns(folder: Path) -> bool:
    """Return whether a folder contains knowledge base files, even if some are missing."""
    return is_kb(folder) or any(folder.glob("columns.*/*.npy"))


def check_replaceable(out: Path) -> None:
    """Check that a path is unused, empty or a knowledge base. RAISES BioelError: [B029] if not."""
    if not out.exists() or is_kb(out):
        return
    is_empty = out.is_dir() and all(map(_is_leftover, out.iterdir()))
    if not is_empty and not is_kb(out):  # another writer may have finished by now
        raise BioelError(Errors.B029.format(path=out))


def _is_leftover(path: Path) -> bool:
    """Return whether a killed writer left this path in a folder without a knowledge base."""
    if path.name == "vectors" and path.is_dir():
        return all(_HOME_NAMES["vectors"].fullmatch(home.name) for home in path.iterdir())
    return bool(_LEFTOVERS.fullmatch(path.name))


# -- Vectors and tries --------------------------------------------------------------------------


def vectors_name(fingerprint: str) -> str:
    """Return a new name for an encoder's vectors; newer names sort after older names.

    RAISES ValueError: If the fingerprint has characters other than letters, digits, "_" and "-".
    """
    name = f"{fingerprint}.{time.time_ns():016x}"
    if not _HOME_NAMES["vectors"].fullmatch(name):
        raise ValueError(f"{fingerprint!r} is not the fingerprint of an encoder")
    return name


def trie_name(pieces: str, kb: str) -> str:
    """Return the name of a trie, from the fingerprints of its word pieces and the KB."""
    return f"{pieces}.{generation_name(kb).partition('.')[2]}"


def encoder_of(name: str) -> str:
    """Return an encoder's fingerprint, from the name of its vectors."""
    return name.rpartition(".")[0]


def homes_in(folder: Path, kind: str) -> list[str]:
    """Return the names of all homes of a kind in a folder, even without about.json."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = sorted(path.name for path in (folder / kind).iterdir())
        return [name for name in names if _HOME_NAMES[kind].fullmatch(name)]
    return []


def homes_of(files: Mapping[str, RawFile], kind: str) -> dict[str, dict[str, RawFile]]:
    """Group the files of a kind by home, older vectors before newer vectors."""
    homes: dict[str, dict[str, RawFile]] = {}
    for path in sorted(files):
        name, _, file = path.removeprefix(f"{kind}/").partition("/")
        if _HOME_NAMES[kind].fullmatch(name) and file in HOME_FILES[kind]:
            homes.setdefault(name, {})[file] = files[path]
    return {name: parts for name, parts in homes.items() if ABOUT_FILE in parts}


def describe_home(folder: Path, kind: str, about: Mapping[str, Any]) -> None:
    """Write about.json for the finished files in a home, with their checksums and its own."""
    files = map_folder(folder, HOME_FILES[kind][1:])
    checksums = {name: checksum(raw) for name, raw in files.items()}
    sealed = sealed_json({**about, "checksums": checksums, "text": UNSEALED})
    (folder / ABOUT_FILE).write_bytes(sealed)


def described(parts: Mapping[str, RawFile], *, home: str, where: str) -> dict[str, Any]:
    """Read the about.json in a home. RAISES BioelError: [B030] unreadable, [B210] edited."""
    text, origin = parts[ABOUT_FILE].tobytes(), Origin(where, f"{home}/{ABOUT_FILE}")
    about = read_json(text, origin)
    check_seal(text, about.get("text"), origin)
    return about


def check_home(parts: Mapping[str, RawFile], *, home: str, where: str) -> None:
    """Read all files in a home and compare their checksums.

    RAISES BioelError: [B024] for the first file that is missing or differs; the same errors as
        `described`.
    """
    for name, expected in described(parts, home=home, where=where)["checksums"].items():
        check_contents(parts.get(name), expected, Origin(where, f"{home}/{name}"))


def in_home(kind: str, name: str, parts: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Return the files in a home by their paths in the knowledge base folder."""
    return {f"{kind}/{name}/{file}": raw for file, raw in parts.items()}


def map_homes(folder: Path, kind: str, *, fingerprint: str | None = None) -> dict[str, RawFile]:
    """Map the files in the homes of a kind.

    fingerprint (str | None): Fingerprint of the knowledge base that they belong to; None: any.
    """
    files: dict[str, RawFile] = {}
    for name in homes_in(folder, kind):
        home = folder / kind / name
        parts = read_small(home, ABOUT_FILE) | map_folder(home, HOME_FILES[kind][1:])
        of_kb = fingerprint in (None, _parse_json(parts, ABOUT_FILE).get("kb"))
        if kind == "tries" and fingerprint is not None:
            of_kb = name == trie_name(name.partition(".")[0], fingerprint)
        if of_kb and (home / ABOUT_FILE).is_file():  # writers remove the description first
            files |= in_home(kind, name, parts)
    return files


def known_files(files: Mapping[str, RawFile]) -> dict[str, RawFile]:
    """Select the files that belong to a knowledge base."""
    known = {name: files[name] for name in KB_FILES if name in files}
    for kind in HOME_FILES:
        for name, parts in homes_of(files, kind).items():
            known |= in_home(kind, name, parts)
    return known


def _parse_json(files: Mapping[str, RawFile], name: str) -> dict[str, Any]:
    """Return the object in a JSON file; {} if the file is missing or unreadable."""
    with suppress(ValueError, KeyError, RecursionError):
        parsed = json.loads(bytes(files[name]))
        return parsed if isinstance(parsed, dict) else {}
    return {}


# -- Transactions --------------------------------------------------------------------------------

PATIENCE = 600.0  # max. seconds that a writer waits for another writer
_WARN_AFTER = 2.0  # seconds until a waiting writer logs a warning
_LOCK_FILE, _HOLDER_FILE = ".lock", ".holder"


@contextmanager
def editing(folder: Path, *, to: str, make: bool = False) -> Iterator[Transaction]:
    """Lock a knowledge base for one writer, excluding other threads and processes.

    Everything that a change depends on must be read, or checked again, inside the block. Files that
    a killed writer left unfinished are removed first. A writer that waits for over two seconds logs
    [W212].

    to (str): Purpose of this writer, shown to waiting writers, e.g. "add concepts".
    make (bool): Make the folder if it is missing, and remove it if it stays empty.
    YIELDS (Transaction): Can replace the columns, and add and remove vectors.
    RAISES BioelError: [B212] if another writer does not finish in time, [B485] if the folder
        contains a symbolic link.
    RAISES OSError: If the folder cannot be written.
    """
    # A change through a link inside the folder could write elsewhere. The folder may be a link.
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise BioelError(Errors.B485.format(path=path, kb=folder))
    lock = FileLock(folder / _LOCK_FILE)
    _acquire(lock, folder, make=make)
    try:
        # Record who holds the lock. A killed writer's note stays until the next writer replaces it.
        (folder / _HOLDER_FILE).unlink(missing_ok=True)
        with (folder / _HOLDER_FILE).open("x", encoding="utf8") as file:  # "x": do not follow links
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(f"process {os.getpid()} on {socket.gethostname()} ({to}, since {since})")
        transaction = Transaction(folder)
        transaction.tidy()
        yield transaction
    finally:
        with suppress(OSError):
            (folder / _HOLDER_FILE).unlink(missing_ok=True)
            if make and os.listdir(folder) == [_LOCK_FILE]:
                (folder / _LOCK_FILE).unlink()
                folder.rmdir()
        lock.release()


@dataclass(frozen=True)
class Transaction:
    """Changes that a writer can make while it holds the lock on a knowledge base."""

    folder: Path

    def replace_columns(self, write: Callable[..., Mapping[str, Any]], **arguments: Any) -> None:
        """Replace all columns atomically.

        write (Callable): Writes the columns to an empty folder, and returns the contents of
            meta.json; see `kb.columns.meta_of`.
        arguments: Further arguments of `write`.
        """
        with scratch_folder(self.folder / "new") as fresh:
            meta = write(fresh, **arguments)
            name = generation = generation_name(str(meta["fingerprint"]))
            n = 0
            # Existing columns are never touched, not even to replace them with identical columns.
            while (self.folder / generation).exists():
                n += 1
                generation = f"{name}.{n}"
            _move(fresh, self.folder / generation)
            with replacing_file(self.folder / META_FILE, follow=False) as path:
                path.write_bytes(sealed_meta({**meta, "generation": generation}))
        self.tidy()

    @contextmanager
    def adding(self, kind: str, name: str) -> Iterator[Path]:
        """Add vectors or a trie when the block succeeds, unless they already exist.

        kind, name (str): See `HOME_FILES`, `vectors_name` and `trie_name`.
        YIELDS (Path): Empty folder for the files.
        """
        with scratch_folder(self.folder / "new") as fresh:
            yield fresh
            if not (self.folder / kind / name).exists():
                self.put(fresh, kind, name)

    def put(self, filled: Path, kind: str, name: str) -> Path:
        """Move a finished folder with vectors or a trie to its final path, and return the path."""
        home = self.folder / kind / name
        home.parent.mkdir(exist_ok=True)
        _move(filled, home)
        return home

    def remove_vectors(self, names: Iterable[str]) -> None:
        for name in names:
            home = self.folder / "vectors" / name
            # The description is removed first: without it, readers ignore the other files.
            (home / ABOUT_FILE).unlink(missing_ok=True)
            _remove([home])

    def tidy(self) -> None:
        """Remove columns that meta.json does not refer to, and files that were not put in place."""
        folder = self.folder
        _remove([*folder.glob(".new.*"), *folder.glob(f".{META_FILE}.*")])
        homes = (folder / "vectors" / name for name in homes_in(folder, "vectors"))
        _remove(home for home in homes if not (home / ABOUT_FILE).exists())
        meta = read_small(folder, META_FILE)
        if meta and not is_kb(folder):
            return  # with a damaged meta.json, it is unknown which columns are current
        generation = generation_of(meta)
        generations = (path for path in folder.iterdir() if GENERATION.fullmatch(path.name))
        _remove(path for path in generations if path.name != generation)
        # A trie is valid for all generations with identical columns, whose names differ only in the
        # number at the end.
        old_tries = (name for name in homes_in(folder, "tries") if name[-12:] not in generation)
        _remove(folder / "tries" / name for name in old_tries)


def _acquire(lock: FileLock, folder: Path, *, make: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    timeout = min(_WARN_AFTER, PATIENCE)
    while True:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
            return
        except Timeout:
            timeout = deadline - time.monotonic()
            if timeout <= 0:
                raise BioelError(_with_holder(Errors.B212, folder)) from None
            LOGGER.warning(_with_holder(Warnings.W212, folder))
        except FileNotFoundError:
            # With `make`, another writer must have failed and removed the folder that it made.
            if not make:
                raise


def _with_holder(template: str, folder: Path) -> str:
    """Fill in a message with the folder and the current holder of its lock."""
    holder = "another thread or process"
    with suppress(OSError, ValueError):
        holder = (folder / _HOLDER_FILE).read_text("utf8")
    return template.format(path=folder, holder=holder)


def _move(filled: Path, place: Path) -> None:
    """Rename a folder once all its files are on disk."""
    for path in filled.iterdir():
        sync(path)
    sync(filled)
    filled.rename(place)
    sync(place.parent)


def _remove(paths: Iterable[Path]) -> None:
    """Remove files and folders; skip any the OS refuses to delete while a reader has them open."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
