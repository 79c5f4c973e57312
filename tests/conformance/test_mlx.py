"""Folders of MLX: each number is the one that `mx.dequantize` computes on a CPU."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from program import hashes, refuse, succeed

CASES = Path(__file__).resolve().parent / "quantized" / "mlx_cases.py"


@pytest.fixture(scope="module", params=[1, 2])
def folders(request, tmp_path_factory):
    if why := os.environ.get("T2C_MISSING_MLX"):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("mlx")
    subprocess.run([os.environ["T2C_MLX"], CASES, folder, "--seed", str(request.param)], check=True, timeout=300)
    return sorted(folder.iterdir())


def expected(folder):
    facts = json.loads((folder / "expected.json").read_text())
    return {name: dict(zip(("dtype", "shape", "sha256"), fact)) for name, fact in facts.items()}


def test_numbers_are_those_of_mlx(folders, tmp_path):
    for folder in folders:
        out = tmp_path / folder.name
        succeed(folder, "--dequantize", "--to", "safetensors", "-o", out)
        assert hashes(out) == expected(folder), folder.name
        config = json.loads((out / "config.json").read_text())
        assert not {"quantization", "quantization_config"} & set(config)
        assert b'"format":"pt"' in (out / "model.safetensors").read_bytes()[:400_000]


def test_a_stale_index_is_not_read(folders, tmp_path):
    folder = folders[0]
    for name, files in {"absent": "model-00001-of-00002.safetensors", "same": "model.safetensors"}.items():
        copy = tmp_path / name
        copy.mkdir()
        for file in "config.json", "model.safetensors":
            (copy / file).write_bytes((folder / file).read_bytes())
        index = {"weight_map": {"model.embed_tokens.weight": files}}
        (copy / "model.safetensors.index.json").write_text(json.dumps(index))
        succeed(copy, "--dequantize", "-o", tmp_path / f"{name}.pth")
        assert hashes(tmp_path / f"{name}.pth") == expected(folder)
    (copy / "config.json").write_text("{}")
    refuse(copy, "--dequantize", "-o", tmp_path / "refused.pth")
