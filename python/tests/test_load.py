"""`torch2carton.load` against `torch.load`."""

from __future__ import annotations

import collections
import datetime
import io
import os
import pathlib
import pickle

import pytest
from conftest import needs_torch, np, torch

import torch2carton

pytestmark = needs_torch

if torch is not None:
    from deep_equal import Comparison, compare

Pair = collections.namedtuple("Pair", "weight bias")


class Evil:
    def __reduce__(self):
        return (os.system, ("echo executed > executed",))


def save(value, path="value.pt", **options):
    torch.save(value, path, **options)
    return path


def check(value, **options):
    """Saves a value and compares what both programs load."""
    path = save(value, **options)
    for chosen in ({}, {"mmap": True}) if options.get("_use_new_zipfile_serialization", True) else ({},):
        comparison = Comparison()
        comparison.run(
            torch.load(path, weights_only=False, map_location="cpu", **chosen),
            torch2carton.load(path, map_location="cpu", **chosen),
        )


def test_plain_data(place):
    check([1, -(2**70), 2.5, float("inf"), None, True, "text", "\ud800", b"bytes", bytearray(b"x"), 1 + 2j, ...][:-1])
    check({"set": {1, 2}, "frozen": frozenset("ab"), "tuple": (1, (2, [3])), "dict": {1: "a", (2, 3): "b", None: 0}})
    check(
        collections.OrderedDict(
            [("d", collections.defaultdict(list, a=[1])), ("c", collections.Counter("aab")), ("q", collections.deque([1], 5))]
        )
    )
    check([datetime.datetime(2026, 1, 2), datetime.timedelta(3), pathlib.PosixPath("a/b"), range(3), slice(1, 2)])
    check([torch.float16, torch.Size([1, 2]), torch.device("cpu"), torch.strided, torch.per_tensor_affine])


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("is_zip", [True, False])
def test_protocols_and_containers(place, protocol, is_zip):
    model = torch.nn.Linear(3, 2)
    check({"model": model.state_dict(), "epoch": 3}, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)


def test_tensors_keep_strides_ties_and_storages(place):
    base = torch.arange(24.0).reshape(4, 6)
    check({"t": base.t(), "part": base[1:3, ::2], "base": base, "same": base, "scalar": torch.tensor(1.5)})
    loaded = torch2carton.load("value.pt")
    assert loaded["base"] is loaded["same"]
    assert loaded["t"].untyped_storage()._cdata == loaded["part"].untyped_storage()._cdata


def test_parameters_sparse_and_quantized(place):
    check({"p": torch.nn.Parameter(torch.ones(2)), "fixed": torch.nn.Parameter(torch.ones(2), requires_grad=False)})
    check([torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.tensor([1.0]).requires_grad_()])
    check(torch.quantize_per_tensor(torch.arange(6.0), 0.5, 1, torch.quint8))
    check({"meta": torch.empty(2, 3, device="meta"), "conj": torch.tensor([1 + 2j]).conj()})
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.tag = "kept"
    check([parameter])


def test_tensors_are_aligned(place):
    made = {"complex": torch.ones(3, dtype=torch.complex128).conj(), "wide": torch.ones(5, dtype=torch.float64)}
    for extra in range(16):
        # The length of the pickle decides where the storages of a legacy file begin.
        torch.save({**made, "text": "x" * extra}, "legacy.pt", _use_new_zipfile_serialization=False)
        mapped = torch2carton.load("legacy.pt", mmap=True)
        lazy = torch2carton.open("legacy.pt")
        for name, tensor in made.items():
            for found in (mapped[name], lazy[name].torch(), torch.from_dlpack(lazy["wide"])):
                assert found.data_ptr() % found.element_size() == 0
            assert torch.equal(mapped[name], tensor) and torch.equal(lazy[name].torch(), tensor)
            assert torch.equal(torch.from_numpy(lazy[name].numpy(copy=True)), tensor)


def test_numpy_values(place):
    check([np.arange(6).reshape(2, 3), np.float32(1.5), np.asfortranarray(np.ones((2, 3))), np.array("text")])
    check([np.zeros(2, [("x", "f4"), ("y", "i8")]), np.array([{"x": 1}, None], object), np.array(["2026"], "M8[D]")])
    check([np.dtype(">i4"), np.arange(3, dtype=">i4"), np.bool_(True), np.array(3.0)])
    import test_arrays

    check(test_arrays.arrays())


def test_namedtuples_of_imported_classes(place):
    check(Pair(torch.ones(1), None))
    data = pickle.dumps(Pair(1, 2)).replace(b"test_load", b"not_known")
    found = torch2carton.load(data)
    assert isinstance(found, torch2carton.Object) and found.name == "Pair" and found.args == (1, 2)


def test_cycles_and_shared_containers(place):
    shared = [1]
    cycle = {"shared": shared, "again": shared}
    cycle["self"] = cycle
    path = save(cycle)
    found = torch2carton.load(path)
    assert found["self"] is found and found["shared"] is found["again"] and found["shared"] == [1]
    item: list = []
    item.append((item,))
    found = torch2carton.load(save(item))
    assert found[0][0] is found


def test_deep_nesting_does_not_recurse(place):
    depth = 100_000
    found = torch2carton.load(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")
    for _ in range(depth - 1):
        found = found[0]
    assert found == []


def test_nothing_is_executed(place):
    found = torch2carton.load(save({"evil": Evil(), "weight": torch.ones(2)}))
    assert isinstance(found["evil"], torch2carton.Object) and not (place / "executed").exists()
    assert found["evil"].name == "system" and found["evil"].args == ("echo executed > executed",)
    assert torch.equal(found["weight"], torch.ones(2))
    torch2carton.load("evil.pkl")
    assert not (place / "executed").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\neval\n(S'open(\"executed\", \"w\")'\ntR.",
        b"c__builtin__\nexec\n(S'open(\"executed\", \"w\")'\ntR.",
        b"cbuiltins\ngetattr\n(cos\nsystem\nS'__call__'\ntR(S'touch executed'\ntR.",
        b"(S'touch executed'\nios\nsystem\n.",
        b"ctorch\nload\n(S'evil.pkl'\ntR.",
        b"ctorch.hub\nload\n(S'x'\ntR.",
        b"cnumpy\nload\n(S'evil.pkl'\nI01\nI01\ntR.",
        b"\x80\x04\x8c\x0bcollections\x8c\x0cOrderedDict.__init__.__globals__\x93.",
        b"ccollections\nOrderedDict\n}S'x'\nK\x01sb.",
    ],
)
def test_hostile_pickles_do_nothing(place, data):
    try:
        torch2carton.load(data)
    except torch2carton.Error:
        pass
    assert not (place / "executed").exists()
    assert not hasattr(collections.OrderedDict, "x")


@pytest.mark.parametrize(
    "data",
    [
        b"c__builtin__\nbytearray\n(I1000000000000\ntR.",
        b"c__builtin__\nlist\n(c__builtin__\nrange\n(I1000000000000\ntRtR.",
        b"cnumpy\ndtype\n(S'i4'\nI00\nI01\ntR(I3\nS'<'\nN(S'a'\nt}S'a'\n(cnumpy\ndtype\n(S'O'\nI00\nI01\ntRI0\ntsI8\nI1\nI0\ntb.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I1000000\ntcnumpy\ndtype\n(S'f8'\nI00\nI01\ntRI00\nS''\ntb.",
    ],
)
def test_hostile_sizes_are_refused(data):
    with pytest.raises(torch2carton.Error):
        torch2carton.load(data)


def test_nested_tensors_must_be_inside_their_buffer(place):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    path = save(nested)
    assert [part.tolist() for part in torch2carton.load(path).unbind()] == [[1, 1], [1, 1, 1]]
    import torch2carton._load as module

    hooks = module.TorchHooks(torch, "cpu", False)
    with pytest.raises(torch2carton.InputError, match="not inside"):
        hooks._nested(torch.ones(5), torch.tensor([[2], [9]]), torch.tensor([[1], [1]]), torch.tensor([0, 2]))


def test_every_call_of_torch_load_is_accepted(place):
    expected = torch.load("model.pt")["weight"]
    data = (place / "model.pt").read_bytes()
    calls = [
        lambda: torch2carton.load("model.pt", "cpu"),
        lambda: torch2carton.load(pathlib.Path("model.pt"), map_location=torch.device("cpu"), weights_only=True),
        lambda: torch2carton.load("model.pt", lambda storage, location: storage, pickle, weights_only=False, mmap=True),
        lambda: torch2carton.load("model.pt", {"cuda:0": "cpu"}, mmap=False, encoding="utf-8"),
        lambda: torch2carton.load(io.BytesIO(data)),
        lambda: torch2carton.load(data),
        lambda: torch2carton.load(open("model.pt", "rb")),
    ]
    for call in calls:
        assert torch.equal(call()["weight"], expected)
    assert torch2carton.load("model.pt", map_location="meta")["weight"].device.type == "meta"


def test_load_reads_what_torch_cannot(place):
    assert torch.equal(torch2carton.load("model.safetensors")["weight"], torch.load("model.pt")["weight"])
    assert torch2carton.load("data.pkl") == {"epoch": 7, "rate": 0.5, "names": ["a", "b"]}


def test_a_file_may_be_replaced_after_it_was_loaded(place):
    state = torch2carton.load("model.pt")
    (place / "model.pt").write_bytes(b"")
    assert state["weight"].sum() == 15


def test_mapped_tensors_are_private(place):
    state = torch2carton.load("model.pt", mmap=True)
    state["weight"][0, 0] = 7
    assert torch.load("model.pt")["weight"][0, 0] == 0


def test_damaged_bytes_are_found(place):
    data = bytearray((place / "model.pt").read_bytes())
    at = data.index(torch.arange(6.0).numpy().tobytes())
    data[at] ^= 1
    with pytest.raises(torch2carton.DamagedError, match="CRC-32"):
        torch2carton.load(bytes(data))


def test_a_default_device_changes_nothing(place):
    torch.save({"f8": torch.ones(2).to(torch.float8_e5m2), "weight": torch.ones(2)}, "value.pt")
    with torch.device("meta"):
        loaded = [torch2carton.load("value.pt", mmap=mmap) for mmap in (False, True)]
        loaded.append(torch2carton.open("value.pt").state_dict())
    assert all(tensor.device.type == "cpu" and tensor.float().sum() == 2 for state in loaded for tensor in state.values())


def test_storages_can_be_resized(place):
    weight = torch2carton.load("model.pt")["weight"]
    weight.resize_(100)
    assert weight.shape == (100,)


def test_metadata_of_state_dicts_is_kept(place):
    state = torch.nn.BatchNorm1d(2).state_dict()
    found = torch2carton.load(save(state))
    assert found._metadata == state._metadata
    torch.nn.BatchNorm1d(2).load_state_dict(found)


def test_modules_become_records_with_their_parameters(place):
    found = torch2carton.load(save(torch.nn.Linear(2, 1)))
    assert found.name == "Linear" and found.module == "torch.nn.modules.linear"
    assert found.state["_parameters"]["weight"].shape == (1, 2)


def test_objects_and_trees_of_open_files(place):
    save({"model": torch.nn.Linear(2, 1).state_dict(), "args": Evil(), "epoch": 3})
    checkpoint = torch2carton.open("value.pt")
    objects = checkpoint.objects
    assert objects["model"]["weight"].numpy().shape == (1, 2) and objects["epoch"] == 3
    assert checkpoint.tree().splitlines()[0] == "dict of 3"
    assert "Object posix.system" in checkpoint.tree()
    assert checkpoint.globals["posix.system"] == "dangerous"


def test_matches_on_state_dicts_of_training(place):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()})
    assert compare("value.pt")["tensors"] > 10


def test_objects_after_each_other_in_an_open_file():
    values = [{"a": torch.arange(5.0)}, [torch.ones(3, 2, dtype=torch.int16)], {"b": torch.zeros(0)}]
    file = io.BytesIO()
    for value in values:
        torch.save(value, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    for value in values:
        Comparison().run(value, torch2carton.load(file))
    assert file.read() == b""


def test_nothing_is_read_where_pytorch_reads_nothing(place):
    from torch._subclasses.fake_tensor import FakeTensorMode

    def meta(module, **options):
        return module.load("model.pt", map_location="meta", **options)["weight"]

    def fake(module, **options):
        with FakeTensorMode():
            return module.load("model.pt", **options)["weight"]

    for load in (meta, fake):
        mine, theirs = load(torch2carton), load(torch, weights_only=False)
        assert type(mine) is type(theirs) and mine.shape == theirs.shape and mine.device == theirs.device
        offsets = [getattr(tensor.untyped_storage(), "_checkpoint_offset", None) for tensor in (mine, theirs)]
        assert offsets[0] == offsets[1]
    if hasattr(torch.serialization, "skip_data"):
        with torch.serialization.skip_data():
            assert torch2carton.load("model.pt")["weight"].shape == (2, 3)


def test_an_empty_storage_may_have_several_dtypes(place):
    base = torch.ones(0, dtype=torch.complex128)
    check([base.imag, base, base.conj()])
    check([base, base.imag], _use_new_zipfile_serialization=False)


def test_random_objects(place):
    import random_objects

    assert sum(random_objects.compare(seed) for seed in (*range(10), 52)) > 60
