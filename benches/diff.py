#!/usr/bin/env python3
"""Measures `diff` and `digest` on two equal safetensors files in the page cache.

    benches/diff.py [--size 4e9] [--runs 5] [--folder DIR] [--binary target/release/torch2carton]

Compares `torch2carton diff A B` with `cmp -s A B` and with a C program of as many threads as there are cores, which maps both files
and touches each byte once; and `digest` on one core with `digest` on all. Each figure is the best of the runs, which take turns.
"""

import argparse
import json
import os
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from whole_process import describe

TOUCH = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t *maps[2];
static size_t words;
static _Atomic size_t next;
static _Atomic uint64_t sum;

static void *touch(void *unused) {
  const size_t step = 512 << 10;
  for (size_t at; (at = atomic_fetch_add(&next, step)) < words;) {
    size_t end = at + step < words ? at + step : words;
    uint64_t lanes[8] = {0};
    for (size_t i = at; i + 8 <= end; i += 8)
      for (size_t lane = 0; lane < 8; lane++) lanes[lane] += maps[0][i + lane] + maps[1][i + lane];
    for (size_t lane = 0; lane < 8; lane++) sum += lanes[lane];
  }
  return unused;
}

int main(int argc, char **argv) {
  struct stat facts;
  for (int i = 0; i < 2; i++) {
    int file = open(argv[i + 1], O_RDONLY);
    fstat(file, &facts);
    maps[i] = mmap(0, facts.st_size, PROT_READ, MAP_SHARED, file, 0);
  }
  words = facts.st_size / 8;
  long threads = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t *made = calloc(threads, sizeof *made);
  for (long i = 0; i < threads; i++) pthread_create(&made[i], 0, touch, 0);
  for (long i = 0; i < threads; i++) pthread_join(made[i], 0);
  return sum == 1;
}
"""


def write(path, size):
    """A safetensors file of about `size` bytes, with tensors of 64 MB."""
    count = max(1, round(size / 64e6))
    each = int(size / count) // 8 * 8
    header = json.dumps({
        f"layers.{i}.weight": {"dtype": "F32", "shape": [each // 4], "data_offsets": [i * each, (i + 1) * each]}
        for i in range(count)
    }).encode()
    header += b" " * (-len(header) % 8)
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        left, number = count * each, 0
        while left:
            part = (struct.pack("<Q", number) + block[8:])[: min(left, len(block))]
            left, number = left - file.write(part), number + 1


def seconds(command):
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--size", type=float, default=4e9)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--folder", type=Path)
    arguments.add_argument("--binary", type=Path, default=Path("target/release/torch2carton"))
    options = arguments.parse_args()
    describe(options.binary.resolve())
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        a, b, touch = (Path(scratch, name) for name in ("a.safetensors", "b.safetensors", "touch"))
        write(a, options.size)
        shutil.copyfile(a, b)
        subprocess.run(["cc", "-O3", "-march=native", "-pthread", "-x", "c", "-", "-o", touch], input=TOUCH, text=True, check=True)
        binary = options.binary.resolve()
        commands = {
            "diff": [binary, "-q", "diff", a, b],
            "cmp -s": ["cmp", "-s", a, b],
            "touch each byte": [touch, a, b],
            "digest": [binary, "-q", "digest", a],
            "digest, 1 core": ["taskset", "-c", "0", binary, "-q", "digest", a],
        }
        best = dict.fromkeys(commands, float("inf"))
        for run in range(options.runs + 1):
            for name, command in commands.items():
                taken = seconds(command)
                if run:  # the first run fills the page cache
                    best[name] = min(best[name], taken)
    for name, taken in best.items():
        print(f"{name:16} {taken:7.3f} s")
    print(f"diff: {best['touch each byte'] / best['diff']:.2f} of the speed of touching, {best['cmp -s'] / best['diff']:.2f} of cmp")
    print(f"digest: {best['digest, 1 core'] / best['digest']:.2f} times as fast on all cores")
    print(f"most memory of a child: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
