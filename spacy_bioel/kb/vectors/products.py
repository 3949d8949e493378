"""Inner products of stored bytes with queries: what an exact search spends its time on."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spacy_bioel.processor import processor_has

FloatArray = NDArray[np.float32]

_MAX = 127


class Products:
    """Products of some queries with rows, which are bytes times a scale, block by block.

    Where the processor multiplies bytes, queries are rounded to bytes too, which takes a tenth of
    the time, and their own scales are left out: the order of rows is the same without. The
    products of bytes are exact: those of a query do not depend on what else is multiplied.

    queries (FloatArray): Shape (n_queries, dim).
    block_rows (int): Rows of a block, at most.
    """

    def __init__(self, queries: FloatArray, block_rows: int) -> None:
        self._torch = _torch_for_bytes()
        # Memory is used again: to be given new pages takes longer than to fill them.
        self._found = np.empty((block_rows, len(queries)), np.float32)
        self._queries: Any = queries.T
        if self._torch is not None:
            largest = np.abs(queries).max(axis=1, keepdims=True)
            rounded = np.rint(queries * (_MAX / np.where(largest > 0, largest, np.inf)))
            self._queries = self._torch.from_numpy(rounded.astype(np.int8)).T
            self._whole = self._torch.empty(self._found.shape, dtype=self._torch.int32)

    def __call__(self, codes: NDArray[np.int8], scales: FloatArray) -> FloatArray:
        """Products of one block, valid until the next call.

        codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
        scales (FloatArray): Shape (n,).
        RETURNS (FloatArray): Of each query in a unit of its own. Shape (n, n_queries).
        """
        found, torch = self._found[: len(codes)], self._torch
        if torch is None:
            np.matmul(codes.astype(np.float32), self._queries, out=found)
            return np.multiply(found, scales[:, None], out=found)
        whole = self._whole[: len(codes)]
        torch._int_mm(torch.from_numpy(codes), self._queries, out=whole)
        torch.from_numpy(found).copy_(whole).mul_(torch.from_numpy(scales)[:, None])
        return found


def multiplies_bytes() -> bool:
    """Whether this processor does."""
    return _torch_for_bytes() is not None


@cache
def _torch_for_bytes() -> Any:
    """PyTorch, if the processor says that it multiplies bytes, so that all runs find the same."""
    import torch

    if not processor_has("avx512_vnni", "avx_vnni", "amx_int8"):
        return None
    with warnings.catch_warnings():
        # Once in a process it warns of arrays that cannot be written to. None is written to here.
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", dtype=np.int8))
    return torch
