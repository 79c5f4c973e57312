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


# Those of ORDINARY, which has many more packages.
MORE = ALWAYS | set("scikit_learn pandas_and_scipy timm_models torchvision_models ultralytics_models lightning_checkpoint lightning_objects omegaconf_config peft_adapters "
                    "transformers_arguments whisper_models boosters sympy_objects torch_scripts torch_exports hugging_face_folders".split())


@pytest.mark.parametrize("key, makers, least", [("NEWEST", ALWAYS, 170), ("OLD", ALWAYS, 50), ("ORDINARY", MORE, 350)])
def test_ordinary_files_are_clean(key, makers, least, tmp_path, table):
    if why := os.environ.get(f"T2C_MISSING_{key}"):
        pytest.skip(why)
    home, folder = tmp_path / "home", tmp_path / "files"
    home.mkdir()
    command = [os.environ[f"T2C_{key}"], "-W", "ignore", HERE / "ordinary.py", folder]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    made = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("made ")}
    assert made >= makers, [line for line in done.stdout.splitlines() if line.startswith("skipped ")]
    scans = [json.loads(line) for line in torch2carton("scan", "--json", folder).stdout.splitlines()]
    scans = [scan for scan in scans if scan["verdict"] != "skipped"]
    assert len(scans) >= least
    table(f"ordinary files, {key}: {len(scans)}, of which {sum(scan['verdict'] == 'unknown' for scan in scans)} name other packages")
    # A global of another package, such as scikit-learn, is unknown.
    packages = {"clean", "unknown"} if key == "ORDINARY" else {"clean"}
    assert {scan["file"]: reasons(scan) for scan in scans if scan["verdict"] not in packages or reasons(scan)} == {}


def reasons(scan):
    """What a scan has against a file, besides globals of other packages."""
    found = [f"{g['module']}.{g['name']} {g['unreviewed_uses']}" for p in scan.get("pickles", []) for g in p["globals"] if g["risk"] in ("dangerous", "unreviewed")]
    found += [i["text"] for i in scan.get("irregularities", [])] + [str(missed) for missed in scan.get("missed", [])]
    return found + [p["error"] for p in scan.get("pickles", []) if p["error"]]
