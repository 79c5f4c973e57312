"""`--merge` of 200 random adapters onto random models of six families: each number is within half a unit of its last place of the exact sum,
and not further from it than peft's, and every tensor of the adapter is used. A sample of them with `--fast`."""

import json
import os
import random

import pytest

if why := os.environ.get("T2C_MISSING_PEFT"):
    pytest.skip(why, allow_module_level=True)
from program import succeed
from test_merge import check, exact_sums, save  # first: it finds peft
import torch
from safetensors.torch import load_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig,
                          MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

COUNT = int(os.environ.get("T2C_LAYOUTS", "200"))
SEEDS = [number * 200 // COUNT for number in range(COUNT)]
FAMILIES = "llama", "qwen2", "gemma3", "mixtral", "qwen3_moe", "gpt2"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def model_of(family, choose):
    """A model with random sizes; some have square matrices, tied embeddings or biases."""
    heads = choose.choice([2, 4])
    size = heads * choose.choice([4, 8, 12])
    layers, vocab = choose.randint(1, 3), choose.choice([40, 64, 97])
    tied = choose.random() < 0.5
    if family == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_embd=size, n_layer=layers, n_head=heads, n_inner=choose.choice([None, size, size + 7]), vocab_size=vocab, n_positions=32))
    sizes = dict(hidden_size=size, intermediate_size=choose.choice([size, 2 * size, size + 12]), num_hidden_layers=layers, num_attention_heads=heads,
                 num_key_value_heads=choose.choice([1, heads]), vocab_size=vocab, max_position_embeddings=32, tie_word_embeddings=tied)
    experts = choose.choice([2, 3, 5])
    match family:
        case "llama":
            return LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=choose.random() < 0.3, mlp_bias=choose.random() < 0.3))
        case "qwen2":
            return Qwen2ForCausalLM(Qwen2Config(**sizes))
        case "gemma3":
            return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, head_dim=8, sliding_window=16))
        case "mixtral":
            return MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=experts, num_experts_per_tok=1))
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, head_dim=8, moe_intermediate_size=choose.choice([12, size, 2 * size]), num_experts=experts, num_experts_per_tok=1))


def settings_of(family, model, choose):
    """Settings of an adapter of the model."""
    is_moe = family in ("mixtral", "qwen3_moe")
    linear = ["c_attn", "c_proj", "c_fc"] if family == "gpt2" else ATTENTION if is_moe else ATTENTION + MLP
    embedding = "wte" if family == "gpt2" else "embed_tokens"
    found = dict(r=choose.randint(1, 9), lora_alpha=choose.choice([1, 4, 16, 7.5]), use_rslora=choose.random() < 0.3, fan_in_fan_out=family == "gpt2")
    found["target_modules"] = choose.sample(linear, choose.randint(1, len(linear)))
    if choose.random() < 0.15:
        found["target_modules"] = ".*(" + "|".join(found["target_modules"]) + ")"
    elif choose.random() < 0.25:
        found["target_modules"].append(embedding)
    has_experts = is_moe and choose.random() < 0.6
    if has_experts:
        found["target_parameters"] = choose.sample(EXPERTS, choose.randint(1, 2))
    elif choose.random() < 0.3:
        found["use_dora"] = True
    if choose.random() < 0.3:
        found["rank_pattern"] = {choose.choice(linear): choose.randint(1, 12)}
    if choose.random() < 0.3:
        found["alpha_pattern"] = {choose.choice(linear): choose.randint(1, 40)}
    is_list = isinstance(found["target_modules"], list)
    layers = model.config.num_hidden_layers
    if layers > 1 and is_list and embedding not in found["target_modules"] and not has_experts and choose.random() < 0.3:
        found["layers_to_transform"] = choose.sample(range(layers), choose.randint(1, layers - 1))
    if embedding not in found["target_modules"] and choose.random() < 0.25:
        found["trainable_token_indices"] = {embedding: sorted(choose.sample(range(40), choose.randint(1, 5)))}
    elif choose.random() < 0.2 and not model.config.tie_word_embeddings:
        found["modules_to_save"] = ["lm_head"]
    if family in ("qwen2", "gpt2") and choose.random() < 0.4 and not found.get("use_dora"):
        found["bias"] = choose.choice(["all", "lora_only"])
    elif choose.random() < 0.2 and family in ("qwen2", "gpt2") and not (found.get("use_dora") or has_experts or embedding in found["target_modules"]):
        found |= dict(lora_bias=True, target_modules=["c_attn"] if family == "gpt2" else ["q_proj", "v_proj"])
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_layouts(tmp_path, seed):
    choose = random.Random(seed)
    torch.manual_seed(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    model = model_of(family, choose).to(choose.choice([torch.float32, torch.bfloat16, torch.float16]))
    settings = settings_of(family, model, choose)
    adapter_dtype = choose.choice([None, None, torch.float32, torch.bfloat16, torch.float16, torch.float64])
    print(family, settings, adapter_dtype)
    peft = save(tmp_path, model, settings, adapter_dtype, bin_file=choose.random() < 0.3)
    exact = exact_sums(tmp_path)
    done = json.loads(succeed(tmp_path / "base", "--merge", tmp_path / "lora", "-o", tmp_path / "ours.safetensors", "--json").stdout)
    check(load_file(tmp_path / "ours.safetensors"), exact, peft)
    file = next((tmp_path / "lora").glob("adapter_model.*"))
    saved = load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True)
    assert done["adapters"][0]["adapter_tensors"] == len(saved)
