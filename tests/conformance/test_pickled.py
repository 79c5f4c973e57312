"""Tensors that torch.save did not write: those in bare pickles, and shards of distributed tensors."""

import json

import pytest
from program import succeed, torch2carton

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


def test_the_shard_of_a_distributed_tensor_is_a_part_of_it(tmp_path, newest):
    newest.ask("make_sharded", folder=str(tmp_path))
    for name, part, kind in [("dtensor", "_local_tensor", "DTensor"), ("sharded", "_local_shards.0", "ShardedTensor")]:
        (row, local, _) = listed(tmp_path / f"{name}.pth")
        assert (row["name"], row["shape"], row["sha256"]) == ("w", [64, 16], None)
        assert row["subclass"]["shard"] == "a shard of [64, 16], rank 0 of 8"
        assert row["subclass"]["class"].endswith(f".{kind}")
        assert (local["name"], local["shape"]) == (f"w.{part}", [8, 16])
        assert "`w` is a shard of [64, 16], rank 0 of 8" in torch2carton(tmp_path / f"{name}.pth").stderr
        succeed("--single", tmp_path / f"{name}.pth")
    # If every rank has the whole tensor, or there is one rank, it is a tensor like any other.
    for name, shape, nbytes in [("replicated", [8, 8], 256), ("alone", [4, 3], 48)]:
        (row,) = listed(tmp_path / f"{name}.pth")
        assert (row["name"], row["shape"], row["nbytes"]) == ("w", shape, nbytes)


def test_a_tensor_that_keeps_its_data_in_its_attributes_is_read_in_parts(tmp_path, torch):
    wanted = torch.ask("make_in_parts", path=str(tmp_path / "parts.pth"))
    (row, *rest) = listed(tmp_path / "parts.pth")
    assert (row["name"], row["shape"], row["dtype"]) == ("w", [2, 3], "float32")
    assert row["subclass"]["class"] == "__main__.InTwo"
    assert row["subclass"]["attributes"]["block_size"] == "[1, 3]"
    facts = [fact for fact in FACTS if fact != "storage"]
    assert [{f: t[f] for f in facts} for t in rest] == [{f: t[f] for f in facts} for t in wanted]
    succeed(tmp_path / "parts.pth")
