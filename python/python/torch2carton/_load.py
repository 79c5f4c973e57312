"""`load`: takes the place of `torch.load`, and executes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _native
from ._errors import InputError, NotFoundError, import_torch
from ._objects import NESTED_MAX, Entry, Global, Hooks, Names, Object
from ._open import Checkpoint, open
from ._source import read_source

#: Functions of `torch._utils` that make tensors of their arguments, and whether they only keep references to them.
_REBUILD = (
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_sparse_tensor",
    "_rebuild_qtensor",
    "_rebuild_nested_tensor",
    "_rebuild_meta_tensor_no_storage",
    "_rebuild_device_tensor_from_numpy",
    "_rebuild_device_tensor_from_cpu_tensor",
    "_rebuild_xla_tensor",
)
#: Functions of TorchScript archives that return their argument.
_JIT_VALUES = (
    "build_boollist",
    "build_doublelist",
    "build_intlist",
    "build_tensorlist",
    "restore_type_tag",
)

#: Classes of tensors before PyTorch 0.4, without `Tensor`, and their dtypes.
_TENSOR_CLASSES = {
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
}


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **ignored: Any,
) -> Any:
    """Loads an object that `torch.save` wrote, as `torch.load(f, weights_only=False)` returns it, and executes nothing.

    Dicts, lists, tuples, namedtuples of classes that are imported, tensors with their strides, ties and devices, `Parameter`,
    dtypes, and NumPy's arrays and scalars are equal to what `torch.load` returns. Where Python code of the file's own would
    have run, there is a `torch2carton.Global` (a class or function) or a `torch2carton.Object` (a call that was not made,
    with its arguments and state). A class is never imported.

    Args:
        f: a path, a binary file object, or the bytes of a file. A folder, a carton, or a safetensors file gives a dict of
            its tensors
        map_location: as in `torch.load`. Without it, a tensor of a device that this machine lacks is loaded to the CPU
        pickle_module: ignored, because no pickle module is used
        weights_only: ignored. It chooses between executing what a file asks for and refusing files that ask for anything
            unusual. Nothing is executed here, and nothing has to be refused, so both values mean the same
        mmap: True for tensors that are views of the file, mapped privately: a write does not reach the file. Otherwise the
            file is read, checksums are compared, and it may be replaced afterwards
        ignored: `encoding` is the encoding of Python 2's strings, as in `torch.load`; others have no effect

    Raises:
        NotFoundError: there is no such file
        DamagedError: the file is damaged
        UnsupportedError: a call takes an object that the pickle changes afterwards
        MissingPackageError: PyTorch is not installed

    >>> torch2carton.load("model.pt")["bias"]
    tensor([0., 0.])
    """
    torch: Any = import_torch("torch2carton.load")
    source = read_source(f)
    if isinstance(source, str):
        if not os.path.exists(source):
            raise NotFoundError(f"No such file or directory: {source}", kind="io", path=source)
        if os.path.isdir(source):
            return _state_dict(torch, open(source), map_location, mmap)
    objects = _native.Objects.unless_carton(source)
    if objects is None:
        return _state_dict(torch, open(source), map_location, mmap)
    if objects.trailing_bytes and hasattr(f, "seek"):
        # `torch.load` reads one object, and the next call reads the next one.
        f.seek(-objects.trailing_bytes, os.SEEK_CUR)
    if objects.format == "safetensors":
        return _state_dict(torch, Checkpoint(source), map_location, mmap)
    hooks = TorchHooks(torch, map_location, bool(mmap), encoding=ignored.get("encoding", "utf-8"))
    return hooks.finish(objects.build(hooks))


def _state_dict(torch: Any, checkpoint: Checkpoint, map_location: Any, mmap: bool | None) -> dict[str, Any]:
    """Returns the tensors of a file that has no object."""
    device = map_location if isinstance(map_location, (str, torch.device)) else "cpu"
    return {name: tensor.torch(device, copy=not mmap) for name, tensor in checkpoint.items()}


class TorchHooks(Hooks):
    """Makes tensors of PyTorch from the storages of a pickle."""

    def __init__(self, torch: Any, map_location: Any, is_mapped: bool, *, encoding: str = "utf-8", depth: int = 0) -> None:
        super().__init__(encoding=encoding, depth=depth)
        self._torch = torch
        self._map_location = map_location
        self._is_mapped = is_mapped
        self._is_meta = isinstance(map_location, (str, torch.device)) and str(map_location).split(":")[0] == "meta"
        detect = getattr(getattr(torch, "_guards", None), "detect_fake_mode", None)
        self._is_fake = detect is not None and detect(None) is not None
        state = getattr(torch.serialization, "_serialization_tls", None)
        self._is_skipped = bool(getattr(state, "skip_data", False))
        self._restore: Callable[[Any, str], Any] = torch.serialization._get_restore_location(map_location)
        #: Storages by their keys, and parts of storages by theirs.
        self._storages: dict[str, Any] = {}
        #: Tensors of a file from PyTorch 0.1 by their keys.
        self._tensors: dict[str, Any] = {}
        self.calls.update(self._table())

    def _table(self) -> dict[Names, Entry]:
        torch = self._torch
        table: dict[Names, Entry] = {
            ("torch", "Size"): (torch.Size, False),
            ("torch", "device"): (torch.device, False),
            ("torch.serialization", "_get_layout"): (self._layout, False),
            ("torch.storage", "_load_from_bytes"): (self._load_from_bytes, False),
            ("torch._tensor", "_rebuild_from_type_v2"): (self._rebuild_from_type, False),
            ("torch.tensor", "_rebuild_from_type_v2"): (self._rebuild_from_type, False),
            ("torch._tensor", "_rebuild_from_type"): (self._rebuild_from_type, False),
            ("torch.tensor", "_rebuild_from_type"): (self._rebuild_from_type, False),
            ("torch.nn.parameter", "Parameter"): (self._parameter, False),
            ("torch.nn.parameter", "Buffer"): (self._buffer, False),
            ("torch.autograd.variable", "Variable"): (self._buffer, False),
        }
        for name in _REBUILD:
            function = getattr(torch._utils, name, None)
            if function is not None:
                table["torch._utils", name] = (function, False)
        stack = getattr(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack", None)
        if stack is not None and not stack():
            table["torch._utils", "_rebuild_tensor_v2"] = (self._tensor_v2, False)
        table["torch._utils", "_rebuild_nested_tensor"] = (self._nested, False)
        for name in _JIT_VALUES:
            table["torch.jit._pickle", name] = (lambda value, *rest: value, True)
        for name, dtype in _TENSOR_CLASSES.items():
            for module in ("torch", "torch.cuda"):
                table[module, f"{name}Tensor"] = (self._empty_tensor(getattr(torch, dtype)), False)
        return table

    def _empty_tensor(self, dtype: Any) -> Callable[..., Any]:
        def make(*args: Any) -> Any:
            if args:
                raise InputError(f"expected no arguments, found {len(args)}")
            return self._torch.empty((0,), dtype=dtype, device="cpu")

        return make

    def finish(self, root: Any) -> Any:
        """Checks sparse tensors, whose indices come from the file, and returns the root object."""
        check = getattr(self._torch._utils, "_validate_loaded_sparse_tensors", None)
        if check is not None:
            try:
                check()
            except (RuntimeError, ValueError) as error:
                raise InputError(f"a sparse tensor of the file is not valid: {error}") from error
        return root

    def find(self, module: str, name: str) -> Any:
        torch = self._torch
        if module == "torch":
            found = vars(torch).get(name)
            if isinstance(found, (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)):
                return found
            if found is torch.Tensor or found is torch.Size or found is torch.device:
                return found
        if (module, name) == ("torch.nn.parameter", "Parameter"):
            return torch.nn.Parameter
        if module == "torch._tensor" and name == "Tensor":
            return torch.Tensor
        return super().find(module, name)

    def _layout(self, name: str) -> Any:
        found = getattr(self._torch, str(name).removeprefix("torch."), None)
        if not isinstance(found, self._torch.layout):
            raise InputError(f"expected a layout, found {name!r}")
        return found

    def _load_from_bytes(self, data: Any) -> Any:
        if self.depth >= NESTED_MAX:
            raise InputError(f"more than {NESTED_MAX} byte strings in each other hold tensors")
        hooks = TorchHooks(self._torch, self._map_location, False, encoding=self.encoding, depth=self.depth + 1)
        return _native.Objects(bytes(data), "mmap").build(hooks)

    def _tensor_v2(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
    ) -> Any:
        """Makes a tensor as `torch._utils._rebuild_tensor_v2` does, without its look for modes of tracing."""
        torch = self._torch
        untyped = storage._untyped_storage
        if metadata or untyped.device.type != "cpu":
            return torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata)
        tensor = torch.empty((0,), dtype=storage.dtype, device="cpu").set_(untyped, offset, size, stride)
        tensor.requires_grad = requires_grad
        tensor._backward_hooks = hooks
        return tensor

    def _parameter(self, data: Any = None, requires_grad: bool = True) -> Any:
        return self._torch.nn.Parameter(data, requires_grad)

    def _buffer(self, data: Any = None, *rest: Any) -> Any:
        return data

    def _rebuild_from_type(self, function: Any, kind: Any, args: Any, state: Any) -> Any:
        """Makes a tensor of PyTorch's own classes, and a record for other classes."""
        torch = self._torch
        entry = self.calls.get((function.module, function.name)) if isinstance(function, Global) else None
        if entry is None or kind not in (torch.Tensor, torch.nn.Parameter) or not isinstance(args, tuple):
            return Object(Global("torch._tensor", "_rebuild_from_type_v2"), (function, kind, args, state))
        made = entry[0](*args)
        if type(made) is not kind:
            made = made.as_subclass(kind)
        self._set_attributes(made, state)
        return made

    def _nested(self, values: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
        """Makes a nested tensor, after a check that PyTorch does not make: each part is inside the buffer."""
        torch = self._torch
        shapes, steps = torch.as_tensor(sizes), torch.as_tensor(strides)
        starts = torch.as_tensor(offsets).flatten().tolist()
        end = values.numel()
        for number, start in enumerate(starts):
            sizes_of, steps_of = shapes[number].tolist(), steps[number].tolist()
            last = start + sum((size - 1) * step for size, step in zip(sizes_of, steps_of))
            if start < 0 or min([*sizes_of, *steps_of], default=0) < 0 or (all(sizes_of) and last >= end):
                raise InputError(f"part {number} of a nested tensor is not inside its {end} elements")
        return torch._utils._rebuild_nested_tensor(values, sizes, strides, offsets)

    def _set_attributes(self, tensor: Any, state: Any) -> None:
        dicts = state if isinstance(state, tuple) else (state,)
        for attributes in dicts:
            if attributes is None:
                continue
            if not isinstance(attributes, dict) or not all(isinstance(name, str) for name in attributes):
                raise InputError("expected the attributes of a tensor as a dict")
            vars(tensor).update(attributes)

    def build(self, target: Any, state: Any) -> None:
        torch = self._torch
        if not isinstance(target, torch.Tensor):
            super().build(target, state)
        elif isinstance(state, tuple) and len(state) in (4, 5) and isinstance(state[0], torch.storage.TypedStorage):
            # A tensor before PyTorch 0.2: a storage, the storage offset, the size and the stride.
            storage, offset, size, stride = state[-4:] if len(state) == 4 else state[:4]
            target.set_(storage._untyped_storage, offset, size, stride)
        else:
            self._set_attributes(target, state)

    def storage(
        self, native: _native.Storage, dtype: str | None, key: str, location: str, view: tuple[str, int, int] | None
    ) -> Any:
        """Returns the storage of a key, always the same one, or a part of it."""
        typed = self._storages.get(key)
        if typed is None:
            typed = self._typed(self._place(native, location), dtype)
            self._storages[key] = typed
        elif typed.dtype != self._dtype(dtype):
            # Tensors of several dtypes may share a storage without bytes, or one that was on the device `meta`.
            same = typed._untyped_storage.nbytes() == native.nbytes
            typed = self._typed(typed._untyped_storage if same else self._place(native, location), dtype)
        if view is None:
            return typed
        own, start, end = view
        part = self._storages.get(own)
        if part is None:
            part = self._typed(typed._untyped_storage[start:end], dtype)
            self._storages[own] = part
        return part

    def _typed(self, untyped: Any, dtype: str | None) -> Any:
        return self._torch.storage.TypedStorage(wrap_storage=untyped, dtype=self._dtype(dtype), _internal=True)

    def _dtype(self, dtype: str | None) -> Any:
        return self._torch.uint8 if dtype is None else getattr(self._torch, dtype)

    def _place(self, native: _native.Storage, location: str) -> Any:
        """Reads a storage and moves it to its device. Where PyTorch reads no bytes, none are read."""
        if self._is_meta or self._is_fake:
            place = self._torch.UntypedStorage(native.nbytes, device="meta")
            place._checkpoint_offset = native.file_offset
            if not self._is_meta:
                place._fake_device = location
            return place
        untyped = self._read(native)
        if location == "cpu" and self._map_location is None:
            return untyped
        try:
            return self._restore(untyped, location)
        except RuntimeError:
            if self._map_location is not None:
                raise
            # The file was saved on a device that this machine does not have.
            return untyped

    def _read(self, native: _native.Storage) -> Any:
        torch, nbytes = self._torch, native.nbytes
        if self._is_skipped:
            return torch.UntypedStorage(nbytes)
        if self._is_mapped and nbytes:
            return torch.frombuffer(native.buffer(), dtype=torch.uint8).untyped_storage()
        untyped = torch.UntypedStorage(nbytes)
        if nbytes:
            import ctypes

            native.read_into((ctypes.c_ubyte * nbytes).from_address(untyped.data_ptr()))
        return untyped

    def tensor(
        self, native: _native.Storage, dtype: str, keys: tuple[str, str], dims: tuple[list[int], list[int], int]
    ) -> Any:
        own, storage_key = keys
        if own not in self._tensors:
            size, stride, offset = dims
            storage = self.storage(native, dtype, storage_key, "cpu", None)
            self._tensors[own] = self._torch._utils._rebuild_tensor(storage, offset, size, stride)
        return self._tensors[own]
