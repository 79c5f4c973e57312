"""`--self-test`: the Carton client reads the test, and PyTorch returns the logits that it expects."""

import models
import numpy
import pytest
from carton_file import Carton, without_colour
from conftest import workers_fixture
from program import succeed

# How far from the logits of PyTorch those of a test may be, in units of the largest one. Both compute in the dtype of the weights.
APART = {"float32": 1e-5, "float64": 1e-6}

workers = workers_fixture("model_worker.py")  # in each version of torch


def converted(workers, folder, kind, dtype, *flags, **settings):
    """The carton of such a checkpoint with a self test, and what was printed about it."""
    source = folder / "source"
    source.mkdir()
    file = workers("NEWEST").ask("make", kind=kind, dtype=dtype, folder=str(source), **settings)
    input_ = source if settings.get("files", 1) > 1 else source / file
    outcome = succeed(input_, "--self-test", "-o", folder / "x.carton", *flags)
    return folder / "x.carton", without_colour(outcome.stderr)


def stored(carton_client, carton):
    """Tokens and expected logits of the only test, as the client reads them; None for logits that are not there."""
    (test,) = carton_client.ask("whole", path=str(carton))["tests"]
    name, description, inputs, expected = test
    assert name and description and list(inputs) == ["tokens"] and list(expected) in ([], ["logits"])
    kind, tokens = inputs["tokens"]
    tokens = numpy.array(tokens)
    assert kind == "i" and tokens.min() == 0 and tokens.max() == models.VOCAB - 1 and len(set(tokens.flat)) == tokens.size
    if not expected:
        return tokens, None
    kind, logits = expected["logits"]
    assert kind == "f"
    return tokens, numpy.array(logits, dtype=numpy.float32)


def assert_right(workers, tokens, logits, carton, dtype):
    """Both versions of torch return these logits. Returns how far they are from them."""
    archive, batch = carton.with_suffix(".pt"), carton.with_suffix(".npz")
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    numpy.savez(batch, test=tokens)
    largest = 0.0
    for process in map(workers, ("NEWEST", "OLD")):
        process.ask("run", archive=str(archive), tokens=str(batch), outputs=str(carton.with_suffix(".out.npz")))
        for found in numpy.load(carton.with_suffix(".out.npz")).values():
            assert found.shape == logits.shape
            largest = max(largest, float(numpy.abs(found - logits).max() / numpy.abs(logits).max()))
    assert largest < APART[dtype]
    return largest


@pytest.mark.parametrize("dtype", APART)
@pytest.mark.parametrize("kind", models.KINDS)
def test_the_expected_logits_are_pytorchs(kind, dtype, workers, carton_client, tmp_path, table):
    carton, words = converted(workers, tmp_path, kind, dtype)
    assert "self test tokens -> logits" in words
    tokens, logits = stored(carton_client, carton)
    table(f"self test, {kind} {dtype}: {assert_right(workers, tokens, logits, carton, dtype):.1e} of the largest logit")


@pytest.mark.parametrize("flags, settings", [
    (["--dtype", "float32"], {"dtype": "bfloat16"}),
    ([], {"dtype": "float32", "files": 2}),
    (["--dtype", "float32"], {"dtype": "float16", "files": 2}),
])
def test_weights_that_are_cast_or_merged(flags, settings, workers, carton_client, tmp_path):
    """They are in no file as they are in the carton."""
    carton, _ = converted(workers, tmp_path, "meta gqa", settings.pop("dtype"), *flags, **settings)
    tokens, logits = stored(carton_client, carton)
    assert_right(workers, tokens, logits, carton, "float32")
