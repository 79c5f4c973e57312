"""What callers may pass as a file, and the sizes of files as text."""

from __future__ import annotations

import io
import os
from typing import Any

#: A path, the bytes of a file, or an open binary file.
Source = Any


def read_source(source: Source) -> str | bytes:
    """Returns a path, or the bytes of an open file from its current position on."""
    if type(source) is str:
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        # A file in text mode would first fail to decode its bytes.
        data = "" if isinstance(source, io.TextIOBase) else source.read()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"expected a file that is open in binary mode ('rb'), found one whose read() returns {type(data).__name__}")
        return bytes(data)
    path = os.fspath(source)
    return os.fsdecode(path)


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
