"""The real torchscript runner, if one is installed: the Carton client loads and runs the carton.

A runner that ends does not answer, and the client waits for it. So each request has a timeout, after which the check fails.
"""

import os
from pathlib import Path

import numpy
import pytest
from checkpoints import LLAMA_PARAMS, VOCAB
from program import succeed

TIMEOUT = 300  # seconds, for what takes one


def runner_missing():
    """Why no torchscript runner can be used, or None."""
    folder = os.environ.get("CARTON_RUNNER_DIR")
    if not folder:
        return "CARTON_RUNNER_DIR is not set"
    if any("torchscript" in toml.read_text() for toml in Path(folder).rglob("runner.toml")):
        return None
    return "CARTON_RUNNER_DIR holds no torchscript runner"


pytestmark = pytest.mark.skipif(runner_missing() is not None, reason=str(runner_missing()))


def infer(carton_client, path, *calls):
    """What the carton returns for each of the dicts `calls`, in one process."""
    files = [path.with_name(f"inputs-{number}.npz") for number in range(len(calls))]
    for file, inputs in zip(files, calls):
        numpy.savez(file, **inputs)
    outputs = path.with_name("outputs.npz")
    carton_client.ask("infer", path=str(path), calls=list(map(str, files)), outputs=str(outputs), timeout=TIMEOUT)
    answers = [{} for _ in calls]
    for key, array in numpy.load(outputs).items():
        call, name = key.split(" ", 1)
        answers[int(call)][name] = array
    return answers


def tokens(shape):
    return numpy.random.default_rng(0).integers(0, VOCAB, shape)


# Elements of bfloat16 have 8 bits, and its sums may be rounded in another order.
@pytest.mark.parametrize("kind, tolerance", [("llama_float32", 1e-5), ("llama_float16", 1e-5), ("llama_bfloat16", 2**-6)])
def test_llama(kind, tolerance, case, carton_client, old, tmp_path):
    """The same logits as torch 2.0.1, which the runner is built on."""
    made, batch = case(kind, params=LLAMA_PARAMS), tokens((2, 20))
    numpy.savez(tmp_path / "tokens.npz", batch=batch)
    old.ask("run", archive=str(made.archive), tokens=str(tmp_path / "tokens.npz"), outputs=str(tmp_path / "logits.npz"), times=1)
    wanted = numpy.load(tmp_path / "logits.npz")["batch 0"]
    for answer in infer(carton_client, made.carton_path, *[{"tokens": batch}] * 3):
        assert list(answer) == ["logits"] and answer["logits"].dtype == numpy.float32
        assert numpy.abs(answer["logits"] - wanted).max() <= tolerance * numpy.abs(wanted).max()


def test_a_cache_replaces_the_tokens_before(case, carton_client):
    made, batch = case("llama_float32", params=LLAMA_PARAMS), tokens((2, 20))
    first, whole = infer(carton_client, made.carton_path, {"tokens": batch[:, :15], "use_cache": numpy.array(1)}, {"tokens": batch})
    past = {"past_key": first["present_key"], "past_value": first["present_value"]}
    (rest,) = infer(carton_client, made.carton_path, {"tokens": batch[:, 15:], **past})
    assert sorted(rest) == ["logits", "present_key", "present_value"]
    found = numpy.concatenate([first["logits"], rest["logits"]], 1)
    assert numpy.abs(found - whole["logits"]).max() <= 1e-5 * numpy.abs(whole["logits"]).max()


def test_weights(case, carton_client, newest):
    made = case("dtypes")
    wanted = {t["name"]: t for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]}
    for answer in infer(carton_client, made.carton_path, *[{"bfloat16": numpy.zeros(1, numpy.float32), "int64": numpy.zeros(1, numpy.float32)}] * 3):
        assert sorted(answer) == ["bfloat16", "int64"]
        assert list(answer["bfloat16"].shape) == wanted["bfloat16"]["shape"] and answer["int64"].dtype == numpy.int64


def test_weights_answer_a_wrong_name_and_then_a_right_one(case, carton_client):
    one = numpy.zeros(1, numpy.float32)
    wrong, right = infer(carton_client, case("dtypes").carton_path, {"nope": one}, {"int64": one})
    assert list(wrong) == ["error"] and "there is no tensor nope; the module has " in str(wrong["error"])
    assert list(right) == ["int64"]


def test_a_decoder_answers_wrong_inputs_and_then_right_ones(case, carton_client):
    path, batch = case("llama_float32", params=LLAMA_PARAMS).carton_path, tokens((1, 4))
    half = numpy.zeros((2, 1, 1, 4, 16), numpy.float32)
    *wrong, right = infer(carton_client, path, {"tokens": batch + VOCAB}, {"tokens": batch, "past_key": half}, {"tokens": batch})
    assert [list(answer) for answer in wrong] == [["error"], ["error"]] and list(right) == ["logits"]


def test_a_script_answers_a_wrong_name_and_then_a_right_one(carton_client, newest, tmp_path):
    newest.ask("make_traced", path=str(tmp_path / "traced.pt"))
    succeed(tmp_path / "traced.pt")
    one = numpy.ones((1, 2), numpy.float32)
    wrong, right = infer(carton_client, tmp_path / "traced.carton", {"y": one}, {"x": one})
    assert list(wrong) == ["error"] and "there is no input y" in str(wrong["error"]) and list(right) == ["output"]
