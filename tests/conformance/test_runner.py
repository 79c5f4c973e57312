"""The real torchscript runner, if one is installed: the Carton client loads and runs the carton."""

import os
from pathlib import Path

import numpy
import pytest
from checkpoints import LLAMA_PARAMS, VOCAB


def runner_missing():
    """Why no torchscript runner can be used, or None."""
    folder = os.environ.get("CARTON_RUNNER_DIR")
    if not folder:
        return "CARTON_RUNNER_DIR is not set"
    if any("torchscript" in toml.read_text() for toml in Path(folder).rglob("runner.toml")):
        return None
    return "CARTON_RUNNER_DIR holds no torchscript runner"


pytestmark = pytest.mark.skipif(runner_missing() is not None, reason=str(runner_missing()))


def infer(carton_client, made, inputs, times=3):
    numpy.savez(made.folder / "inputs.npz", **inputs)
    carton_client.ask("infer", path=str(made.carton_path), inputs=str(made.folder / "inputs.npz"),
                      outputs=str(made.folder / "outputs.npz"), times=times)
    answers = [{} for _ in range(times)]
    for key, array in numpy.load(made.folder / "outputs.npz").items():
        call, name = key.split(" ", 1)
        answers[int(call)][name] = array
    return answers


def test_llama(case, carton_client, old, tmp_path):
    """The same logits as torch 2.0.1, which the runner is built on."""
    made = case("llama_float32", params=LLAMA_PARAMS)
    tokens = numpy.random.default_rng(0).integers(0, VOCAB, (2, 20))
    numpy.savez(tmp_path / "tokens.npz", batch=tokens)
    old.ask("run", archive=str(made.archive), tokens=str(tmp_path / "tokens.npz"), outputs=str(tmp_path / "logits.npz"), times=1)
    wanted = numpy.load(tmp_path / "logits.npz")["batch 0"]
    for answer in infer(carton_client, made, {"tokens": tokens}):
        assert list(answer) == ["logits"]
        assert numpy.abs(answer["logits"] - wanted).max() <= 1e-4


def test_weights(case, carton_client, newest):
    made = case("dtypes")
    wanted = {t["name"]: t for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]}
    for answer in infer(carton_client, made, {"bfloat16": numpy.zeros(1, numpy.float32), "int64": numpy.zeros(1, numpy.float32)}):
        assert sorted(answer) == ["bfloat16", "int64"]
        assert list(answer["bfloat16"].shape) == wanted["bfloat16"]["shape"] and answer["int64"].dtype == numpy.int64
