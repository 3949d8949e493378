"""Worker processes: results come in order, the processes end with their caller, and one that dies
is noticed.

`Language.pipe` has processes, too, but waits for ever for one that was killed, and ends its own
only when all documents are done or its generator is closed.
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

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items a process that are read before their turn, so that a slow one does not stop the others.
_AHEAD = 4
_SECONDS_TO_DIE = 5


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


@contextmanager
def worker_processes(
    work: Callable[[Item], Result], n_process: int
) -> Iterator[Callable[[Iterable[Item]], Iterator[Result]]]:
    """A `map` of a function, on processes that are gone when the block ends, however it ends.

    work (Callable): Goes to the processes as the start method has it: "spawn" pickles it.
    YIELDS (Callable): Items to results, in the order of the items, which are read as they are
        needed. RAISES BioelError: [B250] when a process died.
    """
    workers: list[_Worker] = []
    try:
        # One after the other: the next one must not hold the far end of this one's connection,
        # or its death would not be seen.
        for _ in range(n_process):
            workers.append(_start(work))
        yield _Spread[Item, Result](workers).map
    finally:
        for worker in workers:
            worker.process.kill()  # not terminate: a handler of the caller's may stand in the way
        for worker in workers:
            worker.process.join()
            worker.connection.close()


def _start(work: Callable[[Item], Result]) -> _Worker:
    ours, theirs = multiprocessing.Pipe()
    # Daemons end with this process, even if nobody closed the generator that has them.
    process = multiprocessing.Process(target=_serve, args=(work, theirs, ours), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(work: Callable[[Item], Result], connection: Connection, far_end: Connection) -> None:
    """What a worker does until its caller is gone."""
    far_end.close()  # else the caller's end would stay open in this process after its death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the caller, who ends its workers
    if "torch" in sys.modules:
        _use_one_thread()
    try:
        while True:
            connection.send(work(connection.recv()))
    except (EOFError, ConnectionError):
        return


def _use_one_thread() -> None:
    """The cores are taken by the processes; and a process that was forked has none of the threads
    that PyTorch believes it has, and would wait for them."""
    import torch

    torch.set_num_threads(1)


class _Spread(Generic[Item, Result]):
    """Hands out items and takes results back. A worker has one item at a time, so that neither
    side ever waits for the other to read.
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
        # The shorter one first: zip would take an item for which there is no worker.
        for worker, (number, item) in zip(self._idle[: max(room, 0)], numbered, strict=False):
            with _noticing_death(worker):
                worker.connection.send(item)
            self._busy[worker.connection] = worker, number
            self._idle.remove(worker)

    def _collect(self, *, timeout: float | None) -> None:
        """Take what is ready; without a timeout, wait for something."""
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
