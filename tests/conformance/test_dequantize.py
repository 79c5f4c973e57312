"""`--dequantize` computes the numbers of the methods' own libraries: models with other shapes and codes than the fixtures."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import worker_fixture
from program import BINARY, succeed
from served import Server

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


reference = worker_fixture("NEWEST", "run_worker.py")


def quantized(folder, target, block):
    """Copies a model with the projections in FP8 to `target`, and with the numbers that transformers makes of them to `target`/numbers."""
    from safetensors.torch import load_file, save_file
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    for place in (target, target / "numbers"):
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("*.carton"))
    codes, numbers = {}, load_file(folder / "model.safetensors")
    for name, tensor in numbers.items():
        if not name.endswith("_proj.weight"):
            codes[name] = tensor
            continue
        rows, cols = (size // block for size in tensor.shape)
        blocks = tensor.float().reshape(rows, block, cols, block)
        scale = blocks.abs().amax(dim=(1, 3)) / 448
        codes[name] = (blocks / scale[:, None, :, None]).reshape(tensor.shape).to(torch.float8_e4m3fn)
        codes[f"{name}_scale_inv"] = scale
        numbers[name] = Fp8Dequantize(None)._dequantize_one(codes[name], scale, output_dtype=tensor.dtype).contiguous()
    save_file(codes, target / "model.safetensors", metadata={"format": "pt"})
    save_file(numbers, target / "numbers" / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [block, block]}
    (target / "config.json").write_text(json.dumps(config))


def test_a_carton_generates_what_transformers_does_with_the_numbers(reference, tmp_path):
    """The first seed whose choices are not close: the tokens, and the tensors that `run` and `serve` compute with, are the same."""
    for seed in range(20):
        folder, target = tmp_path / f"float-{seed}", tmp_path / f"fp8-{seed}"
        folder.mkdir()
        reference.ask("make", folder=str(folder), kind="byte level", model_type="llama", seed=seed)
        quantized(folder, target, 8)
        wanted = reference.ask("generate", folder=str(target / "numbers"), text="Once upon a time", count=32)
        if wanted["margin"] >= 1e-3 and wanted["distinct"] >= 8 and wanted["text"] is not None:
            break
    else:
        pytest.fail("no seed gives a text without close choices")
    ours, theirs = tmp_path / "ours.carton", tmp_path / "theirs.carton"
    succeed(target, "--dequantize", "-o", ours)
    succeed(target / "numbers", "-o", theirs)
    answer = json.loads(succeed("run", "--json", ours, "Once upon a time", "--max-tokens", 32).stdout)
    assert answer["tokens"] == wanted["tokens"] and answer["text"] == wanted["text"]
    digests = {line.split()[0] for line in succeed("digest", "-q", ours, theirs).stdout.splitlines()}
    assert len(digests) == 1
    with Server(BINARY, "serve", "--port", "0", ours, "--name", "model") as server:
        # The logits at each place choose the next token.
        tokens = [*answer["prompt_tokens"], *wanted["tokens"]]
        body = json.dumps({"inputs": [{"name": "tokens", "shape": [1, len(tokens)], "datatype": "INT64", "data": tokens}]})
        response = server.request("POST", "/v2/models/model/infer", body.encode())
        (output,) = (it for it in json.loads(response.body)["outputs"] if it["name"] == "logits")
        logits = torch.tensor(output["data"]).reshape(output["shape"])[0]
        assert logits[len(answer["prompt_tokens"]) - 1 : -1].argmax(-1).tolist() == wanted["tokens"]
