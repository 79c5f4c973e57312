"""The Python package gguf: writes files in every type that it reads, and says what is in them."""

import hashlib

import gguf
import numpy
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from line_server import serve

TYPES = gguf.GGMLQuantizationType
ELEMENTS = {"F32": "f4", "F16": "f2", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8"}
# The scales of a block that would not be numbers, if their bytes were random: offsets of words in float16.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64], "IQ4_NL": [0], "IQ4_XS": [0], "IQ1_M": [54]}
BIG = {"Q4_0": [0], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208], "MXFP4": [], "NVFP4": []}  # as gguf_convert_endian.py has them
KEYS = {"a.count": (7, "add_uint32"), "a.small": (-3, "add_int8"), "a.large": (2**63, "add_uint64"), "a.rate": (1e-5, "add_float32"),
        "a.exact": (0.1, "add_float64"), "a.set": (True, "add_bool"), "a.name": ("ä\n", "add_string"), "a.tokens": (["<s>", "", "é"], "add_array"),
        "a.numbers": ([1, -2, 3], "add_array"), "a.rates": ([0.5, -1.25], "add_array")}


def random_blocks(name, rows, blocks, seed):
    block_bytes = GGML_QUANT_SIZES[TYPES[name]][1]
    data = numpy.random.default_rng(seed).integers(0, 256, (rows, blocks, block_bytes), dtype=numpy.uint8)
    for at in SCALES.get(name, [] if name in ("MXFP4", "NVFP4") else [0]):
        data[:, :, at + 1] &= 0xBF  # an exponent that is neither that of infinity nor of NaN
    return data.reshape(rows, blocks * block_bytes)


def tensors(seed):
    """Name, type, and data as the writer takes it, for each type."""
    numbers = numpy.random.default_rng(seed).standard_normal((3, 512)).astype("f4")
    for name, dtype in ELEMENTS.items():
        yield f"{name}.weight", name, (numbers * 100).astype(dtype)
    yield "BF16.weight", "BF16", quantize(numbers, TYPES.BF16)
    for kind in TYPES:
        if kind.name in ELEMENTS or kind.name in ("BF16", "Q8_1", "Q8_K", "Q1_0"):
            continue
        yield f"random.{kind.name}.weight", kind.name, random_blocks(kind.name, 3, 2, seed)
        try:
            yield f"made.{kind.name}.weight", kind.name, quantize(numbers, kind)
        except NotImplementedError:
            pass


def swapped(name, data):
    """The data of a big-endian file, and of a little-endian one: the words of blocks are swapped by hand, as the tool does it."""
    if name not in BIG:
        return data
    swapped = data.reshape(-1, GGML_QUANT_SIZES[TYPES[name]][1]).copy()
    for at in BIG[name]:
        swapped[:, [at, at + 1]] = swapped[:, [at + 1, at]]
    return swapped.reshape(data.shape)


def write(path, seed, big=False, version=3, split=0):
    """Writes a file; returns the hash of the numbers of each tensor, and the keys."""
    order = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=order, split_max_tensors=split)
    for key, (value, add) in KEYS.items():
        getattr(writer, add)(key, value)
    found = {}
    for name, kind, data in tensors(seed):
        if big and kind not in BIG and kind not in ELEMENTS:
            continue
        numbers = data if kind in ELEMENTS else dequantize(data, TYPES[kind])
        if kind == "BF16":
            numbers = None
        stored = swapped(kind, data) if big else data
        writer.add_tensor(name, stored, raw_dtype=TYPES[kind])
        hashed = data if numbers is None else numbers
        dtype = {"f4": "float32", "f2": "float16", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64"}
        dtype = "bfloat16" if kind == "BF16" else dtype[hashed.dtype.str[1:]]
        shape = [3, 512] if kind == "BF16" else list(numbers.shape)
        found[name] = {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(hashed.tobytes()).hexdigest()}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if version != 3:
        with open(path, "r+b") as file:
            file.seek(4)
            file.write(version.to_bytes(4, "big" if big else "little"))
    return {"tensors": found, "keys": {key: value for key, (value, _) in KEYS.items()}}


serve({"write": write})
