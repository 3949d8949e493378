"""Changing a knowledge base: one writer at a time, whatever it is called.

Readers need no lock. What they have open stays as it is, since nothing is written into a file that
was put in place; what they open is the old state or the new one, see `kb.columns.layout`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from spacy_bioel.errors import BioelError, Errors, Warnings
from spacy_bioel.kb.columns.layout import (
    ABOUT_FILE,
    GENERATION,
    OLD_VECTORS_FILE,
    VECTORS_FOLDER,
    generation_name,
    generation_of,
    is_kb,
    is_old_set,
    map_meta,
    set_name,
)
from spacy_bioel.kb.columns.schema import COLUMN_FILES, META_FILE, sealed_meta
from spacy_bioel.storage.atomic import replacing_file, sync

# Seconds that a writer waits for another one, and after which it says so.
PATIENCE = 600.0
_QUIET = 2.0
_LOGGER = logging.getLogger(__name__)
_LOCK, _HOLDER = ".lock", ".holder"


@contextmanager
def editing(
    folder: Path, *, to: str, patience: float = PATIENCE, make: bool = False
) -> Iterator[Transaction]:
    """Be the only one who changes a knowledge base, among all threads and processes.

    What the block bases its change on has to be read, or checked again, inside it. What a writer
    that was killed has left is removed first. Who waits for more than two seconds logs [W212].

    folder (Path): Of the knowledge base.
    to (str): What this writer is about, for others that have to wait: "add concepts".
    patience (float): Seconds to wait for another writer.
    make (bool): Make the folder if it is not there; it is removed if it stays empty.
    YIELDS (Transaction): To put things in place.
    RAISES BioelError: [B212] when another writer is not done in time.
    RAISES OSError: When the folder cannot be written.
    """
    lock = FileLock(folder / _LOCK)
    _acquire(lock, folder, patience=patience, make=make)
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
    """What the one writer of a knowledge base may do; made by `editing`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def columns(self) -> Iterator[Path]:
        """Replace all columns, in one step, when the block succeeds.

        YIELDS (Path): An empty folder, for the columns and their meta.json.
        """
        with self._fresh_folder() as fresh:
            yield fresh
            meta = json.loads((fresh / META_FILE).read_text("utf8"))
            (fresh / META_FILE).unlink()
            generation = self._free_name(generation_name(str(meta["fingerprint"])))
            _sync_all(fresh)
            fresh.rename(self.folder / generation)
            sync(self.folder)
            with replacing_file(self.folder / META_FILE) as path:
                path.write_bytes(sealed_meta({**meta, "generation": generation}))
        self.tidy()

    @contextmanager
    def vectors(self, fingerprint: str) -> Iterator[Path]:
        """Add vectors of an encoder, beside those that are there, when the block succeeds.

        YIELDS (Path): An empty folder, for the files of `layout.SET_FILES`.
        """
        with self._fresh_folder() as fresh:
            yield fresh
            self.put_vectors(fresh, fingerprint)

    def put_vectors(self, filled: Path, fingerprint: str) -> Path:
        """Move a folder of vectors to its place, and return where that is."""
        home = self.folder / VECTORS_FOLDER / set_name(fingerprint)
        home.parent.mkdir(exist_ok=True)
        _sync_all(filled)
        filled.rename(home)
        sync(home.parent)
        return home

    def remove_vectors(self, names: Iterable[str]) -> None:
        """Remove vectors by the names that `layout` gives them."""
        for name in names:
            if is_old_set(name):
                (self.folder / OLD_VECTORS_FILE).unlink(missing_ok=True)
                _remove(self.folder.glob("vectors.*"))
            else:
                home = self.folder / VECTORS_FOLDER / name
                (home / ABOUT_FILE).unlink(missing_ok=True)  # first, so that readers can tell
                _remove([home])

    def tidy(self) -> None:
        """Remove what meta.json does not name, and what was never put in place."""
        _remove([*self.folder.glob(".new.*"), *self.folder.glob(f".{META_FILE}.*")])
        described = (self.folder / VECTORS_FOLDER).glob("*/")
        _remove(path for path in described if not (path / ABOUT_FILE).exists())
        meta = map_meta(self.folder)
        if meta and not is_kb(self.folder):
            return  # damaged: nobody knows which columns are the right ones
        generation = generation_of(meta)
        found = (path for path in self.folder.iterdir() if GENERATION.fullmatch(path.name))
        _remove(path for path in found if path.name != generation)
        if generation:  # what an earlier version wrote
            _remove(self.folder / name for name in (*COLUMN_FILES, ".encoding.lock"))

    @contextmanager
    def _fresh_folder(self) -> Iterator[Path]:
        fresh = self.folder / f".new.{uuid4().hex[:12]}"
        fresh.mkdir()
        try:
            yield fresh
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _free_name(self, name: str) -> str:
        """Columns that are in place stay untouched, even if these are the same."""
        names, n = name, 0
        while (self.folder / names).exists():
            n += 1
            names = f"{name}.{n}"
        return names


def _acquire(lock: FileLock, folder: Path, *, patience: float, make: bool) -> None:
    end = time.monotonic() + patience
    quiet = min(_QUIET, patience)
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
            if not make:  # else: another writer has failed, and removed the folder that it had made
                raise


def _message(template: str, folder: Path) -> str:
    holder = "another thread or process"
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads((folder / _HOLDER).read_text("utf8"))
        holder = "process {process} on {host} ({to}, since {since})".format(**about)
    return template.format(path=folder, holder=holder)


def _say_who(folder: Path, to: str) -> None:
    """Leave a note for those who wait; wrong for a moment after a writer was killed."""
    about = {"process": os.getpid(), "host": socket.gethostname(), "to": to}
    about["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
    (folder / _HOLDER).write_text(json.dumps(about), encoding="utf8")


def _sync_all(folder: Path) -> None:
    for path in folder.iterdir():
        sync(path)
    sync(folder)


def _remove(paths: Iterable[Path]) -> None:
    """Remove what can be removed; on some systems, not what a reader has open."""
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
