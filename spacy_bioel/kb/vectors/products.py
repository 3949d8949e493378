"""Inner products of quantised vectors with queries, which take most of the time of exact search."""

from __future__ import annotations

import warnings
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.processor import processor_has

FloatArray = NDArray[np.float32]

_MAX = 127
_FIRST_USE = Lock()


class Products:
    """Inner products of queries with int8 rows times their scales, block by block.

    If the processor multiplies int8, queries are rounded to int8 too, which takes a tenth of the
    time. Their own scales are left out, since they do not change the order of rows. Integer
    products are exact, so those of a query do not depend on the other queries.

    Otherwise torch multiplies float32. numpy's BLAS has threads for the whole process, which would
    multiply with those of `processor.one_thread_each`.

    queries (FloatArray): Shape (n_queries, dim).
    block_rows (int): Maximum number of rows of a block.
    """

    def __init__(self, queries: FloatArray, block_rows: int) -> None:
        self._torch = _torch_for_mapped_arrays()
        # The buffers are reused: allocating new pages takes longer than filling them.
        self._found = self._torch.empty(block_rows, len(queries))
        self._whole: Any = None
        if multiplies_bytes():
            largest = np.abs(queries).max(axis=1, keepdims=True)
            queries = np.rint(queries * (_MAX / np.where(largest > 0, largest, np.inf)))
            self._whole = self._torch.empty(self._found.shape, dtype=self._torch.int32)
        rounded = queries.astype(np.float32 if self._whole is None else np.int8)
        self._queries = self._torch.from_numpy(rounded).T

    def __call__(self, codes: NDArray[np.int8], scales: FloatArray) -> FloatArray:
        """Inner products of one block, valid until the next call.

        codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
        scales (FloatArray): Shape (n,).
        RETURNS (FloatArray): Products, each query in its own unit. Shape (n, n_queries).
        """
        torch, found = self._torch, self._found[: len(codes)]
        rows = torch.from_numpy(codes)
        if self._whole is None:
            torch.mm(rows.float(), self._queries, out=found)
        else:
            whole = self._whole[: len(codes)]
            torch._int_mm(rows, self._queries, out=whole)
            found.copy_(whole)
        return found.mul_(torch.from_numpy(scales)[:, None]).numpy()


@cache
def multiplies_bytes() -> bool:
    """Whether the processor reports int8 products; it is not timed, so that runs are repeatable."""
    return processor_has("avx512_vnni", "avx_vnni", "amx_int8")


def _torch_for_mapped_arrays() -> Any:
    with _FIRST_USE:
        return _torch_that_has_warned()


@cache
def _torch_that_has_warned() -> Any:
    """Import PyTorch and trigger its one warning about read-only arrays, which are not written."""
    import torch

    with warnings.catch_warnings():  # changes the whole process, hence the lock
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", dtype=np.int8))
    return torch
