"""Zip files written field by field, so that each field can be made wrong.

`archive(entries)` with plain `Entry(name, data)`s is a correct zip file; every keyword of `Entry` and `archive` that is
not None replaces the true value of one field. Layout: PKWARE APPNOTE 6.3.10, sections 4.3.7 (local header), 4.3.12
(central directory), 4.3.14 to 4.3.16 (zip64 and end records).
"""

import struct
import zlib
from dataclasses import dataclass

STORED, DEFLATED = 0, 8


@dataclass
class Entry:
    """One entry. `data` is its content; the payload in the file is `data`, deflated if `method` requires it."""

    name: str | bytes
    data: bytes
    method: int = STORED
    flags: int = 0
    align: int = 1  # the payload starts at a multiple of this, with an `FB` extra field as padding, like torch's
    # Values that replace the right ones; None keeps the right value.
    crc: int | None = None
    size: int | None = None  # uncompressed
    compressed_size: int | None = None
    offset: int | None = None  # central directory only
    local_name: str | bytes | None = None
    local_size: int | None = None
    central_extra: bytes = b""
    mode: int = 0  # Unix, such as 0o120777 for a symbolic link
    local: bool = True  # False: listed in the central directory, but without a local header and data


def _bytes(name):
    return name if isinstance(name, bytes) else name.encode()


def _pad_extra(position, align):
    """The extra field `FB` that moves a payload from `position` (without any extra field) to the alignment."""
    if position % align == 0:
        return b""
    length = -(position + 4) % align
    return b"FB" + struct.pack("<H", length) + b"Z" * length


def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def archive(entries, *, count=None, directory_offset=None, zip64_end=b"", prefix=b""):
    out, central = bytearray(prefix), bytearray()
    for e in entries:
        name = _bytes(e.name)
        payload = deflate(e.data) if e.method == DEFLATED else e.data
        crc = zlib.crc32(e.data) if e.crc is None else e.crc
        size = len(e.data) if e.size is None else e.size
        packed = len(payload) if e.compressed_size is None else e.compressed_size
        offset = len(out) if e.offset is None else e.offset
        if e.local:
            local_name = name if e.local_name is None else _bytes(e.local_name)
            local_size = size if e.local_size is None else e.local_size
            local_packed = packed if e.local_size is None else e.local_size
            extra = _pad_extra(len(out) + 30 + len(local_name), e.align)
            out += struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, e.flags, e.method, 0, 0x21, crc, local_packed, local_size,
                               len(local_name), len(extra)) + local_name + extra + payload
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20 | (3 << 8 if e.mode else 0), 20, e.flags, e.method, 0, 0x21, crc,
                               packed, size, len(name), len(e.central_extra), 0, 0, 0, e.mode << 16, offset) + name + e.central_extra
    start = len(out) if directory_offset is None else directory_offset
    n = len(entries) if count is None else count
    return bytes(out) + bytes(central) + zip64_end + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, len(central), start, 0)
