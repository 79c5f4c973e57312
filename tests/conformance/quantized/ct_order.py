"""Models with `actorder: group` of compressed-tensors, whose releases after 0.10 ignore `weight_g_idx`.

    pip install --no-deps --target SITE compressed-tensors==0.10.2
    ct_order.py SITE FOLDER [--seed N]

Runs in the environment `QUANTIZED` of environments.py. Seed 0 writes the fixtures of the Rust tests. That release packs zero points
and cannot unpack them, so the weights are symmetric.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))


def order_model(seed, bits, dtype, group):
    from cases import Model
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs

    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": True, "actorder": "group"}
    model = Model({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
                   "ignore": ["lm_head"], "quantization_status": "compressed"}, dtype=str(dtype).removeprefix("torch."))  # fmt: skip
    compressor = BaseCompressor.load_from_registry("pack-quantized")
    for number in range(2):
        rows, cols = ((20, 96), (12, 64))[number] if seed == 0 else ((203, 384), (37, 1152))[number]
        scale = (torch.rand(rows, cols // group) * 0.1 + 0.01).to(dtype)
        order = (torch.randperm(cols) // group).to(torch.int32)
        arguments = QuantizationArgs(**weights)
        zero = torch.zeros(scale.shape, dtype=torch.int8)
        stored = compressor.compress_weight(weight=torch.randn(rows, cols).to(dtype), scale=scale, zero_point=zero, g_idx=order, quantization_args=arguments)
        stored = dict(stored) | {"weight_scale": scale, "weight_g_idx": order}
        model.add(f"model.layers.{number}.q_proj", compressor.decompress_weight(stored, arguments), **stored)
    return model


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("site", type=Path)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    sys.path.insert(0, str(options.site))
    from cases import write

    for name, bits, dtype, group in (("ct_order_4", 4, torch.bfloat16, 32), ("ct_order_8", 8, torch.float16, 16)):
        torch.manual_seed(options.seed)
        write(options.folder / name, order_model(options.seed, bits, dtype, group), whole=options.seed != 0)


if __name__ == "__main__":
    main()
