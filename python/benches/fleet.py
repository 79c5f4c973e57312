"""Measures what a fleet costs for each input: `python benches/fleet.py [--inputs 2000] [--cores 2]`.

A scan of a file of 4 kB does little else. The same inputs are done by `torch2carton batch` with as many jobs, and by a fleet on a new Ray cluster of
one node with as many cores, which is warm: its workers have been started.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray

from torch2carton import fleet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    count, cores = options.inputs, options.cores
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        header = json.dumps({"weight": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
        for number in range(count):
            Path(f"{number}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<I", number) * 1000)
        lines = [json.dumps({"input": f"{number}.safetensors"}) + "\n" for number in range(count)]
        Path("m.jsonl").write_text("".join(lines))
        batch = [sys.executable, "-m", "torch2carton", "batch", "m.jsonl", "--task", "scan", "--no-digest", "--jobs", str(cores), "-q", "--results", "b.jsonl"]
        start = time.perf_counter()
        subprocess.run(batch, check=True)
        alone = time.perf_counter() - start
        ray.init(num_cpus=cores, logging_level="warning", include_dashboard=False)
        list(fleet.run([f"{number}.safetensors" for number in range(50)], task="scan", digest=False))
        start = time.perf_counter()
        done = sum(1 for _ in fleet.run("m.jsonl", task="scan", digest=False, results="f.jsonl"))
        together = time.perf_counter() - start
        ray.shutdown()
        assert done == count
        print(f"batch --jobs {cores}: {count / alone:,.0f} inputs a second, {alone / count * 1e3:.2f} ms each")
        print(f"fleet on {cores} cores: {count / together:,.0f} inputs a second, {together / count * 1e3:.2f} ms each")


if __name__ == "__main__":
    main()
