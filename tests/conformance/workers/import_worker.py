"""Imports each module whose name is a line of stdin, in a process of its own, under the hook of guard.py.

Prints a JSON line for each: `{"events": [event…], "error": text or null}`. The parent has imported torch and numpy, as a program has that
loads a checkpoint.
"""

import json
import os
import signal
import sys
import tempfile
import warnings

import guard

warnings.simplefilter("ignore")
try:
    import numpy  # noqa: F401
    import torch  # noqa: F401
except ImportError:  # only the standard library is imported
    pass

guard.IMPORTS = set()  # an import may import any module
# PyTorch copies functions of its own, and names the folder in which its compiler would keep files.
HARMLESS = ("code.__new__", "function.__new__", "os.putenv")
# Python's `ctypes` opens the program itself, torch.distributed.checkpoint the C library, and `uuid` of Python 3.8 a null device.
OPENED = {("ctypes.dlopen", None), ("ctypes.dlopen", "libc.so.6"), ("open", os.devnull)}


def is_own_function(event, arguments):
    """Whether ctypes looks up a function of the program itself, as `fsspec.utils` does with two that make bytes."""
    return event == "ctypes.dlsym" and getattr(arguments[0], "_name", "") is None and arguments[1].startswith("PyBytes_")


class Quiet(guard.Guard):
    def forbids(self, event, arguments):
        is_harmless = event in HARMLESS or is_own_function(event, arguments) or (event, *arguments[:1]) in OPENED or (event == "os.mkdir" and arguments[0] == os.environ["TORCHINDUCTOR_CACHE_DIR"])
        return not is_harmless and super().forbids(event, arguments)


def imported(module, answers):
    events, error = [], None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tempfile.tempdir = os.path.join(folder, "own")
        os.mkdir(tempfile.tempdir)
        # PyTorch makes the folder of its compiler when modules that compile functions are imported.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        watch = Quiet(lambda event, arguments: events.append(f"{event}({', '.join(map(repr, arguments))})"[:300]))
        watch.on(folder)
        try:
            __import__(module)
        except BaseException as reason:  # noqa: B036  this version or system does not have it
            error = f"{type(reason).__name__}: {reason}"[:200]
        watch.off()
        os.chdir("/")
    os.write(answers, json.dumps({"events": events[:5], "error": error}).encode())


def main():
    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for line in sys.stdin:
        there, here = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os.dup2(null, 1)
            imported(line.strip(), here)
            os._exit(0)
        os.close(here)
        with os.fdopen(there, "rb") as answer:
            data = answer.read()
        os.waitpid(child, 0)
        print(data.decode() or json.dumps({"events": ["the interpreter crashed, or took a minute"], "error": None}), file=out, flush=True)


if __name__ == "__main__":
    main()
