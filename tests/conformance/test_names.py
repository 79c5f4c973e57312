"""`--names`: a LLaMA in the layout of Meta or Hugging Face gives the same logits in the other one, and comes back bit for bit. All
model types of the table get the names of transformers' modules and those that it writes, as transformers writes them.

The references are Meta's own code (llama-models) and transformers; `from_pretrained` reads our folders as they are.
"""

import json

import checked
import models
import numpy
import pytest
from conftest import worker_fixture
from program import hashes, refuse, succeed

# CLOSE is the largest difference of logits in float64. In a smaller dtype, our logits may differ from those in float64 by
# ALLOWED times as much as the reference's do.
CLOSE, ALLOWED = 1e-9, 3
THERE = [*models.META]
# Kinds that Meta's code has, and that it can run (it computes the size of a head).
BACK = ["llama mha", "llama gqa", "llama mqa", "llama tied", "llama norm_eps"]


newest = worker_fixture("NEWEST", "model_worker.py")
families = worker_fixture("NEWEST", "check_worker.py")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return models.tokens(tmp_path_factory.mktemp("tokens"), seed=1)


def make(newest, folder, kind, dtype="float32", **settings):
    folder.mkdir()
    newest.ask("make", kind=kind, dtype=dtype, folder=str(folder), **({"frequencies": []} | settings))
    return folder


def compare(reference, found):
    reference, found = numpy.load(reference), numpy.load(found)
    for key in models.BATCHES:
        exact = reference[f"exact {key}"]
        distance = lambda logits: numpy.abs(logits - exact).max()  # noqa: E731
        assert distance(found[f"exact {key}"]) <= CLOSE
        assert distance(found[key]) <= ALLOWED * distance(reference[key])


@pytest.mark.parametrize("kind", THERE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_metas_checkpoint_runs_in_transformers_and_comes_back(newest, tokens, tmp_path, kind, dtype):
    frequencies = ["rope.freqs"] if kind in ("meta mha", "meta rope x8") else []
    source = make(newest, tmp_path / "meta", kind, dtype, frequencies=frequencies)
    hf, back, logits, expected = (tmp_path / name for name in ("hf", "back", "found.npz", "expected.npz"))
    outcome = succeed(source, "--names", "hf", "-o", hf)
    assert all(name in outcome.stderr for name in frequencies), outcome
    loaded = newest.ask("pretrained", folder=str(hf), tokens=str(tokens), outputs=str(logits))
    assert loaded == {"dtype": f"torch.{dtype}", "tied": kind == "meta tied", "bos": None, "eos": None}
    newest.ask("reference", kind=kind, folder=str(source), tokens=str(tokens), outputs=str(expected))
    compare(expected, logits)

    succeed(hf, "--names", "meta", "-o", back)
    # A checkpoint without an output matrix gets one: Meta's code needs it.
    repeated = ["output.weight"] if kind == "meta tied" else []
    assert newest.ask("differences", one=str(source), other=str(back)) == repeated
    assert meaning(back) == meaning(source)


def meaning(folder):
    """The keys of params.json with their defaults, and the width that Meta's code computes from some of them."""
    params = json.loads((folder / "params.json").read_text())
    hidden = int(2 * (4 * params["dim"]) / 3)
    if multiplier := params.pop("ffn_dim_multiplier", None):
        hidden = int(multiplier * hidden)
    multiple = params.pop("multiple_of")
    defaults = {"n_kv_heads": params["n_heads"], "rope_theta": 10000.0}
    if params.get("use_scaled_rope"):
        defaults["rope_scaling_factor"] = 8
    vocab = {"vocab_size": models.VOCAB if params["vocab_size"] == -1 else params["vocab_size"]}
    return defaults | params | vocab | {"hidden": multiple * ((hidden + multiple - 1) // multiple)}


@pytest.mark.parametrize("kind", BACK)
def test_hugging_faces_checkpoint_runs_in_metas_code_and_comes_back(newest, tokens, tmp_path, kind):
    source = make(newest, tmp_path / "hf", kind)
    meta, back, logits, expected = (tmp_path / name for name in ("meta", "back", "found.npz", "expected.npz"))
    succeed(source, "--names", "meta", "-o", meta)
    newest.ask("run_metas", folder=str(meta), tokens=str(tokens), outputs=str(logits))
    newest.ask("reference", kind=kind, folder=str(source), tokens=str(tokens), outputs=str(expected))
    compare(expected, logits)
    succeed(meta, "--names", "hf", "-o", back)
    repeated = ["lm_head.weight"] if kind == "llama tied" else []
    assert newest.ask("differences", one=str(source), other=str(back)) == repeated
    newest.ask("pretrained", folder=str(back), tokens=str(tokens), outputs=str(logits))
    compare(expected, logits)


@pytest.mark.parametrize("kind", ["meta gqa", "meta mqa"])
def test_shards_become_the_folder_of_the_whole_file(newest, tmp_path, kind):
    whole, shards = (make(newest, tmp_path / f"{n}", kind, files=n) for n in (1, 2))
    for source in (whole, shards):
        succeed(source, "--names", "hf", "-o", source / "hf")
    assert newest.ask("differences", one=str(whole / "hf"), other=str(shards / "hf")) == []
    assert (whole / "hf/config.json").read_bytes() == (shards / "hf/config.json").read_bytes()


def test_frequencies_of_any_dtype_are_made_again(newest, tmp_path):
    """Also those that the first LLaMA has in each layer, and what PyTorch's float32 power rounds differently."""
    names = ["rope.freqs", *(f"layers.{layer}.attention.inner_attention.rope.freqs" for layer in range(2))]
    for dtype in models.DTYPES:
        source = make(newest, tmp_path / dtype, "meta rope x8", dtype, frequencies=names)
        succeed(source, "--names", "hf", "-o", source / "hf")
        succeed(source / "hf", "--names", "meta", "-o", source / "back")
        assert newest.ask("differences", one=str(source), other=str(source / "back")) == []


@pytest.mark.parametrize("model_type, number", checked.chosen())
def test_names_in_memory_are_those_of_transformers_and_come_back(families, tmp_path, model_type, number):
    released, modules = tmp_path / "released", tmp_path / "modules"
    families.ask("write", model_type=model_type, number=number, released=str(released), modules=str(modules))
    for folder in (released, modules):
        checked.undeclare(folder)
    for source, names, expected in ((released, "modules", modules), (modules, "hf", released)):
        made, back = tmp_path / f"to-{names}", tmp_path / f"from-{names}"
        succeed(source, "--names", names, "-o", made)
        assert hashes(made) == hashes(expected)
        assert (made / "config.json").read_bytes() == (source / "config.json").read_bytes()
        succeed(made, "--names", {"modules": "hf", "hf": "modules"}[names], "-o", back)
        assert hashes(back) == hashes(source)
    succeed(released / "model.safetensors", "--names", "modules", "-o", tmp_path / "alone")
    assert hashes(tmp_path / "alone") == hashes(modules)


def test_a_missing_expert_is_named_and_nothing_is_written(families, tmp_path):
    released, modules = tmp_path / "released", tmp_path / "modules"
    families.ask("write", model_type="mixtral", number=0, released=str(released), modules=str(modules))
    name = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    for options in (["--exclude", name], ["--exclude", name, "--incomplete"]):
        outcome = refuse(released, "--names", "modules", *options, "-o", tmp_path / "out")
        assert name in outcome.stderr and not (tmp_path / "out").exists()
