"""Open checkpoints and cartons as mappings of names to tensors."""

from __future__ import annotations

import os
from collections.abc import ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._dtypes import numpy_dtype
from ._errors import UnsupportedError, import_numpy, import_torch

if TYPE_CHECKING:
    import numpy as _numpy
    import torch as _torch

    from ._verbs import Inspection, Verification

#: Dtypes of DLPack that every PyTorch takes.
_DLPACK = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    + ("complex64", "complex128")
)

#: A path, the bytes of a file, or an open binary file.
Source = Any


def read_source(source: Source) -> str | bytes:
    """Returns a path, or the bytes of an open file from its current position on."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        data = source.read()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"expected a file that is open in binary mode ('rb'), found one whose read() returns {type(data).__name__}")
        return bytes(data)
    path = os.fspath(source)
    return os.fsdecode(path)


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


class Checkpoint(Mapping[str, Tensor]):
    """An open checkpoint: a mapping of names to tensors in the order of the files. `open` returns it.

    It can be shared by threads, used after a fork, and pickled: a copy opens the files again.

    >>> with torch2carton.open("model.pt") as checkpoint:
    ...     print(list(checkpoint))
    ['weight', 'bias']
    """

    def __init__(self, source: Source, *, backend: str = "mmap") -> None:
        self._source = read_source(source)
        self._backend = backend
        self._native = _native.Checkpoint(self._source, backend)

    @property
    def format(self) -> str:
        """The format of the files: `zip`, `torchscript`, `legacy`, `tar`, `pickle`, `safetensors` or `carton`."""
        return self._native.format

    @property
    def files(self) -> list[str]:
        """The paths of the files."""
        return [os.fspath(path) for path in self._native.files]

    @property
    def notes(self) -> list[str]:
        """What is irregular about the files, each a sentence."""
        return self._native.notes

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of a safetensors file; `{"format": "pt"}` for files of PyTorch."""
        if self.format == "safetensors":
            return dict(self._native.metadata)
        return {"format": "pt"}

    @property
    def compounds(self) -> dict[str, tuple[str, str, tuple[int, ...], tuple[str, ...]]]:
        """Tensors that consist of several: for each name its kind, dtype and shape, and the names of its parts."""
        rows = self._native.compounds()
        return {name: (kind, dtype, tuple(shape), tuple(parts)) for name, kind, dtype, shape, parts in rows}

    @property
    def globals(self) -> dict[str, str]:
        """The classes and functions that the pickle names, each with its risk: `known`, `unknown`,
        `unreviewed` or `dangerous`.

        >>> torch2carton.open("model.pt").globals["torch._utils._rebuild_tensor_v2"]
        'known'
        """
        return self._inspection().risks

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """What the files hold that is not listed, such as attributes of modules: kind, name, size and reason."""
        return self._inspection().left_out

    def _inspection(self) -> Inspection:
        from ._verbs import inspect

        if not isinstance(self._source, str):
            raise UnsupportedError("globals and left_out need a file: pass a path to `open`")
        return inspect(self._source)

    @property
    def objects(self) -> Any:
        """The object in the pickle: dicts, lists and numbers, with `Tensor` for tensors and `Object` for calls.

        >>> torch2carton.open("model.pt").objects["bias"]
        <Tensor: float32 (2,)>
        """
        from ._objects import lazy_objects

        if self.format == "safetensors" or self.format == "carton" or len(self._native.files) > 1:
            return dict(self)
        return lazy_objects(self._source, self._backend)

    def tree(self, *, depth: int = 3) -> str:
        """Returns the objects as an indented text, down to `depth` levels.

        >>> print(torch2carton.open("model.pt").tree())
        OrderedDict of 2
          'weight': float32 (2, 3)
          'bias': float32 (2,)
        """
        from ._objects import tree

        return tree(self.objects, depth)

    def close(self) -> None:
        """Does nothing: the files stay open while one of their tensors exists."""

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Tensor:
        return Tensor(self._native[name])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._native

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.names())

    def __len__(self) -> int:
        return len(self._native)

    def items(self) -> ItemsView[str, Tensor]:
        """Returns the names and tensors, in the order of the files."""
        return _Items(self)

    def state_dict(self, device: Any = "cpu", *, copy: bool = False) -> dict[str, _torch.Tensor]:
        """Returns all tensors as tensors of PyTorch, views of the file if possible.

        >>> torch2carton.open("model.pt").state_dict()["bias"]
        tensor([0., 0.])
        """
        return {name: Tensor(tensor).torch(device, copy=copy) for name, tensor in self._native.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (type(self), self._source, self._backend))

    def _title(self) -> str:
        return os.path.basename(self._source.rstrip("/")) if isinstance(self._source, str) else f"{len(self._source)} bytes"

    def __repr__(self) -> str:
        size = format_bytes(sum(tensor.nbytes for _, tensor in self._native.items()))
        return f"<{type(self).__name__} {self._title()}: {self.format}, {len(self)} tensors, {size}>"

    def _repr_html_(self) -> str:
        from ._html import table

        return table(self)


class _Items(ItemsView[str, Tensor]):
    """The names and tensors of a checkpoint, which the native module returns at once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self._native = checkpoint._native

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, native in self._native.items():
            yield name, Tensor(native)


class Carton(Checkpoint):
    """An open carton: a checkpoint with a description, which `run` can run if it is a model.

    >>> carton = torch2carton.open("model.carton")
    >>> carton.config["model_name"]
    'model'
    """

    @property
    def config(self) -> dict[str, Any]:
        """The fields of carton.toml under their names there."""
        config: dict[str, Any] = self._contents()["config"]
        return config

    @property
    def manifest_sha256(self) -> str | None:
        """The SHA-256 of MANIFEST, which identifies the model; None without a MANIFEST."""
        found: str | None = self._contents()["manifest_sha256"]
        return found

    def _contents(self) -> dict[str, Any]:
        from ._verbs import inspect

        return inspect(self._source).report

    def verify(self, *, against: Any = None) -> Verification:
        """Checks every hash and every rule of the carton: `torch2carton.verify`."""
        from ._verbs import verify

        return verify(self._source, against=against)


def _reopen(kind: type[Checkpoint], source: str | bytes, backend: str) -> Checkpoint:
    return kind(source, backend=backend)


def open(source: Source, *, backend: str = "mmap") -> Checkpoint:
    """Opens a checkpoint: a file of any format, a folder that holds one in one or several files, or a carton.

    `source` is a path, the bytes of a file, or a binary file object. One shard of several is opened alone. `backend` is
    `"mmap"`, which shares the memory of the file, or `"pread"`, which never maps it: use that on slow network disks.

    Raises:
        NotFoundError: there is no such file
        DamagedError: the file is damaged
        InputError: it is not a checkpoint, or the folder holds several

    >>> torch2carton.open("model.safetensors")
    <Checkpoint model.safetensors: safetensors, 2 tensors, 32 B>
    """
    checkpoint = Checkpoint(source, backend=backend)
    if checkpoint.format == "carton":
        checkpoint.__class__ = Carton
    return checkpoint


def format_bytes(size: int) -> str:
    """Returns a number of bytes with a decimal unit, such as `2.5 GB`."""
    if size < 1000:
        return f"{size} B"
    number = float(size)
    for unit in ("kB", "MB", "GB", "TB", "PB", "EB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}" if number < 100 else f"{number:.0f} {unit}"
    return f"{number:.0f} EB"
