from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spacy_bioel.distributed.workers import worker_processes
from spacy_bioel.errors import BioelError


def halve(n: int) -> float:
    time.sleep(0.05 if n % 5 == 0 else 0)
    return n / 2


def die(n: int, *, at: int) -> int:
    if n == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def threads(_: int) -> int:
    import torch

    return torch.get_num_threads()


def pid_after(n: int, *, folder: Path) -> int:
    """Its process; the second one sleeps for longer than any test."""
    (folder / str(os.getpid())).touch()
    time.sleep(3600 * n)
    return os.getpid()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("n_process", [1, 2, 3])
def test_results_are_in_order(n_process: int) -> None:
    with worker_processes(halve, n_process) as spread:
        assert list(spread(range(40))) == [n / 2 for n in range(40)]
        assert list(spread([])) == []
    assert multiprocessing.active_children() == []


def test_items_are_read_as_they_are_needed() -> None:
    taken = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(1)
            yield 0

    with worker_processes(halve, 2) as spread:
        results = spread(endless())
        assert [next(results) for _ in range(3)] == [0, 0, 0]
        assert 3 <= len(taken) <= 11


@pytest.mark.parametrize("at", [0, 1, 7])
def test_a_worker_that_is_killed_is_noticed(at: int) -> None:
    seen = []
    with (
        pytest.raises(BioelError, match=r"\[B250\] A worker process died \(signal 9\)"),
        worker_processes(partial(die, at=at), 2) as spread,
    ):
        for result in spread(range(20)):
            seen.append(result)
    assert seen == list(range(len(seen))) and len(seen) <= at
    assert multiprocessing.active_children() == []


def test_an_idle_worker_that_is_killed_is_noticed() -> None:
    with worker_processes(halve, 2) as spread:
        results = spread(iter(range(100)))
        next(results)
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
        with pytest.raises(BioelError, match=r"\[B250\]"):
            list(results)


def test_busy_workers_end_with_the_block(tmp_path: Path) -> None:
    with worker_processes(partial(pid_after, folder=tmp_path), 2) as spread:
        results = spread([0, 1])
        assert next(results) > 0
    assert multiprocessing.active_children() == []
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert pids and not any(map(is_alive, pids))


def test_an_error_of_the_source_ends_the_workers() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError), worker_processes(halve, 2) as spread:
        list(spread(source()))
    assert multiprocessing.active_children() == []


def test_a_worker_uses_one_thread() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.ones(600, 600) @ torch.ones(600, 600)).sum()  # what has threads is forked
        with worker_processes(threads, 1) as spread:
            assert list(spread([0])) == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_workers_end_with_a_caller_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from functools import partial; from pathlib import Path\n"
        "from test_workers import pid_after, worker_processes\n"
        "with worker_processes(partial(pid_after, folder=Path(sys.argv[2])), 3) as spread:\n"
        "    list(spread([0, 0, 0]))\n"
        "    print('done', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None and caller.stdout.readline() == b"done\n"
        caller.kill()
        # The workers have its stdout, too: it ends when they do.
        assert caller.communicate(timeout=60) == (b"", None)
    assert len(list(tmp_path.iterdir())) == 3
