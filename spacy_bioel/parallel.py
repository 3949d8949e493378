"""Threads, GPUs and memory: run batch parts in parallel, choose a GPU, and free memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from spacy_bioel.errors import BioelError, Errors

ParallelMap = Callable[[Callable, Iterable], list]
_Row = TypeVar("_Row")


class _Blas:
    """NumPy's BLAS library. Its number of threads applies to the whole process.

    If several callers limit it at the same time, the first sets the limit of one thread, and the
    last restores the previous number.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._threads = 1

    @contextmanager
    def one_thread(self) -> Iterator[int]:
        """Limit BLAS to one thread. YIELDS (int): The previous number of threads."""
        with self._lock:
            if not self._users:
                self._threads = self._current_threads()
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
        """Return the number of threads, ignoring any one-thread limit that is in force."""
        with self._lock:
            return self._threads if self._users else self._current_threads()

    def _current_threads(self) -> int:
        libraries = _controller("blas").lib_controllers
        return max([library.num_threads for library in libraries], default=1)

    def use_one_thread(self) -> None:
        with self._lock:
            self._threads = 1
            self._set(1)

    def _set(self, n_threads: int) -> None:
        for library in _controller("blas").lib_controllers:
            # threadpoolctl lets only one thread set limits, but any thread may call this.
            release = getattr(library, "clear_controlling_thread", lambda **_: None)
            release(force=True)
            library.set_num_threads(n_threads)
            release(force=True)


_BLAS = _Blas()


def even_slices(n: int, *, max_rows: int, min_rows: int) -> list[slice]:
    """Divide n rows into parts of `min_rows` to `max_rows`, one per thread if the size allows."""
    size = min(max_rows, max(min_rows, -(-n // _BLAS.threads())))
    return [slice(start, start + size) for start in range(0, n, size)]


@contextmanager
def one_thread_each(*, on_gpu: bool = False) -> Iterator[ParallelMap]:
    """Parallelise over the parts of a batch instead of within matrix products.

    The parts run on as many threads as NumPy's BLAS may use, and each part uses one thread for its
    products. Threads that share a small product synchronise at every step: on a busy machine, this
    takes ten times as long as one thread, and rounding depends on the number of threads. A single
    part runs on the calling thread, which avoids starting another thread with its own heap.

    PyTorch, if it has been imported, is limited in the same way; its limits are local to a thread.

    on_gpu (bool): Whether the parts run on a GPU. If so, they all run on the calling thread,
        because other threads have no GPU.
    YIELDS (Callable): Maps a function over parts, and returns a list.
    """
    with _BLAS.one_thread() as n_threads, ExitStack() as limits:
        limits.callback(_limit_torch())
        with ThreadPoolExecutor(n_threads, initializer=_limit_torch) as pool:

            def parallel_map(function: Callable, parts: Iterable) -> list:
                parts = list(parts)
                if on_gpu or n_threads == 1 or len(parts) < 2:
                    return [function(part) for part in parts]
                return list(pool.map(function, parts))

            yield parallel_map


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection, which would otherwise take a sixth of the build time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def give_back_memory() -> None:
    """Return freed memory to the OS; the Linux allocator would otherwise keep it."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def use_one_thread() -> None:
    """Limit matrix products to one thread for the rest of a worker process.

    Unlike the limits in `one_thread_each`, this also applies to PyTorch threads started later.
    """
    _BLAS.use_one_thread()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def _limit_torch() -> Callable[[], None]:
    """Limit PyTorch to one thread in the calling thread, and return a function that undoes this.

    `torch.set_num_threads` also sets the default for later threads: two overlapping calls that set
    and restore it would leave the process with one thread.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return lambda: None
    # A thread copies the process-wide number of threads when it first calls torch.
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
    """Return the controller for the loaded libraries; OpenMP limits are local to a thread."""
    return ThreadpoolController().select(user_api=user_api)


@cache
def _mkl_setter() -> Callable[[int], int]:
    """Return a function that sets MKL's thread count in the calling thread and returns the old one.

    After `torch.set_num_threads`, MKL ignores OpenMP's number of threads. threadpoolctl does not
    find MKL, which is linked into the torch library.
    """
    library = ctypes.CDLL(sys.modules["torch"]._C.__file__)
    return getattr(library, "MKL_Set_Num_Threads_Local", lambda n: n)


def require_gpu(gpu_id: int) -> None:
    """Use a GPU for all models that this thread creates or loads from now on.

    gpu_id (int): Number of the GPU, counted from 0; below 0: the CPU.
    RAISES BioelError: [B040] if PyTorch is missing, [B650] if it does not find the GPU, [B651] if
        CuPy cannot use it.
    """
    if gpu_id < 0:
        return
    try:
        import torch
    except ImportError as error:
        raise BioelError(Errors.B040.format(error=error)) from error
    from thinc import api as thinc

    if gpu_id >= (n := torch.cuda.device_count()) and not torch.backends.mps.is_available():
        found, remedy = f"finds {n}, counted from 0", "Check nvidia-smi and CUDA_VISIBLE_DEVICES"
        if not torch.backends.cuda.is_built():
            found, remedy = "is built without CUDA", "Install a build for CUDA"
        about = {"version": torch.__version__, "found": found, "remedy": remedy}
        raise BioelError(Errors.B650.format(gpu_id=gpu_id, **about))
    try:
        thinc.require_gpu(gpu_id)
        _ = thinc.get_current_ops().alloc1f(1) + 1  # CuPy compiles this using the CUDA toolkit
    except Exception as error:
        thinc.require_cpu()
        cuda = torch.version.cuda or ""
        about = {"cuda": cuda, "package": f"cupy-cuda{cuda.partition('.')[0]}x"}
        raise BioelError(Errors.B651.format(gpu_id=gpu_id, error=error, **about)) from error


def gpu_in_use() -> int:
    """Return the id of the GPU that this thread uses, or -1 for the CPU."""
    from thinc.api import get_current_ops

    ops = get_current_ops()
    if ops.device_type == "gpu":
        return int(sys.modules["torch"].cuda.current_device())
    return 0 if ops.name == "mps" else -1  # on Apple GPUs, arrays stay in NumPy


def free_gpu_memory() -> float:
    """Return the free memory of the GPU in use, in GB; 0 if PyTorch cannot measure it."""
    cuda = sys.modules["torch"].cuda
    return float(cuda.mem_get_info()[0] / 1e9) if cuda.is_available() else 0.0


def in_halves(compute: Callable[[Any], _Row], rows: Any) -> list[_Row]:
    """Compute the result for a batch, halving the batch if the GPU runs out of memory.

    rows: The rows of the batch, in any type that can be sliced, such as an array.
    RETURNS (list): The result for the whole batch, or the results for its parts, in order.
    """
    try:
        return [compute(rows)]
    except _memory_errors():
        if len(rows) < 2:
            raise
    # Retry outside the exception handler, which would keep the batch's tensors in memory.
    half = len(rows) // 2
    return [*in_halves(compute, rows[:half]), *in_halves(compute, rows[half:])]


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn GPU out-of-memory errors into errors that suggest a remedy. RAISES BioelError: [B653]"""
    try:
        yield
    except _memory_errors() as error:
        raise BioelError(Errors.B653.format(error=str(error).partition(". ")[0])) from error


def _memory_errors() -> tuple[type[Exception], ...]:
    torch, cupy = (sys.modules.get(name) for name in ("torch", "cupy"))
    found: tuple[type[Exception], ...] = (torch.cuda.OutOfMemoryError,) if torch else ()
    return found + ((cupy.cuda.memory.OutOfMemoryError,) if cupy else ())
