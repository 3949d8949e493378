"""Atomic writes: fill a temporary file or folder, then replace the target with it in one step.

Temporary file names contain the host and the process id. If a run is killed, its temporary file
is left behind until the next run with the same target removes it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from gzip import GzipFile
from hashlib import blake2b, file_digest
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from spacy_bioel.errors import BioelError, Errors

_AT_FDCWD = -100  # an argument of renameat2(2), like _RENAME_EXCHANGE
_RENAME_EXCHANGE = 2
# Files in these folders, such as redirection targets, are written to directly and never replaced.
_SYSTEM_FOLDERS = (Path("/dev"), Path("/proc"))


def suffix_of(path: str, suffixes: Sequence[str]) -> str:
    """Return which of `suffixes` a file name ends with, or "" if the name has no dot.

    RAISES BioelError: [B198] for any other suffix.
    """
    name = Path(path).name.lower()
    known = [suffix for suffix in suffixes if name.endswith(suffix)]
    if not known and Path(path).suffix:
        raise BioelError(Errors.B198.format(path=path, known=", ".join(suffixes)))
    return max(known, key=len, default="")


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """Create an empty folder next to `out`, and remove it on exit unless it was renamed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    _clean_up_killed_runs(out)
    fresh = _temporary_path(out, "new")
    fresh.mkdir()
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Create an empty folder next to `out`, and replace `out` with it if the block succeeds.

    If the block fails, nothing is left behind. The two folders are exchanged in one step if the
    OS supports it. Otherwise, a run that is killed between two steps leaves the old folder under a
    temporary name, and the next run with the same `out` restores it first. If `out` is a symbolic
    link, its target is replaced.

    YIELDS (Path): Empty folder to fill.
    """
    out = out.resolve()
    old = _temporary_path(out, "old")
    with scratch_folder(out) as fresh:
        yield fresh
        if not out.exists():
            fresh.rename(out)
        elif not _exchange(fresh, out):
            out.rename(old)
            try:
                fresh.rename(out)
            except BaseException:
                old.rename(out)
                raise
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replacing_file(out: Path, *, follow: bool = True) -> Iterator[Path]:
    """Create an empty file next to `out`, and replace `out` with it if the block succeeds.

    The new file gets the old file's permissions, and its owner if the OS allows it. Devices and
    pipes are not replaced: the block writes to `out` itself.

    follow (bool): If `out` is a symbolic link, replace its target; False: replace the link itself,
        so that nothing outside the folder is written.
    YIELDS (Path): Empty file to write to, or `out`.
    """
    if follow and (is_stream(out) or out.is_dir()):
        yield out
        return
    out = out.resolve() if follow else out
    _clean_up_killed_runs(out)
    fresh = _temporary_path(out, "new")
    try:
        _create_with_permissions(fresh, out)
        yield fresh
        sync(fresh)
        os.replace(fresh, out)
        sync(out.parent)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def replacing_text(out: Path, *, follow: bool = True) -> Iterator[TextIO]:
    """Open a text file that replaces `out` on success; compress it if `out` ends in .gz."""
    with replacing_file(out, follow=follow) as path, ExitStack() as stack:
        raw: Any = stack.enter_context(path.open("wb"))
        if out.suffix.lower() == ".gz":  # no timestamp, so that equal texts give equal files
            raw = stack.enter_context(GzipFile("", "wb", fileobj=raw, mtime=0))
        yield stack.enter_context(TextIOWrapper(raw, encoding="utf8", newline="\n"))


def is_stream(out: Path) -> bool:
    """Return whether a path is a device or a pipe, and so must be written to directly."""
    is_system = any(folder in out.absolute().parents for folder in _SYSTEM_FOLDERS)
    return is_system or (out.exists() and not out.is_file() and not out.is_dir())


def fingerprint_folder(folder: Path) -> str:
    """Compute a fingerprint of a saved pipeline from the names and contents of its files.

    Model card files are ignored, because they do not affect predictions.
    """
    digest = blake2b(digest_size=8)
    cards = {folder / name for name in ("README.md", "card.html", "meta.json")}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in cards:
            with path.open("rb") as file:
                content = file_digest(file, "blake2b").digest()
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk, so that the data survives a system crash."""
    if path.is_dir() and sys.platform == "win32":
        return  # folders cannot be opened on Windows.
    # Windows syncs only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create_with_permissions(fresh: Path, out: Path) -> None:
    """Create an empty file with the permissions of `out`, and never with wider ones."""
    try:
        old = out.stat()
    except FileNotFoundError:
        fresh.touch(exist_ok=False)
        return
    fresh.touch(mode=0o600, exist_ok=False)
    if sys.platform != "win32":
        with suppress(PermissionError):
            os.chown(fresh, old.st_uid, old.st_gid)
    fresh.chmod(stat.S_IMODE(old.st_mode))


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two paths in one step; return False if the OS does not support it."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def _temporary_prefix(out: Path) -> str:
    host = blake2b(socket.gethostname().encode("utf8"), digest_size=3).hexdigest()
    return f".{out.name}.{host}-"


def _temporary_path(out: Path, kind: str) -> Path:
    return out.with_name(f"{_temporary_prefix(out)}{os.getpid()}-{uuid4().hex[:8]}.{kind}")


def _clean_up_killed_runs(out: Path) -> None:
    """Restore or remove files left behind by killed runs that were writing to `out`."""
    temporary_name = re.compile(rf"{re.escape(_temporary_prefix(out))}(\d+)-.*\.(new|old)")
    with suppress(FileNotFoundError):
        for path in out.parent.iterdir():
            match = temporary_name.fullmatch(path.name)
            if match is None or _is_alive(int(match[1])):
                continue
            with suppress(OSError):  # another run may be cleaning up at the same time
                if match[2] == "old" and not out.exists():
                    path.rename(out)
                elif path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def _is_alive(process: int) -> bool:
    if sys.platform != "win32":  # on Windows, os.kill(process, 0) would kill it
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's process
            pass
    return True
