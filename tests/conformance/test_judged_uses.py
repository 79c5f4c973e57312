"""A sample of the judged uses runs nothing, alone and mixed. `judged_uses.py`, `judged_mixes.py` and `judged_imports.py` check
more."""

import os
import subprocess
import sys

from conftest import HERE
from program import BINARY


def test_a_sample_of_the_judged_uses_runs_nothing():
    command = [sys.executable, "-B", HERE / "judged_uses.py", "--sample", "60", os.environ["T2C_NEWEST"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_mixes_of_judged_uses_that_are_clean_run_nothing():
    command = [sys.executable, "-B", HERE / "judged_mixes.py", "--binary", BINARY, "--count", "300", os.environ["T2C_NEWEST"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_imports_of_listed_modules_run_nothing():
    command = [sys.executable, "-B", HERE / "judged_imports.py", "--sample", "60", os.environ["T2C_NEWEST"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
