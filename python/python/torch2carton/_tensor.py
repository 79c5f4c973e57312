"""Tensors of open files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._dtypes import numpy_dtype
from ._errors import UnsupportedError, import_numpy, import_torch

if TYPE_CHECKING:
    import numpy as _numpy
    import torch as _torch

    from ._views import Statistics

#: Dtypes of DLPack that every PyTorch takes.
_DLPACK = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    + ("complex64", "complex128")
)


class Tensor:
    """A tensor of an open file. Its shape and dtype are known; its elements are read when they are asked for.

    Subscripts return views of a part, of which only the part is read.

    >>> weight = torch2carton.open("model.pt")["weight"]
    >>> weight.shape, weight.dtype, weight.nbytes
    ((2, 3), 'float32', 24)
    >>> weight[1, ::2].numpy()
    array([3., 5.], dtype=float32)
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Tensor) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The name in the file, its parts joined by dots."""
        return self._native.name

    @property
    def dtype(self) -> str:
        """PyTorch's name of the dtype, such as `bfloat16`."""
        return self._native.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each dimension."""
        return self._native.shape

    @property
    def stride(self) -> tuple[int, ...]:
        """Elements of the storage from one index to the next, along each dimension."""
        return self._native.stride

    @property
    def storage_offset(self) -> int:
        """The number of elements of the storage before the first one."""
        return self._native.storage_offset

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._native.shape)

    @property
    def numel(self) -> int:
        """The number of elements."""
        return self._native.numel

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self._native.itemsize

    @property
    def nbytes(self) -> int:
        """The size in bytes of the elements in C order."""
        return self._native.nbytes

    @property
    def file_offset(self) -> int | None:
        """The offset of the first element in its file, in bytes; None if the elements are computed."""
        return self._native.file_offset

    def is_contiguous(self) -> bool:
        """Whether the elements are in C order without gaps."""
        return self._native.is_contiguous()

    def shares_storage(self, other: Tensor) -> bool:
        """Whether two tensors of one open file are views of one storage, as tied weights are."""
        return self._native.shares_storage(other._native)

    def sha256(self) -> str:
        """The SHA-256 of the elements in C order, little-endian, as 64 hexadecimal digits.

        Raises:
            DamagedError: the bytes do not match the checksum in the file
            ChangedError: the file changed after it was opened

        >>> torch2carton.open("model.pt")["bias"].sha256()[:16]
        'af5570f5a1810b7a'
        """
        return self._native.sha256()

    def stats(self, *, histogram: bool = False) -> Statistics | None:
        """Computes the statistics of the elements; None if they are not numbers.

        >>> stats = torch2carton.open("model.pt")["weight"].stats()
        >>> stats.min, stats.max, stats.zeros
        (0.0, 5.0, 1)
        """
        from ._views import statistics

        return next(iter(statistics(self._native.statistics(histogram)).values()))

    def tobytes(self) -> bytes:
        """Returns the elements in C order, little-endian.

        >>> torch2carton.open("model.pt")["bias"].tobytes()
        b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
        """
        buffer: Any = self._native.buffer(not self._native.is_contiguous())[0]
        return bytes(buffer)

    def numpy(self, *, copy: bool = False) -> _numpy.ndarray[Any, Any]:
        """Returns the elements as an array with the shape of the tensor: a view of the file, or a copy.

        The file is mapped privately. A write into the array copies the page and does not reach the file. The map lives as
        long as one of its arrays. Tensors that are computed, compressed or big-endian are copied.

        Raises:
            MissingPackageError: NumPy is not installed, or `ml_dtypes`, which bfloat16 and float8 need
            UnsupportedError: NumPy has no such dtype
            DamagedError: the bytes do not match their checksum, which is compared where they are copied as a whole

        >>> torch2carton.open("model.pt")["bias"].numpy()
        array([0., 0.], dtype=float32)
        """
        native = self._native
        what = f"tensor `{native.name}`"
        np: Any = import_numpy(what)
        dtype, shape = numpy_dtype(native.dtype, what), native.shape
        array: _numpy.ndarray[Any, Any]
        if native.numel == 0:
            array = np.empty(shape, dtype)
            return array
        buffer, strides = native.buffer(copy)
        array = np.ndarray(shape, dtype, buffer, 0, [step * native.itemsize for step in strides])
        return array

    def torch(self, device: Any = "cpu", *, copy: bool = False) -> _torch.Tensor:
        """Returns the elements as a tensor of PyTorch: a view of the file, or a copy.

        On the CPU, the file is mapped privately, as by `torch.load(mmap=True)`: a write does not reach the file.

        Raises:
            MissingPackageError: PyTorch is not installed
            UnsupportedError: this version of PyTorch has no such dtype
            DamagedError: the bytes do not match their checksum, which is compared where they are copied as a whole

        >>> torch2carton.open("model.pt")["bias"].torch()
        tensor([0., 0.])
        """
        native = self._native
        pt: Any = import_torch(f"tensor `{native.name}`")
        dtype = getattr(pt, native.dtype, None)
        if dtype is None:
            raise UnsupportedError(f"tensor `{native.name}`: PyTorch {pt.__version__} has no {native.dtype}")
        made: _torch.Tensor
        if native.numel == 0:
            made = pt.empty(native.shape, dtype=dtype, device=device)
            return made
        if native.dtype in _DLPACK:
            # One call, where the others are five.
            made = pt._C._from_dlpack(native.__dlpack__(copy=copy or None))
            return made if device == "cpu" else made.to(device)
        buffer, strides = native.buffer(copy)
        storage = pt.frombuffer(buffer, dtype=pt.uint8).untyped_storage()
        made = pt.empty((0,), dtype=dtype).set_(storage, 0, native.shape, strides)
        return made if device == "cpu" else made.to(device)

    def read_into(self, target: Any) -> None:
        """Fills a writable buffer of `nbytes` bytes, such as a `bytearray` or an array, with the elements in C order.

        >>> target = bytearray(8)
        >>> torch2carton.open("model.pt")["bias"].read_into(target)
        """
        self._native.read_into(target)

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self._native[key])

    def __len__(self) -> int:
        return len(self._native)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> _numpy.ndarray[Any, Any]:
        array = self.numpy(copy=bool(copy))
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return self._native.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._native.__dlpack_device__()

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"<Tensor{name}: {self.dtype} {self.shape}>"
