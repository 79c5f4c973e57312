"""Several files as one checkpoint: shards that real torch split merge into the checkpoint bit for bit."""

import json

import pytest
from carton_file import Carton
from checkpoints import LLAMA_PARAMS
from conftest import worker_fixture
from program import succeed


splitter = worker_fixture("NEWEST", "shard_worker.py")


@pytest.fixture
def shards(splitter, tmp_path):
    """`shards(count)`: a folder with `count` of Meta's shards, params.json, and the unsplit file in `whole/`."""

    def make(count, kind="llama_bfloat16", embeddings=1, params=None):
        folder = tmp_path / "Llama-tiny"
        (folder / "whole").mkdir(parents=True, exist_ok=True)
        splitter.ask("meta", kind=kind, folder=str(folder), count=count, embeddings=embeddings,
                     whole=str(folder / "whole/consolidated.pth"))
        params = params or LLAMA_PARAMS | ({"n_kv_heads": 2} if "gqa" in kind else {})
        for place in (folder, folder / "whole"):
            (place / "params.json").write_text(json.dumps(params))
        return folder

    return make


def tensors(path):
    listing = json.loads(succeed("inspect", "--json", "--sha256", path).stdout)["tensors"]
    return {t["name"]: (t["dtype"], t["shape"], t["stride"], t["nbytes"], t["sha256"]) for t in listing}


@pytest.mark.parametrize("embeddings", [1, 0], ids=["llama2", "llama3"])
@pytest.mark.parametrize("kind", ["llama_bfloat16", "llama_float32", "llama_gqa"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_metas_shards_merge_into_the_checkpoint(count, kind, embeddings, shards):
    folder = shards(count, kind, embeddings)
    whole = folder / "whole/consolidated.pth"
    assert tensors(folder) == tensors(whole)
    succeed(folder, "--name", "llama")
    succeed(whole, "--name", "llama")
    merged = folder.with_name("Llama-tiny.carton")  # next to the folder, and named after it
    assert Carton(merged).is_llama()
    assert merged.read_bytes() == (folder / "whole/consolidated.carton").read_bytes()


# --- sets whose files hold whole tensors -------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [True, False], ids=["index", "no_index"])
@pytest.mark.parametrize("safe", [False, True], ids=["bin", "safetensors"])
@pytest.mark.parametrize("count", [1, 3])
def test_hugging_faces_sets_merge_into_the_checkpoint(count, safe, index, splitter, tmp_path):
    extension = "safetensors" if safe else "bin"
    whole = tmp_path / f"whole.{extension}"
    folder = tmp_path / "set"
    folder.mkdir()
    splitter.ask("hugging_face", kind="llama_float32", folder=str(folder), count=count, safe=safe, index=index, whole=str(whole))
    assert tensors(folder) == tensors(whole)
    succeed(folder)
    assert (tmp_path / "set.carton").is_file()
    if index:
        (index_json,) = folder.glob("*.index.json")
        assert tensors(index_json) == tensors(whole)
