"""Several files as one checkpoint: shards that real torch split merge into the checkpoint bit for bit, or an error names the shard."""

import contextlib
import json
import shutil
import sys
import types

import pytest
from carton_file import Carton, without_colour
from checkpoints import LLAMA_PARAMS
from conftest import worker
from program import measured, refuse, succeed
from sparse import SPARSE, needs_sparse

LIMIT = 64 << 20


@pytest.fixture(scope="session")
def splitter():
    process = worker("NEWEST", "shard_worker.py")
    yield process
    process.close()


@pytest.fixture
def shards(splitter, tmp_path):
    """`shards(count)`: a folder with `count` of Meta's shards, params.json, and the unsplit file in `whole/`."""

    def make(count, kind="llama_bfloat16", embeddings=1, params=None):
        (tmp_path / "whole").mkdir(exist_ok=True)
        splitter.ask("meta", kind=kind, folder=str(tmp_path), count=count, embeddings=embeddings,
                     whole=str(tmp_path / "whole/consolidated.pth"))
        params = params or LLAMA_PARAMS | ({"n_kv_heads": 2} if "gqa" in kind else {})
        for folder in (tmp_path, tmp_path / "whole"):
            (folder / "params.json").write_text(json.dumps(params))
        return tmp_path

    return make


def tensors(path):
    listing = json.loads(succeed("inspect", "--json", "--sha256", path).stdout)["tensors"]
    return {t["name"]: (t["dtype"], t["shape"], t["stride"], t["nbytes"], t["sha256"]) for t in listing}


def words(*arguments, **settings):
    return without_colour(refuse(*arguments, **settings).stderr).strip()


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
    merged = folder / "consolidated.carton"
    assert Carton(merged).is_llama
    assert merged.read_bytes() == (folder / "whole/consolidated.carton").read_bytes()


def test_shards_by_name_give_the_same_carton_as_the_folder(shards):
    folder = shards(2)
    succeed("consolidated.01.pth", "consolidated.00.pth", "-o", "by_name.carton", cwd=folder)
    succeed(".", cwd=folder)
    assert (folder / "by_name.carton").read_bytes() == (folder / "consolidated.carton").read_bytes()


def test_shards_merge_without_params_json(shards):
    folder = shards(2)
    (folder / "params.json").unlink()
    assert tensors(folder) == tensors(folder / "whole/consolidated.pth")


@pytest.mark.parametrize("gone, named", [(1, "consolidated.01.pth is missing"), (3, "consolidated.03.pth is missing")])
def test_a_missing_shard_is_named(gone, named, shards):
    folder = shards(4)
    (folder / f"consolidated.0{gone}.pth").unlink()
    assert named in words(folder)
    assert not list(folder.glob("*.carton"))


def test_an_extra_shard_is_named(shards):
    folder = shards(2)
    shutil.copy(folder / "consolidated.01.pth", folder / "consolidated.02.pth")
    assert "consolidated.02.pth is one shard too many" in words(folder)


@pytest.mark.parametrize("change, named", [
    ({"name": "norm.weight", "value": 7.0}, "`norm.weight`"),
    ({"name": "rope.freqs", "value": 7.0}, "`rope.freqs`"),
    ({"name": "layers.0.attention.wq.weight", "rows": 3}, "`layers.0.attention.wq.weight`"),
    ({"name": "layers.1.ffn_norm.weight", "drop": True}, "`layers.1.ffn_norm.weight`"),
    ({"name": "output.weight", "rename": "lm_head.weight"}, "`lm_head.weight`"),
])
def test_a_shard_that_disagrees_is_named(change, named, shards, splitter):
    folder = shards(2)
    splitter.ask("change", path=str(folder / "consolidated.01.pth"), **change)
    text = words(folder)
    assert "consolidated.01.pth" in text and named in text
    assert not list(folder.glob("*.carton"))


def test_shards_of_an_unknown_model_are_refused(saved, tmp_path):
    for number in range(2):
        saved("module_state", f"consolidated.0{number}.pth")
    assert "nothing says how it was split over 2 shards" in words(tmp_path)


# --- sets whose files hold whole tensors -------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [True, False], ids=["index", "no_index"])
@pytest.mark.parametrize("safe", [False, True], ids=["bin", "safetensors"])
@pytest.mark.parametrize("count", [1, 3])
def test_hugging_faces_sets_merge_into_the_checkpoint(count, safe, index, splitter, tmp_path):
    stem, extension = ("model", "safetensors") if safe else ("pytorch_model", "bin")
    whole = tmp_path / f"whole.{extension}"
    folder = tmp_path / "set"
    folder.mkdir()
    splitter.ask("hugging_face", kind="llama_float32", folder=str(folder), count=count, safe=safe, index=index, whole=str(whole))
    assert tensors(folder) == tensors(whole)
    succeed(folder)
    assert (folder / f"{stem}.carton").is_file()
    if index:
        assert tensors(folder / f"{stem}.{extension}.index.json") == tensors(whole)


@pytest.fixture
def indexed(splitter, tmp_path):
    splitter.ask("hugging_face", kind="llama_float32", folder=str(tmp_path), count=2)
    path = tmp_path / "pytorch_model.bin.index.json"

    def edit(change):
        document = json.loads(path.read_text())
        change(document["weight_map"])
        path.write_text(json.dumps(document))
        return tmp_path

    return edit


FIRST, SECOND = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"


@pytest.mark.parametrize("change, named", [
    (lambda m: m.update({"norm.weight": SECOND}), ["`norm.weight`", SECOND, FIRST]),
    (lambda m: m.pop("norm.weight"), ["`norm.weight`", FIRST]),
    (lambda m: m.update(more=FIRST), ["`more`", FIRST]),
    (lambda m: m.update(more="third.bin"), ["third.bin"]),
    (lambda m: m.update(more="../third.bin"), ["`more`", "../third.bin"]),
    (lambda m: m.update(more="/etc/passwd"), ["`more`", "/etc/passwd"]),
])
def test_an_index_that_disagrees_names_file_and_tensor(change, named, indexed):
    text = words(indexed(change))
    assert all(part in text for part in named), text


@pytest.mark.parametrize("gone", [1, 3])
def test_a_gap_in_a_set_is_named(gone, splitter, tmp_path):
    splitter.ask("hugging_face", kind="llama_float32", folder=str(tmp_path), count=3, index=False)
    (tmp_path / f"pytorch_model-0000{gone}-of-00003.bin").unlink()
    assert f"pytorch_model-0000{gone}-of-00003.bin is missing" in words(tmp_path)


# --- folders --------------------------------------------------------------------------------------------


def test_the_only_checkpoint_of_a_folder_is_used(saved, tmp_path):
    saved(name="epoch_3.ckpt")
    for name in ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state_0.pth", "training_args.bin", "mp_rank_00_model_states.pt"):
        (tmp_path / name).write_bytes(b"not a checkpoint")
    succeed(tmp_path)
    assert (tmp_path / "epoch_3.carton").is_file()


def test_two_candidates_are_listed_with_a_command_for_each(saved, tmp_path):
    saved(name="a.pth"), saved(name="b c.pt")
    text = words(".", cwd=tmp_path)
    assert "`torch2carton ./a.pth`" in text and "`torch2carton './b c.pt'`" in text


def test_safetensors_are_preferred_to_bin_with_a_note(splitter, saved, tmp_path):
    splitter.ask("hugging_face", kind="llama_float32", folder=str(tmp_path), count=2, safe=True)
    saved(name="pytorch_model.bin")
    text = without_colour(succeed(tmp_path).stderr)
    assert "note: using model.safetensors.index.json, not pytorch_model.bin" in text
    assert (tmp_path / "model.carton").is_file()


def test_the_folder_original_is_suggested(saved, tmp_path):
    saved(name="original/consolidated.00.pth")
    (tmp_path / "config.json").write_text("{}")
    assert f"`torch2carton {tmp_path}/original`" in words(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    assert "holds no checkpoint" in words(tmp_path)


def test_folders_of_other_programs_get_advice(tmp_path):
    (tmp_path / ".metadata").write_bytes(b"")
    assert "torch.distributed.checkpoint.format_utils dcp_to_torch" in words(tmp_path)
    (tmp_path / ".metadata").rename(tmp_path / "zero_to_fp32.py")
    assert "zero_to_fp32.py" in words(tmp_path)


def test_separate_checkpoints_are_not_merged(saved, tmp_path):
    saved(name="a.pth"), saved(name="b.pth")
    text = words("a.pth", "b.pth", cwd=tmp_path, status=(2,))
    assert ("a.pth and b.pth are not shards of one checkpoint; convert each: "
            'for f in *.pth; do torch2carton "$f"; done') in text
    listings = succeed("inspect", "--json", "a.pth", "b.pth", cwd=tmp_path).stdout
    decoder = json.JSONDecoder()
    first, end = decoder.raw_decode(listings)
    second, _ = decoder.raw_decode(listings[end:].lstrip())
    assert [first["file"], second["file"]] == ["a.pth", "b.pth"] and first["tensors"] == second["tensors"]


def test_the_command_that_is_suggested_for_a_lone_shard_works(shards):
    folder = shards(2)
    text = words("consolidated.00.pth", cwd=folder)
    assert "consolidated.00.pth is shard 1 of 2: run `torch2carton .`, or --single for this file alone" in text
    succeed(".", cwd=folder)


# --- memory ---------------------------------------------------------------------------------------------------------


def sparse_shard(path, whole, count):
    """A shard of gigabytes that takes no disk space: the tool's LLaMA with the shapes of a shard."""
    tool = types.ModuleType("make_sparse_pth")
    exec(SPARSE.read_text().replace('if __name__==', 'if "" =='), vars(tool))
    layout = tool.llama

    def part(name, shape):
        module = name.split(".")[-2]
        if len(shape) == 1:
            return shape
        rows, columns = shape
        return (rows, columns // count) if module in ("wo", "w2", "tok_embeddings") else (rows // count, columns)

    tool.llama = lambda *arguments: [(name, part(name, shape)) for name, shape in layout(*arguments)]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(None):
        patch.setattr(sys, "argv", ["make_sparse_pth.py", str(path), "--llama", *whole.split()])
        tool.main()


@needs_sparse
@pytest.mark.parametrize("what", ["convert", "inspect --json --sha256"])
def test_merging_uses_constant_memory(what, tmp_path, table):
    if shutil.disk_usage(tmp_path).free < 8e9:
        pytest.skip(f"needs 8 GB in {tmp_path}")
    for number in range(2):
        sparse_shard(tmp_path / f"consolidated.0{number}.pth", "--size 3G --dim 4096 --ff 11008 --vocab 32000", 2)
    outcome = measured(*([] if what == "convert" else what.split()), tmp_path)
    assert outcome.status == 0, outcome.stderr
    size = sum(path.stat().st_size for path in tmp_path.glob("*.pth")) / 1e9
    table(f"{what + ' of 2 shards':42} {size:6.2f} GB   peak {outcome.peak / 2**20:6.1f} MiB   "
          f"{outcome.seconds:6.2f} s   {size / outcome.seconds:5.2f} GB/s")
    assert outcome.peak <= LIMIT
