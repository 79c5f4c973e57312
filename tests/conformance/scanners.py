#!/usr/bin/env python3
"""Prints the table of docs/scan.md: the results of torch2carton, picklescan and fickling on the same files.

    scanners.py PROGRAM [FOLDER]

Needs a Python with `pip install torch numpy picklescan fickling`. The column "runs" comes from runs.py, which loads each file
under an audit hook that reports and stops what the file tries to do. fickling and picklescan do not load files.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import runs  # noqa: E402  (after the line above, so that no __pycache__ appears in the tree)

HERE = Path(__file__).resolve().parent

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


def row(program, file, judgement):
    python = sys.executable
    ours = {0: "clean", 1: "**found**", 2: "not scanned"}[run(program, "scan", file).returncode]
    picklescan = {0: "clean", 1: "**found**", 2: "error"}[run(python, "-c", PICKLESCAN, "-p", file).returncode]
    words = run(python, "-c", FICKLING, file).stdout.decode().split()
    fickling = "error" if not words else "clean" if words[-1] == "clean" else "**found**"
    return [f"`{file.name}`", runs.runs(judgement), ours, picklescan, fickling]


def main():
    program = Path(sys.argv[1]).resolve()
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else HERE.parent / "golden/malicious").resolve()
    judged = runs.judged(sorted(file for file in folder.iterdir() if file.is_file() and file.suffix != ".md"))
    rows = [row(program, file, judgement) for file, judgement in judged.items()]
    for cells in [["file", "runs", "torch2carton", "picklescan", "fickling"], ["---"] * 5, *rows]:
        print("|", " | ".join(cells), "|")
    for number, name in enumerate(["torch2carton", "picklescan", "fickling"], 2):
        print(f"{name}: {sum(cells[number] == '**found**' for cells in rows)} of {len(rows)}", file=sys.stderr)


if __name__ == "__main__":
    main()
