"""Unusual checkpoints: each is converted exactly, or refused for the reason listed here.

A carton must never lack a tensor or hold other values. A refusal that is not listed is a failure, so a change cannot turn a kind
that is read into one that is refused.
"""

import re

import pytest
from checkpoints import LLAMA_PARAMS, ODD
from program import torch2carton

# kind → a pattern of the error; every other kind must be converted.
REFUSED = {
    "same_name_twice": r"`1`.*\[1\] and \['1'\]",  # two tensors have the same name: the error gives both paths
    "newer_dtypes": r"`uint16`.*--torch newest",  # Carton's PyTorch 2.0 cannot load them
    "llama_with_extra": r"`layers\.0\.attention\.wq\.lora_a`.*--keep-extra",  # the model does not use the tensor
    "llama_without_norm": r"`layers\.1\.ffn_norm\.weight`.*--arch weights",  # the model cannot run without the tensor
}


def test_each_kind_that_may_be_refused_exists():
    assert REFUSED.keys() <= set(ODD)


@pytest.mark.parametrize("kind", ODD)
def test_each_kind_is_converted_exactly_or_refused_as_listed(kind, case, newest):
    params = LLAMA_PARAMS if kind.startswith("llama") else None
    try:
        made = case(kind, params=params)
    except AssertionError as refused:
        assert "exit status 1" in str(refused) and "panicked" not in str(refused), refused
        assert kind in REFUSED, f"{kind} should be read, but is refused: {refused}"
        reason = str(refused).split("--- stderr")[1].strip()
        assert re.search(REFUSED[kind], reason, re.S), f"refused, but not for {REFUSED[kind]}: {reason}"
        return
    assert kind not in REFUSED, f"{kind} is read: remove it from REFUSED"
    wanted = sorted((t["name"], t["shape"], t["sha256"]) for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"])
    got = newest.ask("describe_archive", path=str(made.archive))["tensors"]
    assert sorted((t["name"], t["shape"], t["sha256"]) for t in got) == wanted
    if not made.carton.is_llama():
        assert newest.ask("compare_outputs", archive=str(made.archive), checkpoint=str(made.checkpoint)) == []


def test_inspect_lists_the_tensors_of_a_whole_module(tmp_path, newest):
    newest.ask("make_module", path=str(tmp_path / "module.pt"))
    outcome = torch2carton("inspect", tmp_path / "module.pt")
    assert outcome.status == 0, outcome
    assert "weight" in outcome.stdout and "bias" in outcome.stdout
