"""What the processor has, and how its cores are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


def processor_has(*names: str) -> bool:
    """Whether the processor has any of these, as PyTorch calls them; older versions do not say."""
    import torch

    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in names)


@contextmanager
def one_thread_each() -> Iterator[Callable[[Callable, Iterable], list]]:
    """A `map` over parts of a batch, on as many threads as torch may use, which uses one in each.

    Threads that share a small product wait for each other at every step, on a busy machine ten
    times as long as it takes one of them, and round as their number has it. A single part is done
    by the thread that asks: another has a heap of its own, and takes a start.
    """
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_threads) as pool:

            def spread(function: Callable, parts: Iterable) -> list:
                parts = list(parts)
                is_alone = n_threads == 1 or len(parts) < 2
                return list(map(function, parts) if is_alone else pool.map(function, parts))

            yield spread
    finally:
        torch.set_num_threads(n_threads)
