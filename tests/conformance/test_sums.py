"""`--add` and `--average`: each number is compared with the sum in float64 that NumPy computes."""

import json

import numpy as np
import pytest
import torch
from program import refuse, succeed
from safetensors.torch import load_file, save_file

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def tensors(seed, shared=True):
    """Random tensors of all floating-point dtypes, views, a complex one and integers."""
    torch.manual_seed(seed)
    # Larger than a window in double precision, so that several are computed side by side.
    made = {f"{dtype}".removeprefix("torch."): (torch.randn(613, 977, dtype=torch.float64) * 3).to(dtype) for dtype in FLOATS}
    made["special"] = torch.tensor([float("-inf"), 0.0, -0.0, 1e-40, 3e38])
    made["transposed"] = torch.randn(40, 70).T
    made["complex"] = torch.randn(33, dtype=torch.complex64)
    made["scalar"] = torch.randn(())
    made["empty"] = torch.empty(0, 4)
    made["positions"] = torch.arange(12)
    made["num_batches_tracked"] = torch.tensor(seed)
    if shared:
        made["tied"] = made["float32"]
    return made


def double(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()


def ulp(tensor):
    magnitude = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).abs()
    return (torch.nextafter(magnitude, torch.full_like(magnitude, torch.inf)) - magnitude).double().numpy()


def check(ours, expected, base):
    assert ours.keys() == base.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == base[name].dtype and tensor.shape == base[name].shape, name
        if not (tensor.is_floating_point() or tensor.is_complex()):
            assert torch.equal(tensor, base[name]), name
            continue
        found, exact = double(tensor), expected(name)
        if tensor.is_complex():
            found, exact = (np.stack([array.real, array.imag], -1) for array in (found, exact))
        finite = np.isfinite(exact)
        assert np.array_equal(found[~finite], exact[~finite]), name
        # The sum in float64 itself has a last place.
        slack = np.abs(exact) * 1e-15 * 4 + 1e-300
        with np.errstate(invalid="ignore"):
            error = np.abs(found - exact)
        half = ulp(tensor) / 2 * (1 + 1e-9) + slack if tensor.dtype != torch.float64 else slack * 8
        assert (error[finite] <= half[finite]).all(), f"{name}: {error[finite].max()}"


def added(all, weights):
    """Returns the weighted sum of differences of one name; equal numbers have none, not even infinite ones."""
    def expected(name):
        base = double(all[0][name])
        result = base.copy()
        for other, weight in zip(all[1:], weights):
            with np.errstate(invalid="ignore"):
                other = double(other[name])
                result = result + weight * np.where(other == base, 0, other - base)
        return result
    return expected


def mean(all):
    return lambda name: sum(double(tensors[name]) for tensors in all) / len(all)


def save(path, made):
    if path.suffix == ".safetensors":
        save_file({name: tensor.contiguous().clone() for name, tensor in made.items()}, path)
    else:
        torch.save(made, path)


@pytest.mark.parametrize("weights", [(1.0,), (0.5,), (-0.3, 0.7), (1e-3, 1.0, 2.5)], ids=str)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_added_differences(tmp_path, weights, suffix):
    all = [tensors(number) for number in range(len(weights) + 1)]
    for number, made in enumerate(all):
        # Inputs of both kinds are summed together.
        save(tmp_path / f"{number}{suffix if number else '.pth'}", made)
    flags = [flag for number, weight in enumerate(weights, 1) for flag in ("--add", f"{tmp_path / f'{number}{suffix}'}={weight!r}")]
    succeed(tmp_path / "0.pth", *flags, "-o", tmp_path / "ours.pth")
    ours = torch.load(tmp_path / "ours.pth", weights_only=True)
    check(ours, added(all, weights), all[0])
    if suffix == ".pth":
        assert ours["tied"].data_ptr() == ours["float32"].data_ptr()


@pytest.mark.parametrize("count", [1, 2, 6])
def test_averages(tmp_path, count):
    all = [tensors(number) for number in range(count + 1)]
    for number, made in enumerate(all):
        save(tmp_path / f"{number}.pth", made)
    flags = [flag for number in range(1, count + 1) for flag in ("--average", tmp_path / f"{number}.pth")]
    succeed(tmp_path / "0.pth", *flags, "-o", tmp_path / "ours.safetensors", "--ties", "duplicate")
    check(load_file(tmp_path / "ours.safetensors"), mean(all), all[0])


def test_training_checkpoints_and_shards(tmp_path):
    """A training checkpoint, a sharded folder and a file with a prefix are one sum."""
    all = [{f"layers.{layer}.weight": torch.randn(64, 64, dtype=torch.float32).bfloat16() for layer in range(4)} for _ in range(3)]
    torch.save({"epoch": 3, "state_dict": all[0], "optimizer": {"state": {}, "param_groups": []}}, tmp_path / "last.ckpt")
    (tmp_path / "sharded").mkdir()
    for shard in range(2):
        part = {name: tensor for number, (name, tensor) in enumerate(all[1].items()) if number % 2 == shard}
        save_file(part, tmp_path / "sharded" / f"model-0000{shard + 1}-of-00002.safetensors")
    torch.save({"model": all[2]}, tmp_path / "other.pt")
    flags = ("--average", tmp_path / "sharded", "--average", tmp_path / "other.pt")
    succeed(tmp_path / "last.ckpt", *flags, "-o", tmp_path / "ours.safetensors")
    check(load_file(tmp_path / "ours.safetensors"), mean(all), all[0])


def test_differing_checkpoints(tmp_path):
    base = tensors(0, shared=False)
    save(tmp_path / "base.pth", base)
    other = tensors(1, shared=False)
    changes = {
        "a name": {"more": torch.ones(1), **other},
        "a lack": {name: tensor for name, tensor in other.items() if name != "complex"},
        "a shape": {**other, "scalar": torch.randn(1)},
        "a dtype": {**other, "bfloat16": other["bfloat16"].float()},
        "integers": {**other, "positions": torch.arange(12) + 1},
    }
    for what, changed in changes.items():
        save(tmp_path / "other.pth", changed)
        done = refuse(tmp_path / "base.pth", "--average", tmp_path / "other.pth", "-o", tmp_path / "ours.pth")
        name = {"a name": "more", "a lack": "complex", "a shape": "scalar", "a dtype": "bfloat16", "integers": "positions"}[what]
        assert f"`{name}`" in done.stderr and "other.pth" in done.stderr, f"{what}: {done.stderr}"
        done = json.loads(succeed(tmp_path / "base.pth", "--average", tmp_path / "other.pth", "--common", "--force", "--json", "-o", tmp_path / "ours.pth").stdout)
        (file,) = done["sum"]["files"]
        assert file["left_out"] == ([] if what == "a dtype" else [name])
        assert done["sum"]["kept"] == ["num_batches_tracked"]
        ours = torch.load(tmp_path / "ours.pth", weights_only=True)
        kept = {} if what == "a dtype" else {name}
        check(ours, lambda name: double(base[name]) if name in kept else mean([base, changed])(name), base)
