"""What a loader runs, a scan does not call clean: files whose parts follow one another, which a loader may find elsewhere than the scan.

Each attack makes the folder `ran` when its loader reads it, in a process and an empty folder of its own.
"""

import json
import os
import pickle
import struct
import subprocess
import zlib

import pytest
from program import CLEAN, torch2carton

CALL = b"cposix\nmkdir\nX\x03\x00\x00\x00ran\x85R"
LOADERS = {
    "torch": "import torch; torch.load(path, weights_only=False)",
    "joblib": "import joblib; joblib.load(path)",
    "numpy": "import numpy; file = open(path, 'rb'); [numpy.load(file, allow_pickle=True) for _ in range(2)]",
    "package": "import torch.package as p; p.PackageImporter(path).load_pickle('model', 'model.pkl')",
    "pickles": "import pickle; file = open(path, 'rb'); [pickle.load(file) for _ in range(2)]",
}


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def tensor(numel):
    """A state dict with one tensor, whose storage has the key 0."""
    storage = b"((" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"J" + struct.pack("<i", numel) + b"NtQ"
    shape = b"K\x00J" + struct.pack("<i", numel) + b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}" + text("w") + b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + shape + b"s."


def archive(records, base=0):
    """The records of a zip archive that starts at `base`, its directory, and its end record, which counts from the records."""
    body = directory = b""
    for name, data in records:
        name, sizes = name.encode(), struct.pack("<III", zlib.crc32(data), len(data), len(data))
        start = struct.pack("<HHHHH", 20, 0, 0, 0, 33)
        directory += b"PK\x01\x02\x14\0" + start + sizes + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, base + len(body)) + name
        body += b"PK\x03\x04" + start + sizes + struct.pack("<HH", len(name), 0) + name + data
    return body, directory, b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, len(records), len(records), len(directory), len(body), 0)


def checkpoint(root, storage):
    return [("archive/data.pkl", root), ("archive/byteorder", b"little"), ("archive/data/0", storage), ("archive/version", b"3\n")]


def hidden_archive():
    """PyTorch reads the last archive's directory at its offset from the start of the file: in a storage of the first archive."""
    numel = 2000
    last = archive(checkpoint(tensor(numel // 2), bytes(2 * numel)))
    storage = bytearray(4 * numel)
    start = len(archive(checkpoint(tensor(numel), b"")[:3])[0])
    evil = archive(checkpoint(b"\x80\x02" + CALL + b"0}.", bytes(4)), start + 100)
    storage[100 : 100 + len(evil[0])] = evil[0]
    at = len(last[0]) - start
    storage[at : at + len(evil[1])] = evil[1]
    return b"".join(archive(checkpoint(tensor(numel), bytes(storage)))) + b"".join(last)


def long_frame(pickle, rest, len):
    """A pickle in a frame of `len` bytes, which ends in `rest`: the C unpickler goes on after it if the frame has 128 KiB."""
    return b"\x80\x04\x95" + struct.pack("<Q", len) + pickle + rest


def framed_legacy():
    info = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    info, numel, frame = pickle.dumps(info, 2), 400_000, 140_000
    rest = info + tensor(numel) + pickle.dumps(["0"], 2) + struct.pack("<q", numel)
    evil = info + b"\x80\x02" + CALL + b"0}." + pickle.dumps([], 2)
    storage = bytearray(4 * numel)
    at = frame - len(b"M\xe9\x03.") - len(rest)
    storage[at : at + len(evil)] = evil
    return pickle.dumps(0x1950A86A20F9469CFC6C, 2) + long_frame(b"M\xe9\x03.", rest + bytes(storage), frame)


def framed_pickles():
    evil = CALL + b"."
    hiding = b"\x80\x04B" + struct.pack("<I", 140_000 + len(evil)) + bytes(140_000)
    return long_frame(b"N.", hiding + evil + b".", len(b"N." + hiding))


WRAPPER = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81"


def dtype(code):
    return b"cnumpy\ndtype\n" + text(code) + b"\x89\x88\x87R"


def array_of(code, length=1, more=b""):
    """The state of an array's description, and BUILD."""
    entries = {"subclass": b"cnumpy\nndarray\n", "shape": b"K" + bytes([length]) + b"\x85", "order": text("C"), "allow_mmap": b"\x89"}
    return b"}(" + b"".join(text(key) + value for key, value in (entries | {"dtype": dtype(code)}).items()) + more + b"ub"


def joblib(*parts):
    """A file of joblib; the scan of before took the call for elements."""
    return lambda: b"\x80\x04" + b"".join(parts) + b"."


# In the place of an array of objects: an object that takes any state.
INNER = b"cargparse\nNamespace\n)\x81}" + text("dtype") + dtype("u1") + b"sb."
HIDDEN = array_of("u1", len(CALL + b"0"))
OBJECTS = WRAPPER + array_of("O") + b"\x80\x04" + INNER
FRAMED = WRAPPER + HIDDEN + CALL + b"."
SWALLOW = b"0B" + struct.pack("<I", len(CALL + b"."))
LONG = b"\x80\x04\x95" + struct.pack("<Q", len(INNER + SWALLOW)) + INNER + SWALLOW
AMONG = pickle.dumps(0x1950A86A20F9469CFC6C, 2)[2:] + b"M\xe9\x03." + CALL + b"."


def two_arrays():
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (1,), }\n"
    def array(dtype, data):
        return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header % dtype)) + (header % dtype).encode() + data
    return array("<f4", bytes(4)) + array("|O", b"\x80\x04" + CALL + b".")


def package():
    """A folder that `torch.package` reads as it reads an archive: its module replaces one of Python."""
    code = b"import os; os.mkdir('ran')\nclass OrderedDict: pass\n"
    modules = {"collections.py": code, "model/__init__.py": b"", "model/model.pkl": b"\x80\x02ccollections\nOrderedDict\n)R."}
    return {".data/extern_modules": b"os\n", ".data/version": b"6\n", "version": b"6\n"} | modules


# name: (loader, bytes, or files of a folder)
ATTACKS = {
    "changed.joblib": ("joblib", joblib(OBJECTS, HIDDEN, CALL, b"0")),
    "class.joblib": ("joblib", joblib(b"cargparse\nNamespace\ncjoblib.numpy_pickle\nNumpyArrayWrapper\n\x85\x81", HIDDEN, CALL, b"0")),
    "framed.joblib": ("joblib", joblib(OBJECTS, b"0\x95", struct.pack("<Q", len(FRAMED)), FRAMED, b"N" * len(CALL))),
    "frame.joblib": ("joblib", joblib(WRAPPER, array_of("O"), LONG, CALL, b".")),
    "method.joblib": ("joblib", joblib(WRAPPER, array_of("u1", len(CALL + b"0"), text("read") + b"cbuiltins\nslice\n"), CALL, b"0")),
    "among.joblib": ("torch", joblib(WRAPPER, array_of("u1", len(b"0" + AMONG)), b"0", AMONG)),
    "two.npy": ("numpy", two_arrays),
    "package": ("package", package),
    "archives.pth": ("torch", hidden_archive),
    "frame.pth": ("torch", framed_legacy),
    "frame.pkl": ("pickles", framed_pickles),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_loader_runs_is_found(name, tmp_path):
    loader, make = ATTACKS[name]
    environment = "ORDINARY" if name.endswith(".joblib") else "NEWEST"
    if why := os.environ.get(f"T2C_MISSING_{environment}"):
        pytest.skip(why)
    python = os.environ[f"T2C_{environment}"]
    path, work = tmp_path / name, tmp_path / "work"
    made = make()
    for file, data in made.items() if isinstance(made, dict) else [("", made)]:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_bytes(data)
    work.mkdir()
    command = [python, "-B", "-W", "ignore", "-c", f"import sys; path = sys.argv[1]; {LOADERS[loader]}", path]
    subprocess.run(command, cwd=work, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert (work / "ran").exists(), "the attack does not run"
    scans = [json.loads(line) for line in torch2carton("scan", "--json", "--all", path).stdout.splitlines()]
    assert any(scan["verdict"] in ("unsafe", "incomplete") for scan in scans)
