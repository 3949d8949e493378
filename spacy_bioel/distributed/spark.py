"""Bulk linking on Spark: `link` for frames of one's own, the rest for `bioel link`.

A pipeline goes to the workers by its path, is loaded once in each worker process, and kept for the
life of the process. Its knowledge base is memory-mapped: the workers of a machine share its pages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from spacy_bioel.distributed.parquet import check_columns, row_schema
from spacy_bioel.distributed.rows import Document, Totals, check_linker, link_texts, to_row
from spacy_bioel.errors import BioelError, Errors

if TYPE_CHECKING:
    from pandas import DataFrame as PandasFrame
    from pyspark.sql import DataFrame, SparkSession
    from spacy.language import Language

_PARQUET, _JSONL = ".parquet", ".jsonl"


def link(
    frame: DataFrame, *, model: str, text: str = "text", id: str = "id", batch_size: int = 64
) -> DataFrame:
    """Find and link the mentions of a column of texts; computed when the result is used.

    frame (DataFrame): A row a document.
    model (str): Folder of a pipeline or knowledge base that all workers see under this path, or
        the name of a pipeline package that they have installed.
    text, id (str): Columns; ids become strings.
    batch_size (int): Documents a batch of the pipeline. It changes no result.
    RETURNS (DataFrame): One row a document, of the schema `distributed.parquet.row_schema`: id,
        text, links, error. A document that fails has no links, and the error's code and message.
    RAISES BioelError: [B191] a column is missing, [B192] no pandas or pyarrow. A worker that
        cannot load the pipeline [B071] fails the job.
    """
    _require_packages()
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import from_arrow_schema

    check_columns(frame.columns, text, id)
    documents = frame.select(col(text).alias("text"), col(id).cast("string").alias("id"))
    place = os.path.abspath(model) if Path(model).is_dir() else model
    work = partial(_link_frames, model=place, batch_size=batch_size)
    return documents.mapInPandas(work, from_arrow_schema(row_schema()))


def link_file(source: str, target: str, *, model: str, batch_size: int = 64) -> Totals:
    """Link the documents of Parquet or JSON lines; the rows are in a folder of part files.

    source (str): .parquet or .jsonl, a file or a folder, anywhere that Spark reads from; with the
        columns id and text. JSON lines without an id keep null.
    target (str): .parquet or .jsonl, a new folder; it appears when all is written.
    RAISES BioelError: [B192] no pyspark, [B193] it does not start, [B194] it gave up, [B196] names
        of other formats, [B197] the target exists; those of `link`.
    """
    _check_suffix("input", source)
    _check_suffix("output", target)
    spark = _start()
    folder = _Folder(spark, target)
    try:
        rows = link(_read(spark, source), model=model, batch_size=batch_size)
        totals = _write(rows, folder.temporary, target)
        folder.publish()
    except BioelError:
        raise
    except Exception as error:  # of pyspark or py4j, by version
        raise BioelError(Errors.B194.format(error=_reason(error))) from error
    finally:
        folder.clear()
    return totals


def _link_frames(
    frames: Iterator[PandasFrame], *, model: str, batch_size: int
) -> Iterator[PandasFrame]:
    """What a worker does with a partition."""
    import pandas as pd
    from spacy.util import minibatch

    documents: Iterator[Document] = (
        document for frame in frames for document in zip(frame["text"], frame["id"], strict=True)
    )
    linked = link_texts(_load_once(model), documents, batch_size=batch_size)
    for rows in minibatch(map(to_row, linked), batch_size):
        yield pd.DataFrame(rows, columns=row_schema().names)


@lru_cache(maxsize=1)
def _load_once(model: str) -> Language:
    """The pipeline of this worker process. One thread: Spark runs a worker for each core."""
    import torch

    from spacy_bioel.pipeline.loading import load_model

    torch.set_num_threads(1)
    nlp = load_model(model)
    check_linker(nlp)
    return nlp


def _read(spark: SparkSession, source: str) -> DataFrame:
    if source.endswith(_PARQUET):
        return spark.read.parquet(source)
    from pyspark.sql.functions import coalesce, col

    # Given, so that Spark does not read everything twice; a line that is no JSON stops the job.
    schema = "id string, pmid string, text string"
    lines = spark.read.schema(schema).json(source, mode="FAILFAST")
    return lines.select(coalesce(col("id"), col("pmid")).alias("id"), col("text"))


def _write(rows: DataFrame, temporary: str, target: str) -> Totals:
    """Write rows, and count them while they pass."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import coalesce, col, count, expr, lit, sum

    def total(expression: str) -> Any:
        return coalesce(sum(expr(expression)), lit(0))

    seen = Observation()
    counted = rows.observe(
        seen,
        count(lit(1)).alias("documents"),
        total("size(links)").alias("mentions"),
        total("size(filter(links, link -> link.id is null))").alias("nil"),
        count(col("error")).alias("failed"),
    )
    if target.endswith(_PARQUET):
        counted.write.parquet(temporary)
    else:
        counted.write.json(temporary, ignoreNullFields=False)
    return Totals(**seen.get)


class _Folder:
    """A folder that is written under another name first. Hadoop's files: local ones and others.

    RAISES BioelError: [B197] when there is something under its name.
    """

    def __init__(self, spark: SparkSession, target: str) -> None:
        parent, slash, name = target.rstrip("/").rpartition("/")
        self.temporary = f"{parent}{slash}.{name}.{uuid4().hex}.tmp"
        hadoop: Any = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        self._from, self._to = hadoop(self.temporary), hadoop(target)
        self._files = self._to.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        if self._files.exists(self._to):
            raise BioelError(Errors.B197.format(path=target))

    def publish(self) -> None:
        """Give it its name. RAISES BioelError: [B197] when another has taken the name."""
        if not self._files.rename(self._from, self._to):
            raise BioelError(Errors.B197.format(path=self._to.toString()))

    def clear(self) -> None:
        """Remove what was not published."""
        self._files.delete(self._from, True)


def _start() -> SparkSession:
    """The session of `spark-submit` or of PYSPARK_SUBMIT_ARGS; else one of this machine's cores."""
    _require_packages()
    from pyspark.sql import SparkSession

    # Its own default is whatever `python3` is, which need not be the environment of this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.appName("bioel link").getOrCreate()
    except Exception as error:  # of pyspark or py4j, by version
        raise BioelError(Errors.B193.format(error=_reason(error))) from error


def _require_packages() -> None:
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise BioelError(Errors.B192.format(what="Spark", extra="spark", error=error)) from error


def _check_suffix(what: str, path: str) -> None:
    if not path.endswith((_PARQUET, _JSONL)):
        found, expected = f"has the {what} {path}", f"a name that ends in {_PARQUET} or {_JSONL}"
        raise BioelError(Errors.B196.format(found=found, expected=expected))


def _reason(error: Exception) -> str:
    """What a worker said, if it was this package; else the first line, without its stack trace."""
    text = str(error)
    coded = re.search(r"\[B\d{3}\] .*", text)
    return (coded.group() if coded else text.strip().partition("\n")[0]).rstrip(". ")
