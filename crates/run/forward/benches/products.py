#!/usr/bin/env python3
"""Compares the matrix products of crates/run/forward with PyTorch's, in turns, so that both see the same machine.

    cargo bench -p forward --bench products --no-run      # prints the path of PROGRAM
    python products.py PROGRAM [THREADS [ROUNDS]]

For each product it prints the fastest wall and processor times of both. On a machine with other work, compare processor times
of one thread: wall times then tell how often the system took the processor away.
"""

import json
import subprocess
import sys
import time

import torch

ROWS, COLS, MATRICES, SECONDS = 5632, 2048, 12, 0.4


def ours(program, threads, only):
    command = [program, "--threads", str(threads), "--seconds", str(SECONDS), "--only", only]
    line = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return line["ms"], line["cpu_ms"]


def theirs(weights, x):
    weights = weights if len(x) <= 32 else weights[:1]
    best, begin = (float("inf"),) * 2, time.monotonic()
    while time.monotonic() - begin < SECONDS:
        wall, cpu = time.perf_counter(), time.process_time()
        for w in weights:
            torch.nn.functional.linear(x, w)
        times = time.perf_counter() - wall, time.process_time() - cpu
        best = tuple(min(a, b * 1e3 / len(weights)) for a, b in zip(best, times))
    return best


def main():
    program, threads, rounds = (sys.argv[1:] + ["2", "3"][len(sys.argv) - 2 :])[:3]
    torch.set_num_threads(int(threads))
    best = {}
    for _ in range(int(rounds)):
        for dtype in torch.float32, torch.bfloat16, torch.float16:
            weights = [torch.randn(ROWS, COLS).to(dtype) for _ in range(MATRICES)]
            for m in 1, 2, 4, 8, 16, 32, 128, 512:
                name = f"{str(dtype).removeprefix('torch.')} {m}x"
                times = theirs(weights, torch.randn(m, COLS).to(dtype)) + ours(program, threads, name)
                best[name] = [min(pair) for pair in zip(best.get(name, times), times)]
    print("milliseconds  PyTorch: wall  processor   ours: wall  processor   PyTorch ÷ ours: wall  processor")
    for name, (wall, cpu, our_wall, our_cpu) in best.items():
        ratios = f"{wall / our_wall:28.2f} {cpu / our_cpu:10.2f}"
        print(f"{name:20} {wall:7.2f} {cpu:10.2f} {our_wall:12.2f} {our_cpu:10.2f} {ratios}")


main()
