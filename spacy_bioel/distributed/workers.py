"""Worker processes with ordered results, reliable shutdown and detection of killed workers.

`Language.pipe` has processes too, but waits for ever for a killed one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.processor import use_one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items per process that may be in progress, so that a slow item does not block the others.
_AHEAD = 4
_work: Callable[[Any], Any]  # of a worker process


@contextmanager
def worker_processes(
    work: Callable[[Item], Result], n_process: int
) -> Iterator[Callable[[Iterable[Item]], Iterator[Result]]]:
    """Start worker processes; they are killed at the end of the block, also after an error.

    work (Callable): Function to run in the processes; picklable under the start method spawn.
    YIELDS (Callable): A `map` that reads items lazily and yields results in the order of the items.
        RAISES BioelError: [B250] when a process died.
    """
    pool = ProcessPoolExecutor(n_process, initializer=_begin, initargs=(work,))
    processes = pool._processes  # the pool itself would wait for what is being done

    def spread(items: Iterable[Item]) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(_do, item))
                if len(waiting) == _AHEAD * n_process:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            pool.shutdown()
            # The pool terminates the others.
            statuses = [one.exitcode or 0 for one in processes.values()]
            status = next((one for one in statuses if one != -signal.SIGTERM), -signal.SIGTERM)
            how = f"exit status {status}" if status >= 0 else f"signal {-status}"
            raise BioelError(Errors.B250.format(how=how)) from error

    try:
        yield spread
    finally:
        for process in list(processes.values()):
            process.kill()  # not terminate: an inherited signal handler might block it
        pool.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    """Prepare a worker process. One thread: the processes share the cores. Also, a forked process
    has none of the threads that PyTorch started before the fork, and would wait for them.
    """
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl+C and ends its workers
    Thread(target=_end_with_caller, daemon=True).start()
    use_one_thread()


def _end_with_caller() -> None:
    """End this process when the caller is killed."""
    caller = multiprocessing.parent_process()
    assert caller is not None
    caller.join()
    os._exit(1)


def _do(item: Any) -> Any:
    return _work(item)
