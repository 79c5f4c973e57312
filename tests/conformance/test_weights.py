"""The weights module: state_dict() equals the converted tensors bit for bit, and forward returns them."""

import pytest
from carton_file import Carton
from checkpoints import RESERVED, WEIGHTS, names
from program import succeed

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
    assert sorted(got) == sorted(wanted), "the names differ"
    for name in wanted:
        assert {f: got[name][f] for f in FACTS} == {f: wanted[name][f] for f in FACTS}, name
    assert groups(got) == groups(wanted), "different tensors share memory"
    assert answer["tensors"] == answer["from_path"], "loading from a path and from memory gives different results"
    assert answer["requires_grad"] == []


def groups(tensors):
    """The names that share a storage, however the storages are numbered."""
    by_storage = {}
    for name, tensor in tensors.items():
        by_storage.setdefault(tensor["storage"], set()).add(name)
    return sorted(map(sorted, by_storage.values()))


def module_order(names):
    """A module's own tensors first, then its submodules in order of first appearance; the same within each submodule."""
    own, submodules = [], {}
    for name in names:
        head, dot, rest = name.partition(".")
        if dot:
            submodules.setdefault(head, []).append(rest)
        else:
            own.append(name)
    return own + [f"{head}.{rest}" for head, inner in submodules.items() for rest in module_order(inner)]


@pytest.mark.parametrize("kind", ["grouped", "module_state", "many", "harmless_names", "training_run"])
def test_state_dict_has_the_order_of_a_module(kind, case, newest, torch):
    made = case(kind)
    file_order = [t["name"] for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]]
    state = [t["name"] for t in torch.ask("describe_archive", path=str(made.archive))["tensors"]]
    assert state == module_order(file_order)


@pytest.mark.parametrize("kind", ["prefixes", "names"])
def test_names_that_do_not_form_a_tree_make_the_archive_flat_with_a_note(kind, case, newest, torch):
    made = case(kind)
    file_order = [t["name"] for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]]
    state = [t["name"] for t in torch.ask("describe_archive", path=str(made.archive))["tensors"]]
    assert state == file_order, "a flat archive keeps the file's order"
    assert "note: all tensors are in one module" in made.outcome.stderr, f"no note: {made.outcome}"


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_name_is_kept_or_refused(name, case, newest, torch):
    """A flat archive can't hold every name. A name that it can't hold is refused, never changed."""
    try:
        made = case(f"reserved {name}", name="weights.pth")
    except AssertionError as refused:
        assert "exit status 1" in str(refused) and name in str(refused).split("--- stderr")[1], refused
        return
    assert torch.ask("compare_outputs", archive=str(made.archive), checkpoint=str(made.checkpoint)) == []
    state = torch.ask("describe_archive", path=str(made.archive))["tensors"]
    assert [t["name"] for t in state] == ["before", name, "after"]


@pytest.mark.parametrize("kind", WEIGHTS)
def test_forward_of_an_empty_dict_returns_every_tensor_exported(kind, case, torch):
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
def test_forward_returns_the_tensors_that_the_keys_name(kind, select, case, torch):
    made = case(kind)
    assert torch.ask("compare_outputs", archive=str(made.archive), checkpoint=str(made.checkpoint), select=select) == []


@pytest.mark.parametrize("kind", ["dtypes", "sharing"])
def test_forward_takes_a_dict_of_tensors_and_returns_one_with_text_for_an_error(kind, case, torch):
    signature = torch.ask("describe_archive", path=str(case(kind).archive))["signature"]
    assert "Dict(str, Tensor) inputs) -> " in signature and signature.endswith("Dict(str, Any)"), signature


@pytest.fixture(scope="module")
def raising(case, tmp_path_factory):
    """`raising(kind)`: the archive of a module that raises errors."""
    made = {}

    def get(kind):
        if kind not in made:
            path = tmp_path_factory.mktemp("raising") / "model.carton"
            succeed(case(kind).checkpoint, "--errors", "raise", "-o", path)
            made[kind] = path.with_suffix(".pt")
            made[kind].write_bytes(Carton(path).read("model/model.pt"))
        return made[kind]

    return get


@pytest.mark.parametrize("kind, asked, wrong", [
    ("dtypes", ["nope"], "nope"),
    ("dtypes", ["int64", "in{}t", "nope"], "in{}t"),
    ("prefixes", [""], ""),
    ("names", ["Grüße, \U0001f600\n"], "Grüße, \U0001f600\n"),
])
def test_a_name_that_it_does_not_have_is_an_error_that_shows_what_names_are_like(kind, asked, wrong, case, raising, newest, torch):
    made = case(kind)
    there = [t["name"] for t in newest.ask("describe_checkpoint", path=str(made.checkpoint))["tensors"]]
    few = ", ".join(there[:5])
    message = f"there is no tensor {wrong}; the module has " + (f"{len(there)}, such as {few}" if len(there) > 5 else few)
    assert torch.ask("ask_for", archive=str(made.archive), names=asked) == {"error": message}
    assert torch.ask("ask_for", archive=str(raising(kind)), names=asked)["raised"].rstrip().endswith(message.rstrip())


def test_a_module_that_raises_errors_returns_the_same_tensors(case, raising, torch):
    for select in ([], ["bfloat16", "bool"]):
        assert torch.ask("compare_outputs", archive=str(raising("dtypes")), checkpoint=str(case("dtypes").checkpoint), select=select) == []


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
