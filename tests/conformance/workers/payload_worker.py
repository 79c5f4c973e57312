"""Loads files with Python's own unpicklers, and counts the actions that they attempt.

No action of a file is performed. The functions that most payloads call are replaced by stand-ins that count. The audit hook
of `guard.py` counts and stops other ways to start a program, to write, or to reach the network.
"""

import builtins
import os
import pickle
import signal
import subprocess
import tempfile
import warnings

import numpy
import torch
import torch.utils.collect_env
import torch.utils.serialization  # torch.load imports this later; it must be imported before `exec` is replaced
from guard import Guard
from line_server import serve

warnings.simplefilter("ignore")
called = []
real = {name: getattr(builtins, name) for name in ("eval", "exec")}


def count(*args, **kwargs):
    called.append(args)


os.system = torch.utils.collect_env.run = subprocess.Popen = count
__import__("posix").system = count

scratch = tempfile.TemporaryDirectory()
tempfile.tempdir = os.path.join(scratch.name, "own")
work = os.path.join(scratch.name, "work")
os.mkdir(tempfile.tempdir)
os.mkdir(work)
os.chdir(work)
guard = Guard(lambda event, arguments: called.append((event, *arguments)))


def calls(path):
    """How often a file reaches a stand-in or the hook, when it is loaded as a checkpoint and as a sequence of pickles."""
    called.clear()
    signal.alarm(20)
    builtins.eval = builtins.exec = count
    guard.on(path)
    try:
        for load in (lambda: torch.load(path, weights_only=False), lambda: numpy.load(path, allow_pickle=True), lambda: several(path)):
            try:
                load()
            except BaseException:  # damage can cause any exception
                pass
    finally:
        guard.off()
        builtins.eval, builtins.exec = real["eval"], real["exec"]
        signal.alarm(0)
    if os.listdir(work):
        raise RuntimeError(f"{path} wrote {os.listdir(work)} in spite of the hook")
    return len(called)


def several(path):
    with open(path, "rb") as file:
        for _ in range(5):
            pickle.load(file)


serve({"calls": calls})
