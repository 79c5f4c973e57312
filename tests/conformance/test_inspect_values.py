"""`inspect` prints tensors as NumPy does, writes its files, and computes its statistics, for every dtype."""
import io
import json
import math
import subprocess

import numpy as np
import pytest
import torch

from program import BINARY

REAL = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2,
        torch.float8_e5m2fnuz, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32,
        torch.uint64, torch.bool]
COMPLEX = [torch.complex64, torch.complex128]


def run(*args):
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, check=False)


def as_numpy(tensor):
    """The array of a tensor; a float that NumPy lacks is widened."""
    if tensor.is_floating_point() and tensor.dtype not in (torch.float64, torch.float32, torch.float16):
        return tensor.float().numpy()
    return tensor.numpy()


def tensors():
    generator = np.random.default_rng(7)
    found = {}
    for dtype in REAL + COMPLEX:
        name = str(dtype).removeprefix("torch.")
        for shape in [(), (1,), (7,), (130,), (3, 4), (2, 3, 5), (40, 50), (70_000,), (0, 3), (30, 1, 50)]:
            values = generator.normal(size=shape) * (50 if dtype in (torch.uint8, torch.int8) else 3)
            if dtype == torch.bool:
                values = values > 0
            if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
                values = np.abs(values)
            tensor = torch.from_numpy(np.asarray(values)).to(dtype)
            found[f"{name}.{'x'.join(map(str, shape))}"] = tensor
    number = torch.tensor
    found |= {
        "f32.large": number([1e9, 1.5, -2.0]), "f32.small": number([1e-7, 0.25]), "f32.wide": number([1000.5, 0.001]),
        "f64.thirds": torch.arange(12, dtype=torch.float64).reshape(3, 4) / 3, "f32.thirds": torch.arange(12).reshape(3, 4) / 3,
        "f64.special": number([math.nan, math.inf, -math.inf, 1.0], dtype=torch.float64), "f32.nan": number([math.nan, 1.5]),
        "f32.inf": number([math.inf, -1.0]), "f32.only_nan": number([math.nan, math.nan]), "f16.large": number([60000.0, 1.0]).half(),
        "f16.tenths": (torch.arange(10) / 10).half(), "f64.tiny": number([5e-324, 1.0], dtype=torch.float64),
        "f64.zero": torch.zeros(5, dtype=torch.float64), "f32.negative_zero": number([-0.0, 0.0]),
        "c64.special": number([complex(math.nan, 1), complex(1, -math.inf)]), "c128.one": number(1 + 2j, dtype=torch.complex128),
        "i64.extremes": number([-2**63, 2**63 - 1, 0]), "u64.extremes": torch.from_numpy(np.array([0, 2**64 - 1], np.uint64)),
        "f32.scalar": number(0.1), "f32.scalar_large": number(1e20), "f64.scalar_small": number(1e-5, dtype=torch.float64),
        "f32.turned": torch.arange(2000.0).reshape(40, 50).t(), "f32.every_other": torch.arange(5000.0)[::2], "f32.repeated": number([1.5]).expand(20, 3),
    }
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("values") / "values.pt"
    found = tensors()
    torch.save(found, path)
    return path, found


def test_numbers_are_printed_as_numpy_prints_them(file):
    path, found = file
    done = run("inspect", path, *found)
    assert done.returncode == 0, done.stderr
    expected = "\n\n".join(f"{name}\n{as_numpy(tensor)!s}" for name, tensor in found.items()) + "\n"
    printed = done.stdout.decode()
    for ours, numpys in zip(printed.split("\n\n"), expected.split("\n\n")):
        assert ours == numpys
    assert printed == expected


def test_written_files_are_those_of_numpy(file, tmp_path):
    path, found = file
    for name, tensor in found.items():
        done = run("inspect", path, name, "-o", "-")
        assert done.returncode == 0, done.stderr
        expected = io.BytesIO()
        np.save(expected, np.ascontiguousarray(as_numpy(tensor)).reshape(tensor.shape))
        assert done.stdout == expected.getvalue(), name
    done = run("inspect", path, "f32.turned", "-o", tmp_path / "x.npy")
    assert done.returncode == 0 and (np.load(tmp_path / "x.npy") == found["f32.turned"].numpy()).all()


def number(value):
    if isinstance(value, dict):
        return complex(*map(number, value["$complex"])) if "$complex" in value else float(value["$float"])
    return value


def same(ours, numpys):
    return ours == numpys or (np.isnan(ours) and np.isnan(numpys))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_statistics_are_those_of_numpy(file):
    path, found = file
    rows = {row["name"]: row for row in json.loads(run("inspect", "--json", "--stats", path).stdout)["tensors"]}
    for name, tensor in found.items():
        array = np.ascontiguousarray(as_numpy(tensor))
        array = array.astype(np.complex128 if tensor.is_complex() else np.float64)
        stats = rows[name]["stats"]
        assert stats["count"] == array.size and stats["zeros"] == (array == 0).sum(), name
        assert stats["nan"] == np.isnan(array).sum() and stats["inf"] == np.isinf(array).sum(), name
        for key in ("min", "max", "mean", "std"):
            if array.size == 0:
                assert stats[key] is None
            elif tensor.is_complex() and np.isnan(array).any():
                assert np.isnan(number(stats[key])), name
            elif tensor.is_complex() and key == "std":
                assert math.isclose(stats[key], array.std(), rel_tol=1e-14), name
            else:
                assert same(number(stats[key]), getattr(array, key)()), (name, key)
