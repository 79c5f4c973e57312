"""Several files as one checkpoint: shards that real torch split merge into the checkpoint bit for bit, or an error names the shard."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import types

import pytest
from carton_file import Carton, without_colour
from checkpoints import LLAMA_PARAMS
from conftest import worker
from program import listing, measured, refuse, succeed, torch2carton
from sparse import SPARSE, needs_sparse

LIMIT = 64 << 20


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
    merged = folder.with_name("Llama-tiny.carton")  # next to the folder, and named after it
    assert Carton(merged).is_llama()
    assert merged.read_bytes() == (folder / "whole/consolidated.carton").read_bytes()


def test_shards_by_name_give_the_same_carton_as_the_folder(shards, tmp_path):
    folder = shards(2)
    succeed("consolidated.01.pth", "consolidated.00.pth", "-o", "by_name.carton", cwd=folder)
    succeed(".", cwd=folder)
    merged = folder / "Llama-tiny.carton"  # `.` has no folder next to it, but it has a name
    assert (folder / "by_name.carton").read_bytes() == merged.read_bytes()
    assert Carton(merged).toml["model_name"] == "Llama-tiny" and sorted(tmp_path.rglob("*.carton")) == [merged, folder / "by_name.carton"]


def test_shards_merge_without_params_json(shards):
    folder = shards(2)
    (folder / "params.json").unlink()
    assert tensors(folder) == tensors(folder / "whole/consolidated.pth")


@pytest.mark.parametrize("gone, named", [(1, "consolidated.01.pth is missing"), (3, "consolidated.03.pth is missing")])
def test_a_missing_shard_is_named(gone, named, shards):
    folder = shards(4)
    (folder / f"consolidated.0{gone}.pth").unlink()
    assert named in words(folder)
    assert not list(folder.parent.glob("**/*.carton"))


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
    assert not list(folder.parent.glob("**/*.carton"))


def test_shards_of_an_unknown_model_are_refused(saved, tmp_path):
    for number in range(2):
        saved("module_state", f"consolidated.0{number}.pth")
    assert "how it was split over 2 shards is unknown" in words(tmp_path)


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


# --- folders --------------------------------------------------------------------------------------------


def test_the_only_checkpoint_of_a_folder_is_used(saved, tmp_path):
    saved(name="run-7/epoch_3.ckpt")
    for name in ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state_0.pth", "training_args.bin", "mp_rank_00_model_states.pt"):
        (tmp_path / "run-7" / name).write_bytes(b"not a checkpoint")
    succeed(tmp_path / "run-7")
    assert Carton(tmp_path / "run-7.carton").toml["model_name"] == "run-7"


def test_two_candidates_are_listed_with_a_command_for_each(saved, tmp_path):
    saved(name="a.pth"), saved(name="b c.pt")
    text = words(".", cwd=tmp_path)
    assert "`torch2carton ./a.pth`" in text and "`torch2carton './b c.pt'`" in text


def test_safetensors_are_preferred_to_bin_with_a_note(splitter, saved, tmp_path):
    folder = saved(name="set/pytorch_model.bin").parent
    splitter.ask("hugging_face", kind="llama_float32", folder=str(folder), count=2, safe=True)
    text = without_colour(succeed(folder).stderr)
    assert "note: using model.safetensors.index.json, not pytorch_model.bin" in text
    assert tensors(folder) == tensors(folder / "model.safetensors.index.json") != tensors(folder / "pytorch_model.bin")


def test_the_folder_original_is_suggested(saved, tmp_path):
    saved(name="original/consolidated.00.pth")
    (tmp_path / "config.json").write_text("{}")
    assert f"`torch2carton {tmp_path}/original`" in words(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    assert "contains no checkpoint" in words(tmp_path)


def test_folders_of_other_programs_get_advice(tmp_path):
    (tmp_path / ".metadata").write_bytes(b"")
    assert "torch.distributed.checkpoint.format_utils dcp_to_torch" in words(tmp_path)
    (tmp_path / ".metadata").rename(tmp_path / "zero_to_fp32.py")
    assert "zero_to_fp32.py" in words(tmp_path)


def test_separate_checkpoints_are_not_merged(saved, tmp_path):
    saved(name="a.pth"), saved(name="b.pth")
    text = words("a.pth", "b.pth", cwd=tmp_path, status=(2,))
    assert "a.pth and b.pth are not shards of one checkpoint; --each converts each of them on its own: `torch2carton --each *.pth`" in text
    assert not list(tmp_path.glob("*.carton"))
    first, second = objects(succeed("inspect", "--json", "a.pth", "b.pth", cwd=tmp_path))
    assert [first["file"], second["file"]] == ["a.pth", "b.pth"] and first["tensors"] == second["tensors"]


def test_each_converts_separate_checkpoints_and_continues_after_a_failure(saved, tmp_path):
    """The cartons are those that separate commands make; a failure costs only its own carton and the exit status."""
    saved(name="a.pth"), saved("dtypes", "c.pth")
    (tmp_path / "b.pth").write_bytes(b"not a checkpoint")
    outcome = torch2carton("--each", "--json", "-o", "made", "a.pth", "b.pth", "c.pth", cwd=tmp_path)
    assert outcome.status == 1 and "b.pth" in outcome.stderr and "2 converted, 1 failed" in outcome.stderr
    reports = [report for report in objects(outcome) if "error" not in report]
    assert [(report["file"], report["output"]) for report in reports] == [("a.pth", "made/a.carton"), ("c.pth", "made/c.carton")]
    assert listing(tmp_path / "made") == [".torch2carton.outputs", "a.carton", "c.carton"]
    for report in reports:
        assert_the_report_is_right(report, tmp_path)
        succeed(report["file"], "-o", "alone.carton", cwd=tmp_path)
        assert (tmp_path / "alone.carton").read_bytes() == (tmp_path / report["output"]).read_bytes()


def test_resume_makes_only_what_is_missing_truncated_changed_or_old(saved, tmp_path):
    paths = [saved(name=f"{letter}.pth") for letter in "abcde"]
    succeed("--each", "-o", tmp_path, *paths)
    whole = {path.name: path.read_bytes() for path in tmp_path.glob("*.carton")}
    kept = (tmp_path / "a.carton").stat().st_ino
    (tmp_path / "b.carton").write_bytes(whole["b.carton"][:-1])
    (tmp_path / "c.carton").unlink()
    changed = bytearray(whole["d.carton"])
    changed[len(changed) // 2] ^= 1
    (tmp_path / "d.carton").write_bytes(changed)
    os.utime(tmp_path / "e.carton", (10**9, 10**9))
    # A carton that is cut short has lost its mark, so it could be another program's file.
    outcome = succeed("--each", "--resume", "--force", "--json", "-o", tmp_path, *paths)
    skipped = [report.get("skipped", False) for report in objects(outcome)]
    assert skipped == [True, False, False, False, False]
    assert "4 converted, 1 skipped" in outcome.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.carton")} == whole
    assert (tmp_path / "a.carton").stat().st_ino == kept


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
