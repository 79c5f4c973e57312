"""No mutated file is clean whose loader runs what is hidden in it, or that no writer makes: `mutate.py` for some seconds a format."""

import os
import subprocess

import mutate
import pytest
from conftest import HERE
from program import BINARY

SECONDS = float(os.environ.get("T2C_MUTATE", 10))


@pytest.mark.parametrize("name", mutate.FORMATS)
def test_no_mutated_file_is_clean(name, table):
    if name in mutate.NEEDS:
        return run_elsewhere(name, table)
    counts, failed = mutate.attack(name, BINARY, SECONDS, seed=int(os.environ.get("T2C_SEED", 0)))
    table(f"mutated {name}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    assert [(outcome, file.steps, sorted(file.foreign)) for file, outcome in failed[:20]] == []
    # Otherwise no canary was reached, and the check would prove nothing.
    assert counts["stopped"] + counts["wrote"] > 0, counts


def run_elsewhere(name, table):
    """Runs the program with a Python that has the packages of the format."""
    key = mutate.NEEDS[name]
    if why := os.environ.get(f"T2C_MISSING_{key}"):
        pytest.skip(why)
    command = [os.environ[f"T2C_{key}"], HERE / "mutate.py", name, "--binary", BINARY, "--seconds", str(SECONDS), "--seed", os.environ.get("T2C_SEED", "0")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 600)
    table(f"mutated {done.stdout}")
    assert done.returncode == 0 and "'stopped'" in done.stdout, (done.stdout, done.stderr[-3000:])
