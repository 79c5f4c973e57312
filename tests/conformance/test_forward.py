"""The CPU forward: its logits compared with exact ones and with those of the TorchScript module that it stands for."""

import json
import subprocess
from pathlib import Path

import models
import numpy
import pytest
from program import BINARY, CLEAN
from test_models import ALLOWED, ROUNDING, converted, made, newest, reference, tokens  # noqa: F401  (fixtures)

LOGITS = Path(BINARY).parent / "examples/logits"
LONG = 3 * models.PREFILL * models.WINDOW  # 1920 tokens: several windows, blocks and chunks of rows


@pytest.fixture
def forward(tmp_path):
    """`forward(carton, calls, threads, vocab)` runs the calls one after the other; each is a batch of tokens and options."""
    if not LOGITS.is_file():
        pytest.skip(f"{LOGITS} does not exist: run `cargo build --release -p forward --example logits` first")

    def run(carton, calls, threads=2, vocab=models.VOCAB):
        (tmp_path / "calls.json").write_text(json.dumps([{**call, "tokens": call["tokens"].tolist()} for call in calls]))
        command = [LOGITS, carton, tmp_path / "calls.json", tmp_path, str(threads)]
        done = subprocess.run(command, env=CLEAN, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        answers = []
        for number, call in enumerate(calls):
            batch, seq = call["tokens"].shape
            shape = batch, 1 if call.get("last_only") else seq, vocab
            answers.append(numpy.fromfile(tmp_path / f"{number}.f32", "<f4").reshape(shape))
        return answers

    run.folder = tmp_path
    return run


def call(tokens, **options):
    return {"tokens": tokens, **options}


def close(logits):
    """How far float32 logits may be apart: 1e-4, and more where logits are far larger than those of trained models."""
    return 1e-4 * max(1, float(numpy.abs(logits).max()) / 10)


@pytest.mark.parametrize("dtype", models.DTYPES)
@pytest.mark.parametrize("kind", models.KINDS)
def test_logits_are_as_exact_as_those_of_the_reference(kind, dtype, newest, made, reference, tokens, forward, tmp_path, table):
    batches = dict(numpy.load(tokens))
    answers = dict(zip(batches, forward(made(kind, dtype).carton_path, [call(batch) for batch in batches.values()])))
    wanted = reference(kind, dtype)
    exact = {key: wanted[f"exact {key}"] for key in batches}
    ours, theirs = (models.error(kind, of.__getitem__, exact) for of in (answers, wanted))
    newest.ask("run", archive=str(made(kind, dtype).archive), tokens=str(tokens), outputs=str(tmp_path / "module.npz"), times=1)
    module = numpy.load(tmp_path / "module.npz")
    apart = max(float(numpy.abs(answers[key] - module[f"{key} 0"]).max()) for key in batches)
    table(f"| {kind} | {dtype} | CPU forward | {ours:.2g} | {theirs:.2g} | {ours / max(theirs, 1e-30):.2f} | {apart:.2g} from the module |")
    size = max(float(numpy.abs(batch).max()) for batch in exact.values())
    assert ours <= max(ALLOWED * theirs, ROUNDING * size)
    if dtype == "float32":
        # Which has the largest error is partly chance, so the mean ones are compared, too.
        mean = lambda of: sum(float(numpy.abs(of[key] - exact[key]).mean()) for key in exact)
        assert mean(answers) <= 1.2 * mean(wanted)
        assert apart <= close(exact["3x60"]) * (3 if kind in models.CHUNKED else 1)
        assert all((answers[key].argmax(-1) == wanted[f"exact {key}"].argmax(-1)).all() for key in batches)


@pytest.mark.parametrize("kind", [kind for kind in models.KINDS if kind != "llama dynamic"])
def test_decoding_token_by_token_equals_one_pass(kind, made, tokens, forward):
    batch = numpy.load(tokens)["3x60"]
    parts = [batch[:, :models.PREFILL], *(batch[:, place:place + 1] for place in range(models.PREFILL, batch.shape[1]))]
    steps = [call(part, cache="keep" if number % 2 else "tensors") if number else call(part) for number, part in enumerate(parts)]
    whole, last, *stepped = forward(made(kind).carton_path, [call(batch), call(batch, last_only=True), *steps])
    assert numpy.abs(numpy.concatenate(stepped, 1) - whole).max() <= close(whole)
    assert numpy.abs(last - whole[:, -1:]).max() <= close(whole)
    layers, _, _, heads, head_dim = next(
        output["shape"] for output in made(kind).carton.toml["output"] if output["name"] == "present_key")
    caches = [numpy.fromfile(forward.folder / f"{name}.f32", "<f4") for name in ("key", "value")]
    assert all(cache.size == layers * batch.size * heads * head_dim for cache in caches)


@pytest.mark.parametrize("kind", models.GROWING)
def test_all_keys_are_rotated_as_the_text_grows(kind, newest, tokens, forward, tmp_path):
    """In one layer, keys do not depend on frequencies before they are rotated: the last token's logits are those of one pass."""
    file = newest.ask("make", kind=kind, dtype="float32", folder=str(tmp_path), layers=1)
    carton, batch = converted(tmp_path, tmp_path / file).carton_path, numpy.load(tokens)["3x60"]
    parts = [batch[:, :20], *(batch[:, place:place + 1] for place in range(20, batch.shape[1]))]
    steps = [call(part, cache="keep" if number % 2 else "tensors") if number else call(part) for number, part in enumerate(parts)]
    whole, *stepped = forward(carton, [call(batch), *steps])
    assert numpy.abs(stepped[-1][:, -1] - whole[:, -1]).max() <= close(whole)


@pytest.mark.parametrize("kind", ["meta mqa", "llama rope x8", "llama dynamic", "mistral", "qwen2 window", "phi3 longrope", "gemma3", "gemma4"])
def test_long_sequences_are_those_of_the_module(kind, newest, made, forward, tmp_path, table):
    """Positions beyond what Llama 3.1 was first trained on, many windows, and more rows than go through the layers at once."""
    # Scores of Gemma 4 are not divided by the root of a head's size, and its softmax magnifies roundings of angles.
    dtype = "float64" if kind == "gemma4" else "float32"
    batch = numpy.random.default_rng(1).integers(0, models.VOCAB, (1, LONG))
    numpy.savez(tmp_path / "long.npz", long=batch)
    newest.ask("run", archive=str(made(kind, dtype).archive), tokens=str(tmp_path / "long.npz"), outputs=str(tmp_path / "out.npz"), times=1)
    [ours], module = forward(made(kind, dtype).carton_path, [call(batch)]), numpy.load(tmp_path / "out.npz")["long 0"]
    apart = float(numpy.abs(ours - module).max())
    table(f"{kind}: {LONG} tokens, {apart:.2g} from the module")
    assert apart <= 1e-3


@pytest.mark.parametrize("dtype", models.DTYPES)
def test_the_number_of_threads_changes_nothing(dtype, made, tokens, forward):
    batches = [call(batch) for batch in numpy.load(tokens).values()]
    one, *others = (forward(made("llama biases", dtype).carton_path, batches, threads) for threads in (1, 2, 5))
    assert all((first == second).all() for other in others for first, second in zip(one, other))
