"""A second implementation of the digest that docs/digest.md defines, with nothing but hashlib.

    digest.py FILE.safetensors…    prints what `torch2carton digest` prints
"""

import hashlib
import json
import struct
import sys

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2",
}


def line(name, dtype, shape, content):
    """The line of a tensor; `content` are its bytes in C order, little-endian, or the text of a compound tensor."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        content = hashlib.sha256(content).hexdigest()
    return json.dumps([name, dtype, list(shape), content], separators=(",", ":"))


def digest(lines):
    """The digest of these lines, in any order."""
    return hashlib.sha256("".join(text + "\n" for text in sorted(lines)).encode("ascii")).hexdigest()


def safetensors_lines(path):
    """The lines of a safetensors file. A name that another tensor replaced is in the metadata, and is restored."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
        ties = header.pop("__metadata__", {})
        rows = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            shape = entry["shape"]
            if entry["dtype"] == "F4":  # PyTorch counts bytes, of two numbers each
                shape = shape[:-1] + [shape[-1] // 2]
            rows[name] = DTYPES[entry["dtype"]], shape, hashlib.sha256(file.read(end - begin)).hexdigest()
    tied = {name: rows[kept] for name, kept in ties.items() if kept in rows and name not in rows and name != "format"}
    return [line(name, *row) for name, row in (rows | tied).items()]


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(digest(safetensors_lines(path)), "", path)
