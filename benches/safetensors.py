#!/usr/bin/env python3
"""Times the conversion of a checkpoint into safetensors, and other programs that write the same file.

    safetensors.py FILE [--binary target/release/torch2carton] [--peers benches/peers/target/release/peers]
                        [--torch PYTHON] [--rounds 5] [--output DIR]
    safetensors.py --make GIGABYTES FILE --torch PYTHON

All are whole processes, take turns, and sync what they write. Other load on the machine affects all of them: compare the
ratios. PYTHON is one that has PyTorch and safetensors. --make writes a bfloat16 checkpoint of random numbers, because
filesystems do not write zeros as they write numbers. A peak of less than what this script itself uses, about 20 MB, is not
seen. Needs Python's standard library.
"""

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from whole_process import TREE, describe

WITH_TORCH = """
import os, sys, torch
from safetensors.torch import save_file
tensors = torch.load(sys.argv[1], map_location="cpu", mmap=True, weights_only=True)
save_file(tensors, sys.argv[2], metadata={"format": "pt"})
with open(sys.argv[2], "rb+") as written:
    os.fsync(written.fileno())
"""
# The shapes of a decoder with 4096 features: 436 MB for each layer.
MAKE = """
import sys, torch
nbytes, path = int(float(sys.argv[1]) * 1e9), sys.argv[2]
shapes = {"wq": (4096, 4096), "wk": (1024, 4096), "wv": (1024, 4096), "wo": (4096, 4096), "w1": (14336, 4096), "w2": (4096, 14336),
          "w3": (14336, 4096), "norm": (4096,)}
random = torch.Generator().manual_seed(0)
tensors, layer = {}, 0
while nbytes > 0:
    for name, shape in shapes.items():
        if nbytes <= 0:
            break
        bits = torch.randint(-(2**15), 2**15, shape, dtype=torch.int16, generator=random)
        tensors[f"layers.{layer}.{name}.weight"] = bits.view(torch.bfloat16)
        nbytes -= 2 * bits.numel()
    layer += 1
torch.save(tensors, path)
"""


def run(command):
    """Wall-clock seconds, CPU seconds, and peak memory in bytes."""
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def contenders(options, file, out):
    """name → command. The first is ours, the second is what it is compared with."""
    commands = {
        "torch2carton": [str(options.binary), file, "-q", "-o", out],
        "cp, sync": ["sh", "-ec", 'cp --sparse=never "$0" "$1"; sync "$1"', file, out],
    }
    if options.torch:
        commands["torch.load(mmap), save_file"] = [options.torch, "-W", "ignore", "-c", WITH_TORCH, file, out]
    if options.peers.is_file():
        commands["candle"] = [str(options.peers), "write", "candle", file, out]
        commands["serialize_to_file, mapped"] = [str(options.peers), "write", "safetensors", file, out]
    return commands


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", metavar="FILE")
    arguments.add_argument("--binary", default=TREE / "target/release/torch2carton", type=Path)
    arguments.add_argument("--peers", default=TREE / "benches/peers/target/release/peers", type=Path)
    arguments.add_argument("--torch", metavar="PYTHON")
    arguments.add_argument("--rounds", default=5, type=int)
    arguments.add_argument("--output", metavar="DIR", help="where to write [default: next to FILE]")
    arguments.add_argument("--make", metavar="GIGABYTES", help="make FILE and stop")
    options = arguments.parse_args()
    if options.make:
        run([options.torch, "-W", "ignore", "-c", MAKE, options.make, options.file])
        return
    describe(options.binary)

    with tempfile.TemporaryDirectory(dir=options.output or Path(options.file).resolve().parent) as folder:
        out = f"{folder}/out.safetensors"
        commands = contenders(options, options.file, out)
        runs, written = {name: [] for name in commands}, {}
        for turn in range(options.rounds + 1):  # the first one warms the page cache
            for name, command in commands.items():
                os.sync()  # of what the one before removed
                figures = run(command)
                if turn:
                    runs[name].append(figures)
                else:
                    written[name] = digest(out)
                Path(out).unlink()

    size = Path(options.file).stat().st_size / 1e9
    print(f"{options.file}: {size:.2f} GB, {options.rounds} rounds, seconds")
    print(f"{'':28} {'fastest':>8} {'median':>8} {'of cp':>8} {'CPU':>8} {'GB/s':>8} {'peak':>10}  bytes")
    copying = statistics.median(seconds for seconds, _, _ in runs["cp, sync"])
    for name, figures in runs.items():
        seconds, cpu, peak = zip(*figures)
        median = statistics.median(seconds)
        same = "" if name.startswith("cp") else "the same" if written[name] == written["torch2carton"] else "others"
        print(f"{name:28} {min(seconds):8.2f} {median:8.2f} {median / copying:8.2f} {statistics.median(cpu):8.2f} "
              f"{size / median:8.2f} {max(peak) / 1e6:7.1f} MB  {same}")


if __name__ == "__main__":
    main()
