"""One version of torch: writes the checkpoints of matrix.py and lists what it reads from them."""

import sys
from pathlib import Path

import torch
from line_server import serve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import matrix  # noqa: E402


def attempt(function, *arguments):
    """`{"rows": …}` or `{"error": …}`"""
    try:
        return {"rows": function(*arguments)}
    except Exception as why:  # any exception of torch is a result
        return {"error": f"{type(why).__name__}: {why}"[:300]}


def make(group, name, writers, folder):
    """The object, written by each writer, and what is read from each file."""
    try:
        value = (matrix.OBJECTS | matrix.FOR_OUTPUT)[group][name]()
    except Exception as why:
        return {"cannot": f"{type(why).__name__}: {why}"[:300]}
    return {"files": [one(value, writer, Path(folder) / f"{i}.pt") for i, writer in enumerate(writers)]}


def container(writer, path):
    value = matrix.Scripted() if writer == "TorchScript" else matrix.plain()
    return one(value, writer, Path(path))


def weights_only(path):
    return attempt(matrix.read, path, "torch", True)


def one(value, writer, path):
    write, reader = matrix.ALL_WRITERS[writer]
    file = {"writer": writer, "path": str(path)}
    try:
        write(value, path)
    except Exception as why:
        return file | {"unwritten": f"{type(why).__name__}: {why}"[:300]}
    return file | {
        "read": attempt(matrix.read, path, reader),
        "weights_only": weights_only(path),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({f.__name__: f for f in (make, container, weights_only)} | {"version": lambda: torch.__version__})
