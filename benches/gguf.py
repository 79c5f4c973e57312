#!/usr/bin/env python3
"""Times GGUF files next to llama.cpp's converter and `cp`, and reports the peak memory.

    gguf.py FOLDER [--binary target/release/torch2carton] [--gigabytes 4] [--vocabulary 256000] [--rounds 3] [--types bf16,q8_0]
            [--converter PYTHON --sources LLAMA_CPP]

Writes a LLaMA of random bfloat16 numbers with a tokenizer into FOLDER. In each round, each program makes a file of each type with the input in
the page cache; the fastest round of each counts, and the largest memory. `cp` with sync copies the input. PYTHON has torch, transformers and gguf, and
LLAMA_CPP is a folder with llama.cpp's sources. The converter cannot recognize a made-up tokenizer, so the benchmark tells it which pre-tokenizer to use.
Needs Python's standard library.
"""

import argparse
import json
import multiprocessing
import os
import struct
from pathlib import Path

from whole_process import TREE, describe, timed, touch

TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "q8_0": "q8_0"}
PRE = "llama-bpe"
CONVERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: sys.argv[2]
import convert_hf_to_gguf
sys.argv[:3] = ["convert"]
convert_hf_to_gguf.main()
"""
WIDTH, INNER, HEADS, KEYS = 4096, 14336, 32, 8


def numbers(size):
    """Pairs of bytes that are bfloat16 numbers of ordinary size."""
    part = bytearray(os.urandom(1 << 20))
    part[1::2] = bytes(0x3C | (byte & 0x81) for byte in part[1::2])
    return bytes(part) * (size // len(part) + 1)


def make(folder, gigabytes, vocabulary):
    folder.mkdir(parents=True, exist_ok=True)
    matrices = {"self_attn.q_proj": [WIDTH, WIDTH], "self_attn.k_proj": [WIDTH * KEYS // HEADS, WIDTH], "self_attn.v_proj": [WIDTH * KEYS // HEADS, WIDTH],
                "self_attn.o_proj": [WIDTH, WIDTH], "mlp.gate_proj": [INNER, WIDTH], "mlp.up_proj": [INNER, WIDTH], "mlp.down_proj": [WIDTH, INNER],
                "input_layernorm": [WIDTH], "post_attention_layernorm": [WIDTH]}
    bytes_of = lambda shape: 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    outer = {"model.embed_tokens.weight": [vocabulary, WIDTH], "model.norm.weight": [WIDTH]}
    left = gigabytes * 1e9 - sum(map(bytes_of, outer.values()))
    layers = max(1, round(left / sum(map(bytes_of, matrices.values()))))
    shapes = outer | {f"model.layers.{layer}.{name}.weight": shape for layer in range(layers) for name, shape in matrices.items()}
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes_of(shape)]}
        at += bytes_of(shape)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        chunk = numbers(1 << 24)
        while at > 0:
            at -= file.write(chunk[: min(len(chunk), at)])
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": vocabulary, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1}))
    # The characters of all bytes, then pairs of what is there, until there are enough.
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    tokens = [chr(byte) for byte in visible] + [chr(256 + at) for at in range(256 - len(visible))]
    known, merges = set(tokens), []
    for first in range(vocabulary):
        for second in tokens[:256]:
            token = tokens[first] + second
            if len(tokens) == vocabulary:
                break
            if token not in known:
                known.add(token), tokens.append(token), merges.append([tokens[first], second])
        if len(tokens) == vocabulary:
            break
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
        "post_processor": level, "decoder": level, "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": {token: at for at, token in enumerate(tokens)}, "merges": merges}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    arguments.add_argument("--gigabytes", type=float, default=4)
    arguments.add_argument("--vocabulary", type=int, default=256000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--types", default="bf16,q8_0", help="separated by commas")
    arguments.add_argument("--converter", metavar="PYTHON")
    arguments.add_argument("--sources", metavar="LLAMA_CPP", type=Path)
    options = arguments.parse_args()
    describe(options.binary)
    model, out = options.folder / "model", options.folder / "out.gguf"
    # In a process of its own: the memory of a program includes that of the process that started it.
    maker = multiprocessing.Process(target=make, args=(model, options.gigabytes, options.vocabulary))
    maker.start()
    maker.join()
    file = model / "model.safetensors"
    commands = {"cp and sync": ["sh", "-c", "cp $0 $1 && sync $1", file, out]}
    for kind in options.types.split(","):
        commands[f"torch2carton {kind}"] = [options.binary, "-q", model, "-o", out, "--dtype", TYPES[kind], "--pre-tokenizer", PRE]
        if options.converter:
            commands[f"converter {kind}"] = [options.converter, "-c", CONVERT, options.sources, PRE, model, "--outfile", out, "--outtype", kind]
    found = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            out.unlink(missing_ok=True)
            touch(2 * file.stat().st_size)
            timed(["cat", file])
            found[name].append(timed(command))
    size = file.stat().st_size / 1e9
    print(f"{size:.2f} GB, {options.vocabulary} tokens, {options.rounds} rounds")
    print(f"{'':20} {'seconds':>8} {'GB/s read':>10} {'of cp':>7} {'MiB':>7}")
    copy = min(found["cp and sync"])[0]
    for name, runs in found.items():
        seconds = min(runs)[0]
        print(f"{name:20} {seconds:8.2f} {size / seconds:10.2f} {copy / seconds:7.2f} {max(memory for _, memory in runs):7.0f}")
    out.unlink()
    for made in model.iterdir():
        made.unlink()
    model.rmdir()


if __name__ == "__main__":
    main()
