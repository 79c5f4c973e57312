"""The names of dtypes in PyTorch, in safetensors and in NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._errors import UnsupportedError, import_ml_dtypes, import_numpy

if TYPE_CHECKING:
    import numpy

#: PyTorch's names and those of safetensors, in the order in which safetensors lists them (the largest alignment last).
SAFETENSORS = {
    "bool": "BOOL",
    "float4_e2m1fn_x2": "F4",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "complex64": "C64",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
}
#: The order of safetensors' dtypes, by which its files are sorted.
ORDER = {code: place for place, code in enumerate(SAFETENSORS.values())}
#: PyTorch's names of safetensors' dtypes.
TORCH = {code: name for name, code in SAFETENSORS.items()}

#: Dtypes that NumPy has under the same name.
_NUMPY = frozenset(
    ("bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "complex64", "uint64", "int64")
    + ("float64", "complex128")
)
#: Dtypes that `ml_dtypes` adds to NumPy.
_ML_DTYPES = frozenset(
    ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
)


def safetensors_name(name: str, what: str) -> str:
    """Returns safetensors' name for PyTorch's name; `what` is the tensor in messages."""
    found = SAFETENSORS.get(name)
    if found is None:
        raise UnsupportedError(f"{what}: safetensors has no {name}")
    return found


def safetensors_shape(code: str, shape: Iterable[int]) -> list[int]:
    """Returns safetensors' shape for PyTorch's shape. PyTorch counts pairs of float4, safetensors single numbers."""
    sizes = [int(size) for size in shape]
    if code == "F4" and sizes:
        sizes[-1] *= 2
    return sizes


def numpy_dtype(name: str, what: str) -> numpy.dtype[Any]:
    """Returns NumPy's dtype for PyTorch's name; `what` is the tensor in messages."""
    np: Any = import_numpy(what)
    if name in _NUMPY:
        found: numpy.dtype[Any] = np.dtype(name)
        return found
    if name in _ML_DTYPES:
        ml_dtypes: Any = import_ml_dtypes(f"{what} of {name}")
        if hasattr(ml_dtypes, name):
            found = np.dtype(getattr(ml_dtypes, name))
            return found
    raise UnsupportedError(f"{what}: NumPy has no {name}; call `.torch()` instead")


def numpy_name(dtype: numpy.dtype[Any]) -> str:
    """Returns PyTorch's name for NumPy's dtype.

    >>> numpy_name(numpy.dtype("bool"))
    'bool'
    """
    return str({"bool_": "bool"}.get(dtype.name, dtype.name))
