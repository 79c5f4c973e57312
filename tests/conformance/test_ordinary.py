"""A scan finds nothing in what ordinary programs write: the objects and checkpoints of `ordinary.py`."""

import json
import os
import subprocess

import pytest
from conftest import HERE
from program import torch2carton

# The makers whose packages every environment here has. The others run where their packages are.
ALWAYS = set("numbers_and_dates containers enumerations annotations callables settings exceptions numpy_objects torch_functions "
             "torch_objects torch_modules torch_training torch_quantized".split())


@pytest.mark.parametrize("key", ["NEWEST", "OLD", "ORDINARY"])
def test_ordinary_files_are_clean(key, tmp_path):
    """ORDINARY is a Python with more packages, such as scikit-learn, if T2C_ORDINARY names one."""
    if why := os.environ.get(f"T2C_MISSING_{key}"):
        pytest.skip(why)
    if f"T2C_{key}" not in os.environ:
        pytest.skip(f"T2C_{key} names no Python")
    home, folder = tmp_path / "home", tmp_path / "files"
    home.mkdir()
    command = [os.environ[f"T2C_{key}"], "-W", "ignore", HERE / "ordinary.py", folder]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    made = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("made ")}
    assert made >= ALWAYS, [line for line in done.stdout.splitlines() if line.startswith("skipped ")]
    scans = [json.loads(line) for line in torch2carton("scan", "--json", folder).stdout.splitlines()]
    assert len(scans) == len(list(folder.iterdir()))
    # A global of another package, such as scikit-learn, is unknown.
    packages = {"clean", "unknown"} if key == "ORDINARY" else {"clean"}
    assert {scan["file"]: reasons(scan) for scan in scans if scan["verdict"] not in packages or reasons(scan)} == {}


def reasons(scan):
    """What a scan has against a file, besides globals of other packages."""
    found = [f"{g['module']}.{g['name']} {g['unreviewed_uses']}" for p in scan["pickles"] for g in p["globals"] if g["risk"] in ("dangerous", "unreviewed")]
    return found + [i["text"] for i in scan["irregularities"]] + [str(m) for m in scan["missed"]] + [p["error"] for p in scan["pickles"] if p["error"]]
