"""Inner products of stored bytes with queries: what an exact search spends its time on."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

_ROWS = 2048  # rows that numpy converts at a time: they stay in the processor's cache
_MAX = 127


def multiply(codes: NDArray[np.int8], scales: FloatArray, queries: FloatArray) -> FloatArray:
    """Products of rows, which are bytes times a scale, with queries.

    Where the processor multiplies bytes, queries are rounded to bytes too, which takes a tenth of
    the time, and their own scales are left out: the order of rows is the same without. The
    products of bytes are exact: those of a query do not depend on what else is multiplied.

    codes (NDArray[int8]): Possibly mapped. Shape (n, dim).
    scales (FloatArray): Shape (n,).
    queries (FloatArray): Shape (n_queries, dim).
    RETURNS (FloatArray): Of each query in a unit of its own. Shape (n, n_queries).
    """
    torch = _torch_for_bytes()
    if torch is None:
        found = np.empty((len(codes), len(queries)), np.float32)
        for at in range(0, len(codes), _ROWS):
            part = codes[at : at + _ROWS].astype(np.float32)
            np.matmul(part, queries.T, out=found[at : at + _ROWS])
        found *= scales[:, None]
        return found
    largest = np.abs(queries).max(axis=1, keepdims=True)
    rounded = np.rint(queries * (_MAX / np.where(largest > 0, largest, np.inf))).astype(np.int8)
    products = torch._int_mm(torch.from_numpy(codes), torch.from_numpy(rounded).T)
    return torch.mul(products, torch.from_numpy(scales)[:, None]).numpy()


def processor_has(*names: str) -> bool:
    """Whether the processor has any of these, as PyTorch calls them; older versions do not say."""
    import torch

    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name) for name in names)


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
