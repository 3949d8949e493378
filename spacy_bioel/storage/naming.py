"""Which file an error of the system is about, where the system does not say."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Of a write to a file that is open already: these errors carry no name.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError of writing `path` this name: a full disk names no file, other errors the
    temporary one beside it.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in NO_ROOM:
            error.filename = str(path)
        elif _is_temporary(error.filename, path):
            error.filename = str(path)
        raise


def _is_temporary(name: object, path: Path) -> bool:
    return isinstance(name, str) and Path(name).name.startswith(f".{path.resolve().name}.")
