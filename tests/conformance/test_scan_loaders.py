"""What a loader runs, a scan does not call clean: files that are read in another way than they look.

Each attack makes the folder `ran` or the file `ran` when its loader reads it, in a process and an empty folder of its own.
"""

import json
import os
import struct
import subprocess
import tarfile
import zipfile
from io import BytesIO

import pytest
from program import CLEAN, torch2carton

PAYLOAD = b"\x80\x02cposix\nmkdir\nX\x03\x00\x00\x00ran\x85R."
LOADERS = {
    "torch": "import sys, torch; torch.load(sys.argv[1], weights_only=False)",
    "jit": "import sys, torch; torch.jit.load(sys.argv[1])",
    "package": "import sys, torch.package as p; p.PackageImporter(sys.argv[1]).load_pickle('model', 'data.pkl')",
}


def tar_member(name, data, signed=False):
    """A member without the magic, whose header begins with `name`."""
    header = bytearray(name.ljust(124, b"\0") + b"%011o" % len(data) + bytes(13) + b" " * 8 + bytes(356))
    numbers = struct.unpack("512b" if signed else "512B", header)
    header[148:155] = b"%06o\0" % sum(numbers)
    return bytes(header) + data + bytes(-len(data) % 512)


def tar_of(start, **options):
    return tar_member(start, b"", **options) + tar_member(b"storages", PAYLOAD, **options) + bytes(1024)


def pax_tar():
    """A global header gives the member `storages`, which is empty by its own header, the bytes that follow it."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"size": str(len(PAYLOAD))}) as tar:
        tar.addfile(tarfile.TarInfo("storages"))
        made.write(PAYLOAD.ljust(512, b"\0"))
    return made.getvalue()


def archive(records):
    """A zip archive of PyTorch with these records."""
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as zip:
        for name, data in {".data/version": b"3\n", **records}.items():
            zip.writestr(f"p/{name}", data)
    return made.getvalue()


def script(body):
    """A TorchScript archive whose `__setstate__` has these lines."""
    code = b"class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  def __getstate__(self: __torch__.M) -> int:\n    return 1\n"
    code += b"  def __setstate__(self: __torch__.M, state: int) -> NoneType:\n    " + body.replace(b"\n", b"\n    ") + b"\n    return None\n"
    pickle = b"\x80\x02c__torch__\nM\n)\x81K\x01b."
    return archive({"data.pkl": pickle, "constants.pkl": b"\x80\x02).", "code/__torch__.py": code})


SCRIPTS = {
    "plain": b'torch.save(1, "ran")',
    "blanks": b'torch\x0c.\x0bsave(1, "ran")',
    "comment": b'_0 = (torch. # here\n  save(1, "ran"))',
    "autograd": b'ops.aten.autograd.save(1, "ran")',
    "alias": b't = ops\nt.aten.save(1, "ran")',
    "alias_torch": b't = torch\nt.save(1, "ran")',
    "keyword": b'_0 = state is notops.aten.save(1, "ran")',
    "getattr": b'getattr(torch, "save")(1, "ran")',
    "getattr_lines": b'getattr(torch,\n "save")(1, "ran")',
    "getattr_joined": b'getattr(torch, "sa" "ve")(1, "ran")',
    "getattr_alias": b'g = getattr\ng(torch, "sa" "ve")(1, "ran")',
    "number": b'_0 = 0x1if True else 2\ntorch.save(1, "ran")',
}
CODE = b"import os; os.mkdir('ran')\nclass OrderedDict: pass\n"
ORDERED = b"\x80\x02ccollections\nOrderedDict\n)R."

# name: (loader, bytes)
ATTACKS = {
    "tar_pickle.pth": ("torch", tar_of(b"\x80\x02}.")),
    "tar_signed.pth": ("torch", tar_of(b"\x80\x02}.", signed=True)),
    "tar_legacy.pth": ("torch", tar_of(b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")),
    "tar_safetensors.pth": ("torch", tar_of(b"\x08\0\0\0\0\0\0\0{}      ")),
    "tar.npy": ("torch", tar_of(b"\x93NUMPY\x01\0")),
    "tar_zip.pth": ("torch", tar_of(b"PK\x05\x06")),
    "tar.gguf": ("torch", tar_of(b"GGUF")),
    "tar_pax.pth": ("torch", pax_tar()),
    "package.pt": ("package", archive({"model/data.pkl": ORDERED, "collections.py": CODE, ".data/extern_modules": b"os\n"})),
    "package_capitals.pt": ("package", archive({"model/data.pkl": ORDERED, "collections.py": CODE, ".DATA/EXTERN_MODULES": b"os\n"})),
    **{f"script_{name}.pt": ("jit", script(body)) for name, body in SCRIPTS.items()},
}


@pytest.fixture(scope="module")
def python():
    if why := os.environ.get("T2C_MISSING_NEWEST"):
        pytest.skip(why)
    return os.environ["T2C_NEWEST"]


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_loader_runs_is_found(name, tmp_path, python):
    loader, data = ATTACKS[name]
    path, work = tmp_path / name, tmp_path / "work"
    path.write_bytes(data)
    work.mkdir()
    command = [python, "-B", "-W", "ignore", "-c", LOADERS[loader], path]
    subprocess.run(command, cwd=work, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert (work / "ran").exists(), "the attack does not run"
    scans = [json.loads(line) for line in torch2carton("scan", "--json", "--all", tmp_path / name).stdout.splitlines()]
    assert [scan["verdict"] in ("unsafe", "incomplete") for scan in scans] == [True]
