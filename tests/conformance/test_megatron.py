"""Checkpoints of Megatron's ranks: the tensors are those that Megatron itself loads in one process, and those of Hugging Face."""

import argparse
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import torch
from program import hashes, listing, refuse, succeed

WORKER = Path(__file__).parent / "workers/megatron_worker.py"
EXPERTS = {"model": {"num_moe_experts": 4, "moe_router_topk": 2, "qk_layernorm": True},
           "config": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "moe_intermediate_size": 48,
                      "num_experts_per_tok": 2, "head_dim": 8}}
BIASES = {"model": {"add_qkv_bias": True}, "config": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}}
NORMS = {"model": {"qk_layernorm": True}, "config": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 8}}
APART = {"metadata": {"singleton_local_shards": True}}
SETTINGS = {
    "tp2-pp2": {"tp": 2, "pp": 2},
    "experts": {"tp": 2, "ep": 2, **EXPERTS},
}
if os.environ.get("T2C_OLD"):
    SETTINGS |= {
        "one": {}, "tp2": {"tp": 2}, "pp2": {"pp": 2}, "pp4": {"pp": 4}, "tp2-pp4": {"tp": 2, "pp": 4},
        "tied": {"tp": 2, "pp": 2, "tied": True}, "virtual": {"pp": 2, "vp": 2}, "virtual-tp": {"tp": 2, "pp": 2, "vp": 2, "tied": True},
        "biases": {"tp": 2, **BIASES}, "norms": {"tp": 2, "pp": 2, **NORMS}, "apart": {"tp": 2, "pp": 2, **APART},
        "apart-norms": {"pp": 2, **APART, **NORMS}, "apart-experts": {"ep": 2, **APART, **EXPERTS}, "experts-pp": {"pp": 2, "ep": 2, **EXPERTS},
        "experts-whole": {"tp": 2, "ep": 2, "etp": 1, **EXPERTS}, "experts-one": EXPERTS,
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """`saved(name)`: the folder with the checkpoints of a setting."""
    made = {}

    def get(name):
        if why := os.environ.get("T2C_MISSING_MEGATRON"):
            pytest.skip(why)
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            command = [os.environ["T2C_MEGATRON"], "-B", "-W", "ignore", WORKER, folder, json.dumps(SETTINGS[name])]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr[-3000:]
            made[name] = folder
        return made[name]

    return get


def wanted(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.parametrize("name", SETTINGS)
def test_torch_dist_has_the_tensors_that_torch_loads(saved, name):
    folder = saved(name)
    assert hashes(folder / "dist") == wanted(folder, "dist")


@pytest.mark.parametrize("name", SETTINGS)
def test_ranks_are_joined_as_megatron_loads_them_in_one_process(saved, tmp_path, name):
    folder = saved(name)
    assert "Megatron-LM torch_dist" in succeed("inspect", folder / "dist").stdout
    before = listing(folder / "ranks")
    out = tmp_path / "out.safetensors"
    assert "Megatron-LM" in succeed(folder / "ranks", "-o", out).stderr
    assert hashes(out) == wanted(folder, "whole")
    assert listing(folder / "ranks") == before, "nothing appears in the folder"
    succeed(folder / "ranks/iter_0000005", "--key", "optimizer", "-o", out, "--force")
    assert len(hashes(out)) == len(list((folder / "ranks/iter_0000005").iterdir()))


@pytest.mark.parametrize("layout", ["dist", "ranks", "fsdp"])
@pytest.mark.parametrize("name", SETTINGS)
def test_hugging_face_names_are_those_of_megatrons_tool(saved, tmp_path, name, layout):
    folder = saved(name)
    done = succeed(folder / layout, "--to", "safetensors", "--names", "hf", "-o", tmp_path / "out")
    assert hashes(tmp_path / "out") == wanted(folder, "hf")
    assert "61 of 64 rows" in done.stderr
    assert json.loads((tmp_path / "out/config.json").read_text())["vocab_size"] == 61


def archive(path, folder, mode):
    with tarfile.open(path, mode) as tar:
        for name in sorted(folder.rglob("*")):
            tar.add(name, f"./{name.relative_to(folder)}", recursive=False)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_nemo_archives_are_read(saved, tmp_path, mode):
    folder = saved("tp2-pp2")
    inside = tmp_path / "inside"
    shutil.copytree(folder / "dist/iter_0000005", inside / "model_weights")
    (inside / "model_config.yaml").write_text("tensor_model_parallel_size: 2\n")
    assert hashes(archive(tmp_path / "dist.nemo", inside, mode)) == wanted(folder, "dist")
    shutil.rmtree(inside / "model_weights")
    for rank in (folder / "ranks/iter_0000005").iterdir():
        model = torch.load(rank / "model_optim_rng.pt", weights_only=False)["model"]
        (inside / rank.name).mkdir()
        torch.save({name: value for name, value in model.items() if isinstance(value, torch.Tensor)}, inside / rank.name / "model_weights.ckpt")
    ranks = archive(tmp_path / "ranks.nemo", inside, mode)
    before = listing(tmp_path)
    assert hashes(ranks) == wanted(folder, "whole")
    assert listing(tmp_path) == before
    succeed(ranks, "-o", tmp_path / "out.safetensors")
    assert hashes(tmp_path / "out.safetensors") == wanted(folder, "whole")
    shutil.copy(inside / "mp_rank_00_000/model_weights.ckpt", inside / "model_weights.ckpt")
    for rank in inside.glob("mp_rank_*"):
        shutil.rmtree(rank)
    assert hashes(archive(tmp_path / "one.nemo", inside, mode)) == hashes(inside / "model_weights.ckpt")


@pytest.mark.parametrize("setting", ["apply_layernorm_1p", "rotary_interleaved"])
def test_settings_that_change_what_weights_mean_are_refused(tmp_path, setting):
    """The norms are stored without their 1, or the rows of queries and keys in another order, under the same names."""
    shapes = {"embedding.word_embeddings": (32, 16), "decoder.layers.0.self_attention.linear_qkv": (32, 16), "decoder.layers.0.self_attention.linear_proj": (16, 16),
              "decoder.layers.0.mlp.linear_fc1": (48, 16), "decoder.layers.0.mlp.linear_fc2": (16, 24), "output_layer": (32, 16)}
    norms = ("decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", "decoder.layers.0.mlp.linear_fc1.layer_norm_weight", "decoder.final_layernorm.weight")
    model = {f"{name}.weight": torch.zeros(shape) for name, shape in shapes.items()} | dict.fromkeys(norms, torch.zeros(16))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
    (tmp_path / "in" / "iter_0000010" / "mp_rank_00").mkdir(parents=True)
    (tmp_path / "in" / "latest_checkpointed_iteration.txt").write_text("10")
    (tmp_path / "in" / "config.json").write_text(json.dumps(config))
    for is_set in (False, True):
        args = argparse.Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, **{setting: is_set})
        torch.save({"model": model, "checkpoint_version": 3.0, "args": args}, tmp_path / "in" / "iter_0000010" / "mp_rank_00" / "model_optim_rng.pt")
        if not is_set:
            succeed(tmp_path / "in", "--names", "hf", "-o", tmp_path / "out")
    assert f"it was trained with `args.{setting}`" in refuse(tmp_path / "in", "--names", "hf", "-o", tmp_path / "other").stderr
    succeed(tmp_path / "in", "-o", tmp_path / "own.safetensors")
