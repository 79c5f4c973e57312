"""Conversions that compute their outputs: casts, sums, merges and dequantized weights, over models that it makes and those of the tests."""

import json
import random
import struct
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent.parent / "crates/model/quantization/tests/models"
PREFIX = "base_model.model."
SHAPES = {"q.weight": (70, 133), "k.weight": (33, 64)}
RANK = 9


def write(path, tensors, numbers):
    """Writes float32 tensors of all magnitudes; those of models have subnormal, infinite and undefined numbers as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header, data = {}, bytearray()
    for name, shape in tensors.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        start = len(data)
        for _ in range(count):
            kind = numbers.randrange(256)
            if kind < 4 and PREFIX not in name:
                data += struct.pack("<I", (0x7F800000, 0xFF800000, 0xFFC00001, numbers.randrange(1 << 23))[kind])
            else:
                data += struct.pack("<f", numbers.gauss(0, 1) * 2.0 ** numbers.randrange(-20, 3))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def conversions(folder):
    """Writes models into a folder, and returns the arguments of each conversion, without its output."""
    numbers = random.Random(56)
    base, tuned = folder / "base.safetensors", folder / "tuned.safetensors"
    write(base, SHAPES, numbers)
    write(tuned, SHAPES, numbers)
    for kind, is_dora in ("lora", False), ("dora", True):
        tensors = {}
        for name, (rows, columns) in SHAPES.items():
            stem = PREFIX + name.removesuffix(".weight")
            tensors |= {f"{stem}.lora_A.weight": (RANK, columns), f"{stem}.lora_B.weight": (rows, RANK)}
            if is_dora:
                tensors[f"{stem}.lora_magnitude_vector"] = (rows,)
        write(folder / kind / "adapter_model.safetensors", tensors, numbers)
        config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 7, "use_dora": is_dora}
        (folder / kind / "adapter_config.json").write_text(json.dumps(config))
    changes = [["--merge", folder / "lora"], ["--merge", folder / "dora"], ["--add", folder / "tuned.safetensors=0.3"], ["--average", tuned], []]
    dtypes = [[], ["--dtype", "bfloat16"], ["--dtype", "float16"], ["--dtype", "float64"]]
    models = sorted(path for path in MODELS.iterdir() if path.is_dir())
    return [[base, *change, *dtype] for change in changes for dtype in dtypes] + [[model, "--dequantize"] for model in models]
