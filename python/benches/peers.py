"""Measures torch2carton, `torch.load(mmap=True)` and safetensors on the same tensors: `python benches/peers.py`.

Each figure is the best of several runs in this process, with the files in the page cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import safetensors
import safetensors.torch
import torch

import torch2carton

warnings.simplefilter("ignore")


def best(work, runs):
    """Returns the shortest duration of `work` in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        kept = work()
        times.append(time.perf_counter() - start)
        del kept
    return min(times)


def row(title, ours, theirs, runs):
    """Prints a row: the durations in milliseconds, and how many times faster torch2carton is."""
    mine = best(ours, runs)
    cells = [f"{title:44} {mine * 1e3:10.2f} ms"]
    for name, work in theirs.items():
        other = best(work, runs)
        cells.append(f"{name} {other * 1e3:10.2f} ms ({other / mine:6.1f} x)")
    print(" | ".join(cells), flush=True)


def listing(path):
    return [(name, tensor.shape, tensor.dtype) for name, tensor in torch2carton.open(path).items()]


def listing_safetensors(path):
    with safetensors.safe_open(path, "pt") as file:
        slices = ((name, file.get_slice(name)) for name in file.keys())
        return [(name, part.get_shape(), part.get_dtype()) for name, part in slices]


def one_safetensors(path, name, opener):
    with opener(path, "pt") as file:
        return file.get_tensor(name)


def compare(title, folder, tensors, runs):
    """Measures the tensors as a file of `torch.save` and as safetensors."""
    pth, st = str(folder / "x.pth"), str(folder / "x.safetensors")
    torch.save(tensors, pth)
    safetensors.torch.save_file(tensors, st)
    name = list(tensors)[len(tensors) // 2]
    print(f"\n{title}")
    mapped = {"torch.load(mmap=True)": lambda: torch.load(pth, mmap=True, weights_only=False)}
    row(".pth: open and list", lambda: listing(pth), mapped, runs)
    row(".pth: one tensor", lambda: torch2carton.open(pth)[name].torch(), mapped, runs)
    row(".pth: all, load(mmap=True)", lambda: torch2carton.load(pth, mmap=True), mapped, runs)
    row(".pth: all, state_dict()", lambda: torch2carton.open(pth).state_dict(), mapped, runs)
    copied = {"torch.load": lambda: torch.load(pth, weights_only=False)}
    row(".pth: all, load()", lambda: torch2carton.load(pth), copied, max(1, runs // 2))
    row("safetensors: open and list", lambda: listing(st), {"safe_open": lambda: listing_safetensors(st)}, runs)
    row(
        "safetensors: one tensor",
        lambda: one_safetensors(st, name, torch2carton.safe_open),
        {"safe_open": lambda: one_safetensors(st, name, safetensors.safe_open)},
        runs,
    )
    row(
        "safetensors: all, load_file",
        lambda: torch2carton.load_file(st),
        {"load_file": lambda: safetensors.torch.load_file(st)},
        runs,
    )


def many_files(folder, count, runs):
    """Measures the first tensor of many small files."""
    tensors = {f"layer.{number}": torch.zeros(64, 64) for number in range(20)}
    pths, sts = [], []
    for number in range(count):
        pths.append(str(folder / f"{number}.pth"))
        sts.append(str(folder / f"{number}.safetensors"))
        torch.save(tensors, pths[-1])
        safetensors.torch.save_file(tensors, sts[-1])
    print(f"\n{count} files of 20 tensors")
    row(
        ".pth: open and list",
        lambda: [listing(path) for path in pths],
        {"torch.load(mmap=True)": lambda: [torch.load(path, mmap=True, weights_only=False) for path in pths]},
        runs,
    )
    row(
        "safetensors: open and list",
        lambda: [listing(path) for path in sts],
        {"safe_open": lambda: [listing_safetensors(path) for path in sts]},
        runs,
    )
    row(
        "safetensors: all, load_file",
        lambda: [torch2carton.load_file(path) for path in sts],
        {"load_file": lambda: [safetensors.torch.load_file(path) for path in sts]},
        runs,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=100_000, help="number of small tensors (default: 100000)")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the large file (default: 4)")
    parser.add_argument("--files", type=int, default=200, help="number of files (default: 200)")
    arguments = parser.parse_args()
    print(f"torch2carton {torch2carton.__version__}, torch {torch.__version__}, safetensors {safetensors.__version__}")
    with tempfile.TemporaryDirectory() as place:
        tensors = {f"model.layers.{number}.weight": torch.zeros(4) for number in range(arguments.tensors)}
        compare(f"{len(tensors)} tensors of 16 bytes", Path(place), tensors, 3)
    with tempfile.TemporaryDirectory() as place:
        tensors = {f"model.layers.{number}.weight": torch.zeros(1000, 1000) for number in range(int(arguments.gigabytes * 250))}
        compare(f"{sum(t.nbytes for t in tensors.values()) / 1e9:.2f} GB in {len(tensors)} tensors", Path(place), tensors, 3)
    with tempfile.TemporaryDirectory() as place:
        many_files(Path(place), arguments.files, 3)


if __name__ == "__main__":
    main()
