"""At most 64 MiB resident beyond the pickle, whatever the model's size. Memory is asserted, time only printed."""

import shutil
import subprocess
import sys
import zipfile

import pytest
from carton_file import Carton
from program import measured
from test_cli import SPARSE, needs_sparse

LIMIT = 64 << 20


def measure(table, what, path, *arguments):
    """Peak of a run that must succeed, in bytes."""
    outcome, size = measured(*arguments, path), path.stat().st_size / 1e9
    assert outcome.status == 0, outcome.stderr
    table(f"{what:34} {size:6.2f} GB   peak {outcome.peak / 2**20:6.1f} MiB   {outcome.seconds:6.2f} s   {size / outcome.seconds:5.2f} GB/s")
    return outcome.peak


@needs_sparse
@pytest.mark.parametrize("layout", [["--llama", "--dim", "2048", "--ff", "5632"], ["--tensors", "3"], ["--tensors", "5000"]],
                         ids=["llama", "3 tensors", "5000 tensors"])
def test_converting_4_gigabytes(layout, tmp_path, table):
    if shutil.disk_usage(tmp_path).free < 12e9:
        pytest.skip(f"it needs 12 GB in {tmp_path}")
    path = tmp_path / "large.pth"
    subprocess.run([sys.executable, SPARSE, path, "--size", "4.5G", "--fill", "edge", *layout], check=True, stdout=subprocess.DEVNULL)
    with zipfile.ZipFile(path) as z:
        pickle = z.getinfo("large/data.pkl").file_size
    peak = measure(table, f"convert {' '.join(layout[:2])}", path)
    (tmp_path / "large.carton").unlink()
    assert peak <= LIMIT + pickle


@needs_sparse
def test_looking_at_4_gigabytes(tmp_path, table):
    path = tmp_path / "large.pth"
    subprocess.run([sys.executable, SPARSE, path, "--size", "4.5G", "--tensors", "200"], check=True, stdout=subprocess.DEVNULL)
    for flags in (["--json"], ["--json", "--sha256"]):
        assert measure(table, f"inspect {' '.join(flags)}", path, "inspect", *flags) <= LIMIT


def test_converting_a_large_deflated_storage(tmp_path, newest, table):
    """Inflated once into a file that has no name, not into memory."""
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
