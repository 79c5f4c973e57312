"""A storage beyond 4 GiB, as the Carton client, PyTorch and `zipfile` read it."""

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import SHARED
from program import succeed

SPARSE = SHARED / "tools/make_sparse_pth.py"  # makes zip files whose tensors are holes


def test_a_storage_beyond_4_gib(tmp_path, carton_client, old):
    """zip64 sizes in both zip files: the Carton client opens the carton, torch 2.0.1 loads the archive and finds the last byte."""
    memory = int(re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())[1]) * 1024
    if not SPARSE.is_file() or shutil.disk_usage(tmp_path).free < 12e9 or memory < 8e9:
        pytest.skip(f"needs {SPARSE}, 12 GB of disk and 8 GB of memory")
    path, carton, archive = (tmp_path / name for name in ("large.pth", "large.carton", "model.pt"))
    flags = ["--size", "4.5G", "--fill", "edge", "--tensors", "1", "--dtype", "int8"]
    subprocess.run([sys.executable, SPARSE, path, *flags], check=True, stdout=subprocess.DEVNULL)
    succeed(path)
    path.unlink()
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
