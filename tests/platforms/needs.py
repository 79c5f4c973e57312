#!/usr/bin/env python3
"""Says what programs need from a system, and fails if it is more than docs/platforms.md promises.

    tests/platforms/needs.py PROGRAM...

Linux: glibc 2.17 or none. Windows: its own libraries. macOS: version 11, CoreFoundation and a few libraries, and on arm64 a signature,
whose hashes are compared.
Needs readelf and a MinGW objdump. Facts: mach-o/loader.h; cs_blobs.h of XNU.
"""

import hashlib
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

LINUX = re.compile(r"lib(c|m|dl|rt|pthread|util)\.so\.\d|ld-linux.*\.so\.\d")
WINDOWS = re.compile(r"(kernel32|ntdll|msvcrt|advapi32|ws2_32|userenv|bcrypt|bcryptprimitives|shell32|ole32|oleaut32|python3|api-ms-win-.*)\.dll", re.I)
MACOS = re.compile(r"/usr/lib/lib(System\.B|iconv\.2|charset\.1)\.dylib|/System/Library/Frameworks/CoreFoundation\.framework/Versions/A/CoreFoundation")
GLIBC = (2, 17)
MACOS_VERSION = (11, 0)
PROCESSORS = {0x0100000C: "arm64", 0x01000007: "x86_64"}
LC_LOAD_DYLIB, LC_CODE_SIGNATURE, LC_VERSION_MIN_MACOSX, LC_BUILD_VERSION = 0xC, 0x1D, 0x24, 0x32
WEAK, REEXPORTED = 0x80000018, 0x8000001F


class Needs(NamedTuple):
    text: str
    libraries: list[str]
    wrong: list[str]


def tool(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def elf(path):
    libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "--dynamic", "--wide", path))
    versions = [tuple(map(int, text.split("."))) for text in re.findall(r"Name: GLIBC_([\d.]+)", tool("readelf", "--version-info", "--wide", path))]
    newest = max(versions, default=None)
    processor = re.search(r"Machine: +(.*)", tool("readelf", "--file-header", path))[1]
    wrong = [f"needs {name}" for name in libraries if not LINUX.fullmatch(name)]
    if newest and newest[:2] > GLIBC:
        wrong.append(f"needs glibc {newest}")
    glibc = f"glibc {'.'.join(map(str, newest))}" if newest else "no glibc"
    return Needs(f"Linux, {processor}, {glibc}, {len(libraries)} libraries", libraries, wrong)


def pe(path):
    libraries = sorted(set(re.findall(r"DLL Name: (\S+)", tool("x86_64-w64-mingw32-objdump", "-p", path))))
    return Needs(f"Windows, {len(libraries)} libraries", libraries, [f"needs {name}" for name in libraries if not WINDOWS.fullmatch(name)])


def mach_o(path):
    data = path.read_bytes()
    (processor, _, kind, count, _, _) = struct.unpack_from("<IIIIII", data, 4)
    at, libraries, version, signature = 32, [], None, None
    for _ in range(count):
        command, length = struct.unpack_from("<II", data, at)
        if command in (LC_LOAD_DYLIB, WEAK, REEXPORTED):
            start = at + struct.unpack_from("<I", data, at + 8)[0]
            libraries.append(data[start : at + length].rstrip(b"\0").decode())
        elif command in (LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX):
            packed = struct.unpack_from("<I", data, at + (12 if command == LC_BUILD_VERSION else 8))[0]
            version = (packed >> 16, packed >> 8 & 0xFF)
        elif command == LC_CODE_SIGNATURE:
            signature = struct.unpack_from("<II", data, at + 8)
        at += length
    name = PROCESSORS.get(processor, hex(processor))
    wrong = [f"needs {library}" for library in libraries if not MACOS.fullmatch(library)]
    if version != MACOS_VERSION:
        wrong.append(f"is for macOS {version}, expected {MACOS_VERSION}")
    state = signed(data, *signature) if signature else "not signed"
    # Processors of Apple run nothing that is not signed.
    if not state.startswith("signed") and (name == "arm64" or signature):
        wrong.append(state)
    return Needs(f"macOS {version[0]}.{version[1]}, {name}, {len(libraries)} libraries, {state}", libraries, wrong)


def signed(data, start, length):
    """Compares the hashes of a signature with the pages of the program."""
    magic, _, count = struct.unpack_from(">III", data, start)
    if magic != 0xFADE0CC0:
        return "its signature has no blobs"
    for index in range(count):
        slot, offset = struct.unpack_from(">II", data, start + 12 + 8 * index)
        if slot == 0:
            break
    else:
        return "its signature has no hashes"
    at = start + offset
    (_, _, _, flags, hashes, _, _, slots, limit) = struct.unpack_from(">IIIIIIIII", data, at)
    size, kind, _, page = struct.unpack_from("BBBB", data, at + 36)
    if (size, kind) != (32, 2) or limit != start:
        return f"its signature has hashes of kind {kind} for {limit} of {start} bytes"
    pages = [data[offset : min(offset + (1 << page), limit)] for offset in range(0, limit, 1 << page)]
    expected = [data[at + hashes + 32 * index :][:32] for index in range(slots)]
    if expected != [hashlib.sha256(page).digest() for page in pages]:
        return "its signature is that of other bytes"
    return f"signed{' ad hoc' if flags & 2 else ''}, {slots} pages"


def needs(path):
    magic = path.open("rb").read(4)
    kinds = {b"\x7fELF": elf, b"\xcf\xfa\xed\xfe": mach_o}
    return (pe if magic[:2] == b"MZ" else kinds[magic])(path)


def main():
    failed = False
    for path in map(Path, sys.argv[1:]):
        found = needs(path)
        failed |= bool(found.wrong)
        print(f"{path.name}: {'; '.join([found.text, *found.wrong])}, {path.stat().st_size} bytes")
    sys.exit(1 if failed or len(sys.argv) < 2 else 0)


if __name__ == "__main__":
    main()
