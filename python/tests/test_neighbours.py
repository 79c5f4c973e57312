"""Programs of torch.export, folders of MLX and files of ComfyUI, by the same doors as other checkpoints."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

import torch2carton


def save(path: Path, parts: dict[str, tuple[str, list[int], bytes]]) -> None:
    """Writes a safetensors file: dtype, shape and bytes of each tensor."""
    header, data = {}, b""
    for name, (dtype, shape, numbers) in parts.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def read(tensor) -> tuple[float, ...]:
    return struct.unpack(f"<{tensor.nbytes // 4}f", tensor.tobytes())


@pytest.fixture
def program(place):
    """Two models, whose weight is a column of a storage."""
    with zipfile.ZipFile("model.pt2", "w") as archive:
        archive.writestr("stem/archive_format", "pt2")
        for number, model in enumerate(("a", "b")):
            ints = [[{"as_int": size} for size in sizes] for sizes in ([2], [2])]
            meta = {"dtype": 7, "sizes": ints[0], "strides": ints[1], "storage_offset": {"as_int": 1}, "layout": 7}
            entry = {"path_name": f"weight_{number}", "use_pickle": False, "tensor_meta": meta}
            archive.writestr(f"stem/data/weights/{model}_weights_config.json", json.dumps({"config": {"w": entry}}))
            archive.writestr(f"stem/data/weights/weight_{number}", floats(0, 1, 2, 3 + number))
    return "model.pt2"


def test_a_program_is_a_checkpoint(program):
    checkpoint = torch2carton.open(program)
    assert checkpoint.format == "pt2" and list(checkpoint) == ["a.w", "b.w"]
    assert read(checkpoint["b.w"]) == (1, 4) and checkpoint["b.w"].stride == (2,)
    done = torch2carton.convert(program, "b.safetensors", key="b")
    assert {name: read(tensor) for name, tensor in torch2carton.open(done.output).items()} == {"w": (1, 4)}
    assert [row["name"] for row in torch2carton.inspect(program).tensors] == ["a.w", "b.w"]


def test_folders_of_mlx_are_dequantized(place):
    folder = place / "mlx"
    folder.mkdir()
    settings = {"bits": 8, "group_size": 32, "mode": "affine"}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization": settings}))
    group = lambda number: ("F32", [1, 1], floats(number))
    save(folder / "model.safetensors", {"l.weight": ("U32", [1, 8], bytes(range(32))), "l.scales": group(0.5), "l.biases": group(-1)})
    done = torch2carton.convert(folder, "mlx.safetensors", dequantize=True)
    assert read(torch2carton.open(done.output)["l.weight"]) == tuple(code / 2 - 1 for code in range(32))
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt_oss", "quantization": settings}))
    with pytest.raises(torch2carton.UnsupportedError, match="gpt_oss"):
        torch2carton.convert(folder, "refused.safetensors", dequantize=True)


def test_files_of_comfyui_are_dequantized(place):
    description = list(json.dumps({"format": "int8_tensorwise"}).encode())
    parts = {"l.weight": ("I8", [1, 4], bytes([1, 2, 255, 0])), "l.weight_scale": ("F32", [], floats(0.25)),
             "l.comfy_quant": ("U8", [len(description)], bytes(description)), "l.bias": ("F32", [1], floats(7))}
    save(place / "comfy.safetensors", parts)
    done = torch2carton.convert("comfy.safetensors", "plain.safetensors", dequantize=True, dtype="float32")
    found = {name: read(tensor) for name, tensor in torch2carton.open(done.output).items()}
    assert found == {"l.weight": (0.25, 0.5, -0.25, 0), "l.bias": (7,)}
