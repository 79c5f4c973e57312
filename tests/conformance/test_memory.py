"""At most 64 MiB of resident memory in addition to the pickle, at any model size; for a server, the weights and a fixed amount.
Memory is asserted; time is only printed."""

import hashlib
import json
import re
import shutil
import struct
import subprocess
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from carton_file import Carton
from program import BINARY, measured, succeed
from served import Server
from sparse import needs_sparse, sparse

LIMIT = 64 << 20
# What a server needs besides the weights for the requests below; a fifth of the weights of a model of 0.5 GB.
COMPUTED = 96 << 20
# Printed for comparison with our time: hashing the file, and copying it to the disk.
YARDSTICKS = {"openssl dgst -sha256": 'openssl dgst -sha256 "$0"', "cp && sync": 'cp --sparse=never "$0" "$1"; sync "$1"'}


def measure(table, what, path, *arguments):
    """The peak memory in bytes of a run that must succeed."""
    outcome, size = measured(*arguments, path), path.stat().st_size / 1e9
    assert outcome.status == 0, outcome.stderr
    table(f"{what:42} {size:6.2f} GB   peak {outcome.peak / 2**20:6.1f} MiB   {outcome.seconds:6.2f} s   {size / outcome.seconds:5.2f} GB/s")
    return outcome.peak


@pytest.fixture
def room(tmp_path):
    if shutil.disk_usage(tmp_path).free < 12e9:
        pytest.skip(f"needs 12 GB in {tmp_path}")


def available_memory():
    return int(re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text()).group(1)) * 1024


def pickle_size(path):
    with zipfile.ZipFile(path) as z:
        return next(i.file_size for i in z.infolist() if i.filename.endswith("/data.pkl"))


@needs_sparse
@pytest.mark.parametrize("layout", ["--llama --dim 2048 --ff 5632", "--tensors 5000"])
def test_converting_4_gigabytes(layout, tmp_path, table, room):
    path = sparse(tmp_path / "large.pth", "--size", "4.5G", "--fill", "edge", *layout.split(), warm=True)
    peak = measure(table, f"convert {layout}", path)
    (tmp_path / "large.carton").unlink()
    assert peak <= LIMIT + pickle_size(path)
    if "llama" in layout:
        for what, command in YARDSTICKS.items():
            if shutil.which(command.split()[0]):
                start = time.monotonic()
                subprocess.run(["sh", "-ec", command, path, tmp_path / "copy"], check=True, stdout=subprocess.DEVNULL)
                seconds = time.monotonic() - start
                table(f"{what + ' of the same':42} {'':30} {seconds:6.2f} s   {path.stat().st_size / 1e9 / seconds:5.2f} GB/s")


@needs_sparse
def test_a_storage_beyond_4_gib(tmp_path, carton_client, old, table, room):
    """zip64 sizes in both zip files: the Carton client opens the carton, torch 2.0.1 loads the archive and finds the last byte."""
    if available_memory() < 8e9:
        pytest.skip("needs 8 GB of memory")
    path = sparse(tmp_path / "large.pth", "--size", "4.5G", "--fill", "edge", "--tensors", "1", "--dtype", "int8")
    assert measure(table, "convert one storage", path) <= LIMIT
    path.unlink()
    carton, archive = tmp_path / "large.carton", tmp_path / "model.pt"
    (output,) = carton_client.ask("info", path=str(carton))["outputs"]
    assert output["shape"] == [4_500_000_000]
    with zipfile.ZipFile(carton) as z, z.open("model/model.pt") as model, open(archive, "wb") as out:
        digest = hashlib.sha256()
        while block := model.read(1 << 20):  # zipfile compares the CRC at the end
            digest.update(block)
            out.write(block)
        assert f"model/model.pt={digest.hexdigest()}\n".encode() in z.read("MANIFEST")
    carton.unlink()
    assert old.ask("edges", archive=str(archive)) == {"t.0.weight": [[1, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]}


@needs_sparse
def test_a_pickle_of_100_000_tensors(tmp_path, table):
    """3 million opcodes: memory may be a small multiple of the pickle."""
    path = sparse(tmp_path / "crowd.pth", "--size", "100M", "--tensors", "100000")
    peak = measure(table, f"convert 100,000 tensors, {pickle_size(path) / 2**20:.0f} MiB pickle", path)
    assert peak <= LIMIT + 16 * pickle_size(path)


@needs_sparse
def test_a_million_tensors(tmp_path, table):
    """Each of a few bytes, in a zip record and a module of its own."""
    path = sparse(tmp_path / "million.pth", "--size", "16M", "--tensors", "1000000", "--dtype", "float32")
    assert measure(table, "inspect --json, 1,000,000 tensors", path, "inspect", "--json") <= 600e6
    assert measure(table, "convert, 1,000,000 tensors", path) <= 800e6
    assert measure(table, "convert to .pth, 1,000,000 tensors", path, "convert", "-o", tmp_path / "out.pth") <= 800e6


@needs_sparse
@pytest.mark.parametrize("flags", ["--json", "--json --sha256"])
def test_inspecting_4_gigabytes(flags, tmp_path, table):
    path = sparse(tmp_path / "large.pth", "--size", "4.5G", "--tensors", "200", warm="sha256" in flags)
    assert measure(table, f"inspect {flags}", path, "inspect", *flags.split()) <= LIMIT


def test_converting_a_large_deflated_storage(tmp_path, newest, table):
    """It is inflated once into an unlinked file, not into memory."""
    plain, path = tmp_path / "plain.pth", tmp_path / "deflated.pth"
    newest.ask("make_large", path=str(plain), megabytes=256)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert measure(table, "convert deflated", path) <= LIMIT
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deflated.carton", "deflated.pth", "plain.pth"]
    measure(table, "convert the same, stored", plain)
    records = lambda p: {i.filename.split("/", 1)[1]: i.CRC for i in Carton(p).model().file.infolist()}
    assert records(tmp_path / "deflated.carton") == records(tmp_path / "plain.carton")


@needs_sparse
def test_a_server_needs_little_more_than_the_weights(tmp_path, table):
    """Prompts that grow, with the logits of the last token and of all, and eight requests at a time: the weights are mapped,
    so the peak is theirs and what is computed."""
    path, carton, vocab = tmp_path / "model.pth", tmp_path / "model.carton", 4096
    sparse(path, "--llama", "--size", "300M", "--layers", "12", "--dim", "1024", "--kv-dim", "256", "--ff", "2816", "--vocab", str(vocab))
    succeed(path, "--n-heads", "16", "--rope-theta", "10000", "--norm-eps", "1e-5", "-q", "-o", carton)
    weights = sum(json.loads(succeed("inspect", "--json", path).stdout)["bytes_by_dtype"].values())

    def ask(length, last_only):
        blobs = {"tokens": ([1, length], [(i * 7919) % vocab for i in range(length)]), "last_only": ([1], [last_only])}
        inputs = [{"name": name, "shape": shape, "datatype": "INT64", "parameters": {"binary_data_size": 8 * len(values)}}
                  for name, (shape, values) in blobs.items()]
        header = json.dumps({"inputs": inputs, "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}).encode()
        body = header + b"".join(struct.pack(f"<{len(values)}q", *values) for _, values in blobs.values())
        response = server.request("POST", "/v2/models/model/infer", body, [("Inference-Header-Content-Length", len(header))])
        assert response.status == 200, response
        assert len(response.body) >= 4 * vocab * (1 if last_only else length)

    def memory(key):
        return 1024 * int(re.search(rf"{key}:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1])

    server = Server(BINARY, "serve", "--port", "0", "-q", carton)
    try:
        before = memory("VmHWM")
        for length in (1, 16, 256):
            for last_only in (1, 0):
                ask(length, last_only)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, [256] * 16, [0] * 16))
        peak, anonymous = memory("VmHWM"), memory("RssAnon")
    finally:
        server.close()
    table(f"serve: weights of {weights / 2**20:.0f} MiB, resident {before / 2**20:.0f} MiB at the start and at most {peak / 2**20:.0f} MiB, "
          f"{peak / weights:.2f} × the weights, of which {anonymous / 2**20:.0f} MiB are not mapped")
    assert before <= LIMIT and peak <= weights + COMPUTED
