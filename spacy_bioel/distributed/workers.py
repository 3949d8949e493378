"""Worker processes with ordered results, reliable shutdown and detection of killed workers.

`Language.pipe` has processes too, but waits for ever for a killed one, and its processes end only
when its generator is exhausted or closed.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, NamedTuple, TypeVar, cast

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.processor import use_one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items per process that may be in progress, so that a slow item does not block the others.
_AHEAD = 4
_SECONDS_TO_DIE = 5


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


@contextmanager
def worker_processes(
    work: Callable[[Item], Result], n_process: int
) -> Iterator[Callable[[Iterable[Item]], Iterator[Result]]]:
    """Start worker processes; they are killed at the end of the block, also after an error.

    work (Callable): Function to run in the processes; picklable under the start method spawn.
    YIELDS (Callable): A `map` that reads items lazily and yields results in the order of the items.
        RAISES BioelError: [B250] when a process died.
    """
    workers: list[_Worker] = []
    try:
        # One by one: a forked worker must not inherit the far end of an earlier connection, or the
        # death of the earlier worker would not close it.
        for _ in range(n_process):
            workers.append(_start(work))
        yield _Spread[Item, Result](workers).map
    finally:
        for worker in workers:
            worker.process.kill()  # not terminate: an inherited signal handler might block it
        for worker in workers:
            worker.process.join()
            worker.connection.close()


def _start(work: Callable[[Item], Result]) -> _Worker:
    ours, theirs = multiprocessing.Pipe()
    # Daemon processes end with this process, even if the generator was never closed.
    process = multiprocessing.Process(target=_serve, args=(work, theirs, ours), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(work: Callable[[Item], Result], connection: Connection, far_end: Connection) -> None:
    """Loop of a worker process: receive an item, send its result, until the caller is gone."""
    far_end.close()  # otherwise the caller's end would stay open here after the caller's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl+C and ends its workers
    if "torch" in sys.modules:
        # The processes share the cores. Also, a forked process has none of the threads that
        # PyTorch started before the fork, and would wait for them.
        use_one_thread()
    try:
        while True:
            connection.send(work(connection.recv()))
    except (EOFError, ConnectionError):
        return


class _Spread(Generic[Item, Result]):
    """Distributes items and collects results. A worker has one item at a time, which avoids a
    deadlock of both sides writing.
    """

    def __init__(self, workers: list[_Worker]) -> None:
        self._workers = workers
        self._idle = list(workers)
        self._busy: dict[Connection, tuple[_Worker, int]] = {}
        self._done: dict[int, Result] = {}

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        numbered = enumerate(items)
        for wanted in count():
            self._collect(timeout=0)
            self._hand_out(numbered)
            while wanted not in self._done:
                if not self._busy:
                    return
                self._collect(timeout=None)
                self._hand_out(numbered)
            yield self._done.pop(wanted)

    def _hand_out(self, numbered: Iterator[tuple[int, Item]]) -> None:
        room = _AHEAD * len(self._workers) - len(self._busy) - len(self._done)
        # Workers first: zip must not consume an item without a worker for it.
        for worker, (number, item) in zip(self._idle[: max(room, 0)], numbered, strict=False):
            with _noticing_death(worker):
                worker.connection.send(item)
            self._busy[worker.connection] = worker, number
            self._idle.remove(worker)

    def _collect(self, *, timeout: float | None) -> None:
        """Collect the results that are ready; with a timeout of None, wait for at least one."""
        sentinels = {worker.process.sentinel: worker for worker in self._workers}
        for ready in wait([*self._busy, *sentinels], timeout):
            if isinstance(ready, int):
                raise _death_of(sentinels[ready])
            worker, number = self._busy.pop(cast(Connection, ready))
            with _noticing_death(worker):
                self._done[number] = worker.connection.recv()
            self._idle.append(worker)


@contextmanager
def _noticing_death(worker: _Worker) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise _death_of(worker) from error


def _death_of(worker: _Worker) -> BioelError:
    worker.process.join(_SECONDS_TO_DIE)
    status = worker.process.exitcode
    how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
    return BioelError(Errors.B250.format(how=how))
