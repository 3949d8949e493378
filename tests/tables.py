"""Tables of cases in YAML files, which stand beside the tests that run them."""

from functools import cache
from pathlib import Path
from typing import Any

import srsly


def cases(test: str, table: str) -> Any:
    """Return a table of the file `cases.yml` in the folder of a test."""
    return _read(Path(test).with_name("cases.yml"))[table]


@cache
def _read(path: Path) -> Any:
    return srsly.read_yaml(path)
