#!/usr/bin/env python3
"""Compares converting a checkpoint with hashing it, copying it, and a PyTorch script that saves it.

    convert.py FILE [--binary target/release/torch2carton] [--torch PYTHON] [--rounds 5] [--output DIR]

All commands take turns, so that other load on the machine affects them equally. Compare the ratios, because the seconds depend
on the machine. PYTHON must have PyTorch. Its script maps the file and saves the tensors as a TorchScript archive, without the
SHA-256 and the outer zip file of a carton. Needs Python's standard library and openssl.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
WITH_TORCH = """
import sys, torch
tensors = torch.load(sys.argv[1], map_location="cpu", mmap=True, weights_only=True)
module = torch.nn.Module()
for i, tensor in enumerate(tensors.values()):
    module.register_buffer(f"b{i}", tensor)
torch.jit.save(torch.jit.script(module), sys.argv[2])
"""


def run(command):
    """Seconds, CPU seconds, and peak memory in bytes."""
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", metavar="FILE")
    arguments.add_argument("--binary", default=TREE / "target/release/torch2carton", type=Path)
    arguments.add_argument("--torch", metavar="PYTHON")
    arguments.add_argument("--rounds", default=5, type=int)
    arguments.add_argument("--output", metavar="DIR", help="where to write [default: the folder of FILE]")
    options = arguments.parse_args()

    with tempfile.TemporaryDirectory(dir=options.output or Path(options.file).resolve().parent) as folder:
        out = f"{folder}/out"
        commands = {
            "openssl dgst -sha256": ["openssl", "dgst", "-sha256", options.file],
            "torch2carton": [str(options.binary), options.file, "-q", "-o", out],
            "cp, sync": ["sh", "-ec", 'cp --sparse=never "$0" "$1"; sync "$1"', options.file, out],
        }
        if options.torch:
            commands["torch.load, torch.jit.save"] = [options.torch, "-W", "ignore", "-c", WITH_TORCH, options.file, out]
        runs = {name: [] for name in commands}
        for turn in range(options.rounds + 1):  # the first one warms the page cache
            for name, command in commands.items():
                figures = run(command)
                Path(out).unlink(missing_ok=True)
                if turn:
                    runs[name].append(figures)

    size = Path(options.file).stat().st_size / 1e9
    print(f"{options.file}: {size:.2f} GB, {options.rounds} rounds, seconds")
    print(f"{'':28} {'fastest':>8} {'median':>8} {'of hash':>8} {'CPU':>8} {'GB/s':>8} {'peak':>10}")
    hashing = statistics.median(seconds for seconds, _, _ in runs["openssl dgst -sha256"])
    for name, figures in runs.items():
        seconds, cpu, peak = zip(*figures)
        median = statistics.median(seconds)
        print(f"{name:28} {min(seconds):8.2f} {median:8.2f} {median / hashing:8.2f} {statistics.median(cpu):8.2f} "
              f"{size / median:8.2f} {max(peak) / 1e6:7.1f} MB")


if __name__ == "__main__":
    main()
