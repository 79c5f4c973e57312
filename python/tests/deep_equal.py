"""Compares what `torch2carton.load` returns with what `torch.load` returns, object by object."""

from __future__ import annotations

import collections
import pickle
import types
from typing import Any

import numpy as np
import torch

import torch2carton

#: Modules whose classes and functions the reference may import. All others become stand-ins, so that a hostile file runs nothing.
_MODULES = ("torch", "numpy", "collections", "_codecs", "datetime", "pathlib", "copyreg", "copy_reg")
_BUILTINS = (
    "list tuple set frozenset dict bytes bytearray complex slice range xrange int float str bool object long unicode"
).split()


class StandIn:
    """Takes the place of an instance of a class that the reference does not import."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__["_args"] = args

    def __setstate__(self, state: Any) -> None:
        self.__dict__["_state"] = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("_items", []).append((key, value))

    def append(self, item: Any) -> None:
        self.__dict__.setdefault("_appended", []).append(item)

    def extend(self, items: Any) -> None:
        self.__dict__.setdefault("_appended", []).extend(items)

    def add(self, item: Any) -> None:
        self.append(item)


class _Unpickler(pickle._Unpickler):
    classes: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        root = module.split(".")[0]
        if root in _MODULES and not name.startswith(("eval", "exec", "load", "run")) and "." not in name:
            try:
                found = super().find_class(module, name)
                if not isinstance(found, types.ModuleType):
                    return found
            except (ImportError, AttributeError):
                pass
        if module in ("builtins", "__builtin__") and name in _BUILTINS:
            return super().find_class(module, name)
        names = (module, name)
        if names not in self.classes:
            made = type(name, (StandIn,), {"__module__": module})
            self.classes[names] = made
        return self.classes[names]


tame = types.ModuleType("tame")
tame.Unpickler = _Unpickler
tame.load = lambda file, **options: _Unpickler(file, **options).load()


def reference(path: Any, **options: Any) -> Any:
    """Returns what `torch.load(path, weights_only=False)` returns, with stand-ins for classes of other packages."""
    return torch.load(path, map_location="cpu", weights_only=False, pickle_module=tame, **options)


class Difference(Exception):
    """Two objects differ."""


class Comparison:
    """Compares an object of `torch.load` with one of `torch2carton.load`."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}
        self.storages_back: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.keep: list[Any] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def run(self, expected: Any, found: Any) -> None:
        open_items = [(expected, found, "root")]
        while open_items:
            expected, found, path = open_items.pop()
            open_items.extend(self.compare(expected, found, path))

    def fail(self, path: str, expected: Any, found: Any) -> None:
        raise Difference(f"{path}: expected {type(expected)} {expected!r:.200}, found {type(found)} {found!r:.200}")

    def same_storage(self, expected: torch.Tensor, found: torch.Tensor, path: str) -> None:
        one, two = expected.untyped_storage(), found.untyped_storage()
        if one.nbytes() != two.nbytes():
            raise Difference(f"{path}: storage of {one.nbytes()} bytes, found {two.nbytes()}")
        if self.storages.setdefault(one._cdata, two._cdata) != two._cdata:
            raise Difference(f"{path}: another storage")
        if self.storages_back.setdefault(two._cdata, one._cdata) != one._cdata:
            raise Difference(f"{path}: a storage that another tensor has")
        self.keep.append((one, two))

    def compare(self, expected: Any, found: Any, path: str) -> list[tuple[Any, Any, str]]:
        if id(expected) in self.seen and self.seen[id(expected)] == id(found):
            return []
        self.keep.append((expected, found))
        if isinstance(expected, (dict, list, torch.Tensor)) and not isinstance(found, torch2carton.Object):
            if id(expected) in self.seen:
                raise Difference(f"{path}: another object than before")
        self.seen[id(expected)] = id(found)
        if isinstance(found, torch2carton.Object):
            return self.compare_object(expected, found, path)
        if isinstance(found, torch2carton.Global):
            self.counts["globals"] += 1
            name = getattr(expected, "__qualname__", None) or getattr(expected, "__name__", None)
            if name is not None and name != found.name:
                self.fail(path, expected, found)
            return []
        if type(expected) is not type(found):
            self.fail(path, expected, found)
        if isinstance(expected, torch.Tensor):
            return self.compare_tensor(expected, found, path)
        if isinstance(expected, torch.storage.TypedStorage):
            if expected.dtype != found.dtype or bytes(expected._untyped_storage) != bytes(found._untyped_storage):
                self.fail(path, expected, found)
            return []
        if isinstance(expected, dict):
            if len(expected) != len(found):
                self.fail(path, expected, found)
            rest = [(one, two, f"{path} key") for one, two in zip(expected, found)]
            rest += [(one, two, f"{path}[{key!r:.60}]") for (key, one), two in zip(expected.items(), found.values())]
            if isinstance(expected, collections.defaultdict):
                rest.append((expected.default_factory, found.default_factory, f"{path}.default_factory"))
                if expected.default_factory is not None and found.default_factory is None:
                    rest.pop()  # a recorded factory is not kept
            return rest + self.attributes(expected, found, path)
        if isinstance(expected, (list, tuple, collections.deque)) and not isinstance(expected, torch.Size):
            if len(expected) != len(found):
                self.fail(path, expected, found)
            return [(one, two, f"{path}[{index}]") for index, (one, two) in enumerate(zip(expected, found))]
        if isinstance(expected, np.ndarray):
            self.counts["arrays"] += 1
            if expected.dtype != found.dtype or expected.shape != found.shape or expected.strides != found.strides:
                self.fail(path, expected, found)
            if expected.dtype.type is not found.dtype.type:
                self.fail(f"{path}.dtype.type", expected.dtype.type, found.dtype.type)
            if expected.dtype.hasobject:
                # A row of a matrix is a matrix.
                pairs = zip(np.asarray(expected).ravel(), np.asarray(found).ravel())
                return [(one, two, f"{path}.flat") for one, two in pairs]
            if expected.tobytes() != found.tobytes():
                self.fail(path, expected, found)
            return []
        if isinstance(expected, np.generic):
            if expected.dtype != found.dtype or expected.tobytes() != found.tobytes():
                self.fail(path, expected, found)
            return []
        if isinstance(expected, float):
            if expected != found and not (expected != expected and found != found):
                self.fail(path, expected, found)
            return []
        if isinstance(expected, (set, frozenset)):
            if len(expected) != len(found):
                self.fail(path, expected, found)
            return []
        if expected != found:
            self.fail(path, expected, found)
        return []

    def attributes(self, expected: Any, found: Any, path: str) -> list[tuple[Any, Any, str]]:
        one, two = getattr(expected, "__dict__", None), getattr(found, "__dict__", None)
        return [] if not one and not two else [(dict(one or {}), dict(two or {}), f"{path}.__dict__")]

    def compare_object(self, expected: Any, found: Any, path: str) -> list[tuple[Any, Any, str]]:
        self.counts["objects"] += 1
        if isinstance(expected, (dict, list, np.ndarray, str, bytes, int)) and type(expected).__module__ in (
            "builtins",
            "collections",
            "numpy",
        ):
            self.fail(path, expected, found)
        if isinstance(expected, StandIn) and isinstance(found.callable, torch2carton.Global):
            if type(expected).__name__ != found.name:
                self.fail(path, expected, found)
            if "_state" in vars(expected) and found.states:
                return [(vars(expected)["_state"], found.state, f"{path}.state")]
        attributes = getattr(expected, "__dict__", None)
        if isinstance(expected, torch.nn.Module) and isinstance(found.state, dict):
            common = [name for name in found.state if name in attributes]
            return [(attributes[name], found.state[name], f"{path}.{name}") for name in common if name not in _CHANGED]
        return []

    def compare_tensor(self, expected: Any, found: Any, path: str) -> list[tuple[Any, Any, str]]:
        self.counts["tensors"] += 1
        for what in ("dtype", "shape", "layout", "requires_grad", "device", "is_quantized", "is_nested"):
            if what == "shape" and getattr(expected, "is_nested", False):
                continue
            if str(getattr(expected, what, None)) != str(getattr(found, what, None)):
                raise Difference(f"{path}.{what}: {getattr(expected, what)}, found {getattr(found, what)}")
        rest = self.attributes(expected, found, path)
        if expected.device.type == "meta":
            return rest
        if expected.layout is torch.sparse_coo:
            names = ("_indices", "_values")
        elif expected.layout in (torch.sparse_csr, torch.sparse_bsr):
            names = ("crow_indices", "col_indices", "values")
        elif expected.layout in (torch.sparse_csc, torch.sparse_bsc):
            names = ("ccol_indices", "row_indices", "values")
        elif getattr(expected, "is_nested", False):
            if expected.layout is torch.jagged:
                return rest + [(expected._values, found._values, f"{path}._values")]
            names = ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets")
            rest.append((expected.unbind(), found.unbind(), f"{path}.unbind()"))
        else:
            names = ()
        if names:
            parts = [(getattr(expected, name)(), getattr(found, name)(), f"{path}.{name}") for name in names]
            self.keep.append(parts)
            for one, two, where in parts:
                if one.dtype != two.dtype or one.shape != two.shape or _bytes(one) != _bytes(two):
                    self.fail(where, one, two)
            return rest
        if expected.stride() != found.stride() or expected.storage_offset() != found.storage_offset():
            raise Difference(f"{path}: stride {expected.stride()}, found {found.stride()}")
        if expected.is_quantized:
            if expected.qscheme() != found.qscheme():
                self.fail(path, expected, found)
            expected, found = expected.int_repr(), found.int_repr()
        else:
            if expected.is_neg() != found.is_neg() or expected.is_conj() != found.is_conj():
                self.fail(path, expected, found)
            self.same_storage(expected, found, path)
        if _bytes(expected) != _bytes(found):
            self.fail(path, expected, found)
        return rest


#: Attributes of modules that `__setstate__` changes.
_CHANGED = frozenset(("_non_persistent_buffers_set", "_is_full_backward_hook"))


def _bytes(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach().resolve_neg().resolve_conj().contiguous()
    untyped = tensor.untyped_storage()
    start = tensor.storage_offset() * tensor.element_size()
    return bytes(memoryview(bytearray(untyped[start : start + tensor.numel() * tensor.element_size()].tolist()))) if (
        tensor.numel() < 1 << 12
    ) else tensor.view(torch.uint8).numpy().tobytes()


def compare(path: Any, **options: Any) -> collections.Counter[str]:
    """Compares both programs' objects for a file, and returns counts of what was compared.

    Raises:
        Difference: they differ
    """
    comparison = Comparison()
    comparison.run(reference(path, **options), torch2carton.load(path, map_location="cpu", **options))
    return comparison.counts
