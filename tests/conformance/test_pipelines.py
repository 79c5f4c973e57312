"""Pipelines of diffusers, which loads the outputs as pipelines again."""

import json

import pytest
from conftest import worker_fixture
from program import refuse, succeed

diffusers = worker_fixture("DIFFUSERS", "pipeline_worker.py")


@pytest.mark.parametrize("settings", [{"safe_serialization": False}, {"max_shard_size": "20KB"}, {"variant": "fp16"}], ids=["pickles", "shards", "variant"])
def test_a_pipeline_loads_again(tmp_path, diffusers, settings):
    source, out = tmp_path / "pipeline", tmp_path / "out"
    diffusers.ask("make", path=str(source), **settings)
    assert f"--each {source} --to safetensors -o {source}-safetensors" in refuse(source, "-o", out, "--to", "safetensors").stderr
    succeed("convert", "--each", source, "--to", "safetensors", "-o", out, "--max-shard-size", "30KB")
    index = json.loads((out / "unet" / "diffusion_pytorch_model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {file.name for file in (out / "unet").glob("*.safetensors")}
    if "variant" not in settings:
        count, differing = diffusers.ask("differences", first=str(source), second=str(out))
        assert count > 300 and differing == []
    else:  # diffusers would not find the input's files without being asked for the variant
        assert diffusers.ask("differences", first=str(out), second=str(out))[0] > 300
