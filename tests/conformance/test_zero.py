"""Folders of DeepSpeed's ZeRO: the weights are those of `zero_to_fp32`."""

import pytest
from conftest import worker_fixture
from program import hashes, succeed

CASES = [(stage, ranks, {}) for stage in (1, 2, 3) for ranks in (1, 2, 3, 4, 8)]
CASES += [(stage, 3, setting) for stage in (1, 3) for setting in
          ({"dtype": "float16"}, {"frozen": False}, {"shared": False}, {"groups": 1}, {"dtype": "float32", "frozen": False, "shared": False})]


deepspeed = worker_fixture("DEEPSPEED", "zero_worker.py")


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


@pytest.mark.parametrize("name", ["checkpoint", "pytorch_model"])
def test_the_steps_of_lightning_and_accelerate_are_found(deepspeed, tmp_path, name):
    run, out = tmp_path / "last.ckpt", tmp_path / "out.safetensors"
    wanted = deepspeed.ask("save", folder=str(run), stage=2, ranks=2)
    (run / "global_step5").rename(run / name)
    (run / "latest").write_text(name)
    for place in (run, run / name):
        succeed(place, "-o", out, "--force")
        assert hashes(out) == wanted["weights"]


@pytest.mark.parametrize("stage, ranks", [(stage, ranks) for stage in (1, 2, 3) for ranks in (1, 2, 3, 4, 8)])
def test_universal_checkpoints_have_what_the_writer_wrote(deepspeed, tmp_path, stage, ranks):
    wanted = deepspeed.ask("universal", folder=str(tmp_path / "run"), stage=stage, ranks=ranks)
    step, out = tmp_path / "run/global_step5_universal", tmp_path / "out.safetensors"
    done = succeed(step, "-o", out)
    assert "DeepSpeed universal checkpoint" in done.stderr
    assert hashes(out) == wanted["weights"]
    succeed(step, "--key", "optimizer", "-o", out, "--force")
    assert hashes(out) == wanted["moments"]
