"""Writes and reads safetensors in memory, with the functions of the package `safetensors`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._dtypes import ORDER, SAFETENSORS, safetensors_name, safetensors_shape
from ._errors import SafetensorError
from ._open import Checkpoint

#: Multiple of bytes at which the tensors begin.
_ALIGNMENT = 8


class TensorSpec:
    """The dtype, shape and address of a tensor to be written.

    `dtype` is PyTorch's or NumPy's name, such as `float32`. The memory at `data_ptr` must stay valid until it is written. The
    last dimension of `float4_e2m1fn_x2`, which packs two numbers into a byte, is doubled.

    Raises:
        SafetensorError: safetensors has no such dtype

    >>> spec = torch2carton.TensorSpec(dtype="float32", shape=[2], data_ptr=0, data_len=8)
    >>> spec.dtype, spec.shape
    ('F32', [2])
    """

    __slots__ = ("data_len", "data_ptr", "dtype", "shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        code = SAFETENSORS.get({"bool_": "bool"}.get(dtype, dtype))
        if code is None:
            raise SafetensorError(f"dtype {dtype} is not covered by safetensors", kind="unsupported")
        self.dtype = code
        self.shape = safetensors_shape(code, shape)
        self.data_ptr = data_ptr
        self.data_len = data_len

    def _bytes(self) -> memoryview:
        if self.data_len == 0:
            return memoryview(b"")
        import ctypes

        return memoryview((ctypes.c_ubyte * self.data_len).from_address(self.data_ptr)).cast("B")


def _layout(tensors: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None) -> tuple[bytes, list[TensorSpec]]:
    """Returns the header, and the tensors in the order in which they follow it."""
    import json

    for spec in tensors.values():
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"expected a TensorSpec, found {type(spec).__name__}")
    named = sorted(tensors.items(), key=lambda item: (-ORDER[item[1].dtype], item[0]))
    header: dict[str, Any] = {}
    if metadata is not None:
        for key, value in metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"metadata must be texts by texts, found {value!r} for {key!r}")
        header["__metadata__"] = dict(metadata)
    end = 0
    for name, spec in named:
        header[name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [end, end + spec.data_len]}
        end += spec.data_len
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, [spec for _, spec in named]


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a safetensors file with these tensors.

    >>> torch2carton.serialize({})
    b'\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00{}      '
    """
    header, specs = _layout(tensor_dict, metadata)
    return b"".join([header, *(spec._bytes() for spec in specs)])


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a safetensors file with these tensors. The file appears when it is complete.

    >>> torch2carton.serialize_file({}, "empty.safetensors")
    """
    header, specs = _layout(tensor_dict, metadata)
    write_file(filename, [header, *(spec._bytes() for spec in specs)])


def write_file(filename: str | os.PathLike[str], parts: Iterable[bytes | memoryview]) -> None:
    """Writes parts into a new file that takes the place of `filename` at the end, with the mode of a new file."""
    import tempfile

    path = os.path.realpath(os.fspath(filename))
    handle, temporary = tempfile.mkstemp(prefix=".torch2carton-", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[file.write(rest) :]
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: str) -> int:
    """Returns the mode of the file at `path`, or of a new file."""
    try:
        return os.stat(path).st_mode & 0o7777
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def deserialize(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Returns the tensors in the bytes of a safetensors file: for each name its `shape`, `dtype` and `data`.

    >>> torch2carton.deserialize(torch2carton.serialize({}))
    []
    """
    native = Checkpoint(bytes(data))._native
    tied = {name for name, _ in native.tied_names}
    found = []
    for name, tensor in native.items():
        if name not in tied:
            code, elements = safetensors_name(tensor.dtype, f"tensor `{name}`"), bytearray(tensor.nbytes)
            if elements:
                tensor.read_into(elements)
            found.append((name, {"shape": safetensors_shape(code, tensor.shape), "dtype": code, "data": elements}))
    return found
