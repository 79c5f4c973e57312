"""The weights module: state_dict() equals the converted tensors bit for bit, and forward hands them out."""

import pytest
from checkpoints import RESERVED, WEIGHTS, names

FACTS = "dtype shape stride storage_offset nbytes sha256".split()
EXPORTED = {"bool": "uint8", "float16": "float32", "bfloat16": "float32", "complex64": "float32", "complex128": "float64"}


@pytest.fixture(params=["newest", "old"], ids=["saved-by-newest", "saved-by-2.0.1"])
def saver(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_state_dict_is_equal_bit_for_bit(kind, case, saver, torch):
    made = case(kind, saver)
    wanted = {t["name"]: t for t in saver.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]}
    answer = torch.ask("describe_archive", path=str(made.archive))
    got = {t["name"]: t for t in answer["tensors"]}
    assert sorted(got) == sorted(wanted), "other names"
    for name in wanted:
        assert {f: got[name][f] for f in FACTS} == {f: wanted[name][f] for f in FACTS}, name
    assert groups(got) == groups(wanted), "other tensors share memory"
    assert answer["tensors"] == answer["from_path"], "loading from a path gives something else than loading from memory"
    assert answer["requires_grad"] == []


def groups(tensors):
    """Which names share a storage, whatever the storages are numbered."""
    by_storage = {}
    for name, tensor in tensors.items():
        by_storage.setdefault(tensor["storage"], set()).add(name)
    return sorted(map(sorted, by_storage.values()))


def as_a_module_orders(names):
    """Own tensors first, then submodules by first appearance, and so on inside."""
    own, submodules = [], {}
    for name in names:
        head, dot, rest = name.partition(".")
        if dot:
            submodules.setdefault(head, []).append(rest)
        else:
            own.append(name)
    return own + [f"{head}.{rest}" for head, inner in submodules.items() for rest in as_a_module_orders(inner)]


@pytest.mark.parametrize("kind", ["grouped", "module_state", "many", "harmless_names", "training_run"])
def test_order_is_a_modules(kind, case, newest, torch):
    made = case(kind)
    file_order = [t["name"] for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]]
    state = [t["name"] for t in torch.ask("describe_archive", path=str(made.archive))["tensors"]]
    assert state == as_a_module_orders(file_order)


@pytest.mark.parametrize("kind", ["prefixes", "names"])
def test_a_name_that_no_tree_can_hold_makes_the_archive_flat_with_a_note(kind, case, newest, torch):
    made = case(kind)
    file_order = [t["name"] for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]]
    state = [t["name"] for t in torch.ask("describe_archive", path=str(made.archive))["tensors"]]
    assert state == file_order, "a flat archive keeps the file's order"
    assert "flat" in made.outcome.stderr, f"no note: {made.outcome}"


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_is_exact_or_refused(name, case, newest, torch):
    """A flat archive can't hold every name; what it can't hold is refused by name, never renamed."""
    try:
        made = case(f"reserved {name}", name="weights.pth")
    except AssertionError as refused:
        assert "exit status 1" in str(refused) and name in str(refused).split("--- stderr")[1], refused
        return
    assert torch.ask("compare_outputs", archive=str(made.archive), checkpoint=str(made.checkpoint)) == []
    state = torch.ask("describe_archive", path=str(made.archive))["tensors"]
    assert [t["name"] for t in state] == ["before", name, "after"]


@pytest.mark.parametrize("kind", WEIGHTS)
def test_forward_of_nothing_returns_every_tensor_exported(kind, case, torch):
    made = case(kind)
    assert torch.ask("compare_outputs", archive=str(made.archive), checkpoint=str(made.checkpoint)) == []


@pytest.mark.parametrize("kind, select", [
    ("dtypes", ["complex64", "bool", "bfloat16"]),
    ("views", ["transposed"]),
    ("grouped", ["a.x.deep.er.w", "top"]),
    ("names", list(names())[3:24]),
    ("prefixes", ["a", "a.b"]),
    ("training_run", ["optimizer.state.0.step"]),
])
def test_forward_returns_what_the_keys_name(kind, select, case, torch):
    made = case(kind)
    assert torch.ask("compare_outputs", archive=str(made.archive), checkpoint=str(made.checkpoint), select=select) == []


@pytest.mark.parametrize("kind", ["dtypes", "sharing"])
def test_forward_takes_and_returns_a_dict_of_tensors(kind, case, torch):
    signature = torch.ask("describe_archive", path=str(case(kind).archive))["signature"]
    assert "Dict(str, Tensor) inputs) -> " in signature and signature.endswith("Dict(str, Tensor)"), signature


@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_carton_describes_every_output_and_no_input(kind, case, newest):
    made = case(kind)
    tensors = newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]
    assert "input" not in made.carton.toml
    described = {o["name"]: (o["dtype"], o["shape"]) for o in made.carton.toml["output"]}
    wanted = {}
    for t in tensors:
        shape = t["shape"] + [2] if t["dtype"].startswith("complex") else t["shape"]
        wanted[t["name"]] = (EXPORTED.get(t["dtype"], t["dtype"]), shape)
    assert described == wanted
    assert len(made.carton.toml["output"]) == len(tensors)
