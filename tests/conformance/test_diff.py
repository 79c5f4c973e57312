"""`diff`: random mutations of a checkpoint are each named right, in any pair of formats."""

import json
import random

import pytest
import torch
from program import refuse, succeed, torch2carton
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
    after = dict(before)
    matrices = [name for name, tensor in before.items() if tensor.dim() == 2]
    name = chosen.choice(matrices)
    tensor = before[name]
    if kind == "changed":
        changed = tensor.clone()
        at = chosen.randrange(tensor.numel())
        changed.view(-1)[at] = changed.view(-1)[at] + 1
        if torch.equal(changed, tensor):  # a large float
            changed.view(-1)[at] = 0 if tensor.view(-1)[at] != 0 else 7
        after[name] = changed
        return after, {(name, name): {"changed"}}
    if kind == "one_bit":
        changed = tensor.clone()
        bits = changed.view(torch.uint8).view(-1)
        bits[chosen.randrange(bits.numel())] ^= 1 << chosen.randrange(8)
        after[name] = changed
        return after, {(name, name): {"changed"}}
    if kind == "dtype":
        after[name] = tensor.to(NARROWER[tensor.dtype])
        return after, {(name, name): {"dtype"}}
    if kind == "renamed":
        after[f"new.{name}"] = after.pop(name)
        return after, {(name, f"new.{name}"): {"renamed"}}
    if kind == "renamed_and_cast":
        floating = [name for name in before if before[name].is_floating_point()]
        if not floating:
            return None
        name = chosen.choice(floating)
        after[f"new.{name}"] = after.pop(name).to(NARROWER[before[name].dtype])
        return after, {(name, f"new.{name}"): {"dtype", "renamed"}}
    if kind == "reshaped":
        after[name] = tensor.reshape(-1) if chosen.random() < 0.5 else tensor.reshape(2, -1)
        return after, {(name, name): {"reshaped"}}
    if kind == "transposed":
        after[name] = tensor.T.contiguous()
        return after, {(name, name): {"transposed"}}
    if kind == "renamed_and_transposed":
        after["other"] = after.pop(name).T.contiguous()
        return after, {(name, "other"): {"transposed", "renamed"}}
    if kind == "permuted":
        after[name] = rotary(tensor, chosen.choice([1, 2]))
        return after, {(name, name): {"permuted"}}
    if kind == "rows":
        order = list(range(len(tensor)))
        while order == sorted(order):
            chosen.shuffle(order)
        after[name] = tensor[order]
        return after, {(name, name): {"permuted"}}
    if kind == "swapped":
        other = chosen.choice([n for n in matrices if n != name])
        after[name], after[other] = before[other], tensor
        return after, {(name, other): {"renamed"}, (other, name): {"renamed"}}
    if kind == "shape":
        after[name] = random_tensor(generator, [tensor.shape[0] + 1, tensor.shape[1]], tensor.dtype)
        return after, {(name, name): {"shape"}}
    if kind == "removed":
        del after[name]
        return after, {(name, None): {"only_in_a"}}
    if kind == "added":
        after["extra"] = random_tensor(generator, [5, 5], torch.float32)
        return after, {(None, "extra"): {"only_in_b"}}
    assert kind == "same"
    return after, {}


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


def test_nan_is_equal_to_nan_of_the_same_bits(tmp_path):
    bits = torch.tensor([0x7FC00000, 0x7FC00001, 0x3F800000, 0x7F800000], dtype=torch.int32)
    other = bits.clone()
    save_file({"x": bits.view(torch.float32)}, tmp_path / "a.safetensors")
    save_file({"x": other.view(torch.float32)}, tmp_path / "b.safetensors")
    succeed("diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    other[1] = 0x7FC00000
    save_file({"x": other.view(torch.float32)}, tmp_path / "b.safetensors")
    outcome = torch2carton("diff", "--json", "--tolerance", "10", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    elements = json.loads(outcome.stdout)["tensors"][0]["elements"]
    assert (outcome.status, elements["count"], elements["not_finite"]) == (1, 1, 1)


def test_tolerance_values_selection_and_limit(tmp_path):
    model = {"w": torch.ones(4), "b": torch.zeros(2)}
    near = {"w": torch.ones(4) + 1e-5, "b": torch.zeros(2)}
    torch.save({"state_dict": model, "epoch": 3, "lr": 0.1}, tmp_path / "a.ckpt")
    torch.save({"state_dict": near, "epoch": 4, "lr": 0.1}, tmp_path / "b.ckpt")
    torch.save({f"module.{name}": tensor for name, tensor in model.items()}, tmp_path / "c.pth")
    diff = lambda *arguments: torch2carton("diff", "--json", *arguments, cwd=tmp_path)  # noqa: E731
    both = json.loads(diff("a.ckpt", "b.ckpt").stdout)
    assert [row["path"] for row in both["values"]] == ["epoch"] and len(both["tensors"]) == 1
    assert diff("a.ckpt", "b.ckpt", "--no-values", "--tolerance", "1e-4").status == 0
    assert diff("a.ckpt", "b.ckpt", "--no-values", "--tolerance", "1e-6").status == 1
    assert diff("a.ckpt", "b.ckpt", "--no-values", "--exclude", "w").status == 0
    assert diff("a.ckpt", "b.ckpt", "--no-values", "--include-a", "b", "--include-b", "b").status == 0
    assert diff("a.ckpt", "c.pth", "--no-values", "--strip-prefix-b", "module.").status == 0
    assert diff("a.ckpt", "c.pth", "--no-values", "--key-a", "state_dict", "--strip-prefix-b", "module.").status == 0
    limited = json.loads(diff("a.ckpt", "c.pth", "--limit", "1").stdout)
    assert len(limited["tensors"]) == 1 and limited["unlisted"] >= 1
    for arguments in (["a.ckpt", "missing.pth"], ["a.ckpt", "b.ckpt", "--key-a", "nothing"], ["a.ckpt"]):
        refuse("diff", *arguments, cwd=tmp_path, status=(2,))


def test_meta_against_hugging_face(tmp_path):
    """The same LLaMA in both layouts: everything is renamed, and the rows of q and k are permuted."""
    heads, kv_heads, dim, hidden, vocabulary = 4, 2, 32, 96, 64
    generator = torch.Generator().manual_seed(7)
    make = lambda *shape: torch.randn(shape, generator=generator).bfloat16()  # noqa: E731
    meta = {"tok_embeddings.weight": make(vocabulary, dim), "norm.weight": make(dim), "output.weight": make(vocabulary, dim)}
    for layer in range(3):
        shapes = {"attention.wq": (dim, dim), "attention.wk": (kv_heads * dim // heads, dim),
                  "attention.wv": (kv_heads * dim // heads, dim), "attention.wo": (dim, dim),
                  "feed_forward.w1": (hidden, dim), "feed_forward.w2": (dim, hidden), "feed_forward.w3": (hidden, dim),
                  "attention_norm": (dim,), "ffn_norm": (dim,)}
        meta |= {f"layers.{layer}.{name}.weight": make(*shape) for name, shape in shapes.items()}
    folder = tmp_path / "meta"
    folder.mkdir()
    torch.save(meta, folder / "consolidated.00.pth")
    (folder / "params.json").write_text(json.dumps({
        "dim": dim, "n_layers": 3, "n_heads": heads, "n_kv_heads": kv_heads, "vocab_size": vocabulary,
        "multiple_of": 16, "norm_eps": 1e-5, "rope_theta": 10000.0}))
    succeed(folder, "--names", "hf", "-q", "-o", tmp_path / "hf")
    outcome = torch2carton("diff", "--json", "--no-values", folder, tmp_path / "hf")
    rows = json.loads(outcome.stdout)["tensors"]
    assert outcome.status == 1 and len(rows) == len(meta)
    for row in rows:
        is_rotary = row["a"]["name"].endswith(("wq.weight", "wk.weight"))
        assert row["changes"] == (["permuted", "renamed"] if is_rotary else ["renamed"]), row
        if is_rotary:
            wanted = {"kind": "rotary", "dim": 0, "head_size": dim // heads, "from": "meta", "to": "hugging_face"}
            assert row["rearrangement"] == wanted
