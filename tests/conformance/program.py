"""Runs torch2carton without this machine's settings, and checks which of its three outcomes it has."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

BINARY = os.environ.get("T2C_BINARY", "")
CLEAN = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")} | {"LANG": "C.UTF-8"}


@dataclass
class Outcome:
    status: int
    stdout: str
    stderr: str

    def __str__(self):
        return f"exit status {self.status}\n--- stdout\n{self.stdout[-3000:]}\n--- stderr\n{self.stderr[-3000:]}"


def torch2carton(*arguments, cwd=None, env=None, timeout=120):
    """Run it to its end. Raises if it panics, which no input may cause, but not for an exit status."""
    done = subprocess.run([BINARY, *map(str, arguments)], cwd=cwd, env=CLEAN | (env or {}), stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=timeout)
    outcome = Outcome(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert "panicked" not in outcome.stderr and done.returncode >= 0, f"{arguments}: {outcome}"
    return outcome


def succeed(*arguments, **settings):
    outcome = torch2carton(*arguments, **settings)
    assert outcome.status == 0, f"{' '.join(map(str, arguments))}: {outcome}"
    return outcome


def hashes(path, *flags):
    """The dtype, shape and SHA-256 of each tensor, as `inspect` lists them."""
    rows = json.loads(succeed("inspect", "--json", "--sha256", path, *flags).stdout)["tensors"]
    return {row["name"]: {fact: row[fact] for fact in ("dtype", "shape", "sha256")} for row in rows}


def refuse(*arguments, status=(1,), **settings):
    """It must fail with one of these statuses, print an error, and print nothing to standard output."""
    outcome = torch2carton(*arguments, **settings)
    assert outcome.status in status, f"{' '.join(map(str, arguments))}: expected exit status {status}: {outcome}"
    assert outcome.stderr.strip(), f"{arguments}: refused without an error text"
    return outcome


def listing(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*"))
