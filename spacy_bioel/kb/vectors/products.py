"""Inner products of stored bytes with queries: what an exact search spends its time on."""

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
    """Products of some queries with rows, which are bytes times a scale, block by block.

    Where the processor multiplies bytes, queries are rounded to bytes too, which takes a tenth of
    the time, and their own scales are left out: the order of rows is the same without. The
    products of bytes are exact: those of a query do not depend on what else is multiplied.

    Elsewhere float32 is multiplied, by torch too: the threads of numpy's BLAS are those of the
    whole process, and would come on top of `processor.one_thread_each`.

    queries (FloatArray): Shape (n_queries, dim).
    block_rows (int): Rows of a block, at most.
    """

    def __init__(self, queries: FloatArray, block_rows: int) -> None:
        self._torch = _torch_for_mapped_arrays()
        # Memory is used again: to be given new pages takes longer than to fill them.
        self._found = self._torch.empty(block_rows, len(queries))
        self._whole: Any = None
        if multiplies_bytes():
            largest = np.abs(queries).max(axis=1, keepdims=True)
            queries = np.rint(queries * (_MAX / np.where(largest > 0, largest, np.inf)))
            self._whole = self._torch.empty(self._found.shape, dtype=self._torch.int32)
        rounded = queries.astype(np.float32 if self._whole is None else np.int8)
        self._queries = self._torch.from_numpy(rounded).T

    def __call__(self, codes: NDArray[np.int8], scales: FloatArray) -> FloatArray:
        """Products of one block, valid until the next call.

        codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
        scales (FloatArray): Shape (n,).
        RETURNS (FloatArray): Of each query in a unit of its own. Shape (n, n_queries).
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
    """Whether this processor says that it does, so that all runs find the same."""
    return processor_has("avx512_vnni", "avx_vnni", "amx_int8")


def _torch_for_mapped_arrays() -> Any:
    with _FIRST_USE:
        return _torch_that_has_warned()


@cache
def _torch_that_has_warned() -> Any:
    """PyTorch, which warns once in a process of arrays that cannot be written to. None is here."""
    import torch

    with warnings.catch_warnings():  # of the whole process, hence the lock
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", dtype=np.int8))
    return torch
