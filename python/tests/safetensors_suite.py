"""Runs safetensors' own Python tests against torch2carton.

The tests come from the source distribution of safetensors on PyPI and are never part of this repository. `run` gives them a
package `safetensors` whose modules are those of torch2carton.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

VERSION = "0.8.0"
#: The tests of the frameworks that torch2carton supports.
TESTS = (
    "test_simple.py",
    "test_pt_comparison.py",
    "test_pt_model.py",
    "test_handle.py",
    "test_threadable.py",
    "test_multithreaded.py",
    "test_pread_backend.py",
)
_SHIM = {
    "__init__.py": (
        "from torch2carton import SafetensorError, TensorSpec, deserialize, safe_open, serialize, serialize_file\n"
        "from torch2carton._safe_open import _safe_open_handle\n"
    ),
    "torch.py": (
        "from torch2carton.torch import *\n"
        "from torch2carton.torch import _end_ptr, _find_shared_tensors, _is_complete, _remove_duplicate_names\n"
        "from torch2carton.torch import storage_ptr, storage_size\n"
    ),
    "numpy.py": "from torch2carton.numpy import *\n",
}


def fetch(folder: Path) -> Path:
    """Downloads the source distribution into `folder`, and returns the folder of the tests."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "safetensors"]
    archive = folder / f"safetensors-{VERSION}.tar.gz"
    if not archive.exists():
        subprocess.run([*command, "--dest", str(folder), f"safetensors=={VERSION}"], check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder / f"safetensors-{VERSION}" / "bindings" / "python" / "tests"


def run(tests: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the tests with pytest, in `folder`, and returns what it printed."""
    shim = folder / "shim" / "safetensors"
    shim.mkdir(parents=True, exist_ok=True)
    for name, text in _SHIM.items():
        (shim / name).write_text(text)
    (folder / "tests" / "data").mkdir(parents=True, exist_ok=True)
    import torch2carton

    package = Path(torch2carton.__file__).parents[1]
    places = [str(shim.parent), str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *(str(tests / test) for test in TESTS)], cwd=folder, env=environment, capture_output=True, text=True
    )


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        done = run(fetch(Path(sys.argv[1] if len(sys.argv) > 1 else place)), Path(place))
        print(done.stdout[-20000:], done.stderr[-2000:])
        sys.exit(done.returncode)
