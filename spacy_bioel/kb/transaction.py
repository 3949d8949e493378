"""Transactions on a knowledge base: one writer at a time, for all kinds of changes.

Readers need no lock. Their open files never change, since a file that was put in place is not
written to again. A reader that opens the folder gets either the old generation or the new one; see
`kb.folder`.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file, sync
from spacy_bioel.kb.arrays import read_small
from spacy_bioel.kb.folder import (
    ABOUT_FILE,
    GENERATION,
    META_FILE,
    generation_name,
    generation_of,
    homes_in,
    is_kb,
    sealed_meta,
)

# Seconds that a writer waits for another one, and seconds until it logs a warning.
PATIENCE = 600.0
_QUIET = 2.0
_LOGGER = logging.getLogger(__name__)
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
            meta.json; see `kb.folder.meta_of`.
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

        kind, name (str): See `PARTS`, `vectors_name` and `trie_name` of `kb.folder`.
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
            _LOGGER.warning(_message(Warnings.W212, folder))
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
