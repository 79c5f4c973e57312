"""Folders of MLX with a few small tensors, and the numbers that `mx.dequantize` computes from them.

Runs in the environment `MLX` of environments.py. `mlx_cases.py FOLDER` writes the fixtures of the Rust tests like cases.py;
`mlx_cases.py FOLDER --seed N` makes larger tensors of other numbers.
"""

import argparse
import hashlib
import json
from pathlib import Path

import mlx.core as mx

DTYPES = {mx.bfloat16: "bfloat16", mx.float16: "float16", mx.float32: "float32"}
USUAL = {"affine": (64, 4), "mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Folder:
    """A model under construction: its configuration, stored tensors and expected numbers."""

    def __init__(self, seed, model_type, dtype, mode="affine", group_size=None, bits=None, copy=True):
        mx.random.seed(seed)
        self.seed, self.dtype = seed, dtype
        group, usual = USUAL[mode]
        self.default = {"group_size": group_size or group, "bits": bits or usual, "mode": mode}
        settings = dict(self.default)
        self.config = {"model_type": model_type, "torch_dtype": DTYPES[dtype], "quantization": settings}
        if copy:
            self.config["quantization_config"] = settings
        self.stored, self.expected = {}, {}

    def random(self, *shape):
        return mx.random.normal([size * 8 if self.seed and number == len(shape) - 2 else size for number, size in enumerate(shape)]).astype(self.dtype)

    def plain(self, name, tensor=None, names=None):
        self.stored[name] = self.random(5, 7) if tensor is None else tensor
        self.expected |= {names[n]: self.stored[name][n] for n in range(len(names))} if names else {name: self.stored[name]}

    def layer(self, module, weight, names=None, settings=None, global_scale=None):
        """Quantizes a weight. `names` are those of its experts; `settings` are those of this layer."""
        how = dict(settings or self.default)
        mode = how.get("mode", "affine")
        how = {"group_size": how.get("group_size", USUAL[mode][0]), "bits": how.get("bits", USUAL[mode][1]), "mode": mode}
        if settings:
            for key in ("quantization", "quantization_config"):
                if key in self.config:
                    self.config[key][module] = settings
        experts = [weight] if names is None else [weight[n] for n in range(weight.shape[0])]
        scales = [None if global_scale is None else mx.array(global_scale * (n + 1), dtype=mx.float32) for n in range(len(experts))]
        parts = [mx.quantize(one, **how, **({} if scale is None else {"global_scale": scale})) for one, scale in zip(experts, scales)]
        for number, (part, scale) in enumerate(zip(parts, scales)):
            numbers = mx.dequantize(*part, **how, **({} if scale is None else {"global_scale": scale}))
            self.expected[names[number] if names else f"{module}.weight"] = numbers.astype(self.dtype)
        for number, suffix in enumerate(("weight", "scales", "biases")[:len(parts[0])]):
            self.stored[f"{module}.{suffix}"] = mx.stack([part[number] for part in parts]) if names else parts[0][number]
        if global_scale is not None:
            self.stored[f"{module}.global_scale"] = mx.stack(scales)


@case
def mlx_affine(seed):
    """All bits and groups, and a bias of a layer next to those of its groups."""
    folder = Folder(seed, "qwen2", mx.bfloat16)
    for bits in 2, 3, 4, 5, 6, 8:
        for group in 32, 64, 128:
            folder.layer(f"model.layers.0.b{bits}_g{group}", folder.random(6, 256), settings={"group_size": group, "bits": bits})
    folder.layer("model.embed_tokens", folder.random(16, 64))
    folder.plain("model.layers.0.b4_g64.bias", folder.random(1, 6)[0])
    folder.plain("model.norm.weight")
    return folder


@case
def mlx_affine_float16(seed):
    folder = Folder(seed, "llama", mx.float16, group_size=32, bits=5, copy=False)
    folder.layer("model.layers.0.self_attn.q_proj", folder.random(8, 64))
    folder.config["quantization"]["model.layers.0.self_attn.k_proj"] = False
    folder.config["quantization"]["model.layers.0.self_attn.q_proj"] = True
    folder.plain("model.layers.0.self_attn.k_proj.weight")
    return folder


@case
def mlx_affine_float32(seed):
    folder = Folder(seed, "llama", mx.float32, bits=3)
    folder.config["quantization_config"] = folder.config.pop("quantization")
    folder.layer("model.layers.0.self_attn.q_proj", folder.random(8, 192))
    return folder


@case
def mlx_floats(seed):
    """The other modes, in a folder whose usual one is mxfp4."""
    folder = Folder(seed, "qwen3_moe", mx.bfloat16, mode="mxfp4")
    folder.layer("model.layers.0.self_attn.q_proj", folder.random(8, 64))
    folder.layer("model.layers.0.self_attn.k_proj", folder.random(8, 64), settings={"mode": "nvfp4", "group_size": 16, "bits": 4})
    folder.layer("model.layers.0.self_attn.v_proj", folder.random(8, 64), settings={"mode": "mxfp8"})
    folder.layer("model.layers.0.mlp.gate", folder.random(12, 64), settings={"group_size": 64, "bits": 8})
    for name in "gate_proj", "up_proj", "down_proj":
        experts = [f"model.layers.0.mlp.experts.{number}.{name}.weight" for number in range(12)]
        folder.layer(f"model.layers.0.mlp.switch_mlp.{name}", folder.random(12, 4, 32), names=experts)
    return folder


@case
def mlx_mixtral(seed):
    """NVFP4 with a scale for each expert; a projection that is not quantized, and a bias."""
    folder = Folder(seed, "mixtral", mx.bfloat16, mode="nvfp4")
    for name, other in ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"):
        experts = [f"model.layers.0.block_sparse_moe.experts.{number}.{other}" for number in range(11)]
        module = f"model.layers.0.block_sparse_moe.switch_mlp.{name}"
        if name == "up_proj":
            folder.plain(f"{module}.weight", folder.random(11, 4, 32), [f"{expert}.weight" for expert in experts])
        else:
            folder.layer(module, folder.random(11, 4, 32), [f"{expert}.weight" for expert in experts],
                         global_scale=3.7 if name == "gate_proj" else None)
        folder.plain(f"{module}.bias", folder.random(11, 4, 1)[:, :, 0], [f"{expert}.bias" for expert in experts])
    return folder


def facts(tensor):
    data = bytes(memoryview(mx.contiguous(tensor).view(mx.uint8)))
    return [str(tensor.dtype).removeprefix("mlx.core."), list(tensor.shape), hashlib.sha256(data).hexdigest()]


def write(path, folder):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(folder.config, indent=1) + "\n")
    mx.save_safetensors(str(path / "model.safetensors"), folder.stored, metadata={"format": "mlx"})
    rows = (f" {json.dumps(name)}: {json.dumps(facts(tensor))}" for name, tensor in sorted(folder.expected.items()))
    (path / "expected.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, make in CASES.items():
        write(options.folder / name, make(options.seed))
