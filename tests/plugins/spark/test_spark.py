"""Spark writes the links that one process writes, and says what it cannot do."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny import linking_nlp

from spacy_bioel.cli import main
from spacy_bioel.errors import BioelError
from spacy_bioel.kb.build import build_kb
from spacy_bioel.plugins.spark.spark import link_frame
from spacy_bioel.types import Concept

N = 300
NAMES = ["Naloxone", "Narcan", "Clonidine", "Hypertension", "high blood pressure"]
TOO_LONG = "a" * 1_000_001  # spaCy refuses to parse it

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One worker at a time, and a task may fail once."""
    sql = pytest.importorskip("pyspark.sql")
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        # What is not installed but only on this process's path must be on that of the workers.
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        builder = sql.SparkSession.builder.master("local[1,2]").config("spark.ui.enabled", "false")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("spark")
    concepts = [Concept(f"X:{n}", (name,)) for n, name in enumerate(NAMES)]
    build_kb(concepts, folder / "kb")
    linking_nlp(folder / "kb", mentions="dictionary", model={"dim": 16}).to_disk(folder / "nlp")
    return str(folder / "nlp")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    texts = [f"{NAMES[n % 5]} and {NAMES[n % 3]} \U0001f642 in {n} rats." for n in range(N)]
    texts[7], texts[8] = TOO_LONG, ""
    path = tmp_path_factory.mktemp("source") / "in.jsonl"
    records = ({"id": f"d{n}", "text": text} for n, text in enumerate(texts))
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf8")
    return path


def run(*argv: object) -> int:
    with pytest.raises(SystemExit) as exited:
        main([str(argument) for argument in argv])
    return int(exited.value.code or 0)


def read_lines(*paths: Path) -> Rows:
    lines = (line for path in paths for line in path.read_text("utf8").splitlines())
    rows = [json.loads(line) for line in lines]
    for row in rows:
        for one in row["links"]:
            # Spark and Parquet write the nulls.
            one |= dict.fromkeys(("hgvs", "component", "gene", "facts")) | one
    return rows


@pytest.fixture(scope="module")
def here(model, source, tmp_path_factory) -> Rows:
    """Rows that one process writes."""
    out = tmp_path_factory.mktemp("here") / "out.jsonl"
    assert run("link", model, source, "-o", out) == 1  # since one document fails
    rows = read_lines(out)
    assert [row["id"] for row in rows] == [f"d{n}" for n in range(N)]
    assert [n for n, row in enumerate(rows) if row["error"]] == [7]
    assert sum(len(row["links"]) for row in rows) == 2 * (N - 2)
    return rows


@pytest.mark.slow
def test_spark_writes_the_same_rows_as_json(spark, here, model, source, tmp_path, capsys):
    out = tmp_path / "new" / "out.jsonl"
    assert run("link", model, source, "-o", out, "--engine", "spark", "--batch-size", 7) == 1
    shown = capsys.readouterr().err
    assert "300 documents, 596 mentions, 0 of them NIL." in shown
    assert "1 document failed" in shown
    assert read_lines(*sorted(out.glob("part-*.json"))) == here
    assert [path.name for path in out.parent.iterdir()] == ["out.jsonl"]
    assert run("link", model, source, "-o", out, "--engine", "spark") == 2
    assert "[B197]" in capsys.readouterr().err
    assert len(read_lines(*out.glob("part-*.json"))) == N


@pytest.mark.slow
def test_parquet_by_both_engines(spark, here, model, source, tmp_path):
    from pyarrow import parquet

    documents = str(tmp_path / "in.parquet")
    spark.read.json(str(source)).repartition(3).write.parquet(documents)
    clustered, alone = tmp_path / "spark.parquet", tmp_path / "alone.parquet"
    assert run("link", model, documents, "-o", clustered, "--engine", "spark") == 1
    assert run("link", model, documents, "-o", alone) == 1
    expected = {row["id"]: row for row in here}
    for path in (clustered, alone):
        rows = parquet.read_table(path).to_pylist()
        assert len(rows) == N
        assert {row["id"]: row for row in rows} == expected


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(spark, here, model, tmp_path):
    died = str(tmp_path / "died")

    def die_once(frames: Any) -> Any:
        for frame in frames:
            if not os.path.exists(died):
                open(died, "w").close()
                os._exit(9)
            yield frame

    texts = [(n, row["text"]) for n, row in enumerate(here) if n < 20 and n != 7]
    frame = spark.createDataFrame(texts, "number int, body string").repartition(4)
    fragile = frame.mapInPandas(die_once, frame.schema)
    rows = link_frame(fragile, model=model, text="body", id="number").collect()
    assert os.path.exists(died)
    found = sorted((int(row.id), row.text, [x.id for x in row.links]) for row in rows)
    assert found == [(n, text, [x["id"] for x in here[n]["links"]]) for n, text in texts]


@pytest.mark.slow
def test_the_pipeline_is_loaded_once_in_a_worker(spark, model):
    def ask(frames: Any) -> Any:
        import pandas as pd
        import torch

        from spacy_bioel.plugins.spark.spark import _load_once

        next(frames)
        found = _load_once.cache_info()
        yield pd.DataFrame({"loads": [found.misses], "threads": [torch.get_num_threads()]})

    frame = spark.createDataFrame([(str(n), "Narcan") for n in range(12)], "id string, text string")
    for _ in range(2):
        assert len(link_frame(frame.repartition(6), model=model).collect()) == 12
    (row,) = spark.range(1).mapInPandas(ask, "loads long, threads long").collect()
    assert (row.loads, row.threads) == (1, 1)


@pytest.mark.slow
def test_what_the_job_cannot_do(spark, model, source, tmp_path, capsys):
    with pytest.raises(BioelError, match=r"\[B191\] There is no column 'text'; the columns are id"):
        link_frame(spark.range(1), model=model)
    out = tmp_path / "out.jsonl"
    assert run("link", tmp_path / "none", source, "-o", out, "--engine", "spark") == 2
    shown = capsys.readouterr().err
    assert "[B194] Spark failed: [B071] The pipeline" in shown
    assert list(tmp_path.iterdir()) == []
    cut = tmp_path / "cut.jsonl"
    cut.write_text(source.read_text("utf8")[:-9], encoding="utf8")
    assert run("link", model, cut, "-o", out, "--engine", "spark") == 2
    assert "[B194] Spark failed: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cut.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.txt", "-o", "out.jsonl"], "[B196] --engine spark does not support the input in.txt,"),
        (["in.jsonl"], "support the output -, expected a name that ends in"),
        (["in.jsonl", "-o", "out.jsonl", "--n-process", "2"], "not support --n-process, expected"),
    ],
)
def test_arguments_that_do_not_suit_spark(arguments, message, capsys):
    assert run("link", "model", *arguments, "--engine", "spark") == 2
    assert message in capsys.readouterr().err


def test_without_the_packages(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run("link", "model", "in.jsonl", "-o", "out.jsonl", "--engine", "spark") == 2
    assert "[B192] Spark needs packages from the spark extra" in capsys.readouterr().err
