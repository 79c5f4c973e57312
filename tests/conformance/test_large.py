"""Storages beyond 4 GiB and large deflated ones, as the Carton client, PyTorch and `zipfile` read them, in at most 64 MiB of memory."""

import hashlib
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from carton_file import Carton
from program import measured
from sparse import needs_sparse, sparse

LIMIT = 64 << 20


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
