"""LLaMA in one file from Meta: the module's contents, the carton's description, and a params.json that does not fit."""

import json

import pytest
from checkpoints import LLAMA_PARAMS

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
