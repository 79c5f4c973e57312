"""Tensors that torch.save did not write: those in bare pickles, and shards of distributed tensors."""

import json

import pytest
from program import refuse, succeed

FACTS = "name dtype shape stride storage_offset nbytes sha256".split()


def listed(path):
    return json.loads(succeed("inspect", "--json", "--sha256", path).stdout)["tensors"]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_tensors_in_bare_pickles(protocol, tmp_path, torch):
    """Each storage is a legacy checkpoint in a byte string, which protocols 0 to 2 write as text."""
    wanted = torch.ask("make_pickle", path=str(tmp_path / "bare.pkl"), protocol=protocol)
    assert [{f: t[f] for f in FACTS} for t in listed(tmp_path / "bare.pkl")] == [{f: t[f] for f in FACTS} for t in wanted]
    succeed(tmp_path / "bare.pkl")


def test_the_constants_of_traced_code_are_reported(tmp_path, newest):
    newest.ask("make_traced", path=str(tmp_path / "traced.pt"))
    assert [t["name"] for t in listed(tmp_path / "traced.pt")] == ["inner.weight", "inner.bias"]
    assert "of the archive's code (" in succeed("inspect", tmp_path / "traced.pt").stdout
    # PyTorch wrote all of its five pickles.
    assert ": clean (" in succeed("scan", tmp_path / "traced.pt").stdout


def test_errors_and_notes_name_the_shard_of_a_distributed_tensor(tmp_path, newest):
    newest.ask("make_sharded", folder=str(tmp_path))
    for name, what in [("dtensor", "(DTensor)"), ("sharded", "(ShardedTensor)")]:
        (row, _) = listed(tmp_path / f"{name}.pth")
        assert (row["shape"], row["sha256"]) == ([64, 16], None)
        assert f"a shard of [64, 16], rank 0 of 8 {what}" in row["note"]
        outcome = refuse(tmp_path / f"{name}.pth")
        assert "tensor `w` has no data: it is a shard of [64, 16], rank 0 of 8" in outcome.stderr
        assert outcome.stderr.endswith("; leave it out with --exclude w\n")
    # If every rank has the whole tensor, there is nothing to gather.
    (row,) = listed(tmp_path / "replicated.pth")
    assert (row["shape"], row["nbytes"]) == ([8, 8], 256)
