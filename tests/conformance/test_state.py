"""Whole pickled modules are read as `state_dict()` has them, and what it does not return is named."""

import json
import re

from program import succeed


def inspect(path):
    return json.loads(succeed("inspect", "--json", "--sha256", "--all", path).stdout)


def rows(answer):
    return [[t[member] for member in ("name", "dtype", "shape", "sha256")] for t in answer["tensors"]]


def test_quantized_modules(tmp_path, torch):
    wanted = torch.ask("make_quantized", folder=str(tmp_path))
    assert len(wanted) == 12
    for name, facts in wanted.items():
        module, state = inspect(tmp_path / f"{name}.pt"), inspect(tmp_path / f"{name}.state.pt")
        assert sorted(rows(module)) == sorted(facts), name
        assert sorted(rows(module)) == sorted(rows(state)), name
        assert [t.get("quantizer") for t in sorted(module["tensors"], key=lambda t: t["name"])] == [
            t.get("quantizer") for t in sorted(state["tensors"], key=lambda t: t["name"])], name
        # The dtypes and the bits of a quantized module.
        values = [sorted((v["path"], json.dumps(v["value"])) for v in answer["values"]) for answer in (module, state)]
        assert values[0] == values[1], name
        # Python would run code from the file to make a graph module.
        succeed(tmp_path / f"{name}.pt", *(["--allow-dangerous"] if "graph" in "".join(module["globals"]) else []))


def test_scripted_modules_with_a_state_of_their_own(tmp_path, torch):
    wanted = torch.ask("make_scripted", folder=str(tmp_path))
    read = {name: inspect(tmp_path / f"{name}.pt") for name in wanted}
    # PyTorch calls `__setstate__` with them, so their names are not in the file.
    names = {name: [row[0] for row in rows(answer)] for name, answer in read.items()}
    assert names["tuple"] == ["own", "child.0", "child.1.0"]
    assert names["tensor"] == ["own", "child"]
    assert names["tuple_root"] == ["0", "1.0"]
    # Those of the classes of PyTorch are known. Their numbers are values, as in the module.
    facts = {row[0]: row for row in wanted["eager"]}
    assert {row[0]: row for row in rows(read["eager"])} == {n: r for n, r in facts.items() if n.startswith("quant.") or r[2] != []}
    paths = {v["path"] for v in read["eager"]["values"]}
    assert {"conv.scale", "conv.zero_point", "conv.stride", "fc.scale", "fc.zero_point"} <= {p.removesuffix(".0") for p in paths}
    for answer in read.values():
        assert answer["left_out"] == []


def test_what_state_dict_does_not_return_is_named(tmp_path, torch):
    names = torch.ask("make_left_out", path=str(tmp_path / "a.pt"))
    answer = inspect(tmp_path / "a.pt")
    assert [t["name"] for t in answer["tensors"]] == [f"model.{name}" for name in names]
    # PyTorch numbers all hooks of a process.
    named = [(o["kind"], re.sub(r"hooks\.[0-9]+", "hooks.0", o["name"]), o["nbytes"], o["reason"]) for o in answer["left_out"]]
    assert {row for row in named if row[0] == "tensor"} == {
        ("tensor", "model.0.cache", 12, "attribute"),
        ("tensor", "model.0.nested.a.0", 20, "attribute"),
        ("tensor", "model.0.mask", 14, "non_persistent_buffer"),
        ("tensor", "model.1._forward_hooks.0.1.0", 44, "hook"),
        ("tensor", "model.0.weight.kept", 52, "tensor_attribute"),
    }
    linear, norm = ["in_features", "out_features"], ["num_features", "eps", "momentum", "affine", "track_running_stats"]
    attributes = [*(f"model.0.{name}" for name in linear), *(f"model.1.{name}" for name in norm)]
    assert {name for kind, name, _, reason in named if (kind, reason) == ("object", "attribute")} == set(attributes)
    assert [name for kind, name, _, reason in named if (kind, reason) == ("object", "hook")] == ["model.1._forward_hooks"]
    assert answer["left_out_count"] == len(named) == 5 + len(attributes) + 1
    assert sum("left out" in note for note in answer["notes"]) == 6
