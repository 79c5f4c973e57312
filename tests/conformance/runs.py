#!/usr/bin/env python3
"""Finds out whether Python runs something when it loads a file, for the "runs" column of docs/scan.md.

    runs.py FILE…     with a Python that has torch and numpy

Each file is loaded in an empty folder, under an audit hook that stops it at the first attempt to start a program, to write,
to read a file that is not Python's own, or to reach the network (workers/guard.py). "Runs" means that there was such an attempt.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

JUDGE = Path(__file__).resolve().parent / "workers/judge.py"


def judged(paths, python=sys.executable):
    """`{path: {"outcome": "loaded" | "refused" | "stopped" | "wrote" | "crashed", "what": text}}`"""
    paths = [Path(path).resolve() for path in paths]
    with tempfile.TemporaryDirectory() as scratch:
        clean = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "LANG")} | {"TMPDIR": scratch, "HOME": scratch}
        done = subprocess.run([str(python), "-B", str(JUDGE), *map(str, paths)], cwd=scratch, env=clean,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace")[-3000:])
    return dict(zip(paths, map(json.loads, done.stdout.splitlines()), strict=True))


def runs(answer):
    return "yes" if answer["outcome"] in ("stopped", "wrote") else "no"


if __name__ == "__main__":
    for path, answer in judged(sys.argv[1:]).items():
        print(path.name, runs(answer), answer["outcome"], answer["what"].replace("\n", " "), sep="\t")
