"""GGUF files that the Python package gguf writes: each number of each type, and each key."""

import json

import pytest
from conftest import worker_fixture
from program import hashes, refuse, succeed

package = worker_fixture("GGUF", "gguf_worker.py")


def keys(path):
    rows = json.loads(succeed("inspect", "--json", "--all", path).stdout)["values"]
    return {row["path"].removeprefix("__metadata__."): row["value"] for row in rows}


@pytest.mark.parametrize("setting", [{}, {"version": 2}, {"big": True}, {"big": True, "version": 2}])
def test_every_type_and_key_is_read(package, tmp_path, setting):
    path, out = tmp_path / "model.gguf", tmp_path / "out.safetensors"
    for seed in range(3):
        wanted = package.ask("write", path=str(path), seed=seed, **setting)
        assert hashes(path) == wanted["tensors"]
        assert {key: value for key, value in keys(path).items() if key in wanted["keys"]} == wanted["keys"]
        assert keys(path)["general.architecture"] == "llama"
        refuse(path, "-o", out, "--force")
        succeed(path, "-o", out, "--dequantize", "--force")
        assert hashes(out) == wanted["tensors"]


def test_a_split_is_joined(package, tmp_path):
    folder, out = tmp_path / "split", tmp_path / "out.safetensors"
    folder.mkdir()
    wanted = package.ask("write", path=str(folder / "model.gguf"), seed=1, split=10)
    shards = sorted(folder.iterdir())
    assert len(shards) > 2
    for given in (shards, [folder]):
        succeed(*given, "-o", out, "--dequantize", "--force")
        assert hashes(out) == wanted["tensors"]


def test_a_carton_keeps_the_blocks(package, tmp_path):
    path, carton, out = tmp_path / "model.gguf", tmp_path / "model.carton", tmp_path / "out.safetensors"
    wanted = package.ask("write", path=str(path), seed=2)
    succeed(path, "-o", carton, "--arch", "weights")
    succeed(carton, "-o", out, "--dequantize")
    assert hashes(out) == wanted["tensors"]
