"""Hostile files of at most 5 MB, made from a seed: each command needs at most 300 MB of memory and never panics.

`bombs.py` makes the files and measures the commands, in a process of its own, because a process counts the memory of the one
that started it. `T2C_BOUNDS` sets the number of files (1,000 with `.ci/run --full`). Commands above 5 s of processor time are
printed and do not fail the test unless one takes more than a minute.
"""

import os
import subprocess
import sys
from pathlib import Path

from program import BINARY

HERE = Path(__file__).parent


def test_memory_is_bounded_by_the_file():
    count = os.environ.get("T2C_BOUNDS", "40")
    command = [sys.executable, "-S", "-E", "-B", HERE / "bombs.py", "--binary", BINARY, "--count", count]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
