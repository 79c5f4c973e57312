#!/usr/bin/env python3
"""Times `--dequantize` against `cp` of its output, and reports the peak memory.

    dequantize.py FOLDER [--binary target/release/torch2carton] [--gigabytes 4] [--rounds 3] [--schemes fp8,gptq,mxfp4]
                  [--anamnesis AMN]

Writes models of random codes into FOLDER: FP8 in blocks of 128 × 128, GPTQ of 4 bits in groups of 128, and the experts of gpt-oss in
MXFP4; and, if they are named in --schemes, folders of MLX with 4 and 6 bits (mlx, mlx6) and MXFP4 (mlxfp4), a file of ComfyUI with NVFP4
(comfy), BitNet (bitnet), the `metal` of transformers (metal), and a program of torch.export in bfloat16 (pt2), which is not dequantized. The output of each has the given number of gigabytes in bfloat16. In each round, the program makes the output with `--no-sync` and `cp` copies
it, and then both with `fsync`, with the input in the page cache; the fastest round of each counts. AMN is the program of the crate anamnesis, which reads FP8 and GPTQ: `cargo install anamnesis --version 0.7.10
--features cli,gptq`. Needs Python's standard library.
"""

import argparse
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from whole_process import TREE, describe, timed, touch


def write(folder, config, tensors):
    """Writes a safetensors file: `tensors` has name, dtype, shape, size in bytes, and a function of a size for the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    if "layers" in config:
        header["__metadata__"] = {"_quantization_metadata": json.dumps(config)}
    else:
        model = {"model_type": "llama", "torch_dtype": "bfloat16", "quantization_config": config}
        (folder / "config.json").write_text(json.dumps(model))
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


def write_program(path, tensors):
    """Writes an archive of torch.export whose weights are those of `tensors`."""
    ints = lambda numbers: [{"as_int": number} for number in numbers]
    config = {name: {"path_name": f"weight_{number}", "is_param": True, "use_pickle": False,
                     "tensor_meta": {"dtype": 13, "sizes": ints(shape), "strides": ints([shape[1], 1]), "storage_offset": {"as_int": 0},
                                     "requires_grad": False, "device": {"type": "cpu", "index": None}, "layout": 7}}
              for number, (name, _, shape, *_) in enumerate(tensors)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/data/weights/model_weights_config.json", json.dumps({"config": config}))
        for number, (*_, size, fill) in enumerate(tensors):
            with archive.open(f"m/data/weights/weight_{number}", "w") as file:
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
    others = {name: [] for name in ("mlx", "mlx6", "mlxfp4", "comfy", "bitnet", "metal", "pt2")}
    for layer in range(layers):
        fp8.append((f"{layer}.weight", "F8_E4M3", [rows, cols], rows * cols, codes))
        fp8.append((f"{layer}.weight_scale_inv", "F32", [rows // 128, cols // 128], rows * cols // 128**2 * 4, lambda size: b"\x0a\xd7\x23\x3c" * (size // 4 + 1)))
        gptq.append((f"{layer}.qweight", "I32", [cols // 8, rows], rows * cols // 2, codes))
        gptq.append((f"{layer}.qzeros", "I32", [cols // 128, rows // 8], rows * cols // 256, codes))
        gptq.append((f"{layer}.scales", "F16", [cols // 128, rows], rows * cols // 64, half))
        out, groups, count = 5760, 90, 4
        experts.append((f"{layer}.gate_up_proj_blocks", "U8", [count, out, groups, 16], count * out * groups * 16, codes))
        experts.append((f"{layer}.gate_up_proj_scales", "U8", [count, out, groups], count * out * groups, lambda size: b"\x79" * size))
        codes_in = lambda scheme, dtype, cols: others[scheme].append((f"{layer}.weight", dtype, [rows, cols], rows * cols * (4 if dtype == "U32" else 1), codes))
        part = lambda scheme, name, dtype, cols, fill: others[scheme].append((f"{layer}.{name}", dtype, [rows, cols], rows * cols * (2 if dtype == "BF16" else 1), fill))
        for scheme, bits, biases in ("mlx", 4, "biases"), ("mlx6", 6, "biases"), ("metal", 4, "qbiases"):
            codes_in(scheme, "U32", cols * bits // 32)
            part(scheme, "scales", "BF16", cols // 64, half)
            part(scheme, biases, "BF16", cols // 64, half)
        codes_in("mlxfp4", "U32", cols // 8)
        part("mlxfp4", "scales", "U8", cols // 32, lambda size: b"\x79" * size)
        codes_in("comfy", "U8", cols // 2)
        part("comfy", "weight_scale", "F8_E4M3", cols // 16, lambda size: b"\x38" * size)
        others["comfy"].append((f"{layer}.weight_scale_2", "F32", [], 4, lambda size: b"\x0a\xd7\x23\x3c"))
        others["bitnet"].append((f"{layer}.weight", "U8", [rows // 4, cols], rows * cols // 4, lambda size: b"\x61\x18\x90\x0a" * (size // 4 + 1)))
        others["bitnet"].append((f"{layer}.weight_scale", "BF16", [1], 2, half))
        others["pt2"].append((f"{layer}.weight", "BF16", [rows, cols], rows * cols * 2, codes))
    mlx = lambda bits, group, mode: {"bits": bits, "group_size": group, "mode": mode}
    return {
        "mlx": (mlx(4, 64, "affine"), others["mlx"]),
        "mlx6": (mlx(6, 64, "affine"), others["mlx6"]),
        "mlxfp4": (mlx(4, 32, "mxfp4"), others["mlxfp4"]),
        "comfy": ({"layers": {str(layer): {"format": "nvfp4"} for layer in range(layers)}}, others["comfy"]),
        "bitnet": ({"quant_method": "bitnet"}, others["bitnet"]),
        "metal": ({"quant_method": "metal", "bits": 4, "group_size": 64}, others["metal"]),
        "pt2": ({}, others["pt2"]),
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
    describe(options.binary)
    every = models(options.gigabytes)
    for name in options.schemes.split(","):
        config, tensors = every[name]
        folder = options.folder / name
        source, flags = folder, ["--dequantize"]
        if name == "pt2":
            folder.mkdir(parents=True, exist_ok=True)
            source, flags = folder / "model.pt2", []
            write_program(source, tensors)
        else:
            write(folder, config, tensors)
            source = folder / "model.safetensors" if name == "comfy" else folder
        out, copy = options.folder / f"{name}.safetensors", options.folder / "copy.safetensors"
        peer = options.anamnesis if name in ("fp8", "gptq") else None
        size = 2 * int(options.gigabytes * 1e9)
        times, synced, copies, synced_copies, memory, peers = [], [], [], [], [], []
        for _ in range(options.rounds):
            for found, sync in (times, ["--no-sync"]), (synced, []):
                out.unlink(missing_ok=True)
                touch(size)
                seconds, mebibytes = timed([options.binary, source, *flags, "-o", out, *sync])
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
