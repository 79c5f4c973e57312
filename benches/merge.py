#!/usr/bin/env python3
"""Times `--merge` next to `cp` and `fsync`, and next to peft, and reports the peak memory.

    merge.py FOLDER [--binary target/release/torch2carton] [--gigabytes 4] [--ranks 16,64] [--rounds 3] [--peft PYTHON]

Writes a LLaMA of random bfloat16 numbers into FOLDER, and for each rank an adapter of all of its linear layers. In each round, `cp` and
`fsync` copy the base, the program merges each adapter into it, and so does peft if PYTHON has it, with the base in the page cache. Each figure
is that of a whole process until its files are on the disk (`fsync`), and the memory is at most the one given. The median of the rounds
counts. Needs Python's standard library.
"""

import argparse
import json
import os
import shutil
import statistics
import time
from pathlib import Path

from whole_process import TREE, describe, timed, touch

HIDDEN, WIDTH, HEADS, KV_HEADS, VOCAB = 4096, 14336, 32, 8, 32000
LINEAR = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN * KV_HEADS // HEADS, HIDDEN), "self_attn.v_proj": (HIDDEN * KV_HEADS // HEADS, HIDDEN),
          "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (WIDTH, HIDDEN), "mlp.up_proj": (WIDTH, HIDDEN), "mlp.down_proj": (HIDDEN, WIDTH)}
PEFT = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapter, output = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(output)
"""


def write(path, tensors):
    """Writes a safetensors file of bfloat16 numbers of about 0.02: `tensors` has names and shapes."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (rows, columns) in tensors.items():
        size = rows * (columns or 1) * 2
        header[name] = {"dtype": "BF16", "shape": [rows, columns] if columns else [rows], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # The high byte has the sign and the exponent of a number between 0.008 and 0.03.
    noise = bytearray(os.urandom(1 << 24))
    noise[1::2] = bytes(0x3C | byte & 0x80 for byte in noise[1::2])
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while at > 0:
            at -= file.write(noise[: min(len(noise), at)])


def make(folder, gigabytes, ranks):
    layer = sum(rows * columns for rows, columns in LINEAR.values())
    layers = max(1, round((gigabytes * 1e9 / 2 - 2 * VOCAB * HIDDEN) / layer))
    tensors = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN, 0), "lm_head.weight": (VOCAB, HIDDEN)}
    for number in range(layers):
        tensors |= {f"model.layers.{number}.{name}.weight": shape for name, shape in LINEAR.items()}
        tensors |= {f"model.layers.{number}.{name}.weight": (HIDDEN, 0) for name in ("input_layernorm", "post_attention_layernorm")}
    (folder / "base").mkdir(parents=True, exist_ok=True)
    write(folder / "base" / "model.safetensors", tensors)
    (folder / "base" / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDTH, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5}))  # fmt: skip
    for rank in ranks:
        adapter = folder / f"rank-{rank}"
        adapter.mkdir(exist_ok=True)
        prefix = "base_model.model.model.layers"
        write(adapter / "adapter_model.safetensors", {
            f"{prefix}.{number}.{name}.lora_{which}.weight": (rank, columns) if which == "A" else (rows, rank)
            for number in range(layers) for name, (rows, columns) in LINEAR.items() for which in "AB"})  # fmt: skip
        names = [name.partition(".")[2] for name in LINEAR]
        (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "target_modules": names}))
    return layers * layer


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--gigabytes", type=float, default=4)
    arguments.add_argument("--ranks", type=lambda text: [int(rank) for rank in text.split(",")], default=[16, 64])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--peft", metavar="PYTHON")
    options = arguments.parse_args()
    describe(options.binary)
    numbers = make(options.folder, options.gigabytes, options.ranks)
    base, out = options.folder / "base" / "model.safetensors", options.folder / "out"
    size = base.stat().st_size / 1e9
    print(f"{size:.2f} GB of bfloat16, {os.cpu_count()} cores, median of {options.rounds}")
    os.sync()

    def synced(arguments):
        start = time.perf_counter()
        _, mebibytes = timed(arguments)
        for file in out.iterdir():
            with open(file, "rb") as opened:
                os.fsync(opened)
        return time.perf_counter() - start, mebibytes

    tasks = {"cp and fsync": lambda: synced(["cp", base, out / "model.safetensors"])}
    for rank in options.ranks:
        adapter = options.folder / f"rank-{rank}"
        tasks[f"rank {rank}"] = lambda adapter=adapter: synced([options.binary, base.parent, "--merge", adapter, "-o", out / "model.safetensors"])
        if options.peft:
            tasks[f"peft, rank {rank}"] = lambda adapter=adapter: synced([options.peft, "-W", "ignore", "-c", PEFT, base.parent, adapter, out])
    found = {name: [] for name in tasks}
    with open(base, "rb") as file:
        while file.read(1 << 24):
            pass
    for _ in range(options.rounds):
        for name, task in tasks.items():
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            touch(2 * int(options.gigabytes * 1e9))
            found[name].append(task())
    copy = statistics.median(seconds for seconds, _ in found["cp and fsync"])
    for name, runs in found.items():
        seconds, memory = statistics.median(seconds for seconds, _ in runs), max(memory for _, memory in runs)
        spread = f"{min(seconds for seconds, _ in runs):.2f} to {max(seconds for seconds, _ in runs):.2f}"
        rank = int(name.rpartition(" ")[2]) if "rank" in name else 0
        operations = f", {numbers * rank * 2 / seconds / 1e9:.1f} GFLOP/s" if rank else ""
        print(f"{name}: {seconds:.2f} s ({spread}), {seconds / copy:.2f} of cp and fsync, {size / seconds:.2f} GB/s{operations}, {memory:.0f} MiB")
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
