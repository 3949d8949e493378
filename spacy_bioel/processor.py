"""Properties of the processor, and how threads share its cores."""

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
    """Whether the processor has any of these, as PyTorch calls them; older versions do not say."""
    import torch

    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in names)


@contextmanager
def one_thread_each() -> Iterator[Spread]:
    """A `map` over parts of a batch, on as many threads as torch may use, which uses one in each.

    Threads that share a small product wait for each other at every step, on a busy machine ten
    times as long as it takes one of them, and round as their number has it. A single part is done
    by the thread that asks: another has a heap of its own, and takes a start.

    Any number of threads may be inside at once; the limits of a thread are its own.
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


def _limit_thread() -> Callable[[], None]:
    """Let torch compute on the calling thread alone, until the function is called that it returns.

    Not by `torch.set_num_threads`, which also sets what threads of later on start with: two
    threads that set and restore it in turn leave the process at one.
    """
    import torch

    # A thread that is new to torch takes over the number of the process when it is first asked.
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
    """OpenMP as torch has loaded it; its number of threads is set thread by thread."""
    import torch  # noqa: F401

    return ThreadpoolController().select(user_api="openmp")


@cache
def _mkl_setter() -> Callable[[int], int]:
    """Sets the threads of the MKL within torch for the calling thread, and returns those before.

    After `torch.set_num_threads` MKL does not ask OpenMP any more, and threadpoolctl does not know
    it, for it is part of torch's own library.
    """
    import torch

    library = ctypes.CDLL(torch._C.__file__)
    return getattr(library, "MKL_Set_Num_Threads_Local", lambda n: n)
