"""The real Carton client opens the carton and reads what the command line specified."""

import hashlib
import json

import pytest
from carton_file import Carton
from checkpoints import LLAMA_PARAMS, VOCAB, WEIGHTS
from program import succeed

DESCRIPTION = "A *small* model.\n\nWith \"quotes\", a back\\slash, ünïcode and 🦙."


def test_llama(case, carton_client):
    made = case("llama_float32", params=LLAMA_PARAMS)
    info = carton_client.ask("info", path=str(made.carton_path))
    assert info["model_name"] == made.folder.name  # the file name is generic, so the model is named after the folder
    cache = lambda name, tokens: {"name": name, "dtype": "float32", "shape": [2, "batch", tokens, 4, 16]}
    scalar = lambda name: {"name": name, "dtype": "int64", "shape": []}
    assert info["inputs"] == [
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "seq"]}, scalar("last_only"), scalar("use_cache"),
        cache("past_key", "past"), cache("past_value", "past")]
    logits = {"name": "logits", "dtype": "float32", "shape": ["batch", "seq", VOCAB]}
    assert info["outputs"] == [logits, cache("present_key", "total"), cache("present_value", "total")]
    assert info["runner"] == {"name": "torchscript", "framework": "=2.0", "compat": 1, "opts": None}
    assert info["misc"] == {"params.json": hashlib.sha256((made.folder / "params.json").read_bytes()).hexdigest()}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights(kind, case, carton_client):
    made = case(kind)
    info = carton_client.ask("info", path=str(made.carton_path))
    assert info["model_name"] == kind
    assert not info["inputs"]
    described = [{k: o[k] for k in ("name", "dtype", "shape")} for o in made.carton.toml["output"]]
    assert info["outputs"] == described
    assert info["runner"] == {"name": "torchscript", "framework": "=2.0", "compat": 1, "opts": None}


def test_description_fields(saved, carton_client):
    path = saved("dtypes", "weights.pth")
    flags = {"--name": "a name", "--description": DESCRIPTION, "--short-description": "Short, ü.", "--license": "MIT OR Apache-2.0",
             "--repository": "https://example.org/repository", "--homepage": "https://example.org/"}
    succeed(path, *[word for pair in flags.items() for word in pair])
    info = carton_client.ask("info", path=str(path.with_suffix(".carton")))
    read = [info[f] for f in ("model_name", "model_description", "short_description", "license", "repository", "homepage")]
    assert read == list(flags[f] for f in ("--name", "--description", "--short-description", "--license", "--repository", "--homepage"))


def test_fields_that_were_not_given_are_absent(case, carton_client):
    info = carton_client.ask("info", path=str(case("dtypes").carton_path))
    absent = "short_description model_description license repository homepage required_platforms".split()
    assert [info[f] for f in absent] == [None] * len(absent)


COMPANIONS = [
    "params.json", "config.json", "generation_config.json", "adapter_config.json", "tokenizer.model", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "vocab.json", "merges.txt", "chat_template.jinja", "LICENSE", "LICENSE.txt",
]


def test_misc_files_next_to_the_checkpoint_are_included_and_listed(saved, tmp_path, carton_client):
    path = saved("dtypes", "weights.pth")
    for name in COMPANIONS:
        (tmp_path / name).write_text(json.dumps({"this is": name}) if name.endswith("json") else f"this is {name}\n")
    (tmp_path / "notes.txt").write_text("not taken")
    (tmp_path / "secret.json").write_text("{}")
    extra = tmp_path / "elsewhere" / "card.md"
    extra.parent.mkdir()
    extra.write_text("# card\n")
    outcome = succeed(path, "--misc", extra)
    carton = Carton(path.with_suffix(".carton"))
    wanted = {n: hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() for n in COMPANIONS}
    wanted["card.md"] = hashlib.sha256(extra.read_bytes()).hexdigest()
    assert carton.misc() == wanted
    assert carton_client.ask("info", path=str(path.with_suffix(".carton")))["misc"] == wanted
    unlisted = [n for n in wanted if n not in outcome.stderr]
    assert not unlisted, f"the summary does not list {unlisted}: {outcome}"


@pytest.mark.parametrize("file, name", [
    ("mymodel/consolidated.00.pth", "mymodel"), ("mymodel/model.pt", "mymodel"), ("mymodel/pytorch_model.bin", "mymodel"),
    ("mymodel/last.ckpt", "mymodel"), ("mymodel/best.pth", "mymodel"), ("folder/resnet50.pth", "resnet50"),
    ("folder/my.dotted.name.pth", "my.dotted.name"),
])
def test_the_model_is_named_after_the_folder_or_the_file(file, name, saved, carton_client):
    path = saved("dtypes", file)
    succeed(path)
    assert carton_client.ask("info", path=str(path.with_suffix(".carton")))["model_name"] == name
