"""`diff`: random mutations of a checkpoint are each named right, in any pair of formats."""

import json
import random

import pytest
import torch
from program import succeed, torch2carton
from safetensors.torch import save_file

MUTATIONS = 240
DTYPES = [torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]
NARROWER = {torch.float64: torch.float32, torch.float32: torch.bfloat16, torch.float16: torch.float8_e5m2,
            torch.bfloat16: torch.float8_e4m3fn, torch.int64: torch.int16, torch.uint8: torch.int16}


def random_tensor(generator, shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 200, shape, generator=generator).to(dtype)


def random_model(seed):
    generator, chosen = torch.Generator().manual_seed(seed), random.Random(seed)
    tensors = {}
    for layer in range(chosen.randrange(2, 6)):
        for name in "q", "k", "mlp", "norm":
            shape = [chosen.choice([8, 16, 24]), chosen.choice([3, 6, 10])][: 1 if name == "norm" else 2]
            tensors[f"layers.{layer}.{name}.weight"] = random_tensor(generator, shape, chosen.choice(DTYPES))
    return tensors


def rotary(weight, heads):
    """The permutation of Hugging Face's convert_llama_weights_to_hf.py."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def mutate(kind, before, chosen, generator):
    """The mutated model, and the expected changes by the names in both files."""
    matrices = [name for name, tensor in before.items() if tensor.dim() == 2]
    name = chosen.choice(matrices)
    tensor, new = before[name], f"new.{name}"

    def replaced(by, to, *changes):
        return {**{key: value for key, value in before.items() if key != name}, to: by}, {(name, to): {*changes}}

    if kind in ("changed", "one_bit"):
        changed = tensor.clone()
        if kind == "one_bit":
            bits = changed.view(torch.uint8).view(-1)
            bits[chosen.randrange(bits.numel())] ^= 1 << chosen.randrange(8)
        else:
            at = chosen.randrange(tensor.numel())
            changed.view(-1)[at] += 1
            if torch.equal(changed, tensor):  # a large float
                changed.view(-1)[at] = 0 if tensor.view(-1)[at] != 0 else 7
        return replaced(changed, name, "changed")
    if kind == "renamed_and_cast":
        floating = [name for name in before if before[name].is_floating_point()]
        if not floating:
            return None
        name = chosen.choice(floating)
        return replaced(before[name].to(NARROWER[before[name].dtype]), f"new.{name}", "dtype", "renamed")
    if kind == "rows":
        order = list(range(len(tensor)))
        while order == sorted(order):
            chosen.shuffle(order)
        return replaced(tensor[order], name, "permuted")
    if kind == "swapped":
        other = chosen.choice([n for n in matrices if n != name])
        return {**before, name: before[other], other: tensor}, {(name, other): {"renamed"}, (other, name): {"renamed"}}
    if kind == "added":
        return {**before, "extra": random_tensor(generator, [5, 5], torch.float32)}, {(None, "extra"): {"only_in_b"}}
    return {
        "dtype": lambda: replaced(tensor.to(NARROWER[tensor.dtype]), name, "dtype"),
        "renamed": lambda: replaced(tensor, new, "renamed"),
        "reshaped": lambda: replaced(tensor.reshape(-1) if chosen.random() < 0.5 else tensor.reshape(2, -1), name, "reshaped"),
        "transposed": lambda: replaced(tensor.T.contiguous(), name, "transposed"),
        "renamed_and_transposed": lambda: replaced(tensor.T.contiguous(), "other", "transposed", "renamed"),
        "permuted": lambda: replaced(rotary(tensor, chosen.choice([1, 2])), name, "permuted"),
        "shape": lambda: replaced(random_tensor(generator, [tensor.shape[0] + 1, tensor.shape[1]], tensor.dtype), name, "shape"),
        "removed": lambda: ({key: value for key, value in before.items() if key != name}, {(name, None): {"only_in_a"}}),
        "same": lambda: (before, {}),
    }[kind]()


KINDS = ("changed one_bit dtype renamed renamed_and_cast reshaped transposed renamed_and_transposed permuted rows swapped shape "
         "removed added same").split()


def write(folder, name, tensors, container, chosen):
    path = folder / f"{name}.{container}"
    if container == "pth":
        torch.save(tensors, path)
    elif container == "legacy":
        torch.save(tensors, path, _use_new_zipfile_serialization=False)
    elif container == "safetensors":
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    else:
        torch.save(tensors, folder / f"{name}.pth")
        succeed(folder / f"{name}.pth", "-q", "-o", path, "--torch", "newest")
    return path


def found_changes(report):
    name = lambda tensor: tensor and tensor["name"]  # noqa: E731
    return {(name(row["a"]), name(row["b"])): set(row["changes"]) for row in report["tensors"]}


@pytest.mark.parametrize("part", range(6))
def test_each_mutation_is_named(part, tmp_path):
    done = 0
    for seed in range(part, MUTATIONS, 6):
        chosen, generator = random.Random(seed), torch.Generator().manual_seed(seed + 1)
        kind = KINDS[(seed // 6) % len(KINDS)]
        before = random_model(seed)
        mutated = mutate(kind, before, chosen, generator)
        if mutated is None:
            continue
        after, expected = mutated
        kinds = ["pth", "legacy", "safetensors", "carton"]
        a = write(tmp_path, f"a{seed}", before, chosen.choice(kinds), chosen)
        b = write(tmp_path, f"b{seed}", after, chosen.choice(kinds), chosen)
        outcome = torch2carton("diff", "--json", "--no-values", a, b)
        report = json.loads(outcome.stdout)
        assert found_changes(report) == expected, f"seed {seed} ({kind}): {a} {b}: {outcome}"
        assert outcome.status == (1 if expected else 0), outcome
        digests = [succeed("digest", "-q", path).stdout[:64] for path in (a, b)]
        assert (digests[0] == digests[1]) == (not expected), f"seed {seed} ({kind})"
        for path in tmp_path.iterdir():
            path.unlink()
        done += 1
    assert done >= 35


def test_differences_are_those_of_numpy(tmp_path):
    for dtype in DTYPES:
        generator = torch.Generator().manual_seed(1)
        a = random_tensor(generator, [300, 41], dtype)
        b = random_tensor(generator, [300, 41], dtype)
        b[:7] = a[:7]
        torch.save({"x": a}, tmp_path / "a.pth")
        torch.save({"x": b}, tmp_path / "b.pth")
        outcome = torch2carton("diff", "--json", tmp_path / "a.pth", tmp_path / "b.pth")
        found = json.loads(outcome.stdout)["tensors"][0]["elements"]
        x, y = a.double(), b.double()
        difference = (y - x).abs()
        expected = {
            "count": int((x != y).sum()), "numel": a.numel(), "not_finite": 0, "max_abs": float(difference.max()),
            "mean_abs": float(difference.mean()), "norm": float(difference.norm()),
            "relative_norm": float(difference.norm() / max(x.norm(), y.norm())),
            "cosine": float((x * y).sum() / (x.norm() * y.norm())),
        }
        for member, value in expected.items():
            assert found[member] == pytest.approx(value, rel=1e-12), (dtype, member)
        index = tuple(int(i) for i in (x != y).nonzero()[0])
        assert found["first"]["index"] == list(index)
        assert float(found["first"]["a"]) == float(x[index]) and float(found["first"]["b"]) == float(y[index])
