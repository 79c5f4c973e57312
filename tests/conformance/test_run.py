"""`run`: the text that transformers generates, PyTorch's logits, numpy's arrays, and the self tests that a carton stores."""

import json
import shutil
import unicodedata

import numpy
import pytest
from carton_file import Carton
from conftest import worker_fixture
from program import refuse, succeed, torch2carton

TOKENS = 64
# Two logits that are nearer to each other than this could be swapped by rounding.
MARGIN = 1e-3
TEXTS = [
    "Once upon a time", "It's what they'LL see, we've 12345 said", "Ein Männchen  größer\n\n als", "Жила-была девочка", "从前有座山",
    "むかしむかし、", "كان يا ما كان", "एक समय की बात है", "👩‍👩‍👧 🤗🎉 1234567 == \t\tif x:\n\n    return y", " leading and trailing ", "\u0301x\u00a0y\u2028z",
    "ſtraße K\u212a \u1e9e ﬁ ½²Ⅷ", "a\r\nb\r\n\r\n c", "", "\U0010ffff\u0378",
]


reference = worker_fixture("NEWEST", "run_worker.py")


@pytest.fixture(scope="module")
def made(tmp_path_factory, reference):
    """`made(kind, model_type)`: a folder with a random model and its tokenizer, and the carton made from it, once."""
    known = {}

    def get(kind, model_type="llama", seed=0, **settings):
        key = (kind, model_type, seed, *settings.items())
        if key not in known:
            folder = tmp_path_factory.mktemp("model")
            vocab = reference.ask("make", folder=str(folder), kind=kind, model_type=model_type, seed=seed, **settings)
            succeed(folder / "model.safetensors", "-o", folder / "made.carton", "--quiet")
            known[key] = (folder, folder / "made.carton", vocab)
        return known[key]

    return get


def generated(carton, *arguments):
    return json.loads(succeed("run", "--json", carton, *arguments).stdout)


# --- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, model_type", [
    ("byte level", "llama"), ("byte level", "qwen2"), ("gpt2", "mistral"), ("byte fallback", "llama"), ("metaspace", "llama"), ("word piece", "llama"),
])
@pytest.mark.parametrize("text", ["Once upon a time", "从前 🤗 größer", "Жила\n\n12345"])
def test_text_is_that_of_transformers(kind, model_type, text, made, reference, table):
    """Seeds are tried until no choice is close, and enough tokens differ."""
    for seed in range(20):
        folder, carton, _ = made(kind, model_type, seed)
        wanted = reference.ask("generate", folder=str(folder), text=text, count=TOKENS)
        if wanted["margin"] >= MARGIN and wanted["distinct"] >= 12 and wanted["text"] is not None:
            break
    else:
        pytest.fail("no seed gives a text without close choices")
    table(f"| {kind} | {model_type} | seed {seed} | margin {wanted['margin']:.4f} | {wanted['distinct']} distinct tokens |")
    answer = generated(carton, text, "--max-tokens", TOKENS)
    assert answer["prompt_tokens"] == wanted["prompt"] and answer["tokens"] == wanted["tokens"]
    assert answer["text"] == wanted["text"] and answer["ended"] == "max_tokens"
    outcome = succeed("run", carton, text, "--max-tokens", TOKENS)
    assert outcome.stdout == wanted["text"] + "\n", "as it comes"
    assert "tokens/s" in outcome.stderr
    if wanted["prompt"]:
        tokens = ",".join(map(str, wanted["prompt"]))
        assert generated(carton, "--tokens", tokens, "--max-tokens", TOKENS)["tokens"] == wanted["tokens"]


def test_a_text_ends_where_the_documents_say(made, reference, tmp_path):
    folder, _, _ = made("byte level", seed=3)
    first = reference.ask("generate", folder=str(folder), text="Once", count=TOKENS)["tokens"]
    stops = [first[20], 599]
    wanted = reference.ask("generate", folder=str(folder), text="Once", count=TOKENS, stops=stops)["tokens"]
    assert wanted[-1] == stops[0], "it ends there"
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    for document, value in [("generation_config.json", stops), ("generation_config.json", stops[0]), ("config.json", stops[0])]:
        path = copy / document
        old = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(old | {"eos_token_id": value}))
        succeed(copy / "model.safetensors", "-o", copy / "stops.carton", "--quiet", "--force")
        answer = generated(copy / "stops.carton", "Once", "--max-tokens", TOKENS)
        assert answer["tokens"] == wanted[:-1] and answer["ended"] == "stop_token" and answer["stop_token"] == stops[0]
        (copy / "generation_config.json").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["byte level", "gpt2", "byte fallback", "metaspace", "word piece"])
def test_tokens_are_those_of_tokenizers(kind, made, reference):
    folder, carton, _ = made(kind)
    texts = [text for text in TEXTS if text or kind in ("byte level", "byte fallback", "word piece")]
    for text, wanted in zip(texts, reference.ask("encode", folder=str(folder), texts=texts)):
        answer = generated(carton, "--max-tokens", 0, "--", text)
        assert answer["prompt_tokens"] == wanted and answer["tokens"] == [], text


def characters():
    """Every character of Unicode 14 that is not a Han or Hangul syllable, of which there are some."""
    for code in range(0x20, 0x20000):
        if unicodedata.category(chr(code)) in ("Cn", "Cs", "Co") or (0x3400 <= code < 0xD7A4 and code % 97) or (code >= 0x17000 and code % 97):
            continue
        yield chr(code)


@pytest.mark.parametrize("kind", ["byte level", "gpt2"])
def test_every_character_is_cut_as_oniguruma_cuts_it(kind, made, reference):
    """Here regular expressions are `fancy-regex`'s, in Python's tokenizers Oniguruma's."""
    folder, carton, _ = made(kind)
    every = list(characters())
    assert len(every) > 15_000
    for start in range(0, len(every), 2000):
        text = "".join(f"a{c}b {c}{c} 1{c}2 '{c} " for c in every[start:start + 2000])
        (wanted,) = reference.ask("encode", folder=str(folder), texts=[text])
        is_equal = generated(carton, "--max-tokens", 0, "--", text)["prompt_tokens"] == wanted
        assert is_equal, f"from U+{ord(every[start]):04X} on"


metas = worker_fixture("TIKTOKEN", "tiktoken_worker.py")


def test_llama_3s_format_is_read_as_meta_reads_it(made, metas, reference):
    folder, carton, vocab = made("tiktoken")
    path = str(folder / "tokenizer.model")
    every = list(characters())
    texts = [*TEXTS, "a<|eot_id|>b<|reserved_special_token_2|><|reserved_special_token_245|>", "=" * 500, " " * 300 + "x", "哈哈哈哈哈哈" * 9, "ab" * 200]
    texts += ["".join(f"a{c}b {c}{c} 1{c}2 '{c} " for c in every[start:start + 2000]) for start in range(0, len(every), 2000)]
    for text, wanted in zip(texts, metas.ask("encode", path=path, texts=texts)):
        is_equal = generated(carton, "--max-tokens", 0, "--", text)["prompt_tokens"] == wanted
        assert is_equal, text[:100]
    # Text as it comes: what Meta's tokenizer makes of the tokens that transformers generates.
    for seed in range(20):
        folder, carton, _ = made("tiktoken", seed=seed)
        (prompt,) = metas.ask("encode", path=path, texts=["Once upon a time"])
        wanted = reference.ask("generate", folder=str(folder), tokens=prompt, count=TOKENS)
        if wanted["margin"] >= MARGIN and wanted["distinct"] >= 12:
            break
    answer = generated(carton, "Once upon a time", "--max-tokens", TOKENS)
    stops = metas.ask("stops", path=path)
    tokens = wanted["tokens"][:next((n for n, token in enumerate(wanted["tokens"]) if token in stops), TOKENS)]
    assert wanted["margin"] >= MARGIN and answer["tokens"] == tokens
    text = metas.ask("decode", path=path, tokens=prompt + tokens).removeprefix("Once upon a time")
    assert answer["text"] == text


# --- tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2"])
def test_candidates_are_those_of_torch(model_type, made, reference):
    folder, carton, vocab = made("byte level", model_type)
    tokens = [1, 450, 99, 7]
    wanted = reference.ask("logits", folder=str(folder), tokens=tokens)
    listed = generated(carton, "--tokens", ",".join(map(str, tokens)), "--top", vocab)["candidates"]
    assert len(listed) == vocab and len({row["id"] for row in listed}) == vocab
    assert [row["logit"] for row in listed] == sorted((row["logit"] for row in listed), reverse=True)
    for row in listed:
        assert abs(row["logit"] - wanted["logits"][row["id"]]) < 1e-4
        assert abs(row["probability"] - wanted["probabilities"][row["id"]]) < 1e-5
    assert sum(row["probability"] for row in listed) == pytest.approx(1, abs=1e-12)
    text = succeed("run", carton, "--tokens", ",".join(map(str, tokens)), "--top", 3).stdout.splitlines()
    assert text[0].split() == ["id", "probability", "logit", "text"]
    assert [int(line.split()[0]) for line in text[1:]] == [row["id"] for row in listed[:3]]


# --- tensors --------------------------------------------------------------------------------------------------------


def test_arrays_are_those_of_numpy(reference, tmp_path):
    checkpoint, carton, out = tmp_path / "dtypes.pth", tmp_path / "dtypes.carton", tmp_path / "out.npy"
    names = reference.ask("make_dtypes", path=str(checkpoint), folder=str(tmp_path))
    succeed(checkpoint, "-o", carton, "--torch", "newest")
    for number, name in enumerate(names):
        report = generated(carton, "--get", name, "-o", out)
        wanted = (tmp_path / f"{number}.npy").read_bytes()
        assert out.read_bytes() == wanted, name
        assert report["nbytes"] == len(wanted) and report["tensor"] == name
    assert "`torch2carton inspect" in refuse("run", carton, "--get", "none", "-o", out).stderr
    assert "--get NAME -o FILE.npy" in refuse("run", carton, "--tokens", "1").stderr


def test_the_weights_of_a_model_are_written_too(made, tmp_path):
    from safetensors.numpy import load_file

    folder, carton, _ = made("byte level")
    name = "model.layers.1.mlp.up_proj.weight"
    succeed("run", carton, "--get", name, "-o", tmp_path / "w.npy")
    assert numpy.array_equal(numpy.load(tmp_path / "w.npy"), load_file(folder / "model.safetensors")[name])


# --- self tests -----------------------------------------------------------------------------------------------------


@pytest.fixture
def tested(made, reference, tmp_path):
    """`tested(tests, arrays)` adds self tests and their tensors to a carton. TOML and bytes are written here, not by us."""
    _, carton, _ = made("byte level")

    def make(tests, arrays, more=""):
        folder, packed = tmp_path / "folder", tmp_path / "tested.carton"
        shutil.rmtree(folder, ignore_errors=True)
        succeed("unpack", carton, "-o", folder)
        (folder / "MANIFEST").unlink()
        index = ""
        for number, (name, array) in enumerate(arrays.items()):
            file = f"{number}.bin"
            (folder / "tensor_data" / file).write_bytes(numpy.ascontiguousarray(array).tobytes())
            index += f"[[tensor]]\nname = '{name}'\ndtype = '{array.dtype}'\nshape = {list(array.shape)}\nfile = '{file}'\ninner = []\n"
        (folder / "tensor_data/index.toml").write_text(index + more)
        (folder / "tensor_data/strings.toml").write_text("data = ['a', 'b']\n")
        path = folder / "carton.toml"
        path.write_text(path.read_text() + tests)
        succeed("pack", folder, "-o", packed, "--force")
        return packed

    return make


def expected(reference, carton, tokens, folder):
    """What the archive returns for these tokens, run by PyTorch."""
    archive, inputs, outputs = folder / "model.pt", folder / "inputs.npz", folder / "outputs.npz"
    archive.write_bytes(Carton(carton).read("model/model.pt"))
    numpy.savez(inputs, tokens=tokens)
    reference.ask("run", archive=str(archive), inputs=str(inputs), outputs=str(outputs))
    return numpy.load(outputs)["logits"]


TEST = "\n[[self_test]]\nname = '{}'\ninputs = {{ tokens = '@tensor_data/{}' }}\n"


def test_stored_tests_are_run(made, reference, tested, tmp_path):
    _, carton, _ = made("byte level")
    tokens = numpy.array([[1, 450, 99], [7, 8, 9]])
    logits = expected(reference, carton, tokens, tmp_path)
    tests = (TEST.format("right", "tokens") + "expected_out = { logits = '@tensor_data/logits' }\n" + TEST.format("open", "tokens")
             + TEST.format("ragged", "ragged") + "expected_out = { logits = '@tensor_data/ragged_logits' }\n")
    arrays = {"tokens": tokens, "logits": logits, "short": tokens[0, :2], "long": tokens[1],
              "short_logits": logits[:1, :2], "long_logits": logits[1:]}
    nested = "".join(f"[[tensor]]\nname = '{name}'\ndtype = 'nested'\ninner = {parts}\n" for name, parts in [
        ("ragged", ["short", "long"]), ("ragged_logits", ["short_logits", "long_logits"])])
    packed = tested(tests, arrays, nested)
    succeed("verify", packed)
    report = json.loads(succeed("run", packed, "--self-test", "--json").stdout)
    assert report["ok"] and [test["outcome"] for test in report["tests"]] == ["passed", "ran", "passed"]
    assert report["tolerance"] == {"relative": 1e-5, "absolute": 1e-8, "of_largest": 1e-4}
    assert all(output["largest_difference"] < 1e-4 for test in report["tests"][::2] for output in test["outputs"])
    assert [output["name"] for output in report["tests"][1]["outputs"]] == ["logits"]
    assert "2 self tests passed, 1 ran" in succeed("run", packed, "--self-test").stderr


def test_a_logit_near_zero_may_differ_by_a_part_of_the_largest(made, reference, tested, tmp_path):
    """numpy.allclose refuses what another CPU adds up to; a number that is wrong still fails."""
    _, carton, _ = made("byte level")
    tokens = numpy.array([[1, 450, 99]])
    logits = expected(reference, carton, tokens, tmp_path)
    largest, at = numpy.abs(logits).max(), numpy.unravel_index(numpy.abs(logits).argmin(), logits.shape)
    for part, status in [(5e-5, 0), (1e-3, 1)]:
        other = logits.copy()
        other[at] += part * largest
        assert not numpy.allclose(logits, other)
        packed = tested(TEST.format("near zero", "tokens") + "expected_out = { logits = '@tensor_data/logits' }\n",
                        {"tokens": tokens, "logits": other})
        outcome = torch2carton("run", packed, "--self-test")
        assert outcome.status == status and ("1 of 1800 elements" in outcome.stdout) == bool(status), outcome
