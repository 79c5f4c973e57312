"""Programs of torch.export: each tensor is the one that torch.export.load finds, in both kinds of archive."""

import json

import pytest
from conftest import worker_fixture
from program import hashes, refuse, succeed, torch2carton

worker = worker_fixture("NEWEST", "export_worker.py")
FACTS = "dtype", "shape", "sha256"


@pytest.fixture(scope="module")
def made(worker, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return folder, worker.ask("make", folder=str(folder))


def bits(tensors):
    return {name: {fact: tensor[fact] for fact in FACTS} for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", ["new", "old"])
def test_each_tensor_has_its_bits(made, kind):
    folder, wanted = made
    assert hashes(folder / f"{kind}.pt2") == bits(wanted[kind])


@pytest.mark.parametrize("kind", ["new", "old"])
def test_torch_loads_ties_and_strides(made, worker, kind):
    folder, wanted = made
    succeed(folder / f"{kind}.pt2", "-o", folder / f"{kind}.pth")
    assert worker.ask("load", path=str(folder / f"{kind}.pth")) == wanted[kind]


def test_models_are_selected_by_their_names(made):
    folder, wanted = made
    both = {f"{model}.{name}": fact for model in ("model", "enc") for name, fact in bits(wanted[model]).items()}
    assert hashes(folder / "two.pt2") == both
    for model in "model", "enc":
        succeed(folder / "two.pt2", "--key", model, "-o", folder / f"{model}.safetensors")
        assert hashes(folder / f"{model}.safetensors") == bits(wanted[model])
    succeed(folder / "new.pt2", "--key", "model", "-o", folder / "only.pth")
    assert hashes(folder / "only.pth") == bits(wanted["new"])


def test_the_signature_is_listed(made):
    folder, _ = made
    [program] = json.loads(succeed("inspect", "--json", folder / "new.pt2").stdout)["programs"]
    assert program["model"] == "model"
    assert [it["shape"][1] for it in program["inputs"] if it["kind"] == "user_input"] == ["3"]
    assert {it["target"] for it in program["inputs"] if it["kind"] == "tensor_constant"} == {"constant", "lifted_tensor_0"}


def test_compiled_models(worker, tmp_path):
    wanted = bits(worker.ask("make_compiled", folder=str(tmp_path)))
    found = hashes(tmp_path / "disk.pt2")
    assert found and found.items() <= wanted.items()
    assert "weights inside the code" in refuse("inspect", tmp_path / "inside.pt2").stderr
    for name in "disk", "inside":
        assert torch2carton("scan", tmp_path / f"{name}.pt2").status == 2
