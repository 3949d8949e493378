"""Capabilities of the processor, and the policy of threads for torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

Spread = Callable[[Callable, Iterable], list]


def processor_has(*names: str) -> bool:
    """Whether the processor has any of some capabilities, by PyTorch's names for them.

    False under versions of PyTorch that do not report capabilities.
    """
    import torch

    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in names)


@contextmanager
def one_thread_each() -> Iterator[Spread]:
    """Parallelise over the parts of a batch instead of within matrix products.

    The parts are spread over as many threads as torch may use, and torch uses one thread in each of
    them. Threads that share a small product synchronise at every step, which on a busy machine
    takes ten times as long as one thread does, and rounding depends on their number. A single part
    runs on the calling thread, to save the start and the heap of another one.

    Limits are local to a thread: any number of threads may enter at once.

    YIELDS (Callable): A `map` of a function over parts, which returns a list.
    """
    import torch

    n_threads = torch.get_num_threads()
    restore = _limit_thread()
    try:
        with ThreadPoolExecutor(n_threads, initializer=_limit_thread) as pool:

            def spread(function: Callable, parts: Iterable) -> list:
                parts = list(parts)
                is_alone = n_threads == 1 or len(parts) < 2
                return list(map(function, parts) if is_alone else pool.map(function, parts))

            yield spread
    finally:
        restore()


def use_one_thread() -> None:
    """Limit torch to one thread for the rest of this process, which has to be a worker process.

    Unlike the limits of `one_thread_each` it also applies to threads started later.
    """
    import torch

    torch.set_num_threads(1)


def _limit_thread() -> Callable[[], None]:
    """Limit torch to one thread in the calling thread. RETURNS (Callable): Restores the limits.

    `torch.set_num_threads` would also set the default of later threads: two threads that set and
    restore it in turn would leave the process at one.
    """
    import torch

    # A thread takes over the number of the process at its first call of torch.
    torch.get_num_threads()
    openmp = _openmp().limit(limits=1)
    set_mkl = _mkl_setter()
    mkl = set_mkl(1)

    def restore() -> None:
        set_mkl(mkl)
        openmp.restore_original_limits()

    return restore


@cache
def _openmp() -> ThreadpoolController:
    """Controller of the OpenMP that torch has loaded; its number of threads is thread-local."""
    import torch  # noqa: F401

    return ThreadpoolController().select(user_api="openmp")


@cache
def _mkl_setter() -> Callable[[int], int]:
    """Function that sets MKL's number of threads in the calling thread, and returns the old one.

    After `torch.set_num_threads` MKL ignores the number of OpenMP. threadpoolctl does not find MKL,
    which is linked into torch's own library.
    """
    import torch

    library = ctypes.CDLL(torch._C.__file__)
    return getattr(library, "MKL_Set_Num_Threads_Local", lambda n: n)
