"""A sample of the judged uses runs nothing. `judged_uses.py` checks all of them."""

import os
import subprocess
import sys

from conftest import HERE


def test_a_sample_of_the_judged_uses_runs_nothing():
    command = [sys.executable, "-B", HERE / "judged_uses.py", "--sample", "60", os.environ["T2C_NEWEST"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
