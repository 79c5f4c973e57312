#!/usr/bin/env python3
"""Loads each file with the loader of its format, and reports what the file would have done: a line of JSON for each, in order.

    judge.py FILE…  →  {"outcome": "loaded" | "refused" | "stopped" | "wrote", "what": "os.system(b'echo …')"}

Each file is loaded in a separate process and in an empty folder. The process ends at the first action that `guard.py` forbids, so
nothing else in the file can run. "Wrote" is a file of TorchScript, which no audit hook watches, that left something in the folder.
"""

import json
import os
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
import torch
import torch.storage
import torch.utils.serialization  # torch.load imports this later
from guard import Guard

warnings.simplefilter("ignore")


def load(path):
    if path.endswith((".npy", ".npz")):
        found = numpy.load(path, allow_pickle=True)
        list(found[name] for name in getattr(found, "files", []))
    elif path.endswith((".pkl", ".pickle")):
        read = pickle.load if path.endswith(".pkl") else pickle._load  # in C, in Python
        with open(path, "rb") as file:
            while file.peek(1):
                read(file)
    elif path.endswith(".ts"):
        torch.jit.load(path)
    else:
        torch.load(path, weights_only=False)


def child(path, scratch, answers):
    """Loads the file and ends the process."""

    def end(outcome, what):
        os.write(answers, json.dumps({"outcome": outcome, "what": what[:300]}).encode())
        os._exit(0)

    os.chdir(scratch / "work")
    tempfile.tempdir = str(scratch / "own")
    guard = Guard(lambda event, arguments: end("stopped", f"{event}({', '.join(map(repr, arguments))})"))
    guard.on(path)
    try:
        load(path)
    except BaseException as error:  # a file can cause any exception
        guard.off()
        end("refused", f"{type(error).__name__}: {error}")
    guard.off()
    end("loaded", "")


def judged(path):
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "own").mkdir()
        (scratch / "work").mkdir()
        there, here = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(there)
            child(path, scratch, here)
        os.close(here)
        with os.fdopen(there, "rb") as answer:
            text = answer.read()
        os.waitpid(process, 0)
        left = sorted(p.name for p in (scratch / "work").rglob("*"))
        if left and path.endswith(".ts"):
            return {"outcome": "wrote", "what": ", ".join(left)}
        if left:
            raise RuntimeError(f"{path}: the audit hook did not stop it from writing {', '.join(left)}")
    return json.loads(text or '{"outcome": "crashed", "what": ""}')


answers = os.dup(1)
os.dup2(2, 1)  # what a file prints must not end up among the answers
for file in sys.argv[1:]:
    os.write(answers, (json.dumps(judged(os.path.realpath(file))) + "\n").encode())
