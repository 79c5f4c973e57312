#!/usr/bin/env python3
"""Times a prompt and new tokens of small decoders, one of each kind of block, in turns with `transformers`.

    blocks.py FOLDER --torch PYTHON [--binary target/release/torch2carton] [--rounds 3] [--threads 2] [--prompt 256] [--new 16]
              [--only llama,gemma4_text]

Writes models of random float32 weights into FOLDER (0.1 to 0.4 GB each), which both read in place. PYTHON has torch and transformers 5.
Figures are medians of the rounds. Needs Python's standard library.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path

from run import TORCH, other, ours
from whole_process import TREE, describe

SIZES = {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 12,
         "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 2048, "tie_word_embeddings": True}
EXPERTS = {"num_local_experts": 8, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512, "intermediate_size": 512}
# The kind of block that each model has.
KINDS = {
    "llama": ("RMS norms, SwiGLU", {}),
    "gemma2": ("windows, soft caps, norms before and after", {"sliding_window": 128}),
    "olmo2": ("norms after, of whole queries and keys", {}),
    "cohere": ("layer norms, a parallel feed-forward layer", {}),
    "gpt2": ("learned positions, no gate", {"n_embd": 768, "n_layer": 6, "n_head": 12, "n_positions": 2048, "n_inner": 2048}),
    "bloom": ("ALiBi", {"n_layer": 6, "n_head": 12}),
    "mixtral": ("experts", EXPERTS),
    "gpt_oss": ("experts with biases, sinks, windows", EXPERTS | {"sliding_window": 128}),
    "glm4_moe": ("a sigmoid router, a shared expert", EXPERTS | {"n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1}),
    "qwen3_next": ("gated DeltaNet, experts", EXPERTS | {"shared_expert_intermediate_size": 512}),
    "qwen3_5_text": ("gated DeltaNet", {}),
    "gemma4_text": ("heads of two sizes, inputs of each layer", {
        "hidden_size_per_layer_input": 128, "vocab_size_per_layer_input": 32000, "num_kv_shared_layers": 2, "global_head_dim": 128, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 3}),
}
MAKE = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
kind, folder, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
torch.manual_seed(0)
config = AutoConfig.for_model(kind, **settings)
AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder, max_shard_size="100GB")
"""


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", metavar="FOLDER", type=Path)
    arguments.add_argument("--torch", metavar="PYTHON", required=True)
    arguments.add_argument("--binary", default=TREE / "target/release/torch2carton", type=Path)
    arguments.add_argument("--only", default="", help="kinds, separated by commas")
    for name, value in {"rounds": 3, "threads": 2, "prompt": 256, "new": 16}.items():
        arguments.add_argument(f"--{name}", default=value, type=int)
    options = arguments.parse_args()
    describe(options.binary)
    print("| `model_type` | blocks | prompt | of transformers | token | of transformers |\n|---|---|---|---|---|---|")
    for kind, (blocks, settings) in KINDS.items():
        if options.only and kind not in options.only.split(","):
            continue
        folder = options.folder / kind
        if not (folder / "config.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            settings = json.dumps(SIZES | settings)
            subprocess.run([options.torch, "-W", "ignore", "-c", MAKE, kind, str(folder), settings], check=True, capture_output=True)
        programs = [ours(options, str(folder)), other(options.torch, TORCH, str(folder), options)]
        runs = [[program() for program in programs] for _ in range(options.rounds)]
        median = lambda place, what: statistics.median(what(run[place]) for run in runs)
        prompt = [median(place, lambda run: run["prompt"]) for place in (0, 1)]
        token = [median(place, lambda run: statistics.median(run["token"])) for place in (0, 1)]
        same = all(run[0]["made"] == run[1]["made"] for run in runs)
        print(f"| `{kind}` | {blocks} | {prompt[0] * 1e3:.0f} ms | {prompt[0] / prompt[1]:.2f} | {token[0] * 1e3:.1f} ms | {token[0] / token[1]:.2f} |"
              f"{'' if same else ' other tokens'}", flush=True)


if __name__ == "__main__":
    main()
