"""The folder of a knowledge base: where its files are, and transactions that change them.

    meta.json                           names the generation; replaced last, in one step
    columns.3f2a9c01b7d4/               the generation: all columns; never changed
    vectors/9f3a.18a0.../about.json     description of the vectors of one encoder
    vectors/9f3a.18a0.../codes.npy ...  vectors of the names of one generation; never changed
    tries/5b1e....3f2a9c01b7d4/         trie of the names of this generation by some word pieces

In memory a knowledge base is a mapping of files: columns by their names, those of a home (of
vectors, or of a trie) by their paths.

Of transactions there is one at a time, for all kinds of changes. Readers need no lock: their open
files never change, since a file that was put in place is not written to again. A reader that opens
the folder gets either the old generation or the new one.
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
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file, sync
from spacy_bioel.kb.columns import (
    COLUMN_FILES,
    KB_FILES,
    META_FILE,
    UNSEALED,
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
    "codes": "int8",  # codes, fine and scales: see kb.vectors
    "fine": "uint8",
    "scales": "float32",
    "digests": "uint64",  # digests of the normalised names, see kb.vector_files
}
# Of many vectors without an approximate index: see kb.vectors.
COARSE_COLUMNS = {"coarse": "int8", "projection": "float32"}
ABOUT_FILE = "about.json"
TRIE_COLUMNS = ("first_child", "pieces", "leaves", "name_offsets", "names")
# Files of a home, by its kind: the folder that it is in.
PARTS = {
    "vectors": (ABOUT_FILE, *(f"{x}.npy" for x in (*VECTOR_COLUMNS, *COARSE_COLUMNS)), "ann"),
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


# -- Transactions --------------------------------------------------------------------------------

# Seconds that a writer waits for another one, and seconds until it logs a warning.
PATIENCE = 600.0
_QUIET = 2.0
_LOCK, _HOLDER = ".lock", ".holder"


@contextmanager
def editing(folder: Path, *, to: str, make: bool = False) -> Iterator[Transaction]:
    """Lock a knowledge base for one writer, among all threads and processes.

    The block has to read inside it, or check again, whatever its change depends on. Leftovers of a
    killed writer are removed first. A writer that waits for more than two seconds logs [W212].

    to (str): Purpose of this writer, shown to waiting writers, e.g. "add concepts".
    make (bool): Make the folder if it is missing, and remove it if it stays empty.
    YIELDS (Transaction): Replaces the columns, adds and removes vectors.
    RAISES BioelError: [B212] when another writer does not finish in time, [B485] a symbolic link
        within the folder.
    RAISES OSError: When the folder cannot be written.
    """
    _refuse_links(folder)
    lock = FileLock(folder / _LOCK)
    _acquire(lock, folder, make=make)
    try:
        _say_who(folder, to)
        transaction = Transaction(folder)
        transaction.tidy()
        yield transaction
    finally:
        with suppress(OSError):
            (folder / _HOLDER).unlink(missing_ok=True)
            if make and os.listdir(folder) == [_LOCK]:
                (folder / _LOCK).unlink()
                folder.rmdir()
        lock.release()


class Transaction:
    """Changes that the one writer of a knowledge base may make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def replace_columns(self, write: Callable[[Path], Mapping[str, Any]]) -> None:
        """Replace all columns atomically.

        write (Callable): Writes the columns to an empty folder, and returns the contents of
            meta.json; see `kb.columns.meta_of`.
        """
        with self._fresh_folder() as fresh:
            meta = write(fresh)
            name = generation = generation_name(str(meta["fingerprint"]))
            n = 0
            while (self.folder / generation).exists():  # never touched, not even by equal ones
                n += 1
                generation = f"{name}.{n}"
            _move(fresh, self.folder / generation)
            with replacing_file(self.folder / META_FILE, follow=False) as path:
                path.write_bytes(sealed_meta({**meta, "generation": generation}))
        self.tidy()

    @contextmanager
    def adding(self, kind: str, name: str) -> Iterator[Path]:
        """Add vectors or a trie when the block succeeds, unless they are there.

        kind, name (str): See `PARTS`, `vectors_name` and `trie_name` of this module.
        YIELDS (Path): Empty folder for their files.
        """
        with self._fresh_folder() as fresh:
            yield fresh
            if not (self.folder / kind / name).exists():
                self.put(fresh, kind, name)

    def put(self, filled: Path, kind: str, name: str) -> Path:
        """Move a folder of vectors or of a trie to its place, and return that."""
        home = self.folder / kind / name
        home.parent.mkdir(exist_ok=True)
        _move(filled, home)
        return home

    def remove_vectors(self, names: Iterable[str]) -> None:
        """Remove vectors by their names."""
        for name in names:
            home = self.folder / "vectors" / name
            # The description goes first: without it, readers ignore the rest.
            (home / ABOUT_FILE).unlink(missing_ok=True)
            _remove([home])

    def tidy(self) -> None:
        """Remove columns that meta.json does not name, and files that were never put in place."""
        folder = self.folder
        _remove([*folder.glob(".new.*"), *folder.glob(f".{META_FILE}.*")])
        homes = (folder / "vectors" / name for name in homes_in(folder, "vectors"))
        _remove(home for home in homes if not (home / ABOUT_FILE).exists())
        meta = read_small(folder, META_FILE)
        if meta and not is_kb(folder):
            return  # damaged: nothing says which columns are the right ones
        generation = generation_of(meta)
        found = (path for path in folder.iterdir() if GENERATION.fullmatch(path.name))
        _remove(path for path in found if path.name != generation)
        # By the number that follows it, a generation of the same columns has the same tries.
        old = (name for name in homes_in(folder, "tries") if name[-12:] not in generation)
        _remove(folder / "tries" / name for name in old)

    @contextmanager
    def _fresh_folder(self) -> Iterator[Path]:
        fresh = self.folder / f".new.{uuid4().hex[:12]}"
        fresh.mkdir()
        try:
            yield fresh
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _refuse_links(folder: Path) -> None:
    """Refuse links by which a change could lead out of the folder, which itself may be one.

    RAISES BioelError: [B485].
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():
                raise BioelError(Errors.B485.format(path=path, kb=folder))


def _acquire(lock: FileLock, folder: Path, *, make: bool) -> None:
    end = time.monotonic() + PATIENCE
    quiet = min(_QUIET, PATIENCE)
    while True:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=quiet)
            return
        except Timeout:
            rest = end - time.monotonic()
            if rest <= 0:
                raise BioelError(_message(Errors.B212, folder)) from None
            LOGGER.warning(_message(Warnings.W212, folder))
            quiet = rest
        except FileNotFoundError:
            if not make:  # else another writer failed and removed the folder that it had made
                raise


def _message(template: str, folder: Path) -> str:
    holder = "another thread or process"
    with suppress(OSError, ValueError):
        holder = (folder / _HOLDER).read_text("utf8")
    return template.format(path=folder, holder=holder)


def _say_who(folder: Path, to: str) -> None:
    """Write who holds the lock; stale between the death of a writer and the next one's note."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    (folder / _HOLDER).unlink(missing_ok=True)
    with (folder / _HOLDER).open("x", encoding="utf8") as file:  # "x": never another's file
        file.write(f"process {os.getpid()} on {socket.gethostname()} ({to}, since {since})")


def _move(filled: Path, place: Path) -> None:
    """Give a folder its name, when all in it is on disk."""
    for path in filled.iterdir():
        sync(path)
    sync(filled)
    filled.rename(place)
    sync(place.parent)


def _remove(paths: Iterable[Path]) -> None:
    """Remove files and folders, except those that the system refuses to (open in a reader)."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
