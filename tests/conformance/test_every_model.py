"""Every kind of model takes an adapter and quantized weights: the numbers are those of peft and of the formula, and the result is still a model."""

import json
import os

import models
import pytest
import torch
from program import succeed
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

# GPT-2's layers are `Conv1D`, which no library of these codes has.
LINEAR = [kind for kind, (model_type, _) in models.HUGGING_FACE.items() if model_type != "gpt2"]


def random_model(kind):
    torch.manual_seed(1)
    model_type, keys = models.HUGGING_FACE[kind]
    config = AutoConfig.for_model(model_type, **{key: value for key, value in (models.SIZES | keys).items() if value is not None})
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", models.HUGGING_FACE)
def test_adapter(kind, tmp_path):
    if why := os.environ.get("T2C_MISSING_PEFT"):
        pytest.skip(why)
    from test_merge import check, exact_sums, save

    peft = save(tmp_path, random_model(kind), dict(target_modules="all-linear", r=4, fan_in_fan_out=models.HUGGING_FACE[kind][0] == "gpt2"))
    merge = [tmp_path / "base", "--merge", tmp_path / "lora"]
    succeed(*merge, "-o", tmp_path / "ours.safetensors")
    check(load_file(tmp_path / "ours.safetensors"), exact_sums(tmp_path), peft)
    succeed(*merge, "--require-model", "-o", tmp_path / "ours.carton")


@pytest.mark.parametrize("kind", LINEAR)
def test_quantized(kind, tmp_path):
    """With int8 codes and a scale for each row, as compressed-tensors writes them."""
    base, folder = random_model(kind).to(torch.bfloat16), tmp_path / "base"
    linear = {f"{name}.weight" for name, module in base.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"}
    base.save_pretrained(folder)
    stored, numbers = {}, load_file(folder / "model.safetensors")
    for name in linear & numbers.keys():
        scale = (numbers[name].float().abs().amax(1, keepdim=True) / 127).bfloat16()
        stored[name] = (numbers[name] / scale).round().clamp(-128, 127).to(torch.int8)
        stored[f"{name}_scale"] = scale
        numbers[name] = stored[name].bfloat16() * scale
    save_file(numbers | stored, folder / "model.safetensors", {"format": "pt"})
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False}}
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups": {"group_0": group}}
    (folder / "config.json").write_text(json.dumps(config))
    succeed(folder, "--dequantize", "-o", tmp_path / "ours.safetensors")
    ours = load_file(tmp_path / "ours.safetensors")
    assert ours.keys() == numbers.keys()
    assert [name for name, tensor in ours.items() if not torch.equal(tensor, numbers[name])] == []
    assert stored
    succeed(folder, "--dequantize", "--require-model", "-o", tmp_path / "ours.carton")
