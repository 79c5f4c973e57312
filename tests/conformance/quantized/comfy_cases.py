"""Files of ComfyUI with a few small tensors, and the numbers that comfy-kitchen computes from them in float32, cast to bfloat16.

Runs in the environment `COMFY` of environments.py. `comfy_cases.py FOLDER` writes the fixtures of the Rust tests like cases.py;
`comfy_cases.py FOLDER --seed N` makes larger tensors of other numbers, and files whose header describes the layers.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch
from comfy_kitchen.backends.eager import quantization as eager
from comfy_kitchen.tensor import TensorCoreFP8Layout, TensorCoreMXFP8Layout, TensorCoreNVFP4Layout, TensorWiseINT8Layout
from safetensors.torch import save_file


class File:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.seed, self.stored, self.expected, self.layers = seed, {}, {}, {}

    def weight(self, rows, cols):
        return torch.randn(rows * (4 if self.seed else 1), cols * (2 if self.seed else 1))

    def plain(self, name, tensor):
        self.stored[name] = self.expected[name] = tensor

    def layer(self, module, layout, weight, form, **settings):
        codes, params = layout.quantize(weight, **settings)
        for suffix, tensor in layout.state_dict_tensors(codes, params).items():
            self.stored[f"{module}.weight{suffix}"] = tensor
        self.layers[module] = {"format": form}
        self.expected[f"{module}.weight"] = layout.dequantize(codes, params).float().to(torch.bfloat16)


def newer(seed):
    file = File(seed)
    file.layer("a.fp8", TensorCoreFP8Layout, file.weight(24, 32), "float8_e4m3fn")
    file.layer("a.nvfp4", TensorCoreNVFP4Layout, file.weight(48, 64), "nvfp4")
    file.layer("a.mxfp8", TensorCoreMXFP8Layout, file.weight(64, 96), "mxfp8")
    file.layer("a.int8", TensorWiseINT8Layout, file.weight(24, 32), "int8_tensorwise")
    file.plain("a.norm.weight", torch.randn(5))
    file.plain("a.norm.scale", torch.randn(5).half())
    file.stored["a.fp8.input_scale"] = torch.tensor(0.5)
    return file


def older(seed):
    """A marker with a prefix; FP8 elsewhere, and without a scale, is what it is."""
    file = File(seed)
    codes = file.weight(8, 16).to(torch.float8_e4m3fn)
    file.stored |= {"m.q.weight": codes, "m.q.scale_weight": torch.tensor([0.37]), "m.q.scale_input": torch.tensor([1.0]),
                    "m.scaled_fp8": torch.empty(2, dtype=torch.float8_e4m3fn)}
    file.expected["m.q.weight"] = (codes.float() * 0.37).to(torch.bfloat16)
    file.plain("m.k.weight", file.weight(8, 16).to(torch.float8_e4m3fn))
    file.plain("t.scale", torch.randn(3))
    return file


def facts(tensor):
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), hashlib.sha256(data).hexdigest()]


def write(path, file, transport):
    path.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.contiguous() for name, tensor in file.stored.items()}
    metadata = None
    if transport == "tensors":
        for module, layer in file.layers.items():
            stored[f"{module}.comfy_quant"] = torch.tensor(list(json.dumps(layer).encode()), dtype=torch.uint8)
    else:
        metadata = {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": file.layers})}
    save_file(stored, path / "model.safetensors", metadata)
    rows = (f" {json.dumps(name)}: {json.dumps(facts(tensor))}" for name, tensor in sorted(file.expected.items()))
    (path / "expected.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.folder / "comfy", newer(options.seed), "tensors")
    write(options.folder / "comfy_old", older(options.seed), "tensors")
    if options.seed:
        write(options.folder / "comfy_header", newer(options.seed), "header")
