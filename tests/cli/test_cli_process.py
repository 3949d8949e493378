"""`bioel` as a process of its own: pipes, full disks behind stdout, killed workers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BIOEL = (sys.executable, "-m", "spacy_bioel")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="devices and /proc")


@contextmanager
def started(*argv: object, **settings: Any) -> Iterator[subprocess.Popen]:
    """`bioel` with endless texts on its stdin; killed at the end."""
    with (
        subprocess.Popen(["yes", "Narcan was given."], stdout=subprocess.PIPE) as texts,
        subprocess.Popen(
            [*BIOEL, *map(str, argv)], stdin=texts.stdout, stderr=subprocess.PIPE, **settings
        ) as process,
    ):
        assert texts.stdout is not None
        texts.stdout.close()
        try:
            yield process
        finally:
            process.kill()
            texts.kill()


def children_of(process: subprocess.Popen) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


@pytest.mark.slow
def test_what_does_not_read_to_the_end_ends_the_command(model):
    with started("link", model, "-", "--n-process", 2, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["links"][0]["id"] == "MESH:D009270"
        workers = children_of(process)
        assert len(workers) == 2
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None and process.stderr.read() == b""
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_command(model, tmp_path):
    out = tmp_path / "out.jsonl"
    with started("link", model, "-", "--n-process", 2, "-o", out) as process:
        while len(workers := children_of(process)) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(workers[0], signal.SIGKILL)
        assert process.wait(timeout=60) == 2
        assert process.stderr is not None
        assert b"error: [B250] A worker process died (signal 9)" in process.stderr.read()
    # Documents that were linked before may be in the partial output, for --resume.
    assert {path.name for path in tmp_path.iterdir()} <= {"out.jsonl.partial"}
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.parametrize("name", ["stdout", pytest.param("/dev/full", marks=pytest.mark.slow)])
def test_a_full_disk(model, name):
    with open("/dev/full", "wb") as full:
        argv = ("-o", name) if name != "stdout" else ()
        with started("link", model, "-", "--n-process", 2, *argv, stdout=full) as process:
            assert process.wait(timeout=60) == 2
            assert process.stderr is not None
            shown = process.stderr.read().decode()
    assert shown.startswith(f"error: [B252] {name} cannot be read or written: No space left on")
    assert shown.count("\n") == 1


@pytest.mark.slow
def test_stdout_is_utf8_whatever_the_terminal_is(model):
    done = subprocess.run(
        [*BIOEL, "link", model, "-"],
        input="Narcan für β\n".encode(),
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(done.stdout)["text"] == "Narcan für β"


def test_a_result_on_stdout_with_a_full_disk(corpus, tmp_path):
    with open("/dev/full", "wb") as full:
        command = [*BIOEL, "convert", corpus, tmp_path / "gold.jsonl", "--json", "-"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 2
    assert b"error: [B252] stdout cannot be read or written: No space" in done.stderr
    assert b"Exception ignored" not in done.stderr
