"""Documents from Parquet and rows to Parquet, without Spark. Requires pyarrow (extra `parquet`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from spacy_bioel.errors import BioelError, Errors, needing
from spacy_bioel.export.links import FACTS
from spacy_bioel.export.rows import Document, Row
from spacy_bioel.files import replacing_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

_ROWS_PER_GROUP = 1000


def row_schema() -> pa.Schema:
    """Schema of the output, with one row per document.

    Columns: "id" and "text" as in the input; "links", empty without mentions or on failure;
    "error", null on success. Fields of a link: "start" and "end" count Unicode characters of the
    text, "id" is null for NIL, "ids" has several ids for a composite, "candidates" is sorted, best
    first; "hgvs", "component" and "gene" of a variant, or null. Facts of rules of a user's own are
    left out, so that files of all pipelines have one schema. Fields of an error: "code", "message".
    """
    import pyarrow as pa

    def struct(**fields: object) -> pa.StructType:
        return pa.struct(list(fields.items()))

    string, number = pa.string(), pa.int64()
    candidate = struct(id=string, score=pa.float64(), name=string, evidence=string)
    place = {"start": number, "end": number, "text": string, "label": string}
    many = {"ids": pa.list_(string), "candidates": pa.list_(candidate)}
    link = struct(**place, id=string, **many, **dict.fromkeys(FACTS, string))
    error = struct(code=string, message=string)
    return pa.schema(struct(id=string, text=string, links=pa.list_(link), error=error))


def read_documents(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Stream (text, id) from the columns "text" and "id" of a Parquet file, or a folder of files.

    RAISES BioelError: [B101] no such path, [B191] a column is missing, [B192] no pyarrow, [B195]
        not Parquet; all raised by the call itself, not by the first document.
    """
    if not Path(path).exists():
        raise BioelError(Errors.B101.format(path=path))
    dataset = _import_pyarrow("dataset").dataset
    try:
        source = dataset(path, format="parquet")
    except Exception as error:  # exceptions of pyarrow and of the system
        raise BioelError(Errors.B195.format(path=path, error=error)) from error
    check_columns(source.schema.names, "text", "id")
    return _documents(source)


def check_columns(columns: list[str], *expected: str) -> None:
    """Check for expected columns. RAISES BioelError: [B191] when one is missing."""
    if missing := [name for name in expected if name not in columns]:
        raise BioelError(Errors.B191.format(missing=missing[0], columns=", ".join(columns)))


@contextmanager
def writing_rows(path: Path) -> Iterator[Callable[[Row], None]]:
    """Write rows to a Parquet file, which gets its name only on success.

    YIELDS (Callable[[dict], None]): Writes one row of `row_schema`.
    RAISES BioelError: [B192] no pyarrow.
    """
    parquet, pa = _import_pyarrow("parquet"), _import_pyarrow("lib")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with replacing_file(path) as target, parquet.ParquetWriter(target, row_schema()) as file:

        def flush() -> None:
            file.write_table(pa.Table.from_pylist(rows, schema=row_schema()))
            rows.clear()

        def write(row: Row) -> None:
            rows.append(row)
            if len(rows) == _ROWS_PER_GROUP:
                flush()

        yield write
        flush()


def _documents(dataset: Dataset) -> Iterator[Document]:
    for batch in dataset.to_batches(columns=["text", "id"]):
        for text, id in zip(batch["text"].to_pylist(), batch["id"].to_pylist(), strict=True):
            yield text, None if id is None else str(id)


def _import_pyarrow(module: str) -> ModuleType:
    with needing("parquet", "Parquet"):
        return import_module(f"pyarrow.{module}")
