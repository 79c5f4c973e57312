#!/usr/bin/env python3
"""Times the conversion of a checkpoint, and programs that read or write as many bytes: openssl, cp, and PyTorch.

    convert.py FILE [--binary target/release/torch2carton] [--torch PYTHON] [--rounds 5] [--output DIR]
    convert.py FILE --tiers [--without-sha PROGRAM]
    convert.py FILE --statement [--to EXTENSION]
    convert.py FILE --against OTHER [--binary target/release/torch2carton] [--rounds 5] [--output DIR]

All take turns, so that other load on the machine affects all of them. Compare the ratios: the seconds depend on the machine.
PYTHON is one that has PyTorch; its script loads the file mapped, and saves its tensors as a TorchScript archive, without
the SHA-256 and the zip around it that make a carton. With --against, only the two binaries take turns, and each round is
one pair: the medians of the ratios are what a change costs, also on a busy machine. With --tiers, torch2carton and openssl also run
without SHA extensions, and openssl without AVX2 as well. ring, which hashes without SHA extensions, uses them where the processor has
them; PROGRAM, which without_sha.py builds, does not. With --statement, the conversion also runs with one, which `verify` then
repeats, and `digest` hashes the tensors alone. Needs Python's standard library, and openssl.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whole_process import TREE, describe, touch

# Environments without SHA extensions, and without AVX2; the bits are those of OPENSSL_ia32cap(3).
WITHOUT_SHA = {"TORCH2CARTON_WITHOUT": "sha", "OPENSSL_ia32cap": ":~0x20000000"}
WITHOUT_AVX2 = {"OPENSSL_ia32cap": ":~0x20000020"}
WITH_TORCH = """
import sys, torch
tensors = torch.load(sys.argv[1], map_location="cpu", mmap=True, weights_only=True)
module = torch.nn.Module()
for i, tensor in enumerate(tensors.values()):
    module.register_buffer(f"b{i}", tensor)
torch.jit.save(torch.jit.script(module), sys.argv[2])
"""


def run(command, environment):
    """Wall-clock seconds, CPU seconds, and peak memory in bytes."""
    start = time.monotonic()
    child = os.posix_spawnp(command[0], command, os.environ | environment, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def pair(ours, others):
    """Prints the medians of both, and the median of the ratios of the rounds."""
    print(f"{'':20} {'ours':>8} {'against':>8} {'ratio':>8} {'from':>8} {'to':>8}")
    for what, place in ("seconds", 0), ("CPU seconds", 1), ("peak, MB", 2):
        scale = 1e6 if place == 2 else 1
        first, second = ([figures[place] / scale for figures in runs] for runs in (ours, others))
        ratios = [a / b for a, b in zip(first, second)]
        print(f"{what:20} {statistics.median(first):8.2f} {statistics.median(second):8.2f} {statistics.median(ratios):8.3f} "
              f"{min(ratios):8.3f} {max(ratios):8.3f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", metavar="FILE")
    arguments.add_argument("--binary", default=TREE / "target/release/torch2carton", type=Path)
    arguments.add_argument("--torch", metavar="PYTHON")
    arguments.add_argument("--rounds", default=5, type=int)
    arguments.add_argument("--output", metavar="DIR", help="where to write [default: next to FILE]")
    arguments.add_argument("--against", metavar="OTHER", help="another binary of torch2carton: time only the two")
    arguments.add_argument("--tiers", action="store_true", help="also without extensions of the processor")
    arguments.add_argument("--without-sha", metavar="PROGRAM", type=Path, help="torch2carton for the row without SHA extensions [default: that of --binary]")
    arguments.add_argument("--to", metavar="EXTENSION", default="carton", help="extension of the outputs [default: carton]")
    arguments.add_argument("--statement", action="store_true", help="also with a statement, and its verification")
    options = arguments.parse_args()
    describe(options.binary)

    with tempfile.TemporaryDirectory(dir=options.output or Path(options.file).resolve().parent) as folder:
        out = f"{folder}/out.{options.to}"
        commands = {
            "openssl dgst -sha256": ["openssl", "dgst", "-sha256", options.file],
            "torch2carton": [str(options.binary), options.file, "-q", "-o", out],
            "cp, sync": ["sh", "-ec", 'cp --sparse=never "$0" "$1"; sync "$1"', options.file, out],
        }
        if options.against:
            commands = {name: [binary, *commands["torch2carton"][1:]] for name, binary in
                        [("torch2carton", str(options.binary)), ("against", options.against)]}
        elif options.torch:
            commands["torch.load, torch.jit.save"] = [options.torch, "-W", "ignore", "-c", WITH_TORCH, options.file, out]
        commands = {name: (command, {}) for name, command in commands.items()}
        if options.tiers:
            commands["openssl without SHA"] = (commands["openssl dgst -sha256"][0], WITHOUT_SHA)
            commands["openssl without SHA, AVX2"] = (commands["openssl dgst -sha256"][0], WITHOUT_AVX2)
            commands["torch2carton without SHA"] = ([str(options.without_sha or options.binary), *commands["torch2carton"][0][1:]], WITHOUT_SHA)
        if options.statement:
            kept, said = f"{folder}/kept.{options.to}", f"{folder}/kept.json"
            subprocess.run([*commands["torch2carton"][0][:-1], kept, "--statement", said], check=True)
            commands["torch2carton --statement"] = ([*commands["torch2carton"][0], "--statement", f"{folder}/said"], {})
            commands["torch2carton digest"] = ([str(options.binary), "digest", "-q", options.file], {})
            commands["verify --statement"] = ([str(options.binary), "verify", "-q", "--statement", said, "--input", str(Path(options.file).parent), kept], {})
        runs = {name: [] for name in commands}
        for turn in range(options.rounds + 1):  # the first one warms the page cache
            for name, command in sorted(commands.items(), key=lambda it: it[0], reverse=turn % 2 == 1):  # neither is always the second one
                touch(2 * Path(options.file).stat().st_size)
                figures = run(*command)
                for file in (out, f"{folder}/said"):
                    Path(file).unlink(missing_ok=True)
                if turn:
                    runs[name].append(figures)

    if options.against:
        pair(runs["torch2carton"], runs["against"])
        return
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
