"""`--merge` onto bases of other kinds: Meta's names, the parts that DeepSpeed wrote, quantized weights."""

import json
import os
import shutil

import pytest

if why := os.environ.get("T2C_MISSING_PEFT"):
    pytest.skip(why, allow_module_level=True)
from conftest import worker
from program import refuse, succeed
from test_merge import SMALL, exact_sums, make, ulp  # first: it finds peft
import torch
from safetensors.torch import load_file, save_file
from test_dequantize import quantized

HEADS, KV_HEADS = SMALL["num_attention_heads"], SMALL["num_key_value_heads"]
META_PARTS = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
              "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
              "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}


def metas(tensors):
    """The tensors in Meta's layout: the inverse of `permute` in transformers' convert_llama_weights_to_hf.py."""
    found = {}
    for name, tensor in tensors.items():
        for part, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if part in name:
                rows, columns = tensor.shape
                tensor = tensor.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns).contiguous()
        for theirs, metas in META_PARTS.items():
            name = name.replace(theirs, metas)
        found[name.replace("model.layers", "layers")] = tensor
    return found


def merged(base, adapter, *flags):
    """The tensors of a base with an adapter."""
    output = adapter.parent / "ours.safetensors"
    succeed(base, *flags, "--merge", adapter, "-o", output, "--force")
    return load_file(output)


def same(first, second):
    assert first.keys() == second.keys()
    assert [name for name in first if not (first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]))] == []


@pytest.mark.parametrize("variant", ["plain", "dora", "embedding", "tokens", "head"])
def test_metas_names(tmp_path, variant):
    make(tmp_path, "llama", variant, torch.bfloat16, 7)
    reference = merged(tmp_path / "base", tmp_path / "lora")
    (tmp_path / "meta").mkdir()
    torch.save(metas(load_file(tmp_path / "base" / "model.safetensors")), tmp_path / "meta" / "consolidated.00.pth")
    params = {"dim": 32, "n_layers": 2, "n_heads": HEADS, "n_kv_heads": KV_HEADS, "vocab_size": 96, "multiple_of": 16, "ffn_dim_multiplier": 0.56, "norm_eps": 1e-6, "rope_theta": 10000.0}
    (tmp_path / "meta" / "params.json").write_text(json.dumps(params))
    for base in (tmp_path / "meta", tmp_path / "meta" / "consolidated.00.pth"):
        same(merged(base, tmp_path / "lora"), metas(reference))
    succeed(tmp_path / "meta", "--merge", tmp_path / "lora", "--names", "hf", "--to", "safetensors", "-o", tmp_path / "hf")
    same(load_file(tmp_path / "hf" / "model.safetensors"), reference)
    done = succeed(tmp_path / "meta", "--merge", tmp_path / "lora", "--dry-run", "--json")
    names = {row["name"] for row in json.loads(done.stdout)["adapters"][0]["merged"]}
    assert names <= metas(reference).keys(), names
    succeed(tmp_path / "meta", "--merge", tmp_path / "lora", "--require-model", "-o", tmp_path / "ours.carton")
    (tmp_path / "meta" / "params.json").unlink()
    done = refuse(tmp_path / "meta", "--merge", tmp_path / "lora", "-o", tmp_path / "no.safetensors")
    assert "n_heads" in done.stderr or "--n-heads" in done.stderr


@pytest.mark.parametrize("stage", [1, 3])
def test_zero(tmp_path, stage):
    """The weights of any names: an adapter for each matrix is made here."""
    deepspeed = worker("DEEPSPEED", "zero_worker.py")
    try:
        deepspeed.ask("save", folder=str(tmp_path / "run"), stage=stage, ranks=3)
    finally:
        deepspeed.close()
    succeed(tmp_path / "run", "-o", tmp_path / "base.safetensors")
    base, factors, expected = load_file(tmp_path / "base.safetensors"), {}, {}
    torch.manual_seed(3)
    for name, tensor in base.items():
        expected[name] = tensor.double()
        if tensor.ndim == 2 and name.endswith(".weight") and tensor.is_floating_point():
            a, b = torch.randn(2, tensor.shape[1]), torch.randn(tensor.shape[0], 2)
            factors |= {f"base_model.model.{name.removesuffix('.weight')}.lora_{which}.weight": factor for which, factor in (("A", a), ("B", b))}
            expected[name] = expected[name] + 1.5 * (b.double() @ a.double())
    assert factors, list(base)
    (tmp_path / "lora").mkdir()
    save_file(factors, tmp_path / "lora" / "adapter_model.safetensors")
    (tmp_path / "lora" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 3}')
    ours = merged(tmp_path / "run", tmp_path / "lora")
    assert ours.keys() == expected.keys()
    for name, tensor in ours.items():
        half = ulp(tensor) / 2 * (1 + 1e-9) + 1e-15 if tensor.is_floating_point() else 0
        assert ((tensor.double() - expected[name]).abs() <= half).all(), name


def test_quantized_weights(tmp_path):
    make(tmp_path, "llama", "plain", torch.bfloat16, 10)
    shutil.rmtree(tmp_path / "merged")
    quantized(tmp_path / "base", tmp_path / "fp8", 8)
    done = refuse(tmp_path / "fp8", "--merge", tmp_path / "lora", "-o", tmp_path / "ours.safetensors")
    assert "--dequantize" in done.stderr, done.stderr
    ours = merged(tmp_path / "fp8", tmp_path / "lora", "--dequantize")
    same(ours, merged(tmp_path / "fp8" / "numbers", tmp_path / "lora"))
    (tmp_path / "base").rename(tmp_path / "original")
    shutil.copytree(tmp_path / "fp8" / "numbers", tmp_path / "base")
    exact = exact_sums(tmp_path)
    for name, tensor in ours.items():
        assert ((tensor.double() - exact[name]).abs() <= ulp(tensor) / 2 * (1 + 1e-9) + 1e-16).all(), name
