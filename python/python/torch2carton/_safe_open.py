"""`safe_open`: the interface of safetensors over every file that torch2carton reads."""

from __future__ import annotations

import operator
import os
from typing import Any

from . import _native
from ._dtypes import safetensors_name, safetensors_shape
from ._errors import InputError, NotFoundError, SafetensorError
from ._open import Checkpoint
from ._tensor import to_numpy, to_torch

_FRAMEWORKS = {
    "pt": "pt",
    "torch": "pt",
    "pytorch": "pt",
    "np": "np",
    "numpy": "np",
}


class safe_open:
    """Opens a file or a folder and returns tensors when they are asked for, as `safetensors.safe_open` does.

    `framework` is `"pt"` or `"np"`. `device` is a device of PyTorch. `backend` is `"mmap"`, whose tensors on the CPU are the
    memory of the file, or `"pread"`, which reads each tensor into memory of its own.

    `metadata()` of a file of PyTorch is `{"format": "pt"}`. Names of tied tensors in the metadata of a safetensors file are
    not among `keys()`, as in safetensors.

    Raises:
        FileNotFoundError: there is no such file
        SafetensorError: the file is damaged or not a checkpoint; `safetensors.SafetensorError` is not this class

    >>> with torch2carton.safe_open("model.pt", framework="np") as file:
    ...     print(file.keys(), file.metadata())
    ...     print(file.get_slice("weight")[0, :2])
    ['bias', 'weight'] {'format': 'pt'}
    [0. 1.]
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str,
        device: Any = "cpu",
        *,
        backend: str = "mmap",
    ) -> None:
        path = os.fsdecode(filename)
        if not os.path.exists(path):
            raise NotFoundError(f"No such file or directory: {path}", kind="io", path=path)
        self._setup(path, framework, device, backend)

    def _setup(self, source: Any, framework: str, device: Any, backend: str) -> None:
        known = _FRAMEWORKS.get(framework)
        if known is None:
            text = f"framework {framework} is invalid or not supported by torch2carton: expected `pt` or `np`"
            raise SafetensorError(text, kind="option")
        self._framework = known
        self._device = _device(known, device)
        self._backend = backend
        self._checkpoint: Checkpoint | None = Checkpoint(source, backend=backend)
        native = self._checkpoint._native
        self._tied = dict(native.tied_names) if native.format == "safetensors" else {}

    def _open(self) -> Checkpoint:
        if self._checkpoint is None:
            raise SafetensorError("File is closed")
        return self._checkpoint

    def keys(self) -> list[str]:
        """Returns the names of the tensors, sorted as safetensors sorts them."""
        return sorted(self._names(self._open()._native.names()))

    def offset_keys(self) -> list[str]:
        """Returns the names of the tensors in the order of their bytes in the file."""
        return self._names(self._open()._native.names_by_offset())

    def _names(self, names: list[str]) -> list[str]:
        return [name for name in names if name not in self._tied] if self._tied else names

    def metadata(self) -> dict[str, str] | None:
        """Returns the metadata of a safetensors file, or None if it has none; `{"format": "pt"}` for files of PyTorch."""
        checkpoint = self._open()
        if checkpoint.format != "safetensors":
            return {"format": "pt"}
        return {**checkpoint.metadata, **self._tied} or None

    def get_tensor(self, name: str) -> Any:
        """Returns the tensor `name` in the framework.

        Raises:
            SafetensorError: there is no such tensor
        """
        return self._convert(self._find(name))

    def get_tensors(self) -> dict[str, Any]:
        """Returns all tensors by their names, in the order of `offset_keys()`."""
        native = self._open()._native
        return {name: self._convert(native[name]) for name in self.offset_keys()}

    def get_slice(self, name: str) -> PySafeSlice:
        """Returns an object whose subscripts read only a part of the tensor `name`.

        Raises:
            SafetensorError: there is no such tensor
        """
        return PySafeSlice(self, self._find(name))

    def _find(self, name: str) -> _native.Tensor:
        native = self._open()._native
        if name not in native or name in self._tied:
            source = self._open()._source
            path = source if isinstance(source, str) else None
            raise SafetensorError(f"File does not contain tensor {name}", path=path, tensor=name)
        return native[name]

    def _convert(self, native: _native.Tensor) -> Any:
        if self._framework == "np":
            # As in safetensors, an array is a copy: it does not keep the file open.
            return to_numpy(native, True)
        return to_torch(native, self._device, False)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exception: object) -> None:
        self._checkpoint = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._open()._source, self._framework, self._device, self._backend))


def _reopen(source: Any, framework: str, device: Any, backend: str) -> safe_open:
    made = safe_open.__new__(safe_open)
    made._setup(source, framework, device, backend)
    return made


def _safe_open_handle(file: Any, framework: str, device: Any = "cpu") -> safe_open:
    """Opens an open file as `safe_open` opens a path."""
    data = getattr(file, "buffer", file).read()
    return _reopen(data, framework, device, "mmap")


def _device(framework: str, device: Any) -> Any:
    """Returns the device as PyTorch takes it, as safetensors does: a number is a GPU."""
    if framework == "np":
        if device != "cpu":
            raise SafetensorError(f"device {device} is invalid for numpy: expected `cpu`", kind="option")
        return "cpu"
    return f"cuda:{device}" if isinstance(device, int) else device


class PySafeSlice:
    """A tensor that is read in parts."""

    __slots__ = ("_file", "_native")

    def __init__(self, file: safe_open, native: _native.Tensor) -> None:
        self._file = file
        self._native = native

    def get_shape(self) -> list[int]:
        """Returns the number of elements along each dimension, each float4 of a pair as one, as safetensors counts them."""
        return safetensors_shape("F4" if self._native.dtype == "float4_e2m1fn_x2" else "", self._native.shape)

    def get_dtype(self) -> str:
        """Returns safetensors' name of the dtype, such as `F32`.

        Raises:
            UnsupportedError: safetensors has no such dtype
        """
        return safetensors_name(self._native.dtype, f"tensor `{self._native.name}`")

    def __getitem__(self, key: Any) -> Any:
        file, native = self._file, self._native
        if isinstance(key, list):
            if file._framework == "np":
                if key:
                    raise SafetensorError("Non empty lists are not implemented")
                if not native.shape:
                    raise SafetensorError("Error during slicing [0:0] with shape []: more indices than dimensions")
                return to_numpy(native, False)[:0].copy()
            return file._convert(native)[key]
        try:
            if file._framework == "np":
                key = tuple(map(_integer, key)) if isinstance(key, tuple) else _integer(key)
                _check(native.shape, key)
            part = native[key]
        except (IndexError, TypeError, ValueError) as error:
            if file._framework == "np":
                raise InputError(f"tensor `{native.name}`: {error}", tensor=native.name) from error
            # An index of PyTorch's own, such as a mask, or its error.
            return file._convert(native)[key]
        return file._convert(part)


def _integer(item: Any) -> Any:
    """Returns the integer that an index stands for, as safetensors takes it: True and a tensor of one element are integers, too."""
    try:
        return operator.index(item)
    except TypeError:
        return item


def _check(shape: tuple[int, ...], key: Any) -> None:
    """Refuses what safetensors refuses: an index or the end of a slice that is outside of the tensor.

    Raises:
        SafetensorError: the key is such an index
    """
    items = key if isinstance(key, tuple) else (key,)
    named = ", ".join(_written(item) for item in items)
    dim = 0
    for item in items:
        if item is None:
            continue
        if item is Ellipsis:
            dim = len(shape) - sum(1 for later in items[items.index(Ellipsis) + 1 :] if later is not None)
            continue
        if dim >= len(shape):
            raise SafetensorError(f"Error during slicing [{named}] with shape {list(shape)}: more indices than dimensions")
        size = shape[dim]
        last = None
        if isinstance(item, slice):
            if isinstance(item.stop, int) and item.stop > size:
                last = item.stop - 1
        elif isinstance(item, int):
            if item < -size:
                raise SafetensorError(f"Invalid index {item} for dimension {dim} of size {size}")
            if item >= size:
                last = item
        if last is not None:
            text = f"index {last} out of bounds for tensor dimension #{dim} of size {size}"
            raise SafetensorError(f"Error during slicing [{named}] with shape {list(shape)}: {text}")
        dim += 1


def _written(item: Any) -> str:
    if isinstance(item, slice):
        start = "" if item.start is None else item.start
        stop = "" if item.stop is None else item.stop
        step = "" if item.step is None else f":{item.step}"
        return f"{start}:{stop}{step}"
    return "..." if item is Ellipsis else str(item)
