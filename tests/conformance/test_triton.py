"""Triton model repositories: the configuration is Triton's, and the module gives the logits of the one in the carton, bit for bit.

Triton itself is not here. The module is loaded and called as its PyTorch backend does both.
"""

import json

import models
import numpy
import pytest
from carton_file import Carton
from conftest import worker_fixture, workers_fixture
from program import listing, succeed

workers = workers_fixture("model_worker.py")  # in each version of torch
client = worker_fixture("TRITON", "triton_worker.py")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens.npz"
    chance = numpy.random.default_rng(0)
    numpy.savez(path, **{key: chance.integers(0, models.VOCAB, shape) for key, shape in models.BATCHES.items()})
    return path


def made(workers, folder, kind="meta gqa", dtype="float32"):
    """The file of a checkpoint of this kind."""
    return folder / workers("NEWEST").ask("make", kind=kind, dtype=dtype, folder=str(folder))


def assert_same(workers, tokens, carton, repository, name):
    """Both modules have the same tensors and logits, in both versions of torch."""
    archive = carton.with_suffix(".pt")
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    for key in ("NEWEST", "OLD"):
        answer = workers(key).ask("positional", archive=str(archive), positional=str(repository / name / "1/model.pt"), tokens=str(tokens))
        assert answer.pop("frozen") < 1e-4, key
        assert answer == {"arguments": [["self", "ClassType"], ["tokens", "TensorType"]], "returns": ["TensorType"], "state": True,
                          "logits": True, "fused": 0}, key


KINDS = [(kind, "float32") for kind in models.KINDS] + [(kind, dtype) for kind in ("meta gqa", "qwen2") for dtype in models.DTYPES[1:]]


@pytest.mark.parametrize("kind, dtype", KINDS)
def test_the_module_takes_and_returns_tensors(kind, dtype, workers, tokens, tmp_path):
    file = made(workers, tmp_path, kind, dtype)
    succeed(file, "-o", tmp_path / "x.carton")
    succeed(file, "--to", "triton", "-o", tmp_path / "models", "--name", "m")
    assert_same(workers, tokens, tmp_path / "x.carton", tmp_path / "models", "m")
    # A carton has all that is needed.
    succeed(tmp_path / "x.carton", "--to", "triton", "-o", tmp_path / "again", "--name", "m")
    for name in ("config.pbtxt", "1/model.pt"):
        assert (tmp_path / "again/m" / name).read_bytes() == (tmp_path / "models/m" / name).read_bytes()


def test_the_configuration_is_tritons(workers, client, tmp_path):
    file = made(workers, tmp_path)
    report = json.loads(succeed(file, "--to", "triton", "-o", tmp_path / "models", "--name", "m", "--json").stdout)
    assert listing(tmp_path / "models") == ["m", "m/1", "m/1/model.pt", "m/config.pbtxt"]
    assert (report["model"], report["files"]) == ("m", ["m/config.pbtxt", "m/1/model.pt"])
    assert report["nbytes"] == sum((tmp_path / "models" / name).stat().st_size for name in report["files"])
    (tokens,), (logits,) = report["inputs"], report["outputs"]
    config = client.ask("config", path=str(tmp_path / "models/m/config.pbtxt"))
    # In this mapping, 64-bit numbers are strings, and a field that has its default value is absent: max_batch_size 0, KIND_AUTO.
    assert config == {
        "platform": "pytorch_libtorch",
        "input": [{"name": tokens["name"], "data_type": "TYPE_INT64", "dims": ["-1", "-1"]}],
        "output": [{"name": logits["name"], "data_type": "TYPE_FP32", "dims": ["-1", "-1", str(models.VOCAB)]}],
        "instance_group": [{"count": 1}],
        "parameters": {"INFERENCE_MODE": {"string_value": "true"}},
    }


def test_names_of_methods_are_names_that_tensors_can_have(workers, tokens, tmp_path):
    """The module has its methods next to the checkpoint's tensors."""
    file = made(workers, tmp_path)
    extra = tmp_path / "extra.safetensors"
    succeed(file, "-o", extra)
    for name in ("infer", "infer.weight", "freqs", "freqs.weight", "out", "tokens"):
        workers("NEWEST").ask("add_tensor", path=str(extra), output=str(tmp_path / "one.safetensors"), name=name)
        arguments = tmp_path / "one.safetensors", "--keep-extra", "--force"
        succeed(*arguments, "-o", tmp_path / "x.carton")
        succeed(*arguments, "--to", "triton", "-o", tmp_path / "models")
        assert_same(workers, tokens, tmp_path / "x.carton", tmp_path / "models", "one")
