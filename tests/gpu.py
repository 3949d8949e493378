"""A simulated GPU, with arrays and tensors that refuse to mix with those of the CPU.

Its arrays stand for CuPy's, and its tensors belong to a device that PyTorch treats as it does any
other. All of them are computed by NumPy and on the CPU, so results can be compared exactly.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, partialmethod, wraps
from typing import Any

import numpy as np
import pytest
import thinc.api
import thinc.backends
import thinc.util
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from thinc.api import NumpyOps, Ops, get_current_ops, registry, set_current_ops
from torch.__future__ import set_swap_module_params_on_conversion
from torch._C import _set_only_lift_cpu_tensors as set_only_lift_cpu_tensors
from torch._decomp.decompositions import lstm_data_impl
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

aten = torch.ops.aten
# Operations that move tensors, and operations that read lengths on the CPU on any device.
_MOVES = {aten.copy_.default, aten._copy_from.default, aten._to_copy.default}
_WITH_LENGTHS = {
    aten._pack_padded_sequence.default,
    aten._pack_padded_sequence_backward.default,
    aten._pad_packed_sequence.default,
}


class GpuArray(NDArrayOperatorsMixin):
    """An array in the memory of the GPU; `get` copies it, as in CuPy."""

    def __init__(self, host: Any) -> None:
        self.host = np.asarray(host)

    def get(self) -> np.ndarray:
        return self.host.copy()

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return on_gpu(getattr(ufunc, method))(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return on_gpu(function)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):  # NumPy would read its memory
            raise AttributeError(name)
        value = getattr(self.host, name)
        return on_gpu(value) if callable(value) else to_gpu(value)

    def __getitem__(self, index: Any) -> Any:
        return on_gpu(self.host.__getitem__)(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        on_gpu(self.host.__setitem__)(index, value)

    def __len__(self) -> int:
        return len(self.host)

    def __float__(self) -> float:
        return float(self.host)

    def __int__(self) -> int:
        return int(self.host)

    def __bool__(self) -> bool:
        return bool(self.host)


def to_gpu(value: Any) -> Any:
    """Move the arrays in a result to the GPU."""
    return pytree.tree_map_only((np.ndarray, np.generic), GpuArray, value)


def to_host(value: Any) -> Any:
    """Read arguments on the GPU. RAISES TypeError: If an array is in the memory of the CPU."""

    def read(x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return x.host if isinstance(x, GpuArray) else x

    return pytree.tree_map(read, value)


def on_gpu(function: Callable) -> Callable:
    """Run a function of NumPy on arrays of the GPU."""
    return wraps(function)(lambda *a, **k: to_gpu(function(*to_host(a), **to_host(k))))


class _Namespace:
    """NumPy's functions for arrays of the GPU; `array` and `asarray` move an array to it."""

    ndarray = GpuArray
    float32, float64, int32, int64, uint64 = np.float32, np.float64, np.int32, np.int64, np.uint64

    def __init__(self, module: Any = np) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return on_gpu(value) if callable(value) else _Namespace(value)

    def array(self, data: Any, *args: Any, **kwargs: Any) -> GpuArray:
        return GpuArray(
            np.array(data if isinstance(data, np.ndarray) else to_host(data), *args, **kwargs)
        )

    asarray = array

    def save(self, file: Any, array: Any) -> None:
        np.save(file, getattr(array, "host", array))


@registry.ops("simulated")
class GpuOps(Ops):
    """Operations of thinc on the GPU: those of `NumpyOps`."""

    name = "simulated"
    xp: Any = _Namespace()

    def __init__(self, device_type: Any = "gpu", device_id: int = 0, **_: Any) -> None:
        self.device_type, self.device_id = device_type, device_id

    def to_numpy(self, data: Any, *, byte_order: Any = None) -> np.ndarray:
        return NumpyOps().to_numpy(getattr(data, "host", data), byte_order=byte_order).copy()

    def asarray(self, data: Any, dtype: Any = None) -> GpuArray:
        if isinstance(data, GpuArray) and dtype in (None, data.dtype):
            return data
        return GpuArray(np.array(getattr(data, "host", data), dtype=dtype))

    def unflatten(self, X: Any, lengths: Any, pad: int = 0) -> Any:
        return on_gpu(NumpyOps().unflatten)(X, [int(n) for n in lengths], pad)


def _method(name: str) -> Callable:
    return lambda _, *args, **kwargs: on_gpu(getattr(NumpyOps(), name))(*args, **kwargs)


for _name in {n for n in dir(NumpyOps) if not n.startswith(("_", "asarray"))} - {*vars(GpuOps)}:
    if callable(getattr(NumpyOps, _name)):
        setattr(GpuOps, _name, _method(_name))


class GpuTensor(torch.Tensor):
    """A tensor in the memory of the GPU.

    limit (float): The largest number of elements of a new tensor that fits there.
    largest, failures (int): The largest number so far, and how many tensors did not fit.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    host: torch.Tensor
    limit = float("inf")
    largest = failures = 0

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> Any:
        about: Any = {"strides": host.stride(), "storage_offset": host.storage_offset()}
        new: Any = torch.Tensor._make_wrapper_subclass(
            cls, host.size(), dtype=host.dtype, device=device(), **about
        )
        new.host = host
        return new

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self.host = value.host

    def __repr__(self, **_: Any) -> str:
        return f"{self.host} on the GPU"

    def tolist(self) -> Any:
        return self.host.tolist()

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch.inference_mode(False):  # its tensors cannot be views of others
            simpler = op.decompose(*args, **(kwargs or {}))  # has been done without inference mode
            return _run(op, *args, **(kwargs or {})) if simpler is NotImplemented else simpler


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation of PyTorch on the GPU. RAISES RuntimeError: If a tensor is elsewhere."""
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if op not in _MOVES | _WITH_LENGTHS and any(
        x.dim() and not isinstance(x, GpuTensor) for x in tensors
    ):
        raise RuntimeError(f"Expected all tensors to be on the same device: {op}")
    known = {id(x.host): x for x in tensors if isinstance(x, GpuTensor)}
    known |= {id(x): x for x in tensors if not isinstance(x, GpuTensor)}

    def read(x: Any) -> Any:
        return torch.device("cpu") if isinstance(x, torch.device) else getattr(x, "host", x)

    found = op(*pytree.tree_map(read, args), **pytree.tree_map(read, kwargs))
    if op is aten._to_copy.default and str(kwargs.get("device")) == "cpu":
        return found.clone()
    if op is aten._copy_from.default:
        return args[1]
    if op in _WITH_LENGTHS and isinstance(found, tuple):
        return GpuTensor(found[0]), found[1]
    new = [x for x in pytree.tree_leaves(found) if torch.is_tensor(x) and id(x) not in known]
    GpuTensor.largest = max([GpuTensor.largest, *(x.numel() for x in new)])
    if any(x.numel() > GpuTensor.limit for x in new):
        GpuTensor.failures += 1
        raise torch.OutOfMemoryError("CUDA out of memory.")
    known |= {id(x): GpuTensor(x) for x in new}
    return pytree.tree_map_only(torch.Tensor, lambda x: known[id(x)], found)


class _Device:
    """What PyTorch asks of a device."""

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None: ...

    def get_rng_state(self, device: int) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: int) -> None: ...

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


@cache
def device() -> torch.device:
    """Return the simulated device, which is registered with PyTorch for the rest of the process."""
    backend_registration._setup_privateuseone_for_python_backend(
        "simulated", backend_module=_Device()
    )
    library = torch.library.Library("_", "IMPL")
    library.fallback(_run, "PrivateUse1")
    creating = torch.library.Library("aten", "IMPL")
    for op in (aten.arange.default, aten.arange.start, aten.arange.start_step):
        creating.impl(op, partial(_run, op), "PrivateUse1")
    creating.impl("lstm.data", lstm_data_impl, "AutogradPrivateUse1")
    _LIBRARIES.extend([library, creating])
    return torch.device("simulated:0")


_LIBRARIES: list[torch.library.Library] = []  # as long as they exist, PyTorch uses them


def default_device() -> torch.device:
    """Return the device of the current operations, as thinc does."""
    return device() if isinstance(get_current_ops(), GpuOps) else torch.device("cpu")


def tensor_to_array(tensor: Any, *, ops: Any = None) -> Any:
    """Convert a tensor to an array that shares its memory, as thinc does."""
    if isinstance(tensor, GpuTensor):
        return GpuArray(tensor.host.detach().numpy())
    return tensor.detach().numpy()


def _move(network: Any, to: Callable, *args: Any) -> Any:
    """Move a network so that its parameters stay the same objects, as on a real GPU."""
    set_swap_module_params_on_conversion(True)
    try:
        return to(network, *args)
    finally:
        set_swap_module_params_on_conversion(False)


@contextmanager
def simulated_gpu() -> Iterator[None]:
    """Let thinc run on the simulated GPU, in this thread."""
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this version of PyTorch cannot simulate a device")
    device()
    before = get_current_ops()
    replaced = {
        thinc.util.get_torch_default_device: default_device,
        thinc.util.torch2xp: tensor_to_array,
    }
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            for function, new in replaced.items():
                if vars(module).get(function.__name__) is function:
                    patch.setattr(module, function.__name__, new)
        patch.setattr(torch.nn.Module, "to", partialmethod(_move, torch.nn.Module.to))
        patch.setattr(thinc.util, "has_cupy", True)
        patch.setattr(thinc.util, "cupy", GpuOps.xp)
        patch.setattr(thinc.backends, "CupyOps", GpuOps)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(thinc.api, "require_gpu", lambda gpu_id: set_current_ops(GpuOps()))
        set_current_ops(GpuOps())
        set_only_lift_cpu_tensors(True)  # `torch.tensor` moves tensors by dispatching to Python
        try:
            yield
        finally:
            set_only_lift_cpu_tensors(False)
            set_current_ops(before)
