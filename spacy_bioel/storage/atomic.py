"""Atomic writes: a temporary name beside the target, then a rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Fill a new folder beside `out` and put it in the place of `out` when the block succeeds.

    Until then an existing `out` is not touched; when the block fails, nothing is left behind.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_name(f".{out.name}.{uuid4().hex[:12]}.new")
    old = fresh.with_suffix(".old")
    fresh.mkdir()
    try:
        yield fresh
        if out.exists():
            out.rename(old)
        try:
            fresh.rename(out)
        except BaseException:
            if old.exists():
                old.rename(out)
            raise
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replacing_file(out: Path) -> Iterator[Path]:
    """Like `replacing_folder`, for one file."""
    fresh = out.with_name(f".{out.name}.{uuid4().hex[:12]}.new")
    try:
        yield fresh
        os.replace(fresh, out)
    finally:
        fresh.unlink(missing_ok=True)
