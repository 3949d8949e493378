"""The policy of threads: parts of a batch side by side, each on one thread; and of memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

ParallelMap = Callable[[Callable, Iterable], list]


class _Blas:
    """The BLAS of NumPy, whose number of threads is that of the process.

    The first user limits it to one thread and the last one restores it: users may overlap.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._threads = 1

    @contextmanager
    def one_thread(self) -> Iterator[int]:
        """Limit it. YIELDS (int): The threads that it had before."""
        with self._lock:
            if not self._users:
                self._threads = self._now()
                self._set(1)
            self._users += 1
        try:
            yield self._threads
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._set(self._threads)

    def threads(self) -> int:
        """The threads that it has, or had before it was limited."""
        with self._lock:
            return self._threads if self._users else self._now()

    def _now(self) -> int:
        libraries = _controller("blas").lib_controllers
        return max([one.num_threads for one in libraries], default=1)

    def use_one_thread(self) -> None:
        with self._lock:
            self._threads = 1
            self._set(1)

    def _set(self, n_threads: int) -> None:
        for library in _controller("blas").lib_controllers:
            # threadpoolctl lets one thread set limits. Users on other threads enter and leave.
            free = getattr(library, "clear_controlling_thread", lambda **_: None)
            free(force=True)
            library.set_num_threads(n_threads)
            free(force=True)


_BLAS = _Blas()


def even_slices(n: int, *, most: int, least: int) -> list[slice]:
    """Cut n rows into parts for `one_thread_each`: one for each thread, if they are few.

    most, least (int): Rows of a part; the last one may have fewer.
    """
    size = min(most, max(least, -(-n // _BLAS.threads())))
    return [slice(start, start + size) for start in range(0, n, size)]


@contextmanager
def one_thread_each() -> Iterator[ParallelMap]:
    """Parallelise over the parts of a batch instead of within matrix products.

    The parts are spread over as many threads as the BLAS of NumPy may use, each with one thread for
    its products. Threads that share a small product synchronise at every step, which on a busy
    machine takes ten times as long as one thread does, and rounding depends on their number. A
    single part runs on the calling thread, to save the start and the heap of another one.

    PyTorch, if it is imported, is limited in the same way; its limits are local to a thread.

    YIELDS (Callable): A `map` of a function over parts, which returns a list.
    """
    with _BLAS.one_thread() as n_threads, ExitStack() as limits:
        limits.callback(_limit_torch())
        with ThreadPoolExecutor(n_threads, initializer=_limit_torch) as pool:

            def parallel_map(function: Callable, parts: Iterable) -> list:
                parts = list(parts)
                is_alone = n_threads == 1 or len(parts) < 2
                return list(map(function, parts) if is_alone else pool.map(function, parts))

            yield parallel_map


@contextmanager
def without_collection() -> Iterator[None]:
    """Look for no garbage that refers to itself, where many objects are made and none of it: the
    collector would take a sixth of the time of a build."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def give_back_memory() -> None:
    """Give freed memory back to the system, which the allocator of Linux keeps for itself."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None:
        trim(0)


def use_one_thread() -> None:
    """Limit matrix products to one thread for the rest of this process, a worker process.

    Unlike the limits of `one_thread_each` it also applies to threads of PyTorch started later.
    """
    _BLAS.use_one_thread()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def _limit_torch() -> Callable[[], None]:
    """Limit PyTorch to one thread in the calling thread. RETURNS (Callable): Restores the limits.

    `torch.set_num_threads` would also set the default of later threads: two threads that set and
    restore it in turn would leave the process at one.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    # A thread takes over the number of the process at its first call of torch.
    torch.get_num_threads()
    openmp = _controller("openmp").limit(limits=1)
    set_mkl = _mkl_setter()
    mkl = set_mkl(1)

    def restore() -> None:
        set_mkl(mkl)
        openmp.restore_original_limits()

    return restore


@cache
def _controller(user_api: str) -> ThreadpoolController:
    """Controller of the libraries that are loaded by now; limits of OpenMP are thread-local."""
    return ThreadpoolController().select(user_api=user_api)


@cache
def _mkl_setter() -> Callable[[int], int]:
    """Function that sets MKL's number of threads in the calling thread, and returns the old one.

    After `torch.set_num_threads` MKL ignores the number of OpenMP. threadpoolctl does not find MKL,
    which is linked into torch's own library.
    """
    library = ctypes.CDLL(sys.modules["torch"]._C.__file__)
    return getattr(library, "MKL_Set_Num_Threads_Local", lambda n: n)
