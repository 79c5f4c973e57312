"""Models that run: logits compared with the reference's own code, with and without a cache, from one file and from several."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import models
import numpy
import pytest
from carton_file import Carton, without_colour
from conftest import worker_fixture
from program import refuse, succeed

ALLOWED = 1.5
# Without AVX-512, PyTorch 2.0.1 rounds each sum of a product with a bfloat16 matrix whose columns come first.
COLUMNS_FIRST, ALLOWED_COLUMNS = ["gpt2", "gpt2 untied"], 3.5
HAS_AVX512 = "avx512" in Path("/proc/cpuinfo").read_text()
# Logits are float32. The code of GPT-2 and OPT computes nothing in float32 if the weights are float64, so that it has no error.
ROUNDING = 2.0 ** -23
TIMES = 3


newest = worker_fixture("NEWEST", "model_worker.py")
old = worker_fixture("OLD", "model_worker.py")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return models.tokens(tmp_path_factory.mktemp("tokens"), seed=0)


def converted(folder, *arguments):
    """The carton made from the checkpoint in `folder`, its archive, and the text on stderr."""
    carton, archive = folder / "made.carton", folder / "made.pt"
    outcome = succeed(*arguments, "-o", carton)
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    return SimpleNamespace(folder=folder, carton=Carton(carton), carton_path=carton, archive=archive,
                           words=without_colour(outcome.stderr))


@pytest.fixture(scope="module")
def made(tmp_path_factory, newest):
    """`made(kind, dtype)`: a checkpoint in one file, converted, once."""
    known = {}

    def get(kind, dtype="float32"):
        if (kind, dtype) not in known:
            folder = tmp_path_factory.mktemp(f"{kind}_{dtype}".replace(" ", "_"))
            file = newest.ask("make", kind=kind, dtype=dtype, folder=str(folder))
            known[kind, dtype] = converted(folder, folder / file)
        return known[kind, dtype]

    return get


@pytest.fixture(scope="module")
def reference(tmp_path_factory, newest, tokens, made):
    known = {}

    def get(kind, dtype):
        if (kind, dtype) not in known:
            path = tmp_path_factory.mktemp("reference") / "logits.npz"
            newest.ask("reference", kind=kind, folder=str(made(kind, dtype).folder), tokens=str(tokens), outputs=str(path))
            known[kind, dtype] = dict(numpy.load(path))
        return known[kind, dtype]

    return get


def architecture(kind):
    return "llama" if kind in models.META else models.HUGGING_FACE[kind][0]


def test_fused_groups_are_detected(old):
    assert old.ask("fuser_is_seen")


@pytest.mark.parametrize("dtype", models.DTYPES)
@pytest.mark.parametrize("kind", models.KINDS)
def test_logits_are_as_exact_as_those_of_the_reference(kind, dtype, torch, made, reference, tokens, tmp_path, table):
    ours = made(kind, dtype)
    assert f"module    {architecture(kind)}: tokens -> logits\n" in ours.words
    fused = torch.ask("run", archive=str(ours.archive), tokens=str(tokens), outputs=str(tmp_path / "ours.npz"), times=TIMES)
    assert fused == 0
    logits, wanted = numpy.load(tmp_path / "ours.npz"), reference(kind, dtype)
    exact = {key: wanted[f"exact {key}"] for key in models.BATCHES}
    worst = lambda of: models.error(kind, of, exact)
    theirs, calls = worst(wanted.__getitem__), [worst(lambda key: logits[f"{key} {call}"]) for call in range(TIMES)]
    size = max(float(numpy.abs(batch).max()) for batch in exact.values())
    table(f"| {kind} | {dtype} | {torch.ask('version').split('+')[0]} | {size:.1f} | {max(calls):.2g} | {theirs:.2g} | "
          f"{max(calls) / max(theirs, 1e-30):.2f} |")
    rounds_sums = (torch.ask("version").split("+")[0], dtype, HAS_AVX512) == ("2.0.1", "bfloat16", False) and kind in COLUMNS_FIRST
    allowed = ALLOWED_COLUMNS if rounds_sums else ALLOWED
    assert max(calls) <= max(allowed * theirs, ROUNDING * size), f"ours {calls}, theirs {theirs}"
    if dtype == "float32":
        assert all((logits[f"{key} 2"].argmax(-1) == exact[key].argmax(-1)).all() for key in exact)


@pytest.mark.parametrize("kind", models.GROWING)
def test_all_keys_are_rotated_as_the_text_grows(kind, torch, newest, tokens, tmp_path):
    """In one layer, keys do not depend on frequencies before they are rotated: the last token's logits are those of one pass."""
    file = newest.ask("make", kind=kind, dtype="float32", folder=str(tmp_path), layers=1)
    archive = converted(tmp_path, tmp_path / file).archive
    answer = torch.ask("decode", archive=str(archive), tokens=str(tokens), key="3x60", prefill=20)
    assert answer["final"] <= 1e-3 and answer["fused"] == 0


@pytest.mark.parametrize("kind", [kind for kind in models.KINDS if kind != "llama dynamic"])
def test_decoding_token_by_token_equals_one_pass(kind, torch, made, tokens):
    answer = torch.ask("decode", archive=str(made(kind).archive), tokens=str(tokens), key="3x60", prefill=models.PREFILL)
    assert answer["argmax"] and answer["fused"] == 0
    assert max(answer["step"], answer["rest"], answer["last"], answer["one"]) <= 1e-3, answer
    by_name = {output["name"]: output for output in made(kind).carton.toml["output"]}
    layers, _, _, heads, head_dim = by_name["present_key"]["shape"]
    assert answer["cache"] == [layers, 3, 60, heads, head_dim] and answer["dtype"] == "torch.float32"


@pytest.mark.parametrize("kind", models.KINDS)
def test_the_module_holds_the_tensors_of_the_checkpoint(kind, made):
    """Names, dtypes and bytes; a tied output is not copied."""
    ours = made(kind, "bfloat16")
    file = next(path for path in ours.folder.iterdir() if path.suffix in (".pth", ".safetensors"))
    succeed("verify", ours.carton_path, "--against", file)
    tensors = json.loads(succeed("inspect", "--json", file).stdout)["tensors"]
    with zipfile.ZipFile(ours.archive) as archive:
        records = [info.file_size for info in archive.infolist() if "/data/" in info.filename]
    assert sum(records) == sum(tensor["nbytes"] for tensor in tensors)


@pytest.mark.parametrize("kind", models.KINDS)
def test_blocks_have_the_logits_of_their_numbers(kind, torch, made, tokens, tmp_path, table):
    """`--dtype q8_0`: in PyTorch and in the CPU forward. test_gguf_out.py compares the blocks with those of the package `gguf`."""
    file = next(path for path in made(kind).folder.iterdir() if path.suffix in (".pth", ".safetensors"))
    calls, logits = [], []
    for flags in (["--dtype", "q8_0"], ["--dtype", "float32"]):
        folder = tmp_path / flags[1]
        folder.mkdir()
        ours = converted(folder, calls[0].carton_path if calls else file, *flags)
        assert "tokens -> logits" in ours.words
        assert torch.ask("run", archive=str(ours.archive), tokens=str(tokens), outputs=str(folder / "out.npz"), times=TIMES) == 0
        calls.append(ours)
        logits.append(dict(numpy.load(folder / "out.npz")))
    apart = max(float(numpy.abs(logits[0][key] - logits[1][key]).max()) for key in logits[0])
    size = max(float(numpy.abs(batch).max()) for batch in logits[1].values())
    ids = numpy.load(tokens)["2x7"][1]
    last = logits[0]["2x7 0"][1, -1]
    rows = json.loads(succeed("run", "--json", calls[0].carton_path, "--tokens", ",".join(map(str, ids)), "--top", len(last)).stdout)["candidates"]
    forward = max(abs(row["logit"] - float(last[row["id"]])) for row in rows)
    table(f"| {kind} | q8_0 | {torch.ask('version').split('+')[0]} | {size:.1f} | {apart:.2g} | {forward:.2g} from the CPU forward |")
    assert apart <= 1e-6 * size
    assert len(rows) == len(last) and forward <= 1e-4 * max(1, size / 10) * (3 if kind in models.CHUNKED else 1)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, files, extension", [
    ("llama gqa", 3, "safetensors"), ("llama gqa", 3, "bin"), ("llama gqa", 1, "bin"), ("llama tied", 3, "safetensors"),
    ("qwen2 window", 2, "safetensors"), ("mistral", 2, "bin"), ("phi3", 2, None), ("gemma3", 3, None), ("qwen3_moe", 3, None),
    ("gpt_oss", 2, None),
    ("meta mha", 2, None), ("meta mha", 4, None), ("meta gqa", 2, None), ("meta gqa", 4, None), ("meta mqa", 4, None),
    ("meta tied", 2, None), ("meta head_dim", 4, None),
])
def test_several_files_give_the_model_of_one_file(kind, files, extension, newest, made, tokens, tmp_path):
    newest.ask("make", kind=kind, dtype="float32", folder=str(tmp_path), files=files, extension=extension)
    several = converted(tmp_path, tmp_path)
    logits = []
    for number, archive in enumerate([made(kind).archive, several.archive]):
        newest.ask("run", archive=str(archive), tokens=str(tokens), outputs=str(tmp_path / f"{number}.npz"), times=1)
        logits.append(dict(numpy.load(tmp_path / f"{number}.npz")))
    assert all((logits[0][key] == logits[1][key]).all() for key in logits[0])


# --- inputs that forward refuses -------------------------------------------------------------------------------------------

TOKENS = ([1, 2], "int64", 1)
PAST = ([2, 1, 3, 2, 16], "float32", 0.5)
REFUSED = {
    "the input tokens has ids from 96 to 96, expected ids from 0 to 95": {"tokens": ([1, 2], "int64", 96)},
    "the input tokens has ids from -1 to -1, expected ids from 0 to 95": {"tokens": ([3], "int64", -1)},
    "tokens has 3 dimensions, expected 2: batch and seq": {"tokens": ([1, 1, 2], "int64", 1)},
    "tokens has 0 dimensions, expected 2: batch and seq": {"tokens": ([], "int64", 1)},
    "tokens has the shape [1, 0], expected at least one token": {"tokens": ([1, 0], "int64", 1)},
    "the input tokens has numbers that are not integers, expected token ids as int64": {"tokens": ([1, 2], "float32", 1.5)},
    "the input tokens is missing": {"use_cache": ([], "int64", 1)},
    "there is no input input_ids; the inputs are tokens and, if wanted, last_only, use_cache, past_key and past_value":
        {"input_ids": TOKENS},
    "last_only has the shape [2], expected one number: 0 turns it off, others turn it on":
        {"tokens": TOKENS, "last_only": ([2], "int64", 1)},
    "use_cache has the shape [1, 0], expected one number: 0 turns it off, others turn it on":
        {"tokens": TOKENS, "use_cache": ([1, 0], "float32", 1)},
    "one of past_key and past_value is missing: they come together": {"tokens": TOKENS, "past_key": PAST},
    "past_key has the shape [2, 1, 3, 4, 16] and past_value [2, 1, 3, 2, 16], expected [2, 1, past, 2, 16] of both":
        {"tokens": TOKENS, "past_key": ([2, 1, 3, 4, 16], "float32", 0.5), "past_value": PAST},
    "past_key has the shape [2, 1, 3, 2, 16] and past_value [2, 1, 2, 2, 16], expected [2, 1, past, 2, 16] of both":
        {"tokens": TOKENS, "past_key": PAST, "past_value": ([2, 1, 2, 2, 16], "float32", 0.5)},
    "past_key has the shape [3] and past_value [3], expected [2, 1, past, 2, 16] of both":
        {"tokens": TOKENS, "past_key": ([3], "float32", 0.5), "past_value": ([3], "float32", 0.5)},
}


@pytest.mark.parametrize("words", REFUSED)
def test_forward_returns_what_is_wrong(words, torch, made):
    assert torch.ask("refusal", archive=str(made("meta gqa").archive), inputs=REFUSED[words]) == [words, True]


@pytest.mark.parametrize("words", list(REFUSED)[:2])
def test_forward_raises_what_is_wrong_if_asked_to(words, torch, made, tmp_path):
    file = next(made("meta gqa").folder.glob("*.pth"))
    archive = converted(tmp_path, file, "--errors", "raise").archive
    message, is_returned = torch.ask("refusal", archive=str(archive), inputs=REFUSED[words])
    assert words in message and not is_returned


def test_forward_accepts_other_integer_dtypes(torch, made):
    assert torch.ask("refusal", archive=str(made("meta gqa").archive), inputs={"tokens": ([2], "int32", 5)}) == [None, True]


def test_a_switch_that_is_0_is_off(torch, made, tokens):
    assert torch.ask("switches", archive=str(made("meta gqa").archive), tokens=str(tokens)) == [True, True]


@pytest.mark.parametrize("kind", ["llama gqa", "llama tied", "qwen2 window"])
def test_float16_is_widened_once(kind, torch, made, tokens):
    copies, state, is_equal = torch.ask("widened", archive=str(made(kind, "float16").archive), tokens=str(tokens))
    assert copies[0] > copies[1] == 0 and state == ["torch.float16"] and is_equal


# --- which checkpoints become models -------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(newest, tmp_path):
    """`checkpoint(kind, document…)` writes one into the test's folder, with changes to its document, and returns its path."""

    def write(kind, changes=None, gone=False):
        path = tmp_path / newest.ask("make", kind=kind, dtype="float32", folder=str(tmp_path))
        document = tmp_path / ("params.json" if kind in models.META else "config.json")
        values = json.loads(document.read_text()) | (changes or {})
        document.write_text(json.dumps({key: value for key, value in values.items() if value != "gone"}))
        if gone:
            document.unlink()
        return path

    return write


def test_extra_tensors_are_refused_or_kept(newest, checkpoint, tmp_path):
    checkpoint("llama gqa", {"num_hidden_layers": 1})
    path = checkpoint("meta gqa", {"n_layers": 2})
    edit = ("import sys, torch; path = sys.argv[1]; state = torch.load(path); "
            "state['layers.1.attention.lora.weight'] = torch.ones(3); state['wq'] = torch.ones(2); torch.save(state, path)")
    import os
    import subprocess
    subprocess.run([os.environ["T2C_NEWEST"], "-c", edit, str(path)], check=True)
    text = without_colour(refuse(path).stderr)
    assert "the model does not use `layers.1.attention.lora.weight`, `wq`" in text and "--keep-extra" in text
    ours = converted(tmp_path, path, "--keep-extra")
    assert "2 tensors that the model does not use are kept" in ours.words
    succeed("verify", ours.carton_path, "--against", path)
    assert newest.ask("refusal", archive=str(ours.archive), inputs={"tokens": TOKENS}) == [None, True]


# --- speed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["meta gqa", "mistral"])
def test_eighty_layers(kind, torch, newest, tmp_path, table):
    """The times are printed and not checked."""
    file = newest.ask("make", kind=kind, dtype="float32", folder=str(tmp_path), layers=80)
    ours = converted(tmp_path, tmp_path / file)
    answer = torch.ask("speed", archive=str(ours.archive))
    calls = answer["calls"]
    table(f"80 layers, {kind}, torch {torch.ask('version')}: load {answer['load']:.2f} s, calls 1, 2, 3, 10: "
          f"{calls[0]:.3f} {calls[1]:.3f} {calls[2]:.3f} {calls[9]:.3f} s")
