"""`AffineQuantizedTensor` of torchao 0.15.0, the last one with that class: `torchao_affine.py SOURCES FILE SEED` writes a pickle of the tensors,
and next to it their numbers. A process of its own, because only one torchao can be imported."""

import sys

sys.path.insert(0, sys.argv[1])
import torch
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerAxis, PerGroup, quantize_

torch.manual_seed(int(sys.argv[3]))
stored, numbers = {}, {}
configs = {
    "int8": Int8WeightOnlyConfig(version=1),
    "int8_groups": Int8WeightOnlyConfig(version=1, group_size=32),
    "float8": Float8WeightOnlyConfig(version=1),
    "int4_groups": IntxWeightOnlyConfig(version=1, weight_dtype=torch.int4, granularity=PerGroup(32)),
    "int4_channels": IntxWeightOnlyConfig(version=1, weight_dtype=torch.int4, granularity=PerAxis(0)),
}
for name, config in configs.items():
    for dtype in (torch.bfloat16, torch.float32):
        layer = torch.nn.Linear(*((384, 200) if int(sys.argv[3]) else (64, 24)), bias=False).to(dtype)
        quantize_(layer, config)
        weight = f"{name}.{dtype}".replace(".", "_") + ".weight"
        stored[weight], numbers[weight] = layer.weight.data, layer.weight.dequantize()
torch.save(stored, sys.argv[2])
torch.save(numbers, sys.argv[2] + ".numbers")
