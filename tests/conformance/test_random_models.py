"""Random documents of all architectures: a converted model has the logits of `transformers`, or is refused for a listed reason.

The seeds are fixed, so a failure repeats. T2C_RANDOM_MODELS sets the number of seeds, and T2C_RANDOM_MODELS_START the first one:

    T2C_RANDOM_MODELS=2300 tests/conformance/run.py test_random_models.py
"""

import collections
import json
import os
import re
import shutil

import numpy
from carton_file import Carton
from conftest import worker_fixture
from program import torch2carton
from random_models import ARCHITECTURES, random_model
from test_forward import call, forward  # noqa: F401  (a fixture)

COUNT = int(os.environ.get("T2C_RANDOM_MODELS", 2 * len(ARCHITECTURES)))
START = int(os.environ.get("T2C_RANDOM_MODELS_START", 0))

# Why a document that transformers reads may be refused.
REFUSED = [
    r"`rope_scaling\.type` is .*, because `transformers` ignores `type` here",  # older versions applied it
    r"`partial_rotary_factor` is \d*[13579] numbers of a head",  # `transformers` rotates one more
    r"`attention_bias` changes the result",  # Phi-3 has no biases, and `transformers` ignores the key
    r"`short_factor` is a list of \d+, expected one factor for each of \d+ pairs",  # of GPT-NeoX' `rotary_pct`, not `partial_rotary_factor`
    r"`use_sliding_window` is false, expected true, since layer_types",  # some ways to compute attention have the window
]
# How far logits may be from exact ones, in proportion to the largest of them.
TOLERANCE = {"float64": 1e-6, "float32": 1e-2}
# The module's cache is float32 in all models.
CACHE_TOLERANCE = 1e-4
# The frequencies of these depend on the number of tokens, so that two calls have other logits than one.
GROWING = "dynamic", "longrope", "su"


models = worker_fixture("NEWEST", "random_model_worker.py")


def kinds_of_scaling(config):
    objects = [config.get(key) or {} for key in ("rope_scaling", "rope_parameters")]
    objects += [inner for each in objects for inner in each.values() if isinstance(inner, dict)]
    return {each.get(key) for each in objects for key in ("rope_type", "type")}


def difference(name, logits, exact, tolerance):
    apart = float(numpy.abs(logits - exact).max())
    allowed = tolerance * max(1.0, float(numpy.abs(exact).max()))
    return None if apart <= allowed else f"{name}: {apart:.2g} from the exact logits, expected at most {allowed:.2g}"


def checked(seed, models, forward, folder):
    """What happened to a seed, and None or what is wrong. The logits of both forwards are compared, in one call and in two."""
    made = random_model(seed)
    if models.ask("make", seed=seed, folder=str(folder)):
        return "refused by transformers", None
    carton, archive = folder / "made.carton", folder / "made.pt"
    outcome = torch2carton(folder, "--require-model", "-o", carton)
    if outcome.status != 0:
        known = any(re.search(reason, outcome.stderr) for reason in REFUSED)
        return "refused", None if known else f"refused: {outcome.stderr.strip()}"
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    tokens, exact = numpy.load(folder / "tokens.npy"), numpy.load(folder / "exact.npy")
    part = round(made.part * tokens.shape[1]) % tokens.shape[1]
    if kinds_of_scaling(made.config) & {*GROWING} or (made.config["model_type"] == "phi3"):
        part = 0
    models.ask("run", archive=str(archive), folder=str(folder), part=part)
    calls = [call(tokens)] + ([call(tokens[:, :part]), call(tokens[:, part:], cache="keep")] if part else [])
    whole, *parts = forward(carton, calls, vocab=made.config["vocab_size"])
    found = {"TorchScript": numpy.load(folder / "whole.npy"), "CPU forward": whole}
    if part:
        found |= {"TorchScript with a cache": numpy.load(folder / "parts.npy"), "CPU forward with a cache": numpy.concatenate(parts, 1)}
    tolerance = {name: max(TOLERANCE[made.dtype], CACHE_TOLERANCE if "cache" in name else 0) for name in found}
    wrong = filter(None, (difference(name, logits, exact, tolerance[name]) for name, logits in found.items()))
    return "compared", next(wrong, None)


def test_random_documents_give_the_logits_of_transformers_or_are_refused(models, forward, tmp_path, table):  # noqa: F811
    counts, by_architecture, wrong = collections.Counter(), collections.Counter(), {}
    for seed in range(START, START + COUNT):
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcome, why = checked(seed, models, forward, folder)
        counts[outcome] += 1
        by_architecture[random_model(seed).config["model_type"]] += outcome == "compared"
        if why:
            wrong[seed] = f"{why}\n    {json.dumps(random_model(seed).config)}"
        shutil.rmtree(folder)
    table(f"random models, seeds {START} to {START + COUNT - 1}: {dict(counts)}; compared: {dict(by_architecture)}")
    assert not wrong, "\n".join([f"{len(wrong)} of {COUNT} seeds differ", *(f"seed {seed}: {why}" for seed, why in [*wrong.items()][:12])])
    assert counts["compared"] > COUNT // 2
