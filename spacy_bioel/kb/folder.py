"""Knowledge base folders: the paths of their files, and transactions that change the files.

    kb.0001.safetensors                   all columns; a change writes kb.0002.safetensors
    vectors/9f3a.18a0....safetensors      vectors of one encoder, for the names in one generation
    tries/5b1e.18a0....safetensors        trie of the names in one generation, in word pieces

The file with the highest number contains the current generation of the columns. A knowledge base
that is not in a folder maps the same paths to files in memory.

Only one transaction runs at a time, whatever it changes. Readers need no lock: files never change
after they are put in place by a rename. A reader that opens the folder gets either the old or the
new generation.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from spacy_bioel.errors import LOGGER, BioelError, Errors, Warnings
from spacy_bioel.files import replacing_file, scratch_folder
from spacy_bioel.kb.columns import HEADER_START, RawFile, TensorFile, map_file

# Patterns for file paths. Generations are numbered; the names of vectors and tries consist of a
# fingerprint (of the encoder or its word pieces) and a timestamp.
_GENERATION = re.compile(r"kb\.(\d{4,})\.safetensors", re.ASCII)
HOME = re.compile(r"(vectors|tries)/[\w-]+\.[0-9a-f]{16}\.safetensors", re.ASCII)
_LEFTOVER = re.compile(r"\.(lock|holder|.+\.new)")
_MAX_ATTEMPTS = 20  # attempts to open a generation (a writer may replace it in the meantime)


# -- Files --------------------------------------------------------------------------------------


def generations_of(paths: Iterable[str]) -> list[str]:
    """Select the paths of column files, one per generation, the current one last."""
    matches = {int(match[1]): path for path in paths if (match := _GENERATION.fullmatch(path))}
    return [path for _, path in sorted(matches.items())]


def generations_in(folder: Path) -> list[str]:
    """Return the names of a folder's column files, one per generation, the current one last."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in generations_of(os.listdir(folder)) if (folder / name).is_file()]
    return []


def map_generation(folder: Path) -> dict[str, RawFile]:
    """Memory-map the current generation's file; return {} if there is none."""
    for _ in range(_MAX_ATTEMPTS):
        # A writer may remove the file while we list the folder, or before we map the file.
        with suppress(FileNotFoundError, IndexError):
            name = generations_in(folder)[-1]
            return {name: map_file(folder / name)}
    return {}


def has_columns(folder: Path) -> bool:
    """Return whether a folder contains knowledge base columns, even damaged ones."""
    return bool(generations_in(folder))


def label_and_folder(value: str) -> tuple[str, str]:
    """Split "LABEL=KB" into a label and a knowledge base; the label of a plain "KB" is ""."""
    label, separator, folder = value.partition("=")
    return ("", value) if not separator or Path(value).exists() else (label, folder)


def is_kb(folder: Path) -> bool:
    """Return whether a folder contains a knowledge base of any schema version, intact or not."""
    start = [raw[8 : 8 + len(HEADER_START)].tobytes() for raw in map_generation(folder).values()]
    return start == [HEADER_START]


def check_replaceable(out: Path) -> None:
    """Check that a path is unused or is a knowledge base. RAISES BioelError: [B029] if not."""
    is_unused = not out.exists() or (out.is_dir() and all(map(_is_leftover, out.iterdir())))
    if not is_unused and not is_kb(out):  # another writer may have finished by now
        raise BioelError(Errors.B029.format(path=out))


def _is_leftover(path: Path) -> bool:
    """Return whether a path in a folder without columns was left behind by a killed writer."""
    if path.name in ("vectors", "tries") and path.is_dir():
        names = [home.name for home in path.iterdir()]
        return all(
            _LEFTOVER.fullmatch(name) or HOME.fullmatch(f"{path.name}/{name}") for name in names
        )
    return bool(_LEFTOVER.fullmatch(path.name))


def new_home(kind: str, fingerprint: str) -> str:
    """Return a new path for vectors or a trie. Newer paths sort after older ones.

    kind (str): "vectors" or "tries".
    fingerprint (str): Fingerprint of the encoder or of the word pieces.
    RAISES ValueError: If the fingerprint has characters other than letters, digits, "_" and "-".
    """
    path = f"{kind}/{fingerprint}.{time.time_ns():016x}.safetensors"
    if not HOME.fullmatch(path):
        raise ValueError(f"{fingerprint!r} is not the fingerprint of an encoder")
    return path


def homes_in(folder: Path, *kinds: str) -> list[str]:
    """Return the paths of all vectors and tries in a folder, sorted."""
    paths: list[str] = []
    for kind in kinds or ("vectors", "tries"):
        with suppress(FileNotFoundError, NotADirectoryError):
            paths += [f"{kind}/{name}" for name in os.listdir(folder / kind)]
    return sorted(filter(HOME.fullmatch, paths))


def map_homes(folder: Path) -> dict[str, RawFile]:
    """Memory-map all vectors and tries in a folder."""
    homes = {}
    for home in homes_in(folder):
        with suppress(FileNotFoundError):  # a writer may have removed the file by now
            homes[home] = map_file(folder / home)
    return homes


def kb_of(raw: RawFile) -> str | None:
    """Return the fingerprint of the knowledge base that vectors or a trie belong to.

    RETURNS (str | None): None if the description is unreadable.
    """
    with suppress(BioelError):
        return str(TensorFile(raw).about.get("kb"))
    return None


# -- Transactions --------------------------------------------------------------------------------

PATIENCE = 600.0  # maximum number of seconds to wait for another writer
_WARN_AFTER = 2.0  # seconds until a waiting writer logs a warning
_LOCK_FILE, _HOLDER_FILE = ".lock", ".holder"


@contextmanager
def editing(folder: Path, *, to: str, make: bool = False) -> Iterator[Transaction]:
    """Lock a knowledge base for one writer, excluding other threads and processes.

    Everything that a change depends on must be read, or checked again, inside the block. Files that
    a killed writer left unfinished are removed first. A writer that waits for over two seconds logs
    [W212].

    to (str): Purpose of this writer, shown to waiting writers, e.g. "add concepts".
    make (bool): Make the folder if it is missing, and remove it if it is empty at the end.
    YIELDS (Transaction): Replaces the columns, and adds and removes vectors.
    RAISES BioelError: [B212] if another writer does not finish in time, [B485] if the folder
        contains a symbolic link.
    RAISES OSError: If the folder cannot be written.
    """
    # Links inside the folder could redirect writes elsewhere. The folder itself may be a link.
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
    """Changes that a writer can make while holding the lock on a knowledge base."""

    folder: Path

    def replace_columns(self, write: Callable[..., Iterable[memoryview]], **arguments: Any) -> None:
        """Replace all columns atomically by writing a new generation.

        write (Callable): Returns the pieces of a file; it is called with an empty folder for
            scratch files and with `arguments`.
        """
        numbers = [int(name.split(".")[1]) for name in generations_in(self.folder)]
        name = f"kb.{max(numbers, default=0) + 1:04}.safetensors"
        with scratch_folder(self.folder / "new") as scratch:
            self.put(name, write(scratch, **arguments))
        self.tidy()

    def put(self, name: str, pieces: Iterable[memoryview]) -> None:
        """Write a new file that contains columns, vectors or a trie."""
        out = self.folder / name
        out.parent.mkdir(exist_ok=True)
        with replacing_file(out, follow=False) as path, path.open("wb") as file:
            file.writelines(pieces)

    def remove(self, paths: Iterable[str | Path]) -> None:
        """Remove files and folders, skipping any that the OS locks while a reader has them open."""
        for path in (self.folder / path for path in paths):
            shutil.rmtree(path, ignore_errors=True)  # does not remove files
            with suppress(OSError):
                path.unlink()

    def tidy(self) -> None:
        """Remove old generations and their tries, and any unfinished files."""
        unfinished = [*self.folder.glob(".*.new"), *self.folder.glob("*/.*.new")]
        self.remove([*unfinished, *generations_in(self.folder)[:-1]])
        if tries := homes_in(self.folder, "tries"):
            with suppress(BioelError):
                [kb] = [TensorFile(raw).fingerprint for raw in map_generation(self.folder).values()]
                self.remove(trie for trie in tries if kb_of(map_file(self.folder / trie)) != kb)


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
            if (timeout := deadline - time.monotonic()) <= 0:
                raise BioelError(_with_holder(Errors.B212, folder)) from None
            LOGGER.warning(_with_holder(Warnings.W212, folder))
        except FileNotFoundError:
            # With `make`, the folder is only missing if another writer failed and removed it.
            if not make:
                raise


def _with_holder(template: str, folder: Path) -> str:
    """Fill in a message template with the folder and the current holder of its lock."""
    holder = "another thread or process"
    with suppress(OSError, ValueError):
        holder = (folder / _HOLDER_FILE).read_text("utf8")
    return template.format(path=folder, holder=holder)
