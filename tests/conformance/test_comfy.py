"""Files of ComfyUI: each number is the one that comfy-kitchen computes in float32, cast to bfloat16."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from program import hashes, succeed

CASES = Path(__file__).resolve().parent / "quantized" / "comfy_cases.py"


@pytest.fixture(scope="module", params=[1, 2])
def folders(request, tmp_path_factory):
    if why := os.environ.get("T2C_MISSING_COMFY"):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("comfy")
    subprocess.run([os.environ["T2C_COMFY"], CASES, folder, "--seed", str(request.param)], check=True, timeout=300)
    return sorted(folder.iterdir())


def test_numbers_are_those_of_comfy_kitchen(folders, tmp_path):
    for folder in folders:
        out = tmp_path / f"{folder.name}.safetensors"
        succeed(folder / "model.safetensors", "--dequantize", "-o", out)
        facts = json.loads((folder / "expected.json").read_text())
        assert hashes(out) == {name: dict(zip(("dtype", "shape", "sha256"), fact)) for name, fact in facts.items()}, folder.name
        assert b"_quantization_metadata" not in out.read_bytes()
