"""LLaMA in one file from Meta: the module's contents, the carton's description, and a params.json that does not fit."""

import json

import pytest
from checkpoints import LLAMA_PARAMS, VOCAB
from program import refuse

NAMES = ["llama_float32", "llama_float16", "llama_bfloat16", "llama_no_rope_freqs"]


@pytest.mark.parametrize("name", NAMES)
def test_the_module_holds_every_tensor(name, case, newest, torch):
    """Including rope.freqs: no tensor of a checkpoint is dropped."""
    made = case(name, params=LLAMA_PARAMS)
    wanted = {t["name"]: (t["dtype"], t["shape"], t["sha256"])
              for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]}
    answer = torch.ask("describe_archive", path=str(made.archive))
    assert {t["name"]: (t["dtype"], t["shape"], t["sha256"]) for t in answer["tensors"]} == wanted
    assert answer["requires_grad"] == []


def test_forward_takes_and_returns_a_dict(case, torch):
    made = case("llama_float32", params=LLAMA_PARAMS)
    signature = torch.ask("describe_archive", path=str(made.archive))["signature"]
    assert "Any inputs) -> " in signature and signature.endswith("Dict(str, Any)"), signature


def test_the_carton_describes_tokens_and_logits(case):
    toml = case("llama_float32", params=LLAMA_PARAMS).carton.toml
    (tokens, *more), (logits, *cache) = toml["input"], toml["output"]
    assert all(port["description"].startswith("optional: ") for port in more + cache)
    assert (tokens["name"], tokens["dtype"]) == ("tokens", "int64")
    assert (logits["name"], logits["dtype"]) == ("logits", "float32")
    assert len(tokens["shape"]) == 2 and all(isinstance(d, str) for d in tokens["shape"])
    assert logits["shape"][:2] == tokens["shape"] and logits["shape"][2] in (VOCAB, "vocab")


CONTRADICTIONS = {
    "no JSON": "junk",
    "a list": "[]",
    "no n_heads": json.dumps({"dim": 64, "n_layers": 2}),
    "other n_layers": json.dumps(LLAMA_PARAMS | {"n_layers": 3}),
    "other dim": json.dumps(LLAMA_PARAMS | {"dim": 32}),
    "n_heads no divisor": json.dumps(LLAMA_PARAMS | {"n_heads": 3}),
    "other n_kv_heads": json.dumps(LLAMA_PARAMS | {"n_kv_heads": 2}),
    "other vocab_size": json.dumps(LLAMA_PARAMS | {"vocab_size": VOCAB + 1}),
    "n_heads 0": json.dumps(LLAMA_PARAMS | {"n_heads": 0}),
    "n_heads beyond 64 bits": json.dumps(LLAMA_PARAMS | {"n_heads": 2**70}),
    "text for a number": json.dumps(LLAMA_PARAMS | {"norm_eps": "tiny"}),
}


@pytest.mark.parametrize("contradiction", CONTRADICTIONS)
def test_params_json_that_does_not_fit_is_refused(contradiction, saved, tmp_path):
    """A LLaMA module is never made from a guess. The error names the file or the field."""
    path = saved("llama_float32", "consolidated.00.pth")
    (tmp_path / "params.json").write_text(CONTRADICTIONS[contradiction])
    words = refuse(path).stderr
    assert "params.json" in words or contradiction.split()[-1] in words


def test_without_params_json_it_is_a_weights_module(case):
    assert not case("llama_float32").carton.is_llama()


def test_with_params_json_but_other_names_it_is_a_weights_module(case):
    assert not case("grouped", params=LLAMA_PARAMS).carton.is_llama()
