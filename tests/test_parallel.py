"""Limits of threads are restored for the process."""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_info

from spacy_bioel.parallel import one_thread_each, without_collection


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    with ThreadpoolController().select(user_api="blas").limit(limits=3):
        yield
    torch.set_num_threads(before)


def in_new_thread(function: Callable[[], int]) -> int:
    found: list[int] = []
    thread = Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def blas_threads() -> list[int]:
    """Threads of the BLAS of NumPy; SciPy has another one."""
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return [pool["num_threads"] for pool in blas if "numpy" in pool["filepath"]]


def test_parts_have_one_thread_each():
    meet = Barrier(2, timeout=60)

    def ask(part: int) -> tuple[int, int, list[int]]:
        meet.wait()  # both parts run at the same time
        return part, torch.get_num_threads(), blas_threads()

    with one_thread_each() as parallel_map:
        assert torch.get_num_threads() == 1
        assert parallel_map(ask, [7, 8]) == [(7, 1, [1]), (8, 1, [1])]
        assert in_new_thread(torch.get_num_threads) == 3
    assert (torch.get_num_threads(), blas_threads()) == (3, [3])


def test_overlapping_uses_restore_the_numbers():
    entered, first_left = Barrier(2, timeout=60), Barrier(2, timeout=60)

    def first() -> int:
        with one_thread_each():
            entered.wait()
        first_left.wait()
        return torch.get_num_threads()

    def second() -> int:
        entered.wait()
        with one_thread_each() as parallel_map:
            first_left.wait()
            assert blas_threads() == [1]
            assert parallel_map(lambda _: torch.get_num_threads(), [1, 2]) == [1, 1]
        return torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        assert [job.result() for job in [pool.submit(first), pool.submit(second)]] == [3, 3]
    assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (3, 3)
    assert blas_threads() == [3]


def test_the_numbers_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), one_thread_each() as parallel_map:
        parallel_map(lambda part: 1 // part, [1, 0])
    assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (3, 3)


def test_garbage_collection_is_enabled_again():
    gc.enable()  # an error of srsly in an earlier test may have left it disabled
    with pytest.raises(ValueError, match="full"), without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()
        raise ValueError("full")
    assert gc.isenabled()
