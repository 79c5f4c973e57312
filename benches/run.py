#!/usr/bin/env python3
"""Times a decoder on the CPU: the first token of a process, a prompt, and tokens one by one, in turns with other programs.

    run.py --make FOLDER --torch PYTHON
    run.py FOLDER [--binary target/release/torch2carton] [--torch PYTHON] [--llama-cpp PYTHON] [--rounds 5] [--threads 2]
                  [--dtypes bfloat16,float32] [--prompt 512] [--new 32]

--make writes a LLaMA of random weights into FOLDER, in bfloat16 (1.1 GB) and float32, as `transformers` saves it, and converts
both into cartons. PYTHON has torch, transformers and safetensors; the one of --llama-cpp has llama-cpp-python and gguf.
Every figure comes from a whole process that is started anew in each round, with its weights in the page cache: the time
that the process itself measures for the prompt and for each new token, and for a prompt of one token the time from the
start of the process to its end. Compare the ratios. Needs Python's standard library.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from whole_process import TREE, describe

MAKE = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=10, num_attention_heads=32,
                     num_key_value_heads=4, max_position_embeddings=2048, tie_word_embeddings=False)
model = LlamaForCausalLM(config).to(torch.bfloat16)
model.save_pretrained(sys.argv[1] + "/bfloat16", max_shard_size="100GB")
model.float().save_pretrained(sys.argv[1] + "/float32", max_shard_size="100GB")
"""
TORCH = """
import json, sys, time, torch
from transformers import AutoModelForCausalLM
folder, threads, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
tokens = [(i * 7919) % 32000 for i in range(prompt)]
with torch.inference_mode():
    for turn in range(2):  # the first one warms the kernels
        start = time.perf_counter()
        out = model(torch.tensor([tokens]), use_cache=True, logits_to_keep=1)
        made = [int(out.logits[0, -1].argmax())]
        first = time.perf_counter() - start
    times = []
    for _ in range(new - 1):
        start = time.perf_counter()
        out = model(torch.tensor([made[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        made.append(int(out.logits[0, -1].argmax()))
        times.append(time.perf_counter() - start)
print(json.dumps({"prompt": first, "token": times, "made": made}))
"""
LLAMA_CPP = """
import json, os, sys, time
import numpy
from gguf import GGUFWriter, GGMLQuantizationType
folder, threads, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
config = json.load(open(folder + "/config.json"))
path = folder + "/model.gguf"
if not os.path.exists(path):
    import struct
    with open(folder + "/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
    data = numpy.memmap(folder + "/model.safetensors", mode="r", offset=start)
    heads, kv, dim = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
    out = GGUFWriter(path, "llama")
    out.add_context_length(config["max_position_embeddings"]); out.add_embedding_length(dim)
    out.add_block_count(config["num_hidden_layers"]); out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads); out.add_head_count_kv(kv); out.add_rope_dimension_count(dim // heads)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"]); out.add_rope_freq_base(10000.0); out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("no_vocab")
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for i in range(config["num_hidden_layers"]):
        a, b = f"model.layers.{i}.", f"blk.{i}."
        names |= {a + "self_attn.q_proj": b + "attn_q", a + "self_attn.k_proj": b + "attn_k", a + "self_attn.v_proj": b + "attn_v",
                  a + "self_attn.o_proj": b + "attn_output", a + "mlp.gate_proj": b + "ffn_gate", a + "mlp.up_proj": b + "ffn_up",
                  a + "mlp.down_proj": b + "ffn_down", a + "input_layernorm": b + "attn_norm", a + "post_attention_layernorm": b + "ffn_norm"}
    for name, row in header.items():
        if name == "__metadata__":
            continue
        first, last = row["data_offsets"]
        kind = numpy.uint16 if row["dtype"] == "BF16" else numpy.float32
        array = numpy.asarray(data[first:last]).view(kind).reshape(row["shape"])
        n = heads if "q_proj" in name else kv if "k_proj" in name else None
        if n:  # llama.cpp rotates pairs that are next to each other
            array = array.reshape(n, 2, array.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(array.shape)
        if array.ndim == 1 and kind is numpy.uint16:  # it reads norms as float32
            array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
        is_bf16 = array.dtype == numpy.uint16
        array = numpy.ascontiguousarray(array)
        out.add_tensor(names[name.removesuffix(".weight")] + ".weight", array.view(numpy.uint8) if is_bf16 else array,
                       raw_dtype=GGMLQuantizationType.BF16 if is_bf16 else GGMLQuantizationType.F32)
    out.write_header_to_file(); out.write_kv_data_to_file(); out.write_tensors_to_file(); out.close()
from llama_cpp import Llama
model = Llama(model_path=path, n_threads=threads, n_threads_batch=threads, n_ctx=prompt + new + 8, n_batch=512, n_ubatch=512, verbose=False)
tokens = [(i * 7919) % 32000 for i in range(prompt)]
for turn in range(2):
    model.reset()
    start = time.perf_counter()
    model.eval(tokens)
    made = [int(numpy.argmax(numpy.ctypeslib.as_array(model._ctx.get_logits_ith(-1), (config["vocab_size"],))))]
    first = time.perf_counter() - start
times = []
for _ in range(new - 1):
    start = time.perf_counter()
    model.eval(made[-1:])
    made.append(int(numpy.argmax(numpy.ctypeslib.as_array(model._ctx.get_logits_ith(-1), (config["vocab_size"],)))))
    times.append(time.perf_counter() - start)
print(json.dumps({"prompt": first, "token": times, "made": made}))
"""


def seconds(command):
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} …: exit status {done.returncode}: {done.stderr[-2000:]}")
    return time.monotonic() - start, done.stdout


def ours(options, carton):
    """Of a prompt and new tokens: seconds for the prompt, seconds for each token after the first, and the tokens."""
    def measure():
        ids = ",".join(str(i * 7919 % 32000) for i in range(options.prompt))
        command = [str(options.binary), "run", carton, "--tokens", ids, "--max-tokens", str(options.new), "--json",
                   "--threads", str(options.threads)]
        report = json.loads(seconds(command)[1])
        steps = max(report["steps"], 1)
        return {"prompt": report["prompt_seconds"], "token": [report["seconds"] / steps], "made": report["tokens"]}

    return measure


def other(python, script, folder, options):
    def measure():
        sizes = [str(n) for n in (options.threads, options.prompt, options.new)]
        return json.loads(seconds([python, "-W", "ignore", "-c", script, folder, *sizes])[1].splitlines()[-1])

    return measure


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", metavar="FOLDER")
    arguments.add_argument("--binary", default=TREE / "target/release/torch2carton", type=Path)
    arguments.add_argument("--torch", metavar="PYTHON")
    arguments.add_argument("--llama-cpp", metavar="PYTHON")
    arguments.add_argument("--rounds", default=5, type=int)
    arguments.add_argument("--threads", default=2, type=int)
    arguments.add_argument("--prompt", default=512, type=int, help="tokens of the prompt [default: 512]")
    arguments.add_argument("--new", default=32, type=int, help="new tokens [default: 32]")
    arguments.add_argument("--dtypes", default="bfloat16,float32")
    arguments.add_argument("--make", action="store_true", help="make the models and stop")
    options = arguments.parse_args()
    if options.make:
        os.makedirs(options.folder, exist_ok=True)
        seconds([options.torch, "-W", "ignore", "-c", MAKE, options.folder])
        for dtype in "bfloat16", "float32":
            seconds([str(options.binary), f"{options.folder}/{dtype}", "-q", "--force", "-o", f"{options.folder}/{dtype}.carton"])
        return
    describe(options.binary)

    for dtype in options.dtypes.split(","):
        folder, carton = f"{options.folder}/{dtype}", f"{options.folder}/{dtype}.carton"
        programs = {"torch2carton": ours(options, carton)}
        if options.torch:
            programs["transformers"] = other(options.torch, TORCH, folder, options)
        if options.llama_cpp:
            programs["llama.cpp"] = other(options.llama_cpp, LLAMA_CPP, folder, options)
        runs, first = {name: [] for name in programs}, []
        for turn in range(options.rounds + 1):  # the first one warms the page cache
            for name, measure in programs.items():
                figures = measure()
                if turn:
                    runs[name].append(figures)
            one = seconds([str(options.binary), "run", carton, "--tokens", "1", "--top", "1", "-q", "--threads", str(options.threads)])
            first.append(one[0])
        size = os.path.getsize(carton) / 1e9
        print(f"{carton}: {size:.2f} GB, {options.threads} threads, {options.rounds} rounds, a prompt of {options.prompt} tokens, "
              f"{options.new} new ones; medians")
        print(f"first token of a process: {statistics.median(first[1:]):.3f} s")
        print(f"{'':14} {'prompt, s':>10} {'tokens/s':>9} {'of ours':>8} {'token, ms':>10} {'tokens/s':>9} {'of ours':>8}  tokens")
        medians = {}
        for name, figures in runs.items():
            prompt = statistics.median(run["prompt"] for run in figures)
            token = statistics.median(statistics.median(run["token"]) for run in figures)
            medians[name] = prompt, token
            same = "the same" if figures[0]["made"] == runs["torch2carton"][0]["made"] else "others"
            ratios = [theirs / own for theirs, own in zip(medians[name], medians["torch2carton"])]
            print(f"{name:14} {prompt:10.3f} {options.prompt / prompt:9.0f} {ratios[0]:8.2f} {token * 1e3:10.1f} {1 / token:9.1f} "
                  f"{ratios[1]:8.2f}  {same}")


if __name__ == "__main__":
    main()
