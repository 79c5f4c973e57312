"""Checkpoints that several processes wrote: the tensors are those that the trainer itself had at the time of saving."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from program import hashes, listing, refuse, succeed

WORKER = Path(__file__).parent / "workers/trainer_worker.py"
FAST = {"NEWEST": {2: "dcp-one local-one safetensors-one files-one files-strided".split(), 3: "dcp-one files-one".split()}}
ALL = {
    "NEWEST": {
        1: "dcp-one dcp-fsdp2 files-one files-strided".split(),
        2: "dcp-one dcp-two dcp-strided dcp-fsdp2 dcp-plain threads-one items-one async-one local-one local-plain safetensors-one "
           "flat-one flat-two hf-one files-fsdp1 files-one files-two files-strided".split(),
        3: "dcp-one dcp-fsdp2 dcp-plain threads-one local-one safetensors-one hf-one hf-two files-fsdp1 files-one".split(),
        4: "dcp-one dcp-two dcp-strided dcp-fsdp2 items-one local-two safetensors-two files-one files-two files-strided".split(),
        8: "dcp-one dcp-two dcp-strided local-one files-one files-two files-strided".split(),
    },
    "TRAINERS": {1: ["accelerate-files"], 2: "accelerate-dcp accelerate-files lightning-fsdp lightning-mesh zstd-one".split(), 3: ["accelerate-files", "zstd-one"]},
    "OLD": {2: ["old"], 3: ["old"], 4: ["old"]},
}
KINDS = ALL if os.environ.get("T2C_OLD") else FAST
CASES = [(key, ranks, kind) for key, groups in KINDS.items() for ranks, kinds in groups.items() for kind in kinds]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """`saved(key, ranks)`: the folder with one checkpoint of each kind, saved by this version of torch with `ranks` processes."""
    made = {}

    def get(key, ranks):
        if why := os.environ.get(f"T2C_MISSING_{key}"):
            pytest.skip(why)
        if (key, ranks) not in made:
            folder = tmp_path_factory.mktemp(f"{key}-{ranks}")
            command = [os.environ[f"T2C_{key}"], "-B", WORKER, str(ranks), folder, *KINDS[key][ranks]]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr[-3000:]
            made[key, ranks] = folder
        return made[key, ranks]

    return get


@pytest.mark.parametrize("key, ranks, kind", CASES)
def test_the_tensors_are_those_of_the_trainer(saved, key, ranks, kind):
    folder = saved(key, ranks)
    wanted = json.loads((folder / f"{kind}.json").read_text())
    assert hashes(folder / kind) == wanted


def test_files_of_accelerate_are_parts(saved, tmp_path):
    """Their names do not say how many there are, but the tensors in them do: a missing one is named."""
    folder = saved("NEWEST", 3) / "files-one"
    for rank in range(3):
        shutil.copy(folder / f"model_world_size_3_rank_{rank}.pt", tmp_path / f"pytorch_model_fsdp_0_rank{rank}.bin")
    assert hashes(tmp_path) == json.loads((folder.parent / "files-one.json").read_text())
    assert "one rank's part" in refuse(tmp_path / "pytorch_model_fsdp_0_rank1.bin").stderr
    (tmp_path / "pytorch_model_fsdp_0_rank2.bin").unlink()
    assert "pytorch_model_fsdp_0_rank2.bin is missing" in refuse(tmp_path).stderr
    shutil.copy(folder / "model_world_size_3_rank_2.pt", tmp_path / "pytorch_model_fsdp_0_rank2.bin")
    (tmp_path / "pytorch_model_fsdp_0_rank1.bin").unlink()
    assert "pytorch_model_fsdp_0_rank1.bin" in refuse(tmp_path).stderr


@pytest.mark.parametrize("kind", ["dcp-one", "files-one"])
def test_the_output_has_the_weights_and_nothing_appears_in_the_folder(saved, tmp_path, kind):
    folder = saved("NEWEST", 2)
    before = listing(folder / kind)
    outcome = succeed(folder / kind, "-o", tmp_path / "out.safetensors")
    wanted = json.loads((folder / f"{kind}.json").read_text())
    weights = {name.removeprefix("model."): row for name, row in wanted.items() if not name.startswith("optim.")}
    assert hashes(tmp_path / "out.safetensors") == weights
    assert "2 ranks" in outcome.stderr
    assert listing(folder / kind) == before


def test_the_optimizer_is_taken_on_request(saved, tmp_path):
    folder = saved("NEWEST", 2)
    wanted = json.loads((folder / "dcp-one.json").read_text())
    succeed(folder / "dcp-one", "--key", "optim", "-o", tmp_path / "optim.safetensors")
    assert hashes(tmp_path / "optim.safetensors") == {
        name.removeprefix("optim."): row for name, row in wanted.items() if name.startswith("optim.")}


def test_torch_agrees(saved, tmp_path):
    """`dcp_to_torch_save` writes the same tensors."""
    folder = saved("NEWEST", 2) / "dcp-one"
    command = [os.environ["T2C_NEWEST"], "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch", folder, tmp_path / "out.pt"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=300)
    assert hashes(folder) == hashes(tmp_path / "out.pt")


def test_folders_of_lightning_and_accelerate_are_found(saved, tmp_path):
    source = saved("NEWEST", 2) / "dcp-one"
    wanted = json.loads((saved("NEWEST", 2) / "dcp-one.json").read_text())
    last = shutil.copytree(source, tmp_path / "runs/last.ckpt")
    torch.save({"global_step": 7, "hyper_parameters": {"lr": 0.1}}, last / "meta.pt")
    assert hashes(last) == hashes(tmp_path / "runs") == wanted
    assert "Lightning" in succeed("inspect", last).stdout and "global_step" in succeed("inspect", "--all", last).stdout
    for step in (5, 10):
        shutil.copytree(source, tmp_path / f"project/checkpoint-{step}/pytorch_model_fsdp_0")
        shutil.copytree(source, tmp_path / f"project/checkpoint-{step}/optimizer_0")
    assert hashes(tmp_path / "project") == hashes(tmp_path / "project/checkpoint-5") == wanted
    assert "using checkpoint-10/pytorch_model_fsdp_0, not" in succeed("inspect", tmp_path / "project").stdout
