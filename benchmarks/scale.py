"""Measure costs of large collections and knowledge bases, for docs/guides/scale.md.

python -m benchmarks.run spark CORPUS links the texts of a corpus file in any format with the
starter's encoder and the bundled MeSH. Rows: the first 300 characters of texts, repeated with new
ids up to 10,000 documents, with `bioel link` and `bioel link --engine spark` on two cores, in
partitions of half a megabyte; one document is too long for spaCy. Cost: each complete text once,
in one process.

pubmed CORPUS: the starter on complete texts, a sample of PubMed, in eight files of different sizes,
each of which is one partition. In one run a worker is killed; in another, all processes are killed
and the command is repeated.

knowledge_base FOLDER: build and open a knowledge base of all MeSH diseases and chemicals, from the
files in FOLDER that `training/corpora.yml` lists.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import spacy

import spacy_bioel
from benchmarks.record import NoteOption, Row, question, rows_of
from benchmarks.texts import blank, python
from spacy_bioel.corpus import read_texts

_N_DOCUMENTS, _N_CHARACTERS = 10_000, 300
_SPARK = "--master local[2] --conf spark.sql.files.maxPartitionBytes=500000 pyspark-shell"
# Each file is a partition, since no two fit into one; a task has four attempts.
_SPARK_FILE_PARTITIONS = (
    "--master local[2,4] --conf spark.sql.files.openCostInBytes=128m pyspark-shell"
)
_N_PARTITIONS, _N_PUBMED_ABSTRACTS = 8, 36_000_000


@question("spark")
def spark(corpus: Path, note: NoteOption = "") -> Iterator[Row]:
    texts = list(dict.fromkeys(text.text for text in read_texts(corpus)))
    short = [text[:_N_CHARACTERS] for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model, first, whole, many = (
            place / name for name in ("nlp", "1.jsonl", "2.jsonl", "3.jsonl")
        )
        _write_pipeline(model)
        too_long = "a" * (spacy.blank("en").max_length + 1)
        _write_texts(first, texts[:1])
        _write_texts(whole, texts)
        _write_texts(many, chain([too_long], islice(cycle(short), _N_DOCUMENTS - 1)))
        start = _link(model, first, place / "first.out.jsonl")
        once = _link(model, whole, place / "whole.out.jsonl")
        process = _link(model, many, place / "process.jsonl")
        cluster = _link(model, many, place / "spark.jsonl", "--engine", "spark")
        written = (place / "whole.out.jsonl").stat().st_size / len(texts)
        expected = _rows(place / "process.jsonl")
        parts = sorted((place / "spark.jsonl").glob("part-*.json"))
        found = _rows(*parts)
    different = sum(found.get(id) != row for id, row in expected.items())
    different += len(found.keys() - expected.keys())
    failed = sum(row["error"] is not None for row in expected.values())
    mentions = sum(len(row["links"]) for row in expected.values())
    about = {"corpus": corpus.name, "note": note}
    rows_about = {"n": _N_DOCUMENTS, "characters": _N_CHARACTERS, "mentions": mentions}
    rows_about |= {"failed": failed}
    cost_about = {"n": len(texts), "characters": round(fmean(map(len, texts)))}
    each = (once["processor_seconds"] - start["processor_seconds"]) / (len(texts) - 1)
    figures: list[tuple[str, str, float, dict[str, int]]] = [
        ("both", "different_rows", different, rows_about | {"parts": len(parts)}),
        ("process", "seconds", round(process["seconds"], 1), rows_about),
        ("spark", "seconds", round(cluster["seconds"], 1), rows_about),
        ("process", "processor_seconds_a_document", round(each, 5), cost_about),
        ("process", "processor_seconds_to_start", round(start["processor_seconds"], 1), {"n": 1}),
        ("process", "bytes_a_document", round(written), cost_about),
        ("process", "megabytes", round(once["megabytes"]), cost_about),
    ]
    for system, metric, value, fields in figures:
        yield {"system": system, **about, **fields, "metric": metric, "value": value}


@question("pubmed")
def pubmed(corpus: Path, note: NoteOption = "") -> Iterator[Row]:
    texts = list(dict.fromkeys(text.text for text in read_texts(corpus)))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model, whole, parts, target = (
            place / name for name in ("nlp", "all.jsonl", "in.jsonl", "out.jsonl")
        )
        spacy_bioel.load().to_disk(model)
        _write_texts(whole, texts)
        parts.mkdir()
        lines, first = whole.read_text("utf8").splitlines(keepends=True), 0
        for size in range(1, _N_PARTITIONS + 1):
            end = first + len(lines) * size * 2 // (_N_PARTITIONS * (_N_PARTITIONS + 1)) + 1
            (parts / f"{size}.jsonl").write_text("".join(lines[first:end]), "utf8")
            first = end
        _write_texts(first_alone := place / "first.jsonl", texts[:1])
        start = _link(model, first_alone, place / "first.out.jsonl")
        once = _link(model, whole, place / "process.jsonl")
        expected = _rows(place / "process.jsonl")
        each = (once["processor_seconds"] - start["processor_seconds"]) / (len(texts) - 1)
        about = {"corpus": corpus.name, "note": note, "n": len(texts), "parts": _N_PARTITIONS}
        yield about | {"system": "process", "metric": "processor_seconds_a_document", "value": each}
        hours = _N_PUBMED_ABSTRACTS * each / 3600
        yield about | {"system": "process", "metric": "core_hours", "value": round(hours)}
        for victim in ("worker", "all"):
            command = _command(model, parts, target, "--engine", "spark")
            job = subprocess.Popen(
                command, env=_environment(_SPARK_FILE_PARTITIONS), start_new_session=True
            )
            while len(_workers(job.pid)) < 2:  # one is their parent
                time.sleep(1)
            time.sleep(start["seconds"] + once["processor_seconds"] / 6)  # a third of the job
            if victim == "worker":
                os.kill(max(_workers(job.pid)), signal.SIGKILL)
                job.wait()
            else:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
                yield about | {"system": victim, "metric": "outputs", "value": target.exists() + 0}
                subprocess.run(command, env=_environment(_SPARK_FILE_PARTITIONS), check=True)
            written = sorted(target.glob("part-*.json"))
            n_lines = sum(part.read_bytes().count(b"\n") for part in written)
            wrong = abs(n_lines - len(expected))
            wrong += sum(row != expected.get(id) for id, row in _rows(*written).items())
            yield about | {"system": victim, "metric": "different_rows", "value": wrong}
            shutil.rmtree(target)


def _workers(session: int) -> list[int]:
    """Return the Spark workers of a session; the last ones were forked by a daemon."""
    command = ["pgrep", "--session", str(session), "--full", "pyspark.daemon"]
    return list(map(int, subprocess.run(command, capture_output=True, text=True).stdout.split()))


def _write_pipeline(folder: Path) -> None:
    nlp = blank()
    nlp.add_pipe("bioel_linker", config={"mentions": "dictionary"})
    nlp("A heart attack.")  # opens the knowledge base
    nlp.to_disk(folder)


def _write_texts(path: Path, texts: Iterable[str]) -> None:
    with path.open("w", encoding="utf8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": str(number), "text": text}) + "\n")


def _link(model: Path, source: Path, output: Path, *options: str) -> dict[str, float]:
    """Run `bioel link`; return wall time, processor time and peak memory of its process."""
    start = time.perf_counter()
    command = _command(model, source, output, *options)
    pid = os.spawnve(os.P_NOWAIT, sys.executable, command, _environment(_SPARK))
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: a document failed
        raise SystemExit(f"bioel link failed with status {status}")
    return {
        "seconds": time.perf_counter() - start,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss * 1024 / 1e6,
    }


def _command(model: Path, source: Path, output: Path, *options: str) -> list[str]:
    arguments = [str(model), str(source), "--output", str(output), *options]
    return [sys.executable, "-m", "spacy_bioel", "link", *arguments]


def _environment(spark: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYSPARK_SUBMIT_ARGS": spark}


def _rows(*paths: Path) -> dict[str, dict[str, Any]]:
    lines = (line for path in paths for line in path.open(encoding="utf8"))
    rows = list(map(json.loads, lines))
    for row in rows:
        for link in row["links"]:
            link |= {"hgvs": None, "gene": None} | link  # Spark writes the null
    return {row["id"]: row for row in rows}


_OPEN = """
import time
import spacy
start = time.perf_counter()
import spacy_bioel
imported = time.perf_counter()
from spacy_bioel.kb.knowledge_base import KnowledgeBase
ready = time.perf_counter()
kb = KnowledgeBase.open("kb/bc5cdr")
print(imported - start, time.perf_counter() - ready, len(kb), kb.n_names)
"""


@question("knowledge_base")
def knowledge_base(data: Path) -> Iterator[Row]:
    script = "training/scripts/corpora.py"
    python(script, "fetch", "bc5cdr", "--data", data)
    start = time.perf_counter()
    python(script, "kb", "bc5cdr")
    build = time.perf_counter() - start
    printed = subprocess.check_output([sys.executable, "-c", _OPEN], text=True).split()
    size = sum(file.stat().st_size for file in Path("kb/bc5cdr").iterdir()) / 1e6
    about = {"corpus": "bc5cdr", "n": int(printed[3]), "concepts": int(printed[2]), "seed": 0}
    yield from rows_of("kb", {"seconds": build}, digits=1, question="build", **about)
    opened = {"seconds": float(printed[1])}
    yield from rows_of("kb", opened, digits=4, question="open", **about)
    yield from rows_of("kb", {"megabytes": size}, digits=1, question="size", **about)
    imported = {"seconds": float(printed[0])}
    yield from rows_of("spacy_bioel", imported, digits=4, question="import")
