"""Packed cartons: the real client reads them identically, and links work in both directions."""

import hashlib
import json
import shutil
import struct

import pytest
from carton_file import Carton
from program import refuse, succeed
from served import Handler, running

TOML = """
spec_version = 1
model_name = "everything"
short_description = "Everything in the format."
model_description = "With a picture: ![cat](@misc/cat.png)"
required_platforms = ["x86_64-unknown-linux-gnu", "aarch64-apple-darwin"]
license = "MIT OR Apache-2.0"
repository = "https://example.org/repository"
homepage = "https://example.org/"
note = "unknown, and kept"

[[input]]
name = "x"
dtype = "float32"
shape = ["batch", 3]
description = "numbers"
internal_name = "scope/x:0"

[[input]]
name = "words"
dtype = "string"
shape = "*"

[[output]]
name = "y"
dtype = "float64"
shape = ["batch", 2]

[[output]]
name = "scalar"
dtype = "uint64"
shape = []

[[output]]
name = "ragged"
dtype = "int16"
shape = ["batch", "*"]

[[output]]
name = "same"
dtype = "float32"
shape = "x_shape"

[[self_test]]
name = "first"
description = "it runs"
inputs = { x = "@tensor_data/x", words = "@tensor_data/words" }
expected_out = { y = "@tensor_data/y", scalar = "@tensor_data/scalar" }

[[self_test]]
inputs = { x = "@tensor_data/x", words = "@tensor_data/words" }
unknown = { kept = [1, 2] }

[[example]]
name = "second"
inputs = { x = "@misc/cat.png", words = "@tensor_data/words" }
sample_out = { y = "@misc/out.bin" }

[[example]]
description = "without a name"
inputs = { x = "@tensor_data/x", words = "@misc/folder/a=b.txt" }
sample_out = { y = "@tensor_data/y" }

[runner]
runner_name = "torchscript"
required_framework_version = "=2.0"
runner_compat_version = 1

[runner.opts]
threads = 4
scale = 0.5
mode = "x"
fast = true
"""

# --tensor cannot make the parts of a ragged tensor. Nothing refers to this one, because the client does not read any.
RAGGED = """
[[tensor]]
name = "long"
dtype = "int16"
shape = [3]
file = "long.bin"
inner = []

[[tensor]]
name = "short"
dtype = "int16"
shape = [1]
file = "short.bin"
inner = []

[[tensor]]
name = "ragged"
dtype = "nested"
inner = ["long", "short"]
"""

TENSORS = {  # descr and shape of the .npy file, its bytes, the value that the client reads
    "x": ("<f4", "(2, 3)", struct.pack("<6f", *range(6)), ["f", [[0, 1, 2], [3, 4, 5]]]),
    "y": (">f8", "(2, 2)", struct.pack(">4d", 1.5, 2, 3, 4), ["f", [[1.5, 2], [3, 4]]]),
    "scalar": ("<u8", "()", struct.pack("<Q", 2**63), ["u", 2**63]),
    "words": ("<U2", "(2,)", "a\0bc".encode("utf-32-le"), ["U", ["a", "bc"]]),
}


@pytest.fixture
def folder(tmp_path):
    for path, data in {"carton.toml": TOML.encode(), "model/model.pt": b"weights" * 20_000, "misc/cat.png": b"cat",
                       "misc/out.bin": os.urandom(5000), "misc/folder/a=b.txt": b"equals", "misc/empty": b"", "misc/sp ace ü.txt": b"name",
                       "tensor_data/index.toml": RAGGED.encode(), "tensor_data/long.bin": struct.pack("<3h", 1, 2, 3),
                       "tensor_data/short.bin": struct.pack("<h", -1)}.items():
        file = tmp_path / "everything" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (tmp_path / "everything/model/link.pt").symlink_to("model.pt")
    for name, (descr, shape, data, _) in TENSORS.items():
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        (tmp_path / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
    return tmp_path / "everything"


def pack(folder, compression):
    carton = folder.with_name(f"{compression}.carton")
    tensors = [word for name in TENSORS for word in ("--tensor", f"{name}={folder.parent / name}.npy")]
    succeed("pack", folder, "-o", carton, "--compression", compression, *tensors)
    return carton


@pytest.mark.parametrize("compression", ["stored", "deflate", "zstd"])
def test_the_client_reads_everything(compression, folder, carton_client):
    path = pack(folder, compression)
    carton = Carton(path)
    if compression != "zstd":  # Python's zipfile does not support zstd
        # The line of a link has the hash of its target.
        link, leads_to = (hashlib.sha256(text).hexdigest().encode() for text in (b"model.pt", b"weights" * 20_000))
        assert carton.manifest == carton.true_manifest().replace(link, leads_to)
    info = carton_client.ask("info", path=str(path))
    assert info["model_name"] == "everything" and info["license"] == "MIT OR Apache-2.0"
    assert info["short_description"] == "Everything in the format."
    assert info["model_description"] == "With a picture: ![cat](@misc/cat.png)"
    assert (info["repository"], info["homepage"]) == ("https://example.org/repository", "https://example.org/")
    assert info["inputs"][0] == {"name": "x", "dtype": "float32", "shape": ["batch", 3]}
    assert info["inputs"][1] == {"name": "words", "dtype": "string", "shape": None}  # the client's value for "*"
    assert [(o["name"], o["dtype"], o["shape"]) for o in info["outputs"]] == [
        ("y", "float64", ["batch", 2]), ("scalar", "uint64", []), ("ragged", "int16", ["batch", None]), ("same", "float32", "x_shape")]
    assert info["required_platforms"] == ["x86_64-unknown-linux-gnu", "aarch64-apple-darwin"]
    assert info["runner"] == {"name": "torchscript", "framework": "=2.0", "compat": 1, "opts": {"threads": 4, "scale": 0.5, "mode": "x", "fast": True}}
    misc = {str(f.relative_to(folder / "misc")): hashlib.sha256(f.read_bytes()).hexdigest()
            for f in (folder / "misc").rglob("*") if f.is_file()}
    assert info["misc"] == misc
    whole = carton_client.ask("whole", path=str(path))
    value = {name: read for name, (*_, read) in TENSORS.items()}
    inputs = {k: value[k] for k in ("x", "words")}
    assert whole["tests"] == [["first", "it runs", inputs, {k: value[k] for k in ("y", "scalar")}], [None, None, inputs, {}]]
    assert whole["examples"] == [
        ["second", None, {"x": misc["cat.png"], "words": value["words"]}, {"y": misc["out.bin"]}],
        [None, "without a name", {"x": value["x"], "words": misc["folder/a=b.txt"]}, {"y": value["y"]}]]
    assert whole["words"]["x"] == ["numbers", "scope/x:0"] and whole["words"]["y"] == [None, None]
    assert whole["opts"] == {"threads": 4, "scale": 0.5, "mode": "x", "fast": True}


class Blobs(Handler):
    """Serves a folder of blobs."""

    def do_GET(self):
        self.answer(200, (self.server.folder / self.path.rsplit("/", 1)[1]).read_bytes())


@pytest.fixture
def blobs(tmp_path):
    """A folder for blobs, and the URL under which it is served."""
    with running(Blobs, folder=tmp_path / "blobs") as server:
        yield server.folder, f"http://{server.address}/b"


def test_links_work_both_ways(folder, blobs, carton_client):
    blob_folder, url = blobs
    whole, ours, theirs, resolved = (folder.with_name(f"{name}.carton") for name in ("stored", "ours", "theirs", "resolved"))
    pack(folder, "stored")
    succeed("shrink", whole, "--base", url, "--blobs", blob_folder, "--min-size", "1", "-o", ours)
    report = json.loads(succeed("verify", "--json", ours).stdout)
    # The client fetches the files that we left out ...
    misc = {str(f.relative_to(folder / "misc")): hashlib.sha256(f.read_bytes()).hexdigest()
            for f in (folder / "misc").rglob("*") if f.is_file()}
    assert carton_client.ask("info", path=str(ours))["misc"] == misc
    assert carton_client.ask("whole", path=str(ours)) == carton_client.ask("whole", path=str(whole))
    # ... and we fetch those that the client leaves out.
    urls = {path.name: [f"{url}/{path.name}"] for path in blob_folder.iterdir()}
    shutil.copy(carton_client.ask("shrink", path=str(whole), urls=urls), theirs)
    for small in (ours, theirs):
        listed = json.loads(succeed("inspect", "--json", small).stdout)
        assert {file["sha256"] for file in listed["absent"]} == set(urls)
        refuse("resolve", small, "-o", resolved)
        succeed("resolve", small, "-o", resolved, "--allow-http")
        again = json.loads(succeed("verify", "--json", resolved).stdout)
        assert (again["ok"], again["manifest_sha256"]) == (True, report["manifest_sha256"])
        assert carton_client.ask("info", path=str(resolved)) == carton_client.ask("info", path=str(whole))


def test_verify_accepts_what_the_client_writes(folder, carton_client):
    report = json.loads(succeed("verify", "--json", carton_client.ask("shrink", path=str(pack(folder, "zstd")), urls={})).stdout)
    assert report["ok"] and report["findings"] == []
