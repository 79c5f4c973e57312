#!/usr/bin/env python3
"""`batch` of many small files: inputs a second with 1 and 2 jobs, memory, and what each input costs besides its conversion.

    benches/batch.py DIR [--inputs 10000] [--binary target/release/torch2carton]

Makes the inputs in DIR. Times are those of the processor (user and system), so that other programs on the machine count less.
The overhead is measured against `convert --each`, which makes the same outputs without a manifest, digests and results;
and `batch --task scan` does little besides what belongs to the batch.
"""

import argparse
import json
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path


def write_input(path, number):
    header = json.dumps({"weight": {"dtype": "F32", "shape": [64, 16], "data_offsets": [0, 4096]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<Q", number) * 512)


def run(name, command, inputs, cwd):
    """Prints the row of a command that works on `inputs` inputs."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    assert os.waitstatus_to_exitcode(status) == 0, error[-2000:]
    cpu = usage.ru_utime + usage.ru_stime
    print(f"| {name} | {inputs / seconds:,.0f} | {cpu / inputs * 1e3:.3f} ms | {usage.ru_maxrss / 1024:.1f} MiB |", flush=True)
    return cpu / inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--binary", type=Path, default=Path(__file__).parent.parent / "target/release/torch2carton")
    options = parser.parse_args()
    folder, binary, count = options.folder.resolve(), options.binary.resolve(), options.inputs
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        write_input(folder / f"in/{number}.safetensors", number)
    for name, part in ("m", count), ("tenth", count // 10):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"input": f"in/{number}.safetensors"}) + "\n" for number in range(part)))

    def clean():
        shutil.rmtree(folder / "out", ignore_errors=True)
        (folder / "r.jsonl").unlink(missing_ok=True)

    print("| command | inputs a second | processor time for each | memory |\n|---|--:|--:|--:|")
    batch = [binary, "batch", "-q", "--results", "r.jsonl"]
    convert = ["-o", "out", "--to", "pth"]
    clean()
    run(f"`batch --jobs 1`, {count // 10} inputs", [*batch, "tenth.jsonl", "--jobs", "1", *convert], count // 10, folder)
    for jobs in "1", "2":
        clean()
        with_digest = run(f"`batch --jobs {jobs}`", [*batch, "m.jsonl", "--jobs", jobs, *convert], count, folder)
        run(f"`batch --jobs {jobs} --resume`, all done", [*batch, "m.jsonl", "--jobs", jobs, *convert, "--resume"], count, folder)
        clean()
        without = run(f"`batch --jobs {jobs} --no-digest`", [*batch, "m.jsonl", "--jobs", jobs, "--no-digest", *convert], count, folder)
        clean()
        (folder / "list").write_text("".join(f"in/{number}.safetensors\n" for number in range(count)))
        each = run(f"`--each --jobs {jobs}`", [binary, "--each", "--files-from", "list", "--jobs", jobs, "-q", *convert], count, folder)
        clean()
        scan = run(f"`batch --task scan --jobs {jobs} --no-digest`", [*batch, "m.jsonl", "--task", "scan", "--no-digest", "--jobs", jobs], count, folder)
        print(f"\nwith {jobs}: digests {(with_digest - without) * 1e3:.3f} ms, batch beyond --each {(without - each) * 1e3:.3f} ms, a scan in all {scan * 1e3:.3f} ms each\n")
    clean()


if __name__ == "__main__":
    main()
