"""The exceptions of the package. All are subclasses of `Error`, one for each kind of error of the library."""

from __future__ import annotations

import errno
import importlib
import os
from typing import Any


class Error(Exception):
    """Base class of the exceptions of torch2carton, and what safetensors calls `SafetensorError`.

    Attributes:
        kind: the kind of error, such as `"damaged"`
        path: the file or folder, or None
        tensor: the name of the tensor, or None
        offset: the offset of an instruction in the pickle, in bytes, or None

    >>> try:
    ...     torch2carton.open("absent.pt")
    ... except torch2carton.Error as error:
    ...     print(error.kind, error.path)
    io absent.pt
    """

    kind: str = "input"

    def __init__(
        self,
        text: str = "",
        *,
        kind: str | None = None,
        path: str | None = None,
        tensor: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(text)
        if kind is not None:
            self.kind = kind
        self.path = path
        self.tensor = tensor
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        place = {"kind": self.kind, "path": self.path, "tensor": self.tensor, "offset": self.offset}
        return (type(self), self.args, place)


class InputError(Error, ValueError):
    """The input is of the wrong type for the call, does not fit the other inputs, or is not allowed by the options."""

    kind = "input"


class UnsupportedError(Error):
    """The input is valid, but contains a feature that this version, or the kind of output, does not support."""

    kind = "unsupported"


class DamagedError(Error):
    """Bytes violate their format, or do not match their checksum."""

    kind = "damaged"


class ChangedError(Error):
    """A file changed after it was opened."""

    kind = "changed"


class CancelledError(Error):
    """A progress callable cancelled the operation."""

    kind = "cancelled"


class IoError(Error, OSError):
    """The system or a server failed: access is denied, or space is exhausted."""

    kind = "io"


class NotFoundError(IoError, FileNotFoundError):
    """A path does not exist. As in a `FileNotFoundError` of Python's, `errno` is `ENOENT`, and `filename` is the path."""

    def __init__(self, text: str = "", **place: Any) -> None:
        super().__init__(text, **place)
        self.errno = errno.ENOENT
        self.filename = self.path

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self.filename = self.path


class OptionError(Error, ValueError):
    """An option has an invalid value, or no value that fits the input."""

    kind = "option"


class MissingPackageError(Error, ImportError):
    """A package that the call needs is not installed. The text says what to install."""

    kind = "option"


class InternalError(Error, RuntimeError):
    """A bug in torch2carton. Please report it, with the file if you can."""

    kind = "internal"


SafetensorError = Error

#: A traceback names an exception as a program catches it.
for _known in (
    Error, InputError, UnsupportedError, DamagedError, ChangedError, CancelledError, IoError, NotFoundError, OptionError,
    MissingPackageError, InternalError,
):  # fmt: skip
    _known.__module__ = "torch2carton"

_CLASSES: dict[str, type[Error]] = {
    known.kind: known
    for known in (InputError, UnsupportedError, DamagedError, ChangedError, CancelledError, IoError, OptionError)
}


def make(kind: str, text: str, path: str | None, tensor: str | None, offset: int | None) -> Error:
    """Makes the exception for an error of the native module."""
    known = _CLASSES.get(kind, Error)
    if known is IoError and path is not None and not os.path.lexists(path):
        known = NotFoundError
    return known(text, kind=kind, path=path, tensor=tensor, offset=offset)


def internal(text: str) -> Error:
    """Makes the exception for a panic of the native module."""
    return InternalError(f"a bug in torch2carton: {text}; please report it, with the file if you can")


def import_torch(what: str) -> Any:
    """Imports PyTorch, or says what to install."""
    return _import("torch", f"{what} needs PyTorch, which is not installed: pip install torch")


def import_numpy(what: str) -> Any:
    """Imports NumPy, or says what to install."""
    return _import("numpy", f"{what} needs NumPy, which is not installed: pip install numpy")


def import_ml_dtypes(what: str) -> Any:
    """Imports `ml_dtypes`, or says what to install."""
    text = f"{what} needs ml_dtypes, which is not installed: pip install ml_dtypes; or call `.torch()`"
    return _import("ml_dtypes", text)


def _import(name: str, missing: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingPackageError(missing) from error
