"""Tables of cases in YAML files, which stand beside the tests that run them."""

from functools import cache
from pathlib import Path
from typing import Any

import srsly

from spacy_bioel.types import Concept


def cases(test: str, table: str) -> Any:
    """Return a table of the file `cases.yml` in the folder of a test; lists become tuples."""
    return _read(Path(test).with_name("cases.yml"))[table]


@cache
def _read(path: Path) -> Any:
    return _with_tuples(srsly.read_yaml(path))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(inner) for key, inner in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def concepts_of(rows: dict[str, Any]) -> list[Concept]:
    """Return concepts from their values by id: names, or a mapping from fields; null is none."""
    fields = {id: row if isinstance(row, dict) else {"names": row} for id, row in rows.items()}
    return [Concept(id, **row) for id, row in fields.items() if row["names"] is not None]
