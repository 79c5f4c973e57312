"""Tensors of open files: what they become in NumPy and PyTorch, and how they are pickled. The class is in the native module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._dtypes import numpy_dtype
from ._errors import UnsupportedError, import_numpy, import_torch
from ._native import Tensor as Tensor

if TYPE_CHECKING:
    import numpy as _numpy
    import torch as _torch

    from ._views import Statistics

#: Dtypes of DLPack that every PyTorch takes.
_DLPACK = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    + ("complex64", "complex128")
)


def to_numpy(tensor: Tensor, copy: bool) -> _numpy.ndarray[Any, Any]:
    """Makes the result of `Tensor.numpy`."""
    what = f"tensor `{tensor.name}`"
    np: Any = import_numpy(what)
    dtype, shape = numpy_dtype(tensor.dtype, what), tensor.shape
    array: _numpy.ndarray[Any, Any]
    if tensor.numel == 0:
        array = np.empty(shape, dtype)
        return array
    buffer, strides = tensor._buffer(copy, False)
    array = np.ndarray(shape, dtype, buffer, 0, [step * tensor.itemsize for step in strides])
    return array


def to_array(tensor: Tensor, dtype: Any, copy: bool | None) -> _numpy.ndarray[Any, Any]:
    """Makes the result of `numpy.asarray`."""
    array = to_numpy(tensor, bool(copy))
    return array if dtype is None else array.astype(dtype, copy=False)


def to_torch(tensor: Tensor, device: Any, copy: bool) -> _torch.Tensor:
    """Makes the result of `Tensor.torch`. Without a device, the tensor is on the CPU."""
    pt: Any = import_torch(f"tensor `{tensor.name}`")
    name = tensor.dtype
    dtype = getattr(pt, name, None)
    if dtype is None:
        raise UnsupportedError(f"tensor `{tensor.name}`: PyTorch {pt.__version__} has no {name}")
    made: _torch.Tensor
    if tensor.numel == 0:
        made = pt.empty(tensor.shape, dtype=dtype, device=device or "cpu")
        return made
    if name in _DLPACK:
        # One call, where the others are five.
        made = pt._C._from_dlpack(tensor.__dlpack__(copy=copy or None))
    else:
        buffer, strides = tensor._buffer(copy, True)
        storage = pt.frombuffer(buffer, dtype=pt.uint8).untyped_storage()
        made = pt.empty((0,), dtype=dtype, device="cpu").set_(storage, 0, tensor.shape, strides)
    return made if device is None or device == "cpu" else made.to(device)


def parts(tensor: Tensor) -> Iterator[Tensor]:
    """Makes the result of `iter(tensor)`."""
    if not tensor.shape:
        raise TypeError("a tensor without dimensions has no parts")
    return (tensor[index] for index in range(len(tensor)))


def to_statistics(tensor: Tensor, histogram: bool) -> Statistics | None:
    """Makes the result of `Tensor.stats`."""
    from ._views import statistics

    return next(iter(statistics(tensor._statistics(histogram)).values()))


def reduce(tensor: Tensor) -> tuple[Any, ...]:
    """Returns how another process opens a tensor again: by its file, its name, and which part of the storage it is."""
    path, backend = tensor._source
    if not tensor.name or path == "<bytes>":
        raise UnsupportedError(f"{tensor!r} is not a named tensor of a file, so it cannot be pickled: pickle `.numpy()` or `.torch()`")
    return (_reopen, (path, backend, tensor.name, tensor.shape, tensor.stride, tensor.storage_offset))


def _reopen(
    path: str, backend: str, name: str, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> Tensor:
    from . import _native

    return _native.Checkpoint(path, backend)[name]._view(list(shape), list(stride), offset)
