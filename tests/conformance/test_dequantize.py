"""`--dequantize` computes the numbers of the methods' own libraries: models with other shapes and codes than the fixtures."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from program import succeed, torch2carton

HERE = Path(__file__).resolve().parent
SEEDS = [1, 2]


@pytest.fixture(scope="module", params=SEEDS)
def models(request, tmp_path_factory):
    """A folder with a model for each scheme, made by its library."""
    if why := os.environ.get("T2C_MISSING_QUANTIZED"):
        pytest.skip(why)
    python = Path(os.environ["T2C_QUANTIZED"])
    folder = tmp_path_factory.mktemp(f"seed-{request.param}")
    environment = os.environ | {"T2C_QUANTIZED_SOURCES": str(python.parent.parent / "sources"), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = [python, HERE / "quantized" / "cases.py", folder, "--seed", str(request.param)]
    subprocess.run(arguments, check=True, capture_output=True, env=environment)
    return folder


def found(output):
    report = json.loads(succeed("inspect", "--sha256", "--json", output).stdout)
    return {row["name"]: [row["dtype"], row["shape"], row["sha256"]] for row in report["tensors"]}


def test_numbers_are_those_of_the_library(models, tmp_path):
    wrong = []
    for model in sorted(models.iterdir()):
        output = tmp_path / f"{model.name}.safetensors"
        succeed(model, "--dequantize", "-o", output)
        expected = json.loads((model / "expected.json").read_text())
        wrong += [f"{model.name}: {name}" for name in expected if found(output).get(name) != expected[name]]
    assert not wrong


def test_diff_and_digest_see_the_numbers(models, tmp_path):
    """A quantized model and its numbers have one digest and no difference."""
    wrong = []
    for model in sorted(models.iterdir()):
        output = tmp_path / f"{model.name}.safetensors"
        succeed(model, "--dequantize", "-o", output)
        digests = {line.split()[0] for line in succeed("digest", "-q", "--dequantize", model, output).stdout.splitlines()}
        outcome = torch2carton("diff", "--dequantize", "--no-values", model, output)
        stored = torch2carton("diff", "--no-values", model, output)
        if len(digests) != 1 or outcome.status != 0 or stored.status != 1:
            wrong.append((model.name, digests, outcome.stdout[:200], stored.status))
    assert not wrong
