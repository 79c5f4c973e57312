"""Several files as one checkpoint: shards that real torch split merge into the checkpoint bit for bit."""

import hashlib
import json

import pytest
from carton_file import Carton
from checkpoints import LLAMA_PARAMS
from conftest import worker
from program import succeed


@pytest.fixture(scope="session")
def splitter():
    process = worker("NEWEST", "shard_worker.py")
    yield process
    process.close()


@pytest.fixture(scope="session")
def model_maker():
    process = worker("NEWEST", "model_worker.py")
    yield process
    process.close()


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


def objects(outcome):
    """The JSON objects on stdout, one on each line, each with `schema_version` and `file` first."""
    read = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert all(list(report)[:2] == ["schema_version", "file"] and report["schema_version"] == 1 for report in read)
    return read


def assert_the_report_is_right(report, folder):
    """What `convert --json` says about a carton equals what is in the file."""
    carton = Carton(folder / report["output"])
    assert report["manifest_sha256"] == hashlib.sha256(carton.manifest).hexdigest()
    assert report["written"] is True and report["nbytes"] == carton.path.stat().st_size
    assert sorted(report["misc"]) == sorted(carton.misc())
    assert (report["module"] == "weights") == (not carton.is_llama()) == ("why_weights" in report)
    for ports, described in (("inputs", "input"), ("outputs", "output")):
        wanted = [(port["name"], port["dtype"], [str(size) for size in port["shape"]]) for port in carton.toml.get(described, [])]
        found = [(port["name"], port["dtype"], [str(size) for size in port["shape"]]) for port in report[ports]]
        assert found == wanted
    return carton


# --- Meta's shards --------------------------------------------------------------------------------------------------


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


def test_shards_merge_without_params_json(shards):
    folder = shards(2)
    (folder / "params.json").unlink()
    assert tensors(folder) == tensors(folder / "whole/consolidated.pth")


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


@pytest.mark.parametrize("form", ["folder", "trailing slash", "dot"])
def test_the_report_of_a_hugging_face_folder_is_right(form, model_maker, tmp_path):
    folder = tmp_path / "Llama-tiny"
    folder.mkdir()
    model_maker.ask("make", kind="llama gqa", dtype="bfloat16", folder=str(folder), files=3, extension="safetensors")
    path, cwd = {"folder": (folder, None), "trailing slash": (f"{folder}/", None), "dot": (".", folder)}[form]
    (report,) = objects(succeed("convert", "--json", path, cwd=cwd))
    carton = assert_the_report_is_right(report, cwd or tmp_path)
    assert (cwd or tmp_path).joinpath(report["file"]).resolve() == folder  # of several shards, the folder
    assert report["module"] == "llama" and [port["name"] for port in report["inputs"]][0] == "tokens"
    made = (folder if form == "dot" else tmp_path) / "Llama-tiny.carton"  # next to the folder, but in `.`
    assert carton.path.resolve() == made and list(tmp_path.rglob("*.carton")) == [made] and carton.toml["model_name"] == "Llama-tiny"
    (listed,) = objects(succeed("inspect", "--json", folder))
    sizes = [report[fact] for fact in ("tensors", "parameters", "bytes_by_dtype")]
    assert sizes == [len(listed["tensors"]), listed["parameters"], listed["bytes_by_dtype"]]
