"""Worker processes with ordered results, reliable shutdown and detection of killed workers.

`Language.pipe` waits for ever for a killed process, and so does `ProcessPoolExecutor` for one that
was killed while it sent a result: its processes share a pipe, which then has no end.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import TypeVar

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.processor import use_one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")
Worker = tuple[BaseProcess, Connection]

# Items per process that may be in progress, so that a slow item does not block the others.
_AHEAD = 4
_SECONDS_TO_DIE = 5


@contextmanager
def worker_processes(
    work: Callable[[Item], Result], n_process: int
) -> Iterator[Callable[[Iterable[Item]], Iterator[Result]]]:
    """Start worker processes; they are killed at the end of the block, also after an error.

    work (Callable): Function to run in the processes; picklable under the start method spawn.
    YIELDS (Callable): A `map` that reads items lazily and yields results in the order of the items.
        RAISES BioelError: [B250] when a process died.
    """
    workers: list[Worker] = []
    idle: SimpleQueue[Worker] = SimpleQueue()
    threads = ThreadPoolExecutor(n_process)  # each waits for one process

    def ask(item: Item) -> Result:
        worker = process, connection = idle.get()
        try:
            connection.send(item)
            result: Result = connection.recv()
            return result
        except (EOFError, OSError) as error:
            raise _death_of(process) from error
        finally:
            idle.put(worker)

    def spread(items: Iterable[Item]) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(threads.submit(ask, item))
            if len(waiting) == _AHEAD * n_process:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        # One by one, and before the threads: a forked worker must not inherit the far end of an
        # earlier connection, or the death of the earlier worker would not close it.
        for _ in range(n_process):
            workers.append(_start(work))
            idle.put(workers[-1])
        yield spread
    finally:
        for process, _ in workers:
            process.kill()  # not terminate: an inherited signal handler might block it
        threads.shutdown(cancel_futures=True)
        for process, connection in workers:
            process.join()
            connection.close()


def _start(work: Callable[[Item], Result]) -> Worker:
    ours, theirs = multiprocessing.Pipe()
    # Daemon processes end with this process, even if the generator was never closed.
    process = multiprocessing.Process(target=_serve, args=(work, theirs, ours), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(work: Callable[[Item], Result], connection: Connection, far_end: Connection) -> None:
    """Loop of a worker process: receive an item, send its result, until the caller is gone."""
    far_end.close()  # otherwise the caller's end would stay open here after the caller's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl+C and ends its workers
    # The processes share the cores. Also, a forked process has none of the threads that PyTorch
    # started before the fork, and would wait for them.
    use_one_thread()
    gc.freeze()  # the pipeline stays, and need not be looked through for garbage
    try:
        while True:
            connection.send(work(connection.recv()))
    except (EOFError, ConnectionError):
        return


def _death_of(process: BaseProcess) -> BioelError:
    process.join(_SECONDS_TO_DIE)
    status = process.exitcode
    how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
    return BioelError(Errors.B250.format(how=how))
