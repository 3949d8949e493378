"""Bulk linking on Spark: `link_frame` for data frames, `link_file` for `bioel link --engine spark`.

Each worker process loads the pipeline once from its path. The knowledge base is memory-mapped, so
the workers on a machine share its memory pages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from spacy_bioel.errors import BioelError, Errors, needing
from spacy_bioel.export.formats import check_columns, row_schema, to_columns
from spacy_bioel.export.rows import Document, Totals, check_linker, link_texts
from spacy_bioel.parallel import use_one_thread
from spacy_bioel.plugins.spark.errors import SparkErrors

if TYPE_CHECKING:
    from pandas import DataFrame as PandasFrame
    from pyspark.sql import Column, DataFrame, SparkSession
    from spacy.language import Language

_PARQUET, _JSONL = ".parquet", ".jsonl"


def link_frame(
    frame: DataFrame,
    *,
    model: str,
    code: str | None = None,
    text: str = "text",
    id: str = "id",
    batch_size: int = 64,
) -> DataFrame:
    """Find and link the mentions in a text column. The result is evaluated lazily.

    frame (DataFrame): One row per document.
    model (str): Path to a pipeline or knowledge base folder, valid on every worker, or the name
        of a pipeline package installed on every worker.
    code (str | None): Python file that registers functions named in the pipeline's config (see
        `loading.import_code`); its path must be valid on every worker.
    text, id (str): Names of the columns; ids become strings.
    batch_size (int): Number of documents per batch; does not affect the results.
    RETURNS (DataFrame): One row per document with the schema `export.formats.row_schema`: id, text,
        links, error. A document that failed has an error code and a message instead of links.
    RAISES BioelError: [B191] if a column is missing, [B192] if pandas or pyarrow is not installed.
        If a worker cannot load the pipeline [B071], the job fails.
    """
    _require_packages()
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import from_arrow_schema

    check_columns(frame.columns, text, id)
    documents = frame.select(col(text).alias("text"), col(id).cast("string").alias("id"))
    model_path = os.path.abspath(model) if Path(model).is_dir() else model
    code_path = None if code is None else os.path.abspath(code)
    work = partial(_link_frames, model=model_path, code=code_path, batch_size=batch_size)
    return documents.mapInPandas(work, from_arrow_schema(row_schema()))


def link_file(
    source: str, target: str, *, model: str, code: str | None = None, batch_size: int = 64
) -> Totals:
    """Link documents from Parquet or JSON lines, and write rows to a folder of part files.

    source (str): A .parquet or .jsonl file or folder on any file system that Spark supports, with
        the columns "id" and "text". Ids missing from JSON lines stay null.
    target (str): A new .parquet or .jsonl folder, which gets its name only on success.
    RAISES BioelError: [B192] if pyspark is not installed, [B193] if Spark does not start, [B194] if
        the job fails, [B196] if a format is not supported, [B197] if the target exists; the same
        errors as `link_frame`.
    """
    for role, path in (("input", source), ("output", target)):
        if not path.endswith((_PARQUET, _JSONL)):
            found, expected = f"the {role} {path}", f"a name that ends in {_PARQUET} or {_JSONL}"
            raise BioelError(Errors.B196.format(engine="spark", found=found, expected=expected))
    spark = _start_session()
    try:
        with _new_folder(spark, target) as temporary:
            documents = _read_frame(spark, source)
            rows = link_frame(documents, model=model, code=code, batch_size=batch_size)
            return _write_frame(rows, temporary, target)
    except BioelError:
        raise
    except Exception as error:  # its type depends on the pyspark version
        raise BioelError(SparkErrors.B194.format(error=_reason(error))) from error


def _link_frames(
    frames: Iterator[PandasFrame], *, model: str, code: str | None, batch_size: int
) -> Iterator[PandasFrame]:
    import pandas as pd
    from spacy.util import minibatch

    documents: Iterator[Document] = chain.from_iterable(
        zip(frame["text"], frame["id"], strict=True) for frame in frames
    )
    linked = link_texts(_load_once(model, code), documents, batch_size=batch_size)
    for rows in minibatch(map(to_columns, linked), batch_size):
        yield pd.DataFrame(rows, columns=row_schema().names)


@lru_cache(maxsize=1)
def _load_once(model: str, code: str | None) -> Language:
    """Load this worker's pipeline, using one thread because each core runs its own worker."""
    from spacy_bioel.loading import import_code, load_model

    use_one_thread()
    if code is not None:
        import_code(code)
    nlp = load_model(model)
    check_linker(nlp)
    return nlp


def _read_frame(spark: SparkSession, source: str) -> DataFrame:
    if source.endswith(_PARQUET):
        return spark.read.parquet(source)
    from pyspark.sql.functions import coalesce, col

    # An explicit schema saves a pass over the data; FAILFAST stops the job at invalid JSON.
    schema = "id string, pmid string, text string"
    lines = spark.read.schema(schema).json(source, mode="FAILFAST")
    return lines.select(coalesce(col("id"), col("pmid")).alias("id"), col("text"))


def _write_frame(rows: DataFrame, temporary: str, target: str) -> Totals:
    """Write rows, counting documents, mentions, NIL and failures in the same pass."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import coalesce, col, count, expr, lit, sum

    def total(expression: str) -> Column:
        return coalesce(sum(expr(expression)), lit(0))

    observation = Observation()
    counted = rows.observe(
        observation,
        count(lit(1)).alias("documents"),
        total("size(links)").alias("mentions"),
        total("size(filter(links, link -> link.id is null))").alias("nil"),
        count(col("error")).alias("failed"),
    )
    if target.endswith(_PARQUET):
        counted.write.parquet(temporary)
    else:
        counted.write.json(temporary, ignoreNullFields=False)
    return Totals(**observation.get)


@contextmanager
def _new_folder(spark: SparkSession, target: str) -> Iterator[str]:
    """Create a folder on any Hadoop file system, renaming it to `target` only on success.

    YIELDS (str): The folder's temporary name. RAISES BioelError: [B197] if the target exists.
    """
    parent, slash, name = target.rstrip("/").rpartition("/")
    temporary = f"{parent}{slash}.{name}.{uuid4().hex}.tmp"
    path: Any = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
    made, wanted = path(temporary), path(target)
    files = wanted.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    try:
        if files.exists(wanted):
            raise BioelError(SparkErrors.B197.format(path=target))
        yield temporary
        if not files.rename(made, wanted):  # the target was created in the meantime
            raise BioelError(SparkErrors.B197.format(path=target))
    finally:
        files.delete(made, True)


def _start_session() -> SparkSession:
    """Return the session from `spark-submit` or PYSPARK_SUBMIT_ARGS, or start a local session."""
    _require_packages()
    from pyspark.sql import SparkSession

    # Spark's default is `python3` on the PATH, which may belong to another environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.appName("bioel link").getOrCreate()
    except Exception as error:  # its type depends on the pyspark version
        raise BioelError(SparkErrors.B193.format(error=_reason(error))) from error


def _require_packages() -> None:
    with needing("spark", "Spark"):
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401


def _reason(error: Exception) -> str:
    """Return the worker's message with an error code, or else the error's first line."""
    text = str(error)
    coded = re.search(r"\[B\d{3}\] .*", text)
    message = coded[0] if coded else text.strip().partition("\n")[0]
    return message.rstrip(". ")
