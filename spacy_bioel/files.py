"""Atomic writes: a temporary file or folder beside the target, then one step that replaces it.

A killed run leaves its temporary file, whose name has its host and process. The next run on the
same target removes it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TextIO
from uuid import uuid4

_AT_CWD = -100
_EXCHANGE = 2
# Paths of the system, which are never replaced, e.g. the target of a redirection.
_SYSTEM = (Path("/dev"), Path("/proc"))


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """Make an empty folder beside `out` that is removed at the end, or by the next run on `out`.

    YIELDS (Path): The folder, which may be renamed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    _tidy(out)
    fresh = _beside(out, "new")
    fresh.mkdir()
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Fill a new folder beside `out`, and replace `out` by it when the block succeeds.

    When the block fails, nothing is left behind. The two folders are exchanged in one step where
    the system supports it. Elsewhere a run that is killed between two steps leaves the old folder
    under a temporary name, and the next run on `out` restores it before it begins. If `out` is a
    symbolic link, its target is replaced.

    YIELDS (Path): Empty folder to fill.
    """
    out = out.resolve()
    old = _beside(out, "old")
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
    """Fill a new file beside `out`, and replace `out` by it when the block succeeds.

    The new file has the permissions of the old one, and its owner where the system allows that.
    Devices and pipes are not replaced: the block then writes to `out` itself.

    follow (bool): If `out` is a symbolic link, replace its target; False: replace the link, as in a
        folder of our own, out of which nothing is written.
    YIELDS (Path): Empty file to write to, or `out`.
    """
    is_system = any(folder in out.absolute().parents for folder in _SYSTEM)
    if follow and (is_system or (out.exists() and not out.is_file())):
        yield out
        return
    out = out.resolve() if follow else out
    _tidy(out)
    fresh = _beside(out, "new")
    try:
        _make_like(fresh, out)
        yield fresh
        sync(fresh)
        os.replace(fresh, out)
        sync(out.parent)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def replacing_text(out: Path, *, follow: bool = True) -> Iterator[TextIO]:
    """Write a text file that replaces `out` when the block succeeds; see `replacing_file`."""
    with (
        replacing_file(out, follow=follow) as path,
        path.open("w", encoding="utf8", newline="\n") as file,
    ):
        yield file


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, so that they survive a system crash."""
    if path.is_dir() and sys.platform == "win32":
        return  # Windows cannot open folders
    # Windows syncs only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_like(fresh: Path, out: Path) -> None:
    """Make an empty file with the permissions of `out`, and never with wider ones."""
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
    """Exchange two paths in one step. RETURNS (bool): False where the system cannot do it."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    return bool(rename(_AT_CWD, paths[0], _AT_CWD, paths[1], _EXCHANGE) == 0)


def _prefix(out: Path) -> str:
    host = blake2b(socket.gethostname().encode("utf8"), digest_size=3).hexdigest()
    return f".{out.name}.{host}-"


def _beside(out: Path, kind: str) -> Path:
    return out.with_name(f"{_prefix(out)}{os.getpid()}-{uuid4().hex[:8]}.{kind}")


def _tidy(out: Path) -> None:
    """Restore or remove the leftovers of killed runs on `out`."""
    made = re.compile(rf"{re.escape(_prefix(out))}(\d+)-.*\.(new|old)")
    with suppress(FileNotFoundError):
        for path in out.parent.iterdir():
            match = made.fullmatch(path.name)
            if match is None or _is_alive(int(match[1])):
                continue
            with suppress(OSError):  # another run may do the same
                if match[2] == "old" and not out.exists():
                    path.rename(out)
                elif path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def _is_alive(process: int) -> bool:
    if sys.platform != "win32":  # where os.kill(process, 0) would end it
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # a process of another user
            pass
    return True
