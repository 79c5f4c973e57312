"""`--merge`: adapters that peft saves, merged into their base. Each number is compared with the exact sum in float64 and with what
peft's `merge_and_unload` makes of it."""

import json
import os
import sys
from pathlib import Path

import pytest
from program import succeed

if why := os.environ.get("T2C_MISSING_PEFT"):
    pytest.skip(why, allow_module_level=True)
# The environment has the packages of this one, and peft.
sys.path.append(str(next(Path(os.environ["T2C_PEFT"]).parent.parent.glob("lib/python*/site-packages"))))
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, GraniteMoeConfig, GraniteMoeForCausalLM,
                          LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=96, max_position_embeddings=64)
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=16)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=96, n_positions=64)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SMALL, head_dim=8, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2)),
    "granitemoe": lambda: GraniteMoeForCausalLM(GraniteMoeConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)),
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LINEAR = {name: ATTENTION + (["gate_proj", "up_proj", "down_proj"] if name in ("llama", "tied", "qwen2", "gemma3") else []) for name in MODELS} | {
    "gpt2": ["c_attn", "c_proj", "c_fc"]}


def variants(model):
    """Settings of adapters by name."""
    linear = LINEAR[model]
    found = {
        "plain": dict(target_modules=linear, r=8, lora_alpha=16),
        "rslora": dict(target_modules=linear, r=8, lora_alpha=16, use_rslora=True),
        "patterns": dict(target_modules=linear, r=4, lora_alpha=6, rank_pattern={r"layers\.1\..*q_proj": 2, "c_attn": 3}, alpha_pattern={"o_proj": 5}),
        "dora": dict(target_modules=linear, r=4, lora_alpha=8, use_dora=True),
        "layers": dict(target_modules=linear[:2], r=4, layers_to_transform=[1]),
        "head": dict(target_modules=linear, r=4, modules_to_save=["lm_head"]),
    }
    embedding = "wte" if model == "gpt2" else "embed_tokens"
    found["embedding"] = dict(target_modules=[*linear, embedding], r=4)
    found["embedding dora"] = dict(target_modules=[embedding], r=4, use_dora=True)
    found["tokens"] = dict(target_modules=linear, r=4, trainable_token_indices={embedding: [3, 17, 90]})
    if model == "qwen2":
        found["bias"] = dict(target_modules=["q_proj", "v_proj"], r=4, lora_bias=True)
        found["all biases"] = dict(target_modules=["q_proj", "v_proj"], r=4, bias="all")
        found["lora biases"] = dict(target_modules=["q_proj", "v_proj"], r=4, bias="lora_only")
    if model in ("mixtral", "qwen3_moe"):
        found["experts"] = dict(target_modules=ATTENTION, target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], r=2)
        found["one parameter"] = dict(target_modules=[], target_parameters=["mlp.experts.down_proj"], r=2)
        found["router"] = dict(target_modules=["q_proj"], target_parameters=["mlp.gate.weight"], r=2)
        found["no modules"] = dict(target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"], r=3, lora_alpha=5)
    if model == "granitemoe":
        return {"experts": dict(target_modules=["q_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj", "router.weight"], r=2)}
    if model in ("tied", "gemma3"):
        found.pop("head")
    return found


CASES = [(model, variant) for model in MODELS for variant in variants(model)]


def make(folder, model, variant, dtype, seed, adapter_dtype=None, bin_file=False):
    """Saves a base, an adapter and peft's merge of both. Returns the merged state dict of peft."""
    torch.manual_seed(seed)
    settings = dict(variants(model)[variant], fan_in_fan_out=model == "gpt2")
    return save(folder, MODELS[model]().to(dtype), settings, adapter_dtype, bin_file)


def save(folder, base, settings, adapter_dtype=None, bin_file=False):
    """Saves a base, an adapter with random changes and peft's merge of both. Returns the merged state dict of peft."""
    base.save_pretrained(folder / "base")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        adapted = get_peft_model(base, LoraConfig(**settings))
        for name, tensor in adapted.named_parameters():
            if "lora_" in name or "trainable_tokens" in name or (tensor.requires_grad and "magnitude" not in name):
                tensor.data.add_(torch.randn_like(tensor) * 0.1)
        if adapter_dtype:
            for name, tensor in adapted.named_parameters():
                if "lora_" in name:
                    tensor.data = tensor.data.to(adapter_dtype)
        adapted.save_pretrained(folder / "lora", safe_serialization=not bin_file)
        again = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=base.dtype)
        merged = PeftModel.from_pretrained(again, folder / "lora").merge_and_unload()
        merged.save_pretrained(folder / "merged")
    return load_file(folder / "merged" / "model.safetensors")


def exact_sums(folder):
    """Returns the base merged by peft in float64, with adapters in float64, as the exact result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float64)
        adapted = PeftModel.from_pretrained(base, folder / "lora", autocast_adapter_dtype=False)
        adapted.to(torch.float64)
        adapted.merge_and_unload().save_pretrained(folder / "exact")
    return load_file(folder / "exact" / "model.safetensors")


def ulp(values):
    """The distance from each number to the next larger one."""
    magnitude = values.abs()
    return (torch.nextafter(magnitude, torch.full_like(magnitude, torch.inf)) - magnitude).double()


def check(ours, exact, peft):
    assert ours.keys() == peft.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == peft[name].dtype and tensor.shape == peft[name].shape, name
        error, theirs = (tensor.double() - exact[name]).abs(), (peft[name].double() - exact[name]).abs()
        # float64 itself has a last place, too.
        slack = exact[name].abs() * 1e-13 + 1e-16
        assert (error <= ulp(tensor) / 2 * (1 + 1e-9) + slack).all(), f"{name}: {error.max()}"
        assert (error <= theirs + slack).all(), f"{name}: further from the sum than peft"


@pytest.mark.parametrize("model, variant", CASES, ids=lambda value: str(value))
def test_numbers(tmp_path, model, variant):
    number = CASES.index((model, variant))
    dtype = (torch.float32, torch.bfloat16, torch.float16)[number % 3]
    peft = make(tmp_path, model, variant, dtype, number, bin_file=number % 4 == 1)
    exact = exact_sums(tmp_path)
    succeed(tmp_path / "base", "--merge", tmp_path / "lora", "-o", tmp_path / "ours.safetensors")
    check(load_file(tmp_path / "ours.safetensors"), exact, peft)


@pytest.mark.parametrize("model, target", [("gpt2", "attn.c_proj"), ("llama", "q_proj")])
def test_square_weights_are_those_of_the_layers_class(tmp_path, model, target):
    """peft 0.2 and 0.3 wrote `fan_in_fan_out: true` for linear layers, too; peft goes by the class of the layer."""
    peft = save(tmp_path, MODELS[model](), dict(target_modules=[target], r=4, fan_in_fan_out=model == "gpt2"))
    config = tmp_path / "lora" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"fan_in_fan_out": model != "gpt2"}))
    succeed(tmp_path / "base", "--merge", tmp_path / "lora", "-o", tmp_path / "ours.safetensors")
    check(load_file(tmp_path / "ours.safetensors"), exact_sums(tmp_path), peft)


def test_two_adapters_and_weights(tmp_path):
    make(tmp_path / "a", "llama", "plain", torch.float32, 1)
    make(tmp_path / "b", "llama", "rslora", torch.float32, 2)
    base = load_file(tmp_path / "a" / "base" / "model.safetensors")
    succeed(tmp_path / "a" / "base", "--merge", tmp_path / "a" / "lora", "--merge", f"{tmp_path / 'b' / 'lora'}=-0.25", "-o", tmp_path / "ours.safetensors")
    ours, expected = load_file(tmp_path / "ours.safetensors"), {name: tensor.double() for name, tensor in base.items()}
    for part, weight in (("a", 1.0), ("b", -0.25)):
        config = json.loads((tmp_path / part / "lora" / "adapter_config.json").read_text())
        scale = config["lora_alpha"] / (config["r"] ** 0.5 if config["use_rslora"] else config["r"])
        for name, tensor in load_file(tmp_path / part / "lora" / "adapter_model.safetensors").items():
            if ".lora_A." in name:
                other = load_file(tmp_path / part / "lora" / "adapter_model.safetensors")[name.replace("lora_A", "lora_B")]
                target = name.removeprefix("base_model.model.").replace(".lora_A", "")
                expected[target] += weight * scale * (other.double() @ tensor.double())
    for name, tensor in ours.items():
        assert ((tensor.double() - expected[name]).abs() <= ulp(tensor) / 2 + 1e-15).all(), name


@pytest.mark.parametrize("settings", [dict(target_modules=["q_proj", "lm_head"]), dict(target_modules=["q_proj"], modules_to_save=["lm_head"])], ids=["changed", "saved"])
def test_a_tied_head_that_an_adapter_changes_becomes_its_own(tmp_path, settings):
    """peft's merge changes the embeddings as well, so that the base with the adapter is the reference."""
    torch.manual_seed(1)
    save(tmp_path, MODELS["tied"](), dict(settings, r=4))
    succeed(tmp_path / "base", "--merge", tmp_path / "lora", "--to", "safetensors", "-o", tmp_path / "ours")
    base, tokens = AutoModelForCausalLM.from_pretrained(tmp_path / "base"), torch.tensor([[1, 5, 9]])
    embeddings = base.get_input_embeddings().weight.detach().clone()
    with torch.no_grad():
        expected = PeftModel.from_pretrained(base, tmp_path / "lora").eval()(tokens).logits
        ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
        assert (ours(tokens).logits - expected).abs().max() < 1e-5
    assert torch.equal(ours.get_input_embeddings().weight, embeddings)
