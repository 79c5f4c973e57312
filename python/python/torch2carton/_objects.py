"""What becomes of the objects of a pickle: plain data become themselves, and every other call an inert record.

The native module builds containers, numbers and texts itself. For the rest it asks a `Hooks`, whose table has the functions
that may be called: constructors of plain data, and nothing that a file could misuse. Nothing is imported by the name that a
file gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import _native
from ._errors import Error, InputError, UnsupportedError, import_numpy
from ._source import read_source
from ._tensor import Tensor


class Global:
    """A class or function that a pickle names. It was not imported.

    >>> torch2carton.Global("os", "system")
    <Global os.system>
    """

    __slots__ = ("module", "name")
    module: str
    name: str

    def __init__(self, module: str, name: str) -> None:
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Global cannot change, so `{name}` cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Global) and (self.module, self.name) == (other.module, other.name)

    def __hash__(self) -> int:
        return hash((self.module, self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Global, (self.module, self.name))

    def __repr__(self) -> str:
        return f"<Global {self.module}.{self.name}>"


class Object:
    """A call that a pickle asks for and that was not made, with what the pickle did to its result.

    Attributes:
        callable: what would have been called, usually a `Global`
        args: the arguments
        kwargs: the keyword arguments
        construction: the opcode, such as `REDUCE` (a call) or `NEWOBJ` (`__new__`)
        items: the items that the pickle set on the result, in order
        appended: the items that the pickle appended to the result, in order
        states: the states that the pickle set on the result (BUILD), in order

    >>> import pickle, fractions
    >>> made = torch2carton.load(pickle.dumps(fractions.Fraction(1, 3)))
    >>> made.callable, made.args
    (<Global fractions.Fraction>, (1, 3))
    """

    __slots__ = ("__weakref__", "appended", "args", "callable", "construction", "items", "kwargs", "states")

    def __init__(
        self, callable: Any, args: Any = (), kwargs: dict[str, Any] | None = None, construction: str = "REDUCE"
    ) -> None:
        self.callable = callable
        self.args = args
        self.kwargs = kwargs or {}
        self.construction = construction
        self.items: list[tuple[Any, Any]] = []
        self.appended: list[Any] = []
        self.states: list[Any] = []

    @property
    def module(self) -> str:
        """The module of the callable; empty if that is not a `Global`."""
        return self.callable.module if isinstance(self.callable, Global) else ""

    @property
    def name(self) -> str:
        """The name of the callable in its module; empty if that is not a `Global`."""
        return self.callable.name if isinstance(self.callable, Global) else ""

    @property
    def state(self) -> Any:
        """The last state that the pickle set, usually the attributes by name; None if it set none."""
        return self.states[-1] if self.states else None

    def __repr__(self) -> str:
        what = f"{self.module}.{self.name}" if isinstance(self.callable, Global) else repr(self.callable)
        return f"<Object {what}>"


#: A function that makes plain data, and whether it only keeps references to its arguments.
Entry = tuple[Callable[..., Any], bool]
Names = tuple[str, str]

#: Names of `builtins` in files of Python 2 and 3.
_BUILTINS = ("builtins", "__builtin__")
#: Largest number of nested byte strings that are loaded.
NESTED_MAX = 8


def _collection(kind: type) -> Callable[..., Any]:
    """Returns a constructor that takes at most one other collection: a number could ask for any amount of memory."""

    def make(items: Any = ()) -> Any:
        if not isinstance(items, (list, tuple, set, frozenset, dict, bytes, bytearray, str)):
            raise InputError(f"expected a collection, found {type(items).__name__}")
        return kind(items)

    return make


def _bytes(kind: type) -> Callable[..., Any]:
    def make(data: Any = b"", encoding: str = "latin1", errors: str = "strict") -> Any:
        if isinstance(data, str):
            return kind(encode(data, encoding, errors))
        if not isinstance(data, (bytes, bytearray, list, tuple)):
            raise InputError(f"expected bytes, found {type(data).__name__}")
        return kind(data)

    return make


def encode(text: str, encoding: str = "utf-8", errors: str = "strict") -> bytes:
    """Encodes a text, as `_codecs.encode` does in pickles of byte strings."""
    if not isinstance(text, str) or encoding.lower().replace("-", "") not in ("latin1", "iso88591", "utf8", "ascii"):
        raise InputError(f"expected a text in a common encoding, found {type(text).__name__} in {encoding}")
    return text.encode(encoding, errors)


def _data_table() -> dict[Names, Entry]:
    """Returns the constructors of Python's own data types."""
    import collections
    import datetime
    import pathlib

    def counter(items: Any = None) -> Any:
        if items is not None and not isinstance(items, dict):
            raise InputError(f"expected a dict, found {type(items).__name__}")
        return collections.Counter(items)

    def default_dict(factory: Any = None, *items: Any) -> Any:
        # A recorded factory would be called for missing keys.
        return collections.defaultdict(factory if factory in _FACTORIES else None, *items)

    def deque(items: Any = (), maxlen: Any = None) -> Any:
        if not isinstance(items, (list, tuple)):
            raise InputError(f"expected a list, found {type(items).__name__}")
        return collections.deque(items, maxlen)

    table: dict[Names, Entry] = {
        ("_codecs", "encode"): (encode, False),
        ("collections", "Counter"): (counter, False),
        ("collections", "OrderedDict"): (collections.OrderedDict, False),
        ("collections", "defaultdict"): (default_dict, False),
        ("collections", "deque"): (deque, False),
    }
    for module in _BUILTINS:
        for kind in (list, tuple, set, frozenset, dict):
            table[module, kind.__name__] = (_collection(kind), False)
        table[module, "bytes"] = (_bytes(bytes), False)
        table[module, "bytearray"] = (_bytes(bytearray), False)
        table[module, "complex"] = (complex, False)
        table[module, "slice"] = (slice, True)
        table[module, "range"] = table[module, "xrange"] = (range, False)
    for known in (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone):
        table["datetime", known.__name__] = (known, False)
    for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath):
        for module in ("pathlib", "pathlib._local"):
            table[module, path.__name__] = (path, False)
    return table


#: Types that a pickle may name as values. Each is plain data, and harmless to hold.
_TYPES = {kind.__name__: kind for kind in (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)}
_FACTORIES = (None, *_TYPES.values())


class Hooks:
    """Answers the native module's questions about the objects of a pickle. Subclasses make storages and tensors."""

    def __init__(self, *, encoding: str = "utf-8", depth: int = 0) -> None:
        self.encoding = encoding
        self.depth = depth
        self.calls: dict[Names, Entry] = _data_table()
        self.calls.update(_numpy_table())

    # Called by the native module.

    def find(self, module: str, name: str) -> Any:
        """Returns the value of a global: a type of plain data, or a record."""
        if module in _BUILTINS and name in _TYPES:
            return _TYPES[name]
        if module == "numpy" or name in _ARRAY_HOMES.get(module, ()):
            return _numpy_value(name) or Global(module, name)
        return Global(module, name)

    def imported(self, module: str, name: str) -> Callable[..., Any] | None:
        """Returns a constructor of a namedtuple that the program has imported; None for all other classes."""
        home = sys.modules.get(module)
        # Not `getattr`, which a module can answer with code.
        kind = vars(home).get(name) if home is not None else None
        return namedtuple_constructor(kind) if isinstance(kind, type) else None

    def record(self, callable: Any, args: Any, kwargs: dict[str, Any] | None, construction: str) -> Object:
        return Object(callable, args, kwargs, construction)

    def string(self, data: bytes) -> str | bytes:
        """Returns a string of Python 2, decoded as `torch.load` and `pickle.load` decode it."""
        return data if self.encoding == "bytes" else data.decode(self.encoding)

    def extension(self, code: int) -> Global:
        return Global("copyreg", f"extension {code}")

    def out_of_band(self, index: int) -> Object:
        return Object(Global("pickle", "PickleBuffer"), (index,))

    def set_items(self, target: Any, items: list[tuple[Any, Any]]) -> None:
        if isinstance(target, Object):
            target.items.extend(items)
        elif isinstance(target, (list, bytearray)):
            for key, value in items:
                target[key] = value
        else:
            raise UnsupportedError(f"the pickle sets items of a {type(target).__name__}")

    def extend(self, target: Any, items: list[Any]) -> None:
        import collections

        if isinstance(target, Object):
            target.appended.extend(items)
        elif isinstance(target, (list, bytearray, collections.deque)):
            target.extend(items)
        elif isinstance(target, set):
            target.update(items)
        else:
            raise UnsupportedError(f"the pickle appends to a {type(target).__name__}")

    def build(self, target: Any, state: Any) -> None:
        """Sets a state: attributes of a dict's subclass, or the contents of an array or dtype."""
        if isinstance(target, Object):
            target.states.append(state)
        elif isinstance(target, dict) and type(target) is not dict:
            attributes = state[0] if isinstance(state, tuple) and len(state) == 2 else state
            if isinstance(attributes, dict) and all(isinstance(name, str) for name in attributes):
                vars(target).update(attributes)
            elif attributes is not None:
                raise UnsupportedError(f"the pickle sets a state of a {type(target).__name__} that is not a dict")
        elif not _numpy_build(target, state):
            raise UnsupportedError(f"the pickle sets a state of a {type(target).__name__}")

    def failed(self, module: str, name: str, path: str, offset: int, error: BaseException) -> BaseException:
        """Returns the error of a function of the table, with the place of the call."""
        if isinstance(error, MemoryError):
            return error
        kind = error.kind if isinstance(error, Error) else "damaged"
        from ._errors import make

        made = make(kind, f"{path}: {module}.{name} at offset 0x{offset:x}: {error}", path, None, offset)
        made.__cause__ = error
        return made

    def storage(
        self, native: _native.Storage, dtype: str | None, key: str, location: str, view: tuple[str, int, int] | None
    ) -> Any:
        raise NotImplementedError

    def tensor(
        self, native: _native.Storage, dtype: str, keys: tuple[str, str], dims: tuple[list[int], list[int], int]
    ) -> Any:
        """Returns a tensor of a file from PyTorch 0.1; `keys` are its own key and that of its storage."""
        raise NotImplementedError


def namedtuple_constructor(kind: type) -> Callable[..., Any] | None:
    """Returns a constructor of a namedtuple that runs none of its code; None if the class is not a plain namedtuple."""
    fields = vars(kind).get("_fields")
    if tuple not in kind.__mro__ or not isinstance(fields, tuple):
        # A class that derives from a namedtuple without fields of its own.
        bases = [base for base in kind.__mro__ if base.__bases__ == (tuple,)]
        fields = vars(bases[0]).get("_fields") if bases else None
        if not isinstance(fields, tuple) or "__new__" in vars(kind) or "__setstate__" in vars(kind):
            return None
    length = len(fields)

    def make(*values: Any) -> Any:
        if len(values) != length:
            raise InputError(f"{kind.__name__} has {length} fields, found {len(values)}")
        return tuple.__new__(kind, values)

    return make


# NumPy.

#: Where releases of NumPy have its subclasses of arrays, and the type of their elements, besides the module `numpy`.
_ARRAY_HOMES = {
    "numpy.matrixlib.defmatrix": ("matrix",),
    "numpy.core.records": ("recarray", "record"),
    "numpy._core.records": ("recarray", "record"),
    "numpy.rec": ("recarray", "record"),
}


def _numpy_table() -> dict[Names, Entry]:
    table: dict[Names, Entry] = {("numpy", "dtype"): (_make_dtype, False)}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        table[module, "_reconstruct"] = (_make_array, True)
        table[module, "scalar"] = (_make_scalar, False)
    for module in ("numpy.core.numeric", "numpy._core.numeric"):
        table[module, "_frombuffer"] = (_array_from_buffer, False)
    return table


def _numpy_value(name: str) -> Any:
    """Returns a scalar type or the array class, if NumPy is installed and the name is one."""
    try:
        import numpy as np
    except ImportError:
        return None
    found = vars(np).get({"bool8": "bool_"}.get(name, name))
    is_data = isinstance(found, type) and issubclass(found, (np.generic, np.ndarray))
    return found if is_data else None


def _make_dtype(code: Any, align: Any = False, copy: Any = False) -> Any:
    np: Any = import_numpy("an array in the file")
    if isinstance(code, type) and issubclass(code, np.generic):
        return np.dtype(code)
    if isinstance(code, bytes):
        code = code.decode("ascii")
    if not isinstance(code, str) or len(code) > 16 or "," in code:
        raise InputError(f"expected the code of a dtype, found {code!r}")
    return np.dtype(code, bool(align), True)


def _make_array(kind: Any, shape: Any, code: Any) -> Any:
    np: Any = import_numpy("an array in the file")
    # Classes of NumPy whose instances have nothing but the array. A memmap would lack its file.
    if not any(kind is known for known in (np.ndarray, np.matrix, np.recarray)):
        return Object(Global("numpy.core.multiarray", "_reconstruct"), (kind, shape, code))
    return np.ndarray.__new__(kind, (0,), np.dtype("b"))


def _make_scalar(dtype: Any, data: Any = None) -> Any:
    np: Any = import_numpy("a number in the file")
    if not isinstance(dtype, np.dtype):
        raise InputError(f"expected a dtype, found {type(dtype).__name__}")
    if dtype.hasobject:
        return data
    data = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(data, bytes) or len(data) != dtype.itemsize:
        raise InputError(f"expected {dtype.itemsize} bytes for a scalar of {dtype}")
    if dtype.itemsize == 0:
        return np.zeros((), dtype)[()]
    return np.frombuffer(bytearray(data), dtype)[0]


def _array_from_buffer(data: Any, dtype: Any, shape: Any, order: Any, *rest: Any) -> Any:
    np: Any = import_numpy("an array in the file")
    if not isinstance(dtype, np.dtype) or dtype.hasobject or order not in ("C", "F", b"C", b"F"):
        raise InputError("expected bytes, a dtype without objects, a shape and an order")
    order = order.decode() if isinstance(order, bytes) else order
    return np.frombuffer(bytearray(data), dtype).reshape(shape, order=order)


def _numpy_build(target: Any, state: Any) -> bool:
    """Sets the state of an array or a dtype; returns False for anything else."""
    np = sys.modules.get("numpy")
    if np is None:
        return False
    if isinstance(target, np.ndarray):
        _set_array(np, target, state)
        return True
    if isinstance(target, np.dtype):
        _set_dtype(np, target, state)
        return True
    return False


def _set_array(np: Any, array: Any, state: Any) -> None:
    if not isinstance(state, tuple) or len(state) != 5:
        raise InputError("expected the five parts of an array")
    version, shape, dtype, is_fortran, data = state
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple):
        raise InputError("expected the shape and the dtype of an array")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise InputError(f"expected a shape, found {shape!r}")
    count = 1
    for size in shape:
        count *= size
    if dtype.hasobject:
        if not isinstance(data, list) or len(data) != count:
            raise InputError(f"expected a list of {count} objects")
    else:
        if isinstance(data, str):
            data = data.encode("latin1")
        if not isinstance(data, bytes) or len(data) != count * dtype.itemsize:
            raise InputError(f"expected {count * dtype.itemsize} bytes of {dtype}")
    array.__setstate__((version, shape, dtype, bool(is_fortran), data))


def _set_dtype(np: Any, dtype: Any, state: Any) -> None:
    """Sets the byte order, the fields or the unit of a dtype, after a comparison with the dtype that NumPy makes of them."""
    if not isinstance(state, tuple) or len(state) not in (8, 9) or state[0] not in (3, 4):
        raise InputError("expected the eight parts of a dtype")
    _, order, subarray, names, fields, _size, _alignment, flags = state[:8]
    if order not in ("<", ">", "|", "="):
        raise InputError(f"expected a byte order, found {order!r}")
    if subarray is not None:
        base, shape = subarray
        made = np.dtype((base, shape))
    elif names is not None:
        if not isinstance(names, tuple) or not isinstance(fields, dict) or set(names) != set(fields):
            raise InputError("expected the names and the fields of a dtype")
        made = np.dtype(
            {
                "names": list(names),
                "formats": [fields[name][0] for name in names],
                "offsets": [fields[name][1] for name in names],
                "itemsize": state[5],
            }
        )
    elif fields is not None:
        raise InputError("a dtype has fields without names")
    else:
        made = dtype
    aligned = 0x80
    if (int(flags) ^ int(made.flags)) & ~aligned & 0xFF or (made is not dtype and made.itemsize != state[5]):
        raise InputError(f"the parts of the dtype {made} contradict each other")
    dtype.__setstate__(state)


# Objects with lazy tensors.


class LazyStorage:
    """A storage in the objects of an open file: its dtype and its key."""

    __slots__ = ("dtype", "key", "native", "offset")

    def __init__(self, native: _native.Storage, dtype: str, key: str, offset: int) -> None:
        self.native, self.dtype, self.key, self.offset = native, dtype, key, offset

    def __repr__(self) -> str:
        return f"<Storage {self.key}: {self.dtype}>"


class LazyHooks(Hooks):
    """Makes `Tensor` for the tensors of a pickle."""

    def __init__(self) -> None:
        super().__init__()
        tensors: Iterable[tuple[str, Any]] = (
            ("_rebuild_tensor", _lazy_tensor),
            ("_rebuild_tensor_v2", _lazy_tensor),
            ("_rebuild_tensor_v3", _lazy_tensor_v3),
            ("_rebuild_parameter", _first),
            ("_rebuild_parameter_with_state", _first),
        )
        for name, function in tensors:
            self.calls["torch._utils", name] = (function, True)
        self.calls["torch.nn.parameter", "Parameter"] = (_first, True)
        self.calls["torch", "Size"] = (_collection(tuple), False)

    def build(self, target: Any, state: Any) -> None:
        if not isinstance(target, Tensor):
            super().build(target, state)

    def storage(
        self, native: _native.Storage, dtype: str | None, key: str, location: str, view: tuple[str, int, int] | None
    ) -> LazyStorage:
        return LazyStorage(native, dtype or "uint8", key, view[1] if view else 0)

    def tensor(
        self, native: _native.Storage, dtype: str, keys: tuple[str, str], dims: tuple[list[int], list[int], int]
    ) -> Tensor:
        return native.view(dtype, *dims, 0)


def _lazy_tensor(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> Any:
    if not isinstance(storage, LazyStorage):
        return Object(Global("torch._utils", "_rebuild_tensor"), (storage, offset, size, stride))
    return storage.native.view(storage.dtype, list(size), list(stride), offset, storage.offset)


def _lazy_tensor_v3(storage: Any, offset: int, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any) -> Any:
    if not isinstance(storage, LazyStorage) or not isinstance(dtype, Global):
        return Object(Global("torch._utils", "_rebuild_tensor_v3"), (storage, offset, size, stride, grad, hooks, dtype))
    return storage.native.view(dtype.name, list(size), list(stride), offset, storage.offset)


def _first(data: Any, *rest: Any) -> Any:
    return data


def lazy_objects(source: Any, backend: str) -> Any:
    """Returns the root object of a file, with lazy tensors."""
    return _native.Objects(read_source(source), backend).build(LazyHooks())


def tree(root: Any, depth: int) -> str:
    """Returns an object as an indented text."""
    lines: list[str] = []
    # Text, object and level; the last is next, so that nothing recurses.
    open_items: list[tuple[str, Any, int]] = [("", root, 0)]
    while open_items:
        label, value, level = open_items.pop()
        lines.append("  " * level + label + _summary(value))
        if level < depth:
            open_items.extend((f"{name}: ", child, level + 1) for name, child in reversed(_children(value)))
    return "\n".join(lines)


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(repr(key), child) for key, child in value.items()]
    if isinstance(value, (list, tuple)) and not all(isinstance(child, (int, float, str, type(None))) for child in value):
        return [(str(index), child) for index, child in enumerate(value)]
    if isinstance(value, Object):
        state = value.state
        parts = [("args", value.args)] if value.args else []
        return parts + ([("state", state)] if value.states else [])
    return []


def _summary(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {value.shape}"
    if isinstance(value, (dict, list, tuple, set, frozenset)) and (len(value) > 8 or _children(value)):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
