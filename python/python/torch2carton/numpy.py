"""Loads and saves arrays of NumPy with the functions of `safetensors.numpy`.

`load_file` and `load` take every file that torch2carton reads, and `load_file` also folders.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._dtypes import numpy_name
from ._errors import import_numpy
from ._open import Checkpoint
from ._safe_open import safe_open
from ._serialize import TensorSpec, serialize, serialize_file

if TYPE_CHECKING:
    import numpy

__all__ = ["load", "load_file", "save", "save_file"]


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, numpy.ndarray[Any, Any]]:
    """Loads all tensors of a file or folder as arrays that own their memory.

    Raises:
        FileNotFoundError: there is no such file
        SafetensorError: the file is damaged or not a checkpoint

    >>> torch2carton.numpy.load_file("model.safetensors")["bias"]
    array([0., 0.], dtype=float32)
    """
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()


def load(data: bytes) -> dict[str, numpy.ndarray[Any, Any]]:
    """Loads all tensors in the bytes of a file.

    >>> data = open("model.safetensors", "rb").read()
    >>> torch2carton.numpy.load(data)["bias"]
    array([0., 0.], dtype=float32)
    """
    checkpoint = Checkpoint(bytes(data))
    tied = {name for name, _ in checkpoint._native.tied_names}
    return {name: tensor.numpy(copy=True) for name, tensor in checkpoint.items() if name not in tied}


def save(tensor_dict: Mapping[str, numpy.ndarray[Any, Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a safetensors file with these arrays.

    >>> len(torch2carton.numpy.save({"a": numpy.zeros(2)}))
    80
    """
    specs, keep = _specs(tensor_dict)
    data = serialize(specs, metadata)
    del keep
    return data


def save_file(
    tensor_dict: Mapping[str, numpy.ndarray[Any, Any]],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a safetensors file with these arrays.

    >>> torch2carton.numpy.save_file({"a": numpy.zeros(2)}, "new.safetensors")
    """
    specs, keep = _specs(tensor_dict)
    serialize_file(specs, filename, metadata)
    del keep


def _specs(arrays: Mapping[str, numpy.ndarray[Any, Any]]) -> tuple[dict[str, TensorSpec], list[Any]]:
    """Returns what is to be written, and the arrays that own the memory."""
    np: Any = import_numpy("torch2carton.numpy")
    specs, keep = {}, []
    for name, array in arrays.items():
        # Elements in C order, little-endian.
        made = np.asarray(array)
        made = np.ascontiguousarray(made).reshape(made.shape)
        order = made.dtype.byteorder
        if order == ">" or (order == "=" and sys.byteorder == "big"):
            made = made.byteswap()
        keep.append(made)
        specs[name] = TensorSpec(
            dtype=numpy_name(made.dtype), shape=made.shape, data_ptr=made.ctypes.data, data_len=made.nbytes
        )
    return specs, keep
