#!/usr/bin/env python3
"""Times servers of texts on the CPU, one after the other: start, a prompt, new tokens, 1, 8 and 32 clients at once, and memory.

    texts.py --make FOLDER --torch PYTHON [--binary target/release/torch2carton]
    texts.py FOLDER [--binary target/release/torch2carton] [--llama-cpp PYTHON] [--mistral-rs PYTHON] [--threads 2] [--prompt 512] [--new 64] [--rounds 3]

--make writes a LLaMA of random weights in float32 (0.54 GB) with a tokenizer of 600 tokens, and the same weights as a GGUF file. PYTHON has torch and
transformers; that of --llama-cpp has xllamacpp, llama.cpp's server as a package, and that of --mistral-rs has mistralrs. Every program has the same
float32 weights, in the page cache, and is started anew in each round. Each client asks for a prompt of its own, greedily, and for a fixed number of tokens,
of which the first is a part of the prompt's time. Figures are medians over the rounds, memory is the most of all. Needs Python's standard library.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from whole_process import TREE, describe

MAKE = """
import json, pathlib, sys, torch, tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from tokenizers import decoders, models, pre_tokenizers, trainers
split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
tokenizer = tokenizers.Tokenizer(models.BPE())
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(split), "isolated"), byte_level])
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.train_from_iterator(["Once upon a time there was a little girl who lived in a village near the forest, " * 3] * 9, trainer)
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
                     num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
LlamaForCausalLM(config).float().save_pretrained(sys.argv[1], max_shard_size="100GB")
path = pathlib.Path(sys.argv[1], "config.json")  # mistral.rs reads the key of older files
path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_theta": 10000.0}))
"""
LLAMA_CPP = """
import sys, time, xllamacpp
path, threads = sys.argv[1], int(sys.argv[2])
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.n_gpu_layers = path + "/model.gguf", 32 * 1024, 32, 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.warmup = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(1e6)
"""
# Its package for Python has no server, so this is the smallest one, and computes one request at a time.
MISTRAL_RS = """
import http.server, json, sys, threading, mistralrs
runner = mistralrs.Runner(which=mistralrs.Which.Plain(model_id=sys.argv[1], dtype=mistralrs.ModelDType.F32), max_seqs=32, no_paged_attn=True)
lock = threading.Lock()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = mistralrs.CompletionRequest(model="default", prompt=body["prompt"], max_tokens=body["max_tokens"], temperature=0.0, top_k=1)
        with lock:
            usage = runner.send_completion_request(request).usage
        answer = json.dumps({"usage": {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
"""


class Engine:
    """A program that prints its address as the first line of standard output that has one."""

    def __init__(self, command, is_ours, threads):
        self.is_ours = is_ours
        settings = os.environ | {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=settings, text=True)
        line = next((line for line in self.process.stdout if "http://" in line), None)
        if line is None:
            raise RuntimeError(f"it ended with status {self.process.wait()} before it printed an address")
        self.url = line[line.index("http://"):].split()[0].rstrip("/")

    def ask(self, text, count):
        """The time of one request, and the number of tokens in the answer."""
        body = {"model": "m", "prompt": text, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        if self.is_ours:
            del body["ignore_eos"]
            body["logit_bias"] = {"1": -100}
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        start = time.perf_counter()
        with urllib.request.urlopen(request, timeout=600) as answer:
            return time.perf_counter() - start, json.load(answer)["usage"]

    def peak(self):
        """The most memory that it had, with what it mapped, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) << 10


def measure(command, is_ours, options):
    """The figures of one start of a program."""
    start = time.perf_counter()
    engine = Engine(command, is_ours, options.threads)
    try:
        engine.ask("a", 1)
        found = {"start": time.perf_counter() - start}
        words = "Once upon a time there was a little girl who lived in a village near the forest, ".split()
        text = lambda seed, count: " ".join(words[(seed + at * 7) % len(words)] for at in range(count))
        taken, usage = engine.ask(text(1, options.prompt), 1)
        found["prompt"] = usage["prompt_tokens"] / taken
        for clients in (1, 8, 32):
            with ThreadPoolExecutor(clients) as pool:
                start = time.perf_counter()
                answers = list(pool.map(lambda seed: engine.ask(text(seed, 8), options.new)[1], range(2, 2 + clients)))
                found[clients] = sum(answer["completion_tokens"] for answer in answers) / (time.perf_counter() - start)
        found["memory"] = engine.peak()
        return found
    finally:
        engine.process.kill()
        engine.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--binary", type=Path, default=TREE / "target/release/torch2carton")
    parser.add_argument("--torch")
    parser.add_argument("--llama-cpp")
    parser.add_argument("--mistral-rs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.make:
        options.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([options.torch, "-c", MAKE, options.folder], check=True)
        subprocess.run([options.binary, options.folder, "--dtype", "float32", "--pre-tokenizer", "llama-bpe", "-o", options.folder / "model.gguf"], check=True)
        return
    describe(options.binary)
    ours = [options.binary, "serve", "--quiet", "--port", "0", "--name", "m", options.folder]
    engines = {"torch2carton": ours}
    if options.llama_cpp:
        engines["llama.cpp"] = [options.llama_cpp, "-c", LLAMA_CPP, options.folder, options.threads]
    if options.mistral_rs:
        engines["mistral.rs"] = [options.mistral_rs, "-c", MISTRAL_RS, options.folder]
    rows = {name: [] for name in engines}
    for _ in range(options.rounds):
        for name, command in engines.items():
            rows[name].append(measure(command, name == "torch2carton", options))
    print("| | start | prompt | 1 client | 8 clients | 32 clients | memory |\n|---|---|---|---|---|---|---|")
    for name, found in rows.items():
        middle = lambda key: statistics.median(row[key] for row in found)
        rates = " | ".join(f"{middle(key):.1f} /s" for key in ("prompt", 1, 8, 32))
        print(f"| {name} | {middle('start'):.2f} s | {rates} | {max(row['memory'] for row in found) / 1e6:,.0f} MB |")


if __name__ == "__main__":
    main()
