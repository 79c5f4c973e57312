#!/usr/bin/env python3
"""What torch2carton, picklescan and fickling say of the same files, as the table in docs/scan.md.

    scanners.py PROGRAM [FOLDER]

needs Python with `pip install torch numpy picklescan fickling`. Every file of tests/golden/malicious prints a line where
Python unpickles it; whether it does is tried, with the loader that its kind has.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = b"a payload ran"

LOAD = """
import sys
path = sys.argv[1]
if path.endswith((".npy", ".npz")):
    import numpy
    found = numpy.load(path, allow_pickle=True)
    list(found[name] for name in getattr(found, "files", []))
elif path.endswith(".pkl"):
    import pickle
    with open(path, "rb") as file:
        while file.peek(1):
            pickle.load(file)
else:
    import torch
    torch.load(path, weights_only=False)
"""
PICKLESCAN = "import sys; from picklescan.cli import main; sys.exit(main())"
FICKLING = """
import sys
from fickling.loader import scan_file, scan_zip_archive
path, zipped = sys.argv[1], open(sys.argv[1], "rb").read(2) == b"PK"
results = list(scan_zip_archive(path, graceful=True).values()) if zipped else [scan_file(path, graceful=True)]
safe = all(result.is_safe and not result.errors for result in results)
print("clean" if safe else max(result.severity.name for result in results))
"""


def run(*args):
    with tempfile.TemporaryDirectory() as scratch:
        return subprocess.run(args, capture_output=True, cwd=scratch, timeout=300, env=os.environ | {"PYTHONWARNINGS": "ignore"})


def row(program, file):
    python = sys.executable
    ran = MARK in run(python, "-c", LOAD, file).stdout
    ours = {0: "clean", 1: "**found**", 2: "not scanned"}[run(program, "scan", file).returncode]
    picklescan = {0: "clean", 1: "**found**", 2: "error"}[run(python, "-c", PICKLESCAN, "-p", file).returncode]
    words = run(python, "-c", FICKLING, file).stdout.decode().split()
    fickling = "error" if not words else "clean" if words[-1] == "clean" else "**found**"
    return [f"`{file.name}`", "yes" if ran else "no", ours, picklescan, fickling]


def main():
    program = Path(sys.argv[1]).resolve()
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else HERE.parent / "golden/malicious").resolve()
    rows = [row(program, file) for file in sorted(folder.iterdir()) if file.is_file() and file.suffix != ".md"]
    for cells in [["file", "runs", "torch2carton", "picklescan", "fickling"], ["---"] * 5, *rows]:
        print("|", " | ".join(cells), "|")
    for number, name in enumerate(["torch2carton", "picklescan", "fickling"], 2):
        print(f"{name}: {sum(cells[number] == '**found**' for cells in rows)} of {len(rows)}", file=sys.stderr)


if __name__ == "__main__":
    main()
