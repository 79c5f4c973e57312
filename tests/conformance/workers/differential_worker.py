"""One version of torch: writes the random files of differential.py, and lists what it reads from them."""

import sys
from pathlib import Path

import torch
from line_server import serve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import differential  # noqa: E402
import matrix  # noqa: E402
from matrix_worker import attempt  # noqa: E402


facts_of_strided = matrix.strided


def strided(tensor, storages):
    """The row of a tensor, without its storage if a conj or neg bit is set: its values are in no storage then."""
    row = facts_of_strided(tensor, storages)
    return row | {"storage": None} if tensor.is_conj() or tensor.is_neg() else row


matrix.strided = strided


def objects(seeds, folder):
    """For each seed a file, and what torch reads from it; nothing for objects that it cannot save."""
    made = []
    for seed in seeds:
        path = str(Path(folder) / f"object-{seed}.pt")
        try:
            root, writer = differential.random_object(seed)
            torch.save(root, path, **writer)
        except Exception as why:
            made.append({"seed": seed, "unwritten": f"{type(why).__name__}: {why}"[:200]})
            continue
        values, read = attempt(differential.scalars, path), attempt(matrix.read, path, "torch")
        made.append({"seed": seed, "path": path, "values": values.get("rows", []), "reads": [read]})
    return made


def programs(seeds, folder):
    """For each seed a file, and what torch reads from it as an untrusted file and as a trusted one."""
    made = []
    for seed in seeds:
        path = str(Path(folder) / f"program-{seed}.pt")
        differential.random_program(seed, path)
        reads = [attempt(matrix.read, path, "torch", weights_only) for weights_only in (True, False)]
        made.append({"seed": seed, "path": path, "reads": reads})
    return made


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"objects": objects, "programs": programs})
