#!/usr/bin/env python3
"""Times `--dequantize` against `cp` of its output, and reports the peak memory.

    dequantize.py FOLDER [--binary target/release/torch2carton] [--gigabytes 4] [--rounds 3] [--schemes fp8,gptq,mxfp4]
                  [--anamnesis AMN]

Writes models of random codes into FOLDER: FP8 in blocks of 128 × 128, GPTQ of 4 bits in groups of 128, and the experts of gpt-oss in
MXFP4. The output of each has the given number of gigabytes in bfloat16. In each round, the program makes the output with `--no-sync` and `cp` copies
it, and then both with `fsync`, with the input in the page cache; the fastest round of each counts. AMN is the program of the crate anamnesis, which reads FP8 and GPTQ: `cargo install anamnesis --version 0.7.10
--features cli,gptq`. Needs Python's standard library.
"""

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

from whole_process import timed, touch

TREE = Path(__file__).resolve().parent.parent


def write(folder, config, tensors):
    """Writes a safetensors file: `tensors` has name, dtype, shape, size in bytes, and a function of a size for the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "x", "torch_dtype": "bfloat16", "quantization_config": config}))
    header, at = {}, 0
    for name, dtype, shape, size, _ in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for *_, size, fill in tensors:
            chunk = fill(min(size, 1 << 24))
            while size > 0:
                size -= file.write(chunk[: min(len(chunk), size)])


def codes(size):
    return bytes(byte & 0xF7 for byte in os.urandom(1 << 16)) * (size // (1 << 16) + 1)


def half(size):
    return b"\x66\x2e" * (size // 2 + 1)


def models(gigabytes):
    layers = max(1, round(gigabytes * 1e9 / (4096 * 14336 * 2)))
    rows, cols = 4096, 14336
    fp8, gptq, experts = [], [], []
    for layer in range(layers):
        fp8.append((f"{layer}.weight", "F8_E4M3", [rows, cols], rows * cols, codes))
        fp8.append((f"{layer}.weight_scale_inv", "F32", [rows // 128, cols // 128], rows * cols // 128**2 * 4, lambda size: b"\x0a\xd7\x23\x3c" * (size // 4 + 1)))
        gptq.append((f"{layer}.qweight", "I32", [cols // 8, rows], rows * cols // 2, codes))
        gptq.append((f"{layer}.qzeros", "I32", [cols // 128, rows // 8], rows * cols // 256, codes))
        gptq.append((f"{layer}.scales", "F16", [cols // 128, rows], rows * cols // 64, half))
        out, groups, count = 5760, 90, 4
        experts.append((f"{layer}.gate_up_proj_blocks", "U8", [count, out, groups, 16], count * out * groups * 16, codes))
        experts.append((f"{layer}.gate_up_proj_scales", "U8", [count, out, groups], count * out * groups, lambda size: b"\x79" * size))
    return {
        "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8),
        "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"}, gptq),
        "mxfp4": ({"quant_method": "mxfp4"}, experts),
    }


def cache(file):
    """Reads a file into the page cache, past which large outputs are written."""
    subprocess.run(["cat", file], stdout=subprocess.DEVNULL, check=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--gigabytes", type=float, default=4)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--schemes", default="fp8,gptq,mxfp4", help="separated by commas")
    arguments.add_argument("--anamnesis", metavar="AMN")
    options = arguments.parse_args()
    every = models(options.gigabytes)
    for name in options.schemes.split(","):
        config, tensors = every[name]
        folder = options.folder / name
        write(folder, config, tensors)
        out, copy = options.folder / f"{name}.safetensors", options.folder / "copy.safetensors"
        peer = options.anamnesis if name != "mxfp4" else None
        size = 2 * int(options.gigabytes * 1e9)
        times, synced, copies, synced_copies, memory, peers = [], [], [], [], [], []
        for _ in range(options.rounds):
            for found, sync in (times, ["--no-sync"]), (synced, []):
                out.unlink(missing_ok=True)
                touch(size)
                seconds, mebibytes = timed([options.binary, folder, "--dequantize", "-o", out, *sync])
                found.append(seconds)
                memory.append(mebibytes)
            for found, command in (copies, "cp $0 $1"), (synced_copies, "cp $0 $1 && sync $1"):
                copy.unlink(missing_ok=True)
                touch(size)
                cache(out)
                found.append(timed(["sh", "-c", command, out, copy])[0])
            if peer:
                copy.unlink()
                touch(size)
                peers.append(timed([peer, "remember", folder / "model.safetensors", "--to", "bf16", "-o", copy]))
        size = out.stat().st_size / 1e9
        for what, ours, cp in ("--no-sync", times, copies), ("on disk", synced, synced_copies):
            ours, cp = min(ours), min(cp)
            print(f"{name}, {what}: {size:.2f} GB in {ours:.2f} s ({size / ours:.2f} GB/s), cp {cp:.2f} s, {cp / ours:.2f} of its rate")
        print(f"  {max(memory):.0f} MiB")
        if peer:
            print(f"  anamnesis: {min(peers)[0]:.2f} s, {max(memory for _, memory in peers):.0f} MiB")
        shutil.rmtree(folder)
        out.unlink()
        copy.unlink()


if __name__ == "__main__":
    main()
