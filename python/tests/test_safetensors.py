"""`safe_open` and the functions of safetensors, over its files and over files of PyTorch."""

from __future__ import annotations

import pathlib

import pytest
from conftest import needs_numpy, needs_torch, np, torch, write_safetensors

import torch2carton


@needs_numpy
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_the_interface_of_safetensors(place, backend):
    with torch2carton.safe_open("model.safetensors", framework="np", backend=backend) as file:
        assert file.keys() == ["bias", "weight"] and file.offset_keys() == ["weight", "bias"]
        assert file.metadata() == {"format": "pt"}
        assert file.get_tensor("weight").tolist() == [[0, 1, 2], [3, 4, 5]]
        part = file.get_slice("weight")
        assert part.get_shape() == [2, 3] and part.get_dtype() == "F32"
        assert part[:, 1:].tolist() == [[1, 2], [4, 5]]
        assert list(file.get_tensors()) == ["weight", "bias"]
        with pytest.raises(torch2carton.SafetensorError, match="absent"):
            file.get_tensor("absent")
    with pytest.raises(torch2carton.SafetensorError):
        file.keys()


@needs_torch
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_files_of_pytorch(place, backend):
    with torch2carton.safe_open(pathlib.Path("model.pt"), framework="pt", backend=backend) as file:
        assert file.metadata() == {"format": "pt"} and file.keys() == ["bias", "weight"]
        assert torch.equal(file.get_slice("weight")[0, 1:], torch.tensor([1.0, 2.0]))
        assert torch.equal(file.get_slice("weight")[torch.tensor([1, 0])], torch.tensor([[3.0, 4, 5], [0, 1, 2]]))
    assert torch.equal(torch2carton.load_file("model.pt")["weight"], torch.arange(6.0).reshape(2, 3))


def test_options_are_checked(place):
    for options in ({"framework": "tf"}, {"framework": "np", "backend": "x"}, {"framework": "np", "device": "cuda"}):
        with pytest.raises(torch2carton.SafetensorError):
            torch2carton.safe_open("model.safetensors", **options)
    with pytest.raises(FileNotFoundError, match="^No such file or directory: absent$"):
        torch2carton.safe_open("absent", framework="np")


@needs_numpy
def test_files_are_what_safetensors_writes(place):
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = {"b": np.arange(3, dtype="i2"), "a": np.ones((2, 2)), "c": np.array(True), "é\"": np.zeros(0, "f4")}
    for metadata in (None, {"k": 'v "é'}):
        assert torch2carton.numpy.save(arrays, metadata) == safetensors.save(arrays, metadata)
    torch2carton.numpy.save_file(arrays, "out.safetensors")
    assert (place / "out.safetensors").read_bytes() == safetensors.save(arrays)
    loaded = safetensors.load_file("out.safetensors")
    assert all(np.array_equal(loaded[name], array) for name, array in torch2carton.numpy.load_file("out.safetensors").items())


@needs_torch
def test_tensors_are_what_safetensors_writes(place):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {"a": torch.ones(2, dtype=torch.bfloat16), "b": torch.zeros(3, 3), "c": torch.tensor(1)}
    assert torch2carton.torch.save(tensors) == safetensors.save(tensors)
    found = torch2carton.torch.load(safetensors.save(tensors))
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    base = torch.ones(4)
    with pytest.raises(RuntimeError, match="share memory"):
        torch2carton.save_file({"a": base, "b": base[1:]}, "x.safetensors")
    with pytest.raises(ValueError, match="non contiguous"):
        torch2carton.save_file({"a": torch.ones(2, 3).t()}, "x.safetensors")
    assert not (place / "x.safetensors").exists()


@needs_numpy
def test_subscripts_that_arrays_do_not_take_are_errors_of_safetensors(place):
    part = torch2carton.safe_open("model.safetensors", "np").get_slice("weight")
    assert part[:, -2:].tolist() == [[1, 2], [4, 5]]
    for key in (slice(None, None, -1), np.int64(2), (0, [1]), (..., ...), "x", 1.5, (np.array([0, 1]), ...)):
        with pytest.raises(torch2carton.SafetensorError):
            part[key]


@needs_torch
def test_subscripts_are_those_of_torch(place):
    weight = torch.arange(6.0).reshape(2, 3)
    for backend in ("mmap", "pread"):
        part = torch2carton.safe_open("model.safetensors", "pt", backend=backend).get_slice("weight")
        for key in ((..., ...), ([1, 0], 0), torch.tensor([1]), torch.tensor(1), torch.tensor(True), weight > 2, (slice(None), [2, -1]), (True, 1), None):
            assert torch.equal(part[key], weight[key])
        for key, error in ((2, IndexError), (slice(None, None, -1), ValueError), ((0, 0, 0), IndexError), ("x", TypeError)):
            with pytest.raises(error):
                weight[key]
            with pytest.raises(error):
                part[key]


@needs_torch
def test_a_path_of_bytes_is_a_path(place):
    assert torch2carton.safe_open(b"model.safetensors", "pt").keys() == ["bias", "weight"]
    assert torch2carton.load_file(b"model.safetensors").keys() == {"bias", "weight"}


@needs_torch
def test_deserialized_tensors_are_those_of_safetensors(place):
    safetensors = pytest.importorskip("safetensors")
    names = [name for name in ("float4_e2m1fn_x2", "float8_e8m0fnu", "uint16") if hasattr(torch, name)]
    data = torch2carton.torch.save({name: torch.arange(8, dtype=torch.uint8).view(getattr(torch, name)) for name in names})
    assert sorted(torch2carton.deserialize(data)) == sorted(safetensors.deserialize(data))
    (place / "small.safetensors").write_bytes(data)
    with torch2carton.safe_open("small.safetensors", "pt") as one, safetensors.safe_open("small.safetensors", "pt") as two:
        assert [one.get_slice(name).get_shape() for name in names] == [two.get_slice(name).get_shape() for name in names]
    torch.save({"c": torch.zeros(2, dtype=torch.complex128)}, "complex.pt")
    with pytest.raises(torch2carton.UnsupportedError, match="complex128"):
        torch2carton.deserialize((place / "complex.pt").read_bytes())


@needs_torch
def test_tied_names_are_as_in_safetensors(place):
    safetensors = pytest.importorskip("safetensors")
    model = torch.nn.Module()
    model.a, model.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    model.b.weight = model.a.weight
    torch2carton.torch.save_model(model, "tied.safetensors")
    with torch2carton.safe_open("tied.safetensors", "pt") as one, safetensors.safe_open("tied.safetensors", "pt") as two:
        assert one.keys() == two.keys() and one.metadata() == two.metadata() and one.offset_keys() == two.offset_keys()
    assert torch2carton.torch.load_model(model, "tied.safetensors") == (set(), [])


@needs_numpy
def test_a_file_replaces_another_when_it_is_complete(place):
    torch2carton.numpy.save_file({"a": np.ones(3)}, "model.safetensors")
    mode = (place / "model.safetensors").stat().st_mode & 0o777
    write_safetensors(place / "ordinary.safetensors")
    assert mode == (place / "ordinary.safetensors").stat().st_mode & 0o777
    with pytest.raises(TypeError):
        torch2carton.numpy.save_file({"a": np.ones(3)}, "model.safetensors", {"a": 1})
    assert torch2carton.numpy.load_file("model.safetensors")["a"].tolist() == [1, 1, 1]
    assert not list(place.glob(".torch2carton*"))


@needs_torch
def test_safetensors_own_tests_pass(tmp_path):
    import os

    if not os.environ.get("SAFETENSORS_SDIST"):
        pytest.skip("SAFETENSORS_SDIST names no folder for the source distribution of safetensors")
    import safetensors_suite

    tests = safetensors_suite.fetch(pathlib.Path(os.environ["SAFETENSORS_SDIST"]))
    done = safetensors_suite.run(tests, tmp_path)
    print(done.stdout[-5000:])
    assert done.returncode == 0, done.stdout[-5000:]


@needs_numpy
def test_arrays_are_sliced_by_what_stands_for_an_integer(place):
    class Number:
        def __index__(self):
            return 1

    part = torch2carton.safe_open("model.safetensors", "np").get_slice("weight")
    for key in (True, np.int64(1), Number(), (Number(), ...)):
        assert part[key].tolist() == [3, 4, 5]
    assert part[..., True].tolist() == [1, 4] and part[False, Number()] == 1
    for key in ("x", 1.0, np.array([0, 1])):
        with pytest.raises(torch2carton.SafetensorError):
            part[key]
