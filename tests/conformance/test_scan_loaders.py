"""What a loader runs, a scan does not call clean: files that are read in another way than they look.

Each attack makes the folder `ran` or the file `ran` when its loader reads it, in a process and an empty folder of its own.
"""

import json
import os
import pickle
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
    "extra state": "import pickle, sys, torch; pickle.loads(torch.load(sys.argv[1], weights_only=True)['a._extra_state'].numpy().tobytes())",
    "extra object": "import sys, torch; torch.load(torch.load(sys.argv[1], weights_only=False)['a._extra_state'], weights_only=False)",
    "safetensors": "import pickle, sys\nfrom safetensors.torch import load_file\nfor it in load_file(sys.argv[1]).values(): pickle.loads(it.numpy().tobytes())",
    "lightning": "import sys, torch; it = torch.load(sys.argv[1], weights_only=True)['hyper_parameters']\n"
                 "module, name = it.pop('_instantiator').rsplit('.', 1); getattr(__import__(module, fromlist=[name]), name)(*it.values())",
    "mmengine": "import sys, torch; exec(torch.load(sys.argv[1], weights_only=True)['message_hub']['runtime_info']['cfg'])",
    "mmengine resumed": "import sys, torch; exec(torch.load(sys.argv[1], weights_only=True)['meta']['config'])",
    "pyannote": "import importlib, sys, torch; sys.path.insert(0, ''); module = torch.load(sys.argv[1], weights_only=True)['pyannote.audio']['architecture']['module']\n"
                "open('mine.py', 'w').write('import os; os.mkdir(\"ran\")'); importlib.import_module(module)",
    "fairseq": "import sys, torch; eval(torch.load(sys.argv[1], weights_only=True)['cfg']['model']['conv_feature_layers'])",
    "parts": "import os, sys, torch.distributed.checkpoint.format_utils as f; f.dcp_to_torch_save(sys.argv[1], os.devnull)",
    "unpack": "import os, sys, tarfile; os.makedirs('a/b'); tarfile.open(sys.argv[1]).extractall('a/b', filter='fully_trusted')",
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



def extra_state(shift):
    """A tensor of bytes in the middle of a storage."""
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\0000X\x03\0\0\0cpuK%ctQK%cK%c\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
    size = len(PAYLOAD)
    root = b"\x80\x02}X\x0e\0\0\0a._extra_state" + tensor % (size + shift, shift, size) + b"s."
    return archive({"data.pkl": root, "version": b"3\n", "data/0": bytes(shift) + PAYLOAD})


def safetensors(data):
    header = json.dumps({"a._extra_state": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def in_memory(data):
    """A file in memory, as Transformer Engine keeps states."""
    return pickle.dumps({"a._extra_state": BytesIO(data)}, 4)


def pickled(*keys, **values):
    for key in reversed(keys):
        values = {key: values}
    return archive({"data.pkl": pickle.dumps(values, 2), "version": b"3\n"})


def leading_out(linked):
    """What NeMo unpacks: a file outside of the folder, by its name or through a link."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        if linked:
            link = tarfile.TarInfo("x")
            link.type, link.linkname = tarfile.SYMTYPE, "../.."
            tar.addfile(link)
        for name in ("x/ran" if linked else "../../ran", "model_config.yaml"):
            tar.addfile(tarfile.TarInfo(name))
    return made.getvalue()


# name: (loader, bytes)
ATTACKS = {
    "leading_out.nemo": ("unpack", leading_out(False)),
    "linked_out.nemo": ("unpack", leading_out(True)),
    "extra_state.pt": ("extra state", extra_state(5)),
    "extra_state.safetensors": ("safetensors", safetensors(PAYLOAD)),
    "instantiator.ckpt": ("lightning", pickled("hyper_parameters", _instantiator="os.mkdir", path="ran")),
    "extra_state_object.pt": ("extra object", archive({"data.pkl": in_memory(b"cposix\nmkdir\n(X\x03\x00\x00\x00rantR."), "version": b"3\n"})),
    "code.pth": ("mmengine", pickled("message_hub", "runtime_info", cfg="import os; os.mkdir('ran')")),
    "resumed.pth": ("mmengine resumed", pickled("meta", config="import os; os.mkdir('ran')")),
    "architecture.ckpt": ("pyannote", pickled("pyannote.audio", "architecture", module="mine")),
    "layers.pt": ("fairseq", pickled("cfg", "model", conv_feature_layers="[(512, 10, 5)] * __import__('os').mkdir('ran')")),
    "layers_plain.pt": ("fairseq", pickled("cfg", "model", conv_feature_layers="exec('import os; os.mkdir(\\'ran\\')')")),
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


# What PyTorch 2.0.1 does not run, or has no library for.
NEWER = {"extra_state.safetensors"}


def python_of(key):
    if why := os.environ.get(f"T2C_MISSING_{key}"):
        pytest.skip(why)
    return os.environ[f"T2C_{key}"]


@pytest.mark.parametrize("key", ["NEWEST", "OLD"])
@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_loader_runs_is_found(name, key, tmp_path):
    if key == "OLD" and name in NEWER:
        pytest.skip("it has no safetensors")
    python = python_of(key)
    loader, data = ATTACKS[name]
    path, work = tmp_path / name, tmp_path / "work"
    path.write_bytes(data)
    work.mkdir()
    command = [python, "-B", "-W", "ignore", "-c", LOADERS[loader], path]
    subprocess.run(command, cwd=work, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert (work / "ran").exists(), "the attack does not run"
    scans = [json.loads(line) for line in torch2carton("scan", "--json", "--all", tmp_path / name).stdout.splitlines()]
    assert [scan["verdict"] in ("unsafe", "incomplete", "unknown") for scan in scans] == [True]


SAVED = "import sys, torch, torch.distributed.checkpoint as d; d.save({'a': torch.ones(3), 'b': 'text'}, checkpoint_id=sys.argv[1], no_dist=True)"


@pytest.mark.parametrize("name, start", [("__0_0.distcp", 7), ("notes.txt", 3), ("../notes.txt", 3), ("other/notes.txt", 3)])
def test_parts_that_are_no_archives_are_found(name, start, tmp_path):
    python, folder, work = python_of("NEWEST"), tmp_path / "folder", tmp_path / "work"
    work.mkdir()
    subprocess.run([python, "-B", "-W", "ignore", "-c", SAVED, folder], check=True, env=CLEAN, capture_output=True, timeout=120)
    whole = torch2carton("scan", "--json", folder)
    assert whole.status == 0, whole
    target = folder / name
    target.parent.mkdir(exist_ok=True)
    made = BytesIO(bytes(start) + PAYLOAD)
    if name == "__0_0.distcp":
        made = BytesIO()
        with zipfile.ZipFile(made, "w") as zip:
            zip.writestr("archive/data.pkl", b"\x80\x02}.")
            zip.writestr("archive/data/0", bytes(start) + PAYLOAD)
        start = made.getvalue().index(PAYLOAD)
    target.write_bytes(made.getvalue())
    change = ("import dataclasses, pickle, sys; m = pickle.load(open(sys.argv[1], 'rb'))\n"
              "for k, v in m.storage_data.items():\n  m.storage_data[k] = dataclasses.replace(v, relative_path=sys.argv[2], offset=int(sys.argv[3]), length=int(sys.argv[4]))\n"
              "m.state_dict_metadata.pop('a'); m.storage_data = {k: v for k, v in m.storage_data.items() if k.fqn == 'b'}\n"
              "pickle.dump(m, open(sys.argv[1], 'wb'))")
    subprocess.run([python, "-B", "-c", change, folder / ".metadata", name, str(start), str(len(PAYLOAD))], check=True, env=CLEAN, timeout=120)
    subprocess.run([python, "-B", "-W", "ignore", "-c", LOADERS["parts"], folder], cwd=work, env=CLEAN, capture_output=True, timeout=120)
    assert (work / "ran").exists(), "the attack does not run"
    found = [json.loads(line) for line in torch2carton("scan", "--json", folder).stdout.splitlines()]
    metadata = next(it for it in found if it["file"].endswith(".metadata"))
    assert [it["kind"] for it in metadata["irregularities"]] == ["parts"], metadata
