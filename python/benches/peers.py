"""Measures torch2carton, `torch.load(mmap=True)` and safetensors on the same tensors: `python benches/peers.py`.

Each figure is the best of several runs in this process, in turns, with the files in the page cache and without the tensors of
other rows, which would cost each run of the garbage collector time. The largest file needs 4 GB of space in the
folder of temporary files, and `load` of it 8 GB of memory.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
import warnings
from pathlib import Path

import safetensors
import safetensors.torch
import torch

import torch2carton

warnings.simplefilter("ignore")


def duration(work):
    """Returns how long `work` takes, in seconds."""
    start = time.perf_counter()
    kept = work()
    took = time.perf_counter() - start
    del kept
    return took


def row(title, ours, theirs, runs):
    """Prints a row: the shortest durations in milliseconds, and how many times faster torch2carton is. The two take turns."""
    (name, work), mine, other = next(iter(theirs.items())), [], []
    gc.collect()
    # What is quick is repeated, because other programs on the machine disturb it more.
    while len(mine) < runs or (sum(mine) < 0.5 and len(mine) < 50):
        mine.append(duration(ours))
        other.append(duration(work))
    ratio = min(other) / min(mine)
    print(f"{title:28} {min(mine) * 1e3:10.2f} ms | {name:21} {min(other) * 1e3:10.2f} ms ({ratio:5.1f} x)", flush=True)


def listing(path):
    return [(name, tensor.shape, tensor.dtype) for name, tensor in torch2carton.open(path).items()]


def listing_safetensors(path):
    with safetensors.safe_open(path, "pt") as file:
        slices = ((name, file.get_slice(name)) for name in file.keys())
        return [(name, part.get_shape(), part.get_dtype()) for name, part in slices]


def one_safetensors(path, name, opener):
    with opener(path, "pt") as file:
        return file.get_tensor(name)


def each(paths, work):
    """Returns work on all of the paths."""
    return lambda: [work(path) for path in paths]


def write(paths, save, make):
    """Writes the tensors that `make` returns to each path by `save`, and returns the name of one in the middle."""
    tensors = make()
    each(paths, lambda path: save(tensors, path))()
    return list(tensors)[len(tensors) // 2]


def compare(title, folder, count, make, runs):
    """Measures `count` files of these tensors, by `torch.save` and then by safetensors. One of the two kinds exists at a time."""
    print(f"\n{title}")
    paths = [str(folder / f"{number}.pth") for number in range(count)]
    name = write(paths, torch.save, make)
    mapped = {"torch.load(mmap=True)": each(paths, lambda path: torch.load(path, mmap=True, weights_only=False))}
    row(".pth: open and list", each(paths, listing), mapped, runs)
    row(".pth: one tensor", each(paths, lambda path: torch2carton.open(path)[name].torch()), mapped, runs)
    row(".pth: all, load(mmap=True)", each(paths, lambda path: torch2carton.load(path, mmap=True)), mapped, runs)
    row(".pth: all, state_dict()", each(paths, lambda path: torch2carton.open(path).state_dict()), mapped, runs)
    copied = {"torch.load": each(paths, lambda path: torch.load(path, weights_only=False))}
    row(".pth: all, load()", each(paths, torch2carton.load), copied, runs)
    each(paths, os.unlink)()
    write(paths, safetensors.torch.save_file, make)
    theirs = {"safe_open": each(paths, listing_safetensors)}
    row("safetensors: open and list", each(paths, listing), theirs, runs)
    theirs = {"safe_open": each(paths, lambda path: one_safetensors(path, name, safetensors.safe_open))}
    row("safetensors: one tensor", each(paths, lambda path: one_safetensors(path, name, torch2carton.safe_open)), theirs, runs)
    theirs = {"load_file": each(paths, safetensors.torch.load_file)}
    row("safetensors: all, load_file", each(paths, torch2carton.load_file), theirs, runs)
    each(paths, os.unlink)()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=100_000, help="number of small tensors (default: 100000)")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the large file (default: 4)")
    parser.add_argument("--files", type=int, default=200, help="number of files (default: 200)")
    parser.add_argument("--runs", type=int, default=3, help="least number of runs of each, of which the best counts (default: 3)")
    arguments = parser.parse_args()
    print(f"torch2carton {torch2carton.__version__}, torch {torch.__version__}, safetensors {safetensors.__version__}")
    with tempfile.TemporaryDirectory() as place:
        place, runs = Path(place), arguments.runs

        def tensors(count, *shape):
            return lambda: {f"model.layers.{number}.weight": torch.zeros(*shape) for number in range(count)}

        compare(f"{arguments.tensors} tensors of 16 bytes", place, 1, tensors(arguments.tensors, 4), runs)
        count = int(arguments.gigabytes * 250)
        compare(f"{count * 4e-3:.2f} GB in {count} tensors", place, 1, tensors(count, 1000, 1000), runs)
        compare(f"{arguments.files} files of 20 tensors", place, arguments.files, tensors(20, 64, 64), runs)


if __name__ == "__main__":
    main()
