"""`--part text`: transformers computes the logits of the whole model with the text part alone. `--complete-from`: what a folder lost comes
from its base, and from nothing else.

`T2C_CHECK_TYPES` chooses model types.
"""

import json
import shutil

import checked
import pytest
from conftest import worker_fixture
from folders import read, write, write_shards
from program import refuse, succeed

newest = worker_fixture("NEWEST", "check_worker.py")
# Types whose text model is a class of its own. The logits of AyaVision are those of another scale.
TEXT = """qwen3_5 qwen3_5_moe gemma3 gemma4 llava llava_next llava_onevision mistral3 aya_vision internvl paligemma llama4 idefics3 smolvlm
lfm2_vl""".split()
NO_TEXT = ["llama", "clip", "whisper"]
CHOSEN = {model_type for model_type, _ in checked.chosen()}


@pytest.fixture
def make(newest, tmp_path):
    def make(model_type, number=0):
        folders = {layout: tmp_path / layout for layout in ("released", "modules")}
        newest.ask("write", model_type=model_type, number=number, **{layout: str(folder) for layout, folder in folders.items()})
        return folders["released"], folders["modules"]

    return make


@pytest.mark.parametrize("model_type", sorted({*TEXT} & CHOSEN))
def test_the_text_part_has_the_logits_of_the_whole(newest, make, tmp_path, model_type):
    for number, folder in enumerate(make(model_type)):
        (folder / "preprocessor_config.json").write_text("{}")
        (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
        out = tmp_path / f"text-{number}"
        outcome = succeed(folder, "--part", "text", "-o", out)
        assert "visi" in outcome.stderr or "visual" in outcome.stderr
        assert not (out / "preprocessor_config.json").exists() and (out / "generation_config.json").exists()
        succeed("check", out)
        found = newest.ask("part_logits", part=str(out), whole=str(folder))
        assert found["missing"] == [] and found["unexpected"] == []
        assert model_type == "aya_vision" or found["distance"] < 1e-6


@pytest.mark.parametrize("model_type", sorted({*NO_TEXT} & CHOSEN))
def test_a_model_without_a_text_part_is_refused(make, tmp_path, model_type):
    refuse(make(model_type)[0], "--part", "text", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model_type", sorted({"llava", "qwen3_5_moe"} & CHOSEN))
def test_a_text_part_that_lacks_a_tensor_is_refused(make, tmp_path, model_type):
    for folder in make(model_type):
        tensors = read(folder / "model.safetensors")
        name = next(name for name in tensors if name.endswith("layers.1.input_layernorm.weight") and "vis" not in name)
        write(folder / "model.safetensors", {other: row for other, row in tensors.items() if other != name})
        outcome = refuse(folder, "--part", "text", "--incomplete", "-o", tmp_path / "out")
        assert "layers.1.input_layernorm.weight" in outcome.stderr and not (tmp_path / "out").exists()


def lose(folder, is_lost):
    tensors = read(folder / "model.safetensors")
    lost = {name for name in tensors if is_lost(name)}
    assert lost
    write(folder / "model.safetensors", {name: row for name, row in tensors.items() if name not in lost})
    return lost, tensors


def train(folder, name):
    """Changes a byte of a tensor, as a training changes weights."""
    tensors = read(folder / "model.safetensors")
    dtype, shape, data = tensors[name]
    write(folder / "model.safetensors", {**tensors, name: (dtype, shape, bytes([data[0] ^ 1]) + data[1:])})


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


LOSSES = [
    ("qwen3", lambda name: name.startswith("model.layers.2.")),
    ("mixtral", lambda name: ".1." in name and "experts.3." in name or "layers.1.mlp.experts.down_proj" in name),
    ("qwen3_5", lambda name: "visual." in name),
    ("gemma3", lambda name: name.endswith("layers.1.self_attn.q_proj.weight") and "vision" not in name),
]


@pytest.mark.parametrize("model_type, is_lost", LOSSES)
def test_what_is_lost_comes_from_the_base(make, tmp_path, model_type, is_lost):
    if model_type not in CHOSEN:
        pytest.skip("not chosen")
    for here, there in (make(model_type), make(model_type)[::-1], [make(model_type)[0]] * 2):
        base, trained, out = (tmp_path / name for name in ("base", "trained", "out"))
        for folder in (base, trained, out):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(there, base)
        shutil.copytree(here, trained)
        change_config(base, torch_dtype="float32", transformers_version="4.0.0")
        write_shards(base, read(base / "model.safetensors"))
        norm = next(name for name in read(trained / "model.safetensors") if name.endswith("layers.0.input_layernorm.weight"))
        train(trained, norm)
        lost, tensors = lose(trained, is_lost)
        outcome = succeed(trained, "--complete-from", base, "-o", out)
        assert read(out / "model.safetensors") == tensors
        assert f"{len(tensors) - len(lost) - 1} of {len(tensors) - len(lost)} tensors agree" in outcome.stderr
        assert all(name in outcome.stderr for name in lost)
        succeed("check", out)


def test_another_base_is_refused(make, tmp_path):
    released, _ = make("qwen3")
    base, out = tmp_path / "base", tmp_path / "out"
    needed = "model.layers.2.mlp.up_proj.weight"
    whole = read(released / "model.safetensors")

    def refused(because, tensors=whole, **values):
        shutil.rmtree(base, ignore_errors=True)
        shutil.copytree(released, base)
        write(base / "model.safetensors", tensors)
        change_config(base, **values)
        outcome = refuse(trained, "--complete-from", base, "-o", out)
        assert because in outcome.stderr and not out.exists(), outcome

    trained = tmp_path / "trained"
    shutil.copytree(released, trained)
    lose(trained, lambda name: name == needed)
    refused("rms_norm_eps", rms_norm_eps=0.5)
    refused("rope_parameters", rope_parameters={"rope_type": "default", "rope_theta": 5.0})
    refused("hidden_act", hidden_act="relu")
    refused(needed, {name: row for name, row in whole.items() if name != needed})
    dtype, shape, data = whole[needed]
    refused(needed, {**whole, needed: ("BF16", shape, data[: len(data) // 2])})
    other = {name: (dtype, shape, bytes(byte ^ 1 for byte in data)) for name, (dtype, shape, data) in whole.items()}
    refused("0 of", other)
    # Norms of ones agree by chance.
    ones = {name: row for name, row in whole.items() if len(set(row[2][at : at + 4] for at in range(0, len(row[2]), 4))) == 1}
    refused(f"{len(ones)} of", {**other, **ones})
    name = "model.embed_tokens.weight"
    dtype, shape, data = whole[name]
    refused(name, {**whole, name: (dtype, [shape[0] * 2, shape[1]], data * 2)})
    refused("vocab_size", {**whole, name: (dtype, [shape[0] * 2, shape[1]], data * 2)}, vocab_size=shape[0] * 2)
