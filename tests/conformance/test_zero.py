"""Folders of DeepSpeed's ZeRO: the weights are those of `zero_to_fp32`, and what is missing or damaged is named."""

import json

import pytest
from conftest import worker
from program import refuse, succeed

CASES = [(stage, ranks, {}) for stage in (1, 2, 3) for ranks in (1, 2, 3, 4, 8)]
CASES += [(stage, 3, setting) for stage in (1, 3) for setting in
          ({"dtype": "float16"}, {"frozen": False}, {"shared": False}, {"groups": 1}, {"dtype": "float32", "frozen": False, "shared": False})]


@pytest.fixture(scope="module")
def deepspeed():
    process = worker("DEEPSPEED", "zero_worker.py")
    yield process
    process.close()


def hashes(*arguments):
    rows = json.loads(succeed("inspect", "--json", "--sha256", *arguments).stdout)["tensors"]
    return {row["name"]: {"dtype": row["dtype"], "shape": row["shape"], "sha256": row["sha256"]} for row in rows}


@pytest.mark.parametrize("stage, ranks, setting", CASES)
def test_the_weights_are_those_of_zero_to_fp32(deepspeed, tmp_path, stage, ranks, setting):
    folder = tmp_path / "run"
    wanted = deepspeed.ask("save", folder=str(folder), stage=stage, ranks=ranks, **setting)
    before = sorted(folder.rglob("*"))
    out = tmp_path / "out.safetensors"
    for place in (folder, folder / "global_step5"):
        done = succeed(place, "-o", out, "--force")
        assert f"ZeRO-{stage}, {ranks} rank" in done.stderr
        assert hashes(out) == wanted["weights"]
    assert sorted(folder.rglob("*")) == before, "nothing appears in the folder"
    if stage < 3:
        succeed(folder, "--key", "module", "-o", out, "--force")
        assert hashes(out) == wanted["module"], "the weights of 16 bits"


@pytest.mark.parametrize("stage", [1, 3])
def test_what_is_missing_or_damaged_is_named(deepspeed, tmp_path, stage):
    folder = tmp_path / "run"
    deepspeed.ask("save", folder=str(folder), stage=stage, ranks=3)
    for path in sorted((folder / "global_step5").iterdir()):
        whole = path.read_bytes()
        for damaged in (None, b"", whole[:len(whole) // 2]):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            for command in (["inspect", folder], [folder, "-o", tmp_path / "x.safetensors"]):
                assert path.name in refuse(*command).stderr, f"{path.name} {damaged and len(damaged)}"
            path.write_bytes(whole)
        if path.name == "mp_rank_00_model_states.pt":
            continue  # its weights of 16 bits are whole
        text = refuse(path, "-o", tmp_path / "x.safetensors").stderr
        assert "DeepSpeed" in text, text
    assert not (tmp_path / "x.safetensors").exists()
    older = folder / "global_step4"
    older.mkdir()
    for path in (folder / "global_step5").iterdir():
        (older / path.name).write_bytes(path.read_bytes())
    (folder / "latest").unlink()
    assert "global_step4" in succeed(folder, "--dry-run", "--to", "safetensors").stderr, "the other step is named"


@pytest.mark.parametrize("name", ["checkpoint", "pytorch_model"])
def test_the_steps_of_lightning_and_accelerate_are_found(deepspeed, tmp_path, name):
    run, out = tmp_path / "last.ckpt", tmp_path / "out.safetensors"
    wanted = deepspeed.ask("save", folder=str(run), stage=2, ranks=2)
    (run / "global_step5").rename(run / name)
    (run / "latest").write_text(name)
    for place in (run, run / name):
        succeed(place, "-o", out, "--force")
        assert hashes(out) == wanted["weights"]


def test_world_sizes_agree(deepspeed, tmp_path):
    for ranks in (2, 3):
        deepspeed.ask("save", folder=str(tmp_path / str(ranks)), stage=2, ranks=ranks)
    name = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    mixed = tmp_path / "2/global_step5" / name
    mixed.write_bytes((tmp_path / "3/global_step5" / name).read_bytes())
    assert name in refuse("inspect", tmp_path / "2").stderr


@pytest.mark.parametrize("stage, ranks", [(stage, ranks) for stage in (1, 2, 3) for ranks in (1, 2, 3, 4, 8)])
def test_universal_checkpoints_have_what_the_writer_wrote(deepspeed, tmp_path, stage, ranks):
    wanted = deepspeed.ask("universal", folder=str(tmp_path / "run"), stage=stage, ranks=ranks)
    step, out = tmp_path / "run/global_step5_universal", tmp_path / "out.safetensors"
    done = succeed(step, "-o", out)
    assert "DeepSpeed universal checkpoint" in done.stderr
    assert hashes(out) == wanted["weights"]
    succeed(step, "--key", "optimizer", "-o", out, "--force")
    assert hashes(out) == wanted["moments"]


@pytest.mark.parametrize("stage", [1, 3])
def test_a_damaged_universal_checkpoint_is_refused(deepspeed, tmp_path, stage):
    deepspeed.ask("universal", folder=str(tmp_path / "run"), stage=stage, ranks=2)
    step = tmp_path / "run/global_step5_universal"
    path = step / "zero/l.weight/fp32.pt"
    whole = path.read_bytes()
    for cut in (0, len(whole) // 2):
        path.write_bytes(whole[:cut])
        assert "zero/l.weight/fp32.pt" in refuse("inspect", step).stderr
    path.unlink()
    assert "`l.weight`" in refuse("inspect", step).stderr
    for other in path.parent.iterdir():
        other.unlink()
    path.parent.rmdir()
    assert "zero/l.weight/fp32.pt" in refuse(step, "-o", tmp_path / "out.safetensors").stderr
    (step / "tmp").mkdir()
    assert "not complete" in refuse("inspect", step).stderr
    assert not (tmp_path / "out.safetensors").exists()
