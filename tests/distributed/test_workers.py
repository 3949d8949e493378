"""Workers give results in order, and end with their caller, whatever happens."""

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

from spacy_bioel.errors import BioelError
from spacy_bioel.export.rows import worker_processes


def halve(n: int) -> float:
    time.sleep(0.05 if n % 5 == 0 else 0)
    return n / 2


def die(n: int, *, at: int) -> int:
    if n == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def large(n: int) -> bytes:
    return bytes(3_000_000 + n)


def threads(_: int) -> int:
    import torch

    return torch.get_num_threads()


def meet(_: int, *, folder: Path) -> None:
    """Wait until three processes are here."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 3:
        time.sleep(0.01)


def test_results_are_in_order():
    with worker_processes(halve, 3) as spread:
        assert list(spread(range(40))) == [n / 2 for n in range(40)]
        assert list(spread([])) == []
    assert multiprocessing.active_children() == []


def test_items_are_read_as_they_are_needed():
    taken = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(1)
            yield 0

    with worker_processes(halve, 2) as spread:
        results = spread(endless())
        assert [next(results) for _ in range(3)] == [0, 0, 0]
        assert 3 <= len(taken) <= 11


@pytest.mark.parametrize("at", [0, 7])
def test_a_worker_that_is_killed_is_noticed(at):
    seen = []
    with (
        pytest.raises(BioelError, match=r"\[B250\] A worker process died \(signal 9\)"),
        worker_processes(partial(die, at=at), 2) as spread,
    ):
        for result in spread(range(20)):
            seen.append(result)
    assert seen == list(range(len(seen))) and len(seen) <= at
    assert multiprocessing.active_children() == []


def test_workers_end_while_they_send():
    """What they had sent of a result is more than a pipe holds, and less than the whole."""
    for n in range(5):
        with worker_processes(large, 2) as spread:
            results = spread(range(30))
            assert [len(next(results)) for _ in range(n)] == [3_000_000 + i for i in range(n)]
        assert multiprocessing.active_children() == []


def test_an_error_of_the_source_ends_the_workers():
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError), worker_processes(halve, 2) as spread:
        list(spread(source()))
    assert multiprocessing.active_children() == []


def test_a_worker_uses_one_thread():
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_workers_end_with_a_caller_that_was_killed(tmp_path):
    code = (
        "import sys; sys.path += [sys.argv[1], sys.argv[1] + '/..']\n"
        "from functools import partial; from pathlib import Path\n"
        "from test_workers import meet, worker_processes\n"
        "with worker_processes(partial(meet, folder=Path(sys.argv[2])), 3) as spread:\n"
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
