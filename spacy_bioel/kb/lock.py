"""One process at a time: a lock that the system takes back when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PAUSE = 0.1  # seconds between attempts


@contextmanager
def exclusive(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock file while the block runs. The file stays: removing it would let a third in.

    wait (bool): Until another holder is done.
    RAISES BlockingIOError: When another process holds it and `wait` is false.
    """
    with path.open("ab") as stream:
        while not _lock(stream.fileno()):
            if not wait:
                raise BlockingIOError(path)
            time.sleep(_PAUSE)
        yield  # closing the file lets go


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
