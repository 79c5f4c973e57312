"""One version of torch: writes checkpoints, lists their contents, loads archives and runs them like the runner.

Like Carton's torchscript runner, it reads model/model.pt into memory, calls `forward(dict)`, leaves gradients on and never
calls eval().
"""

import ctypes
import hashlib
import io
import json
import pickle
import sys
import warnings
from pathlib import Path

import numpy
import torch
from line_server import serve

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import checkpoints  # noqa: E402
import modules  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(1)


def make(kind, path):
    torch.save(checkpoints.MAKERS[kind](), path)


def make_many(path, count):
    torch.save({f"t.{i}": torch.tensor([i], dtype=torch.int32) for i in range(count)}, path)


def make_module(path):
    torch.save(torch.nn.Linear(2, 3), path)


def make_pickle(path, protocol):
    """Pickles tensors without torch.save, and returns the facts of each."""
    whole = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    root = {
        "whole": whole, "late": whole[1], "half": torch.ones(2, dtype=torch.bfloat16), "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.tensor([1.5])), "complex": torch.tensor([1 + 2j]), "flags": torch.tensor([True, False]),
    }
    with open(path, "wb") as file:
        pickle.dump(root, file, protocol)
    return facts(named_tensors(root))


def make_traced(path):
    """A traced module whose code has a constant tensor."""
    class Traced(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x) * torch.tensor([3.0, 4.0])

    torch.jit.trace(Traced(), torch.ones(1, 2)).save(path)


def make_sharded(folder):
    """What one of eight ranks saves of tensors that they share."""
    from torch import distributed
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    mesh = init_device_mesh("cpu", (8,))
    split = distribute_tensor(torch.arange(64 * 16.0).reshape(64, 16), mesh, [Shard(0)])
    torch.save({"w": split, "n": torch.ones(2)}, f"{folder}/dtensor.pth")
    torch.save({"w": distribute_tensor(torch.ones(8, 8), mesh, [Replicate()])}, f"{folder}/replicated.pth")
    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{rank}/cpu" for rank in range(8)])
    torch.save({"w": sharded_tensor.zeros(spec, 64, 16), "n": torch.ones(2)}, f"{folder}/sharded.pth")
    distributed.destroy_process_group()
    # One rank of one has all of it.
    distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    split = distribute_tensor(torch.arange(12.0).reshape(4, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
    torch.save({"w": split}, f"{folder}/alone.pth")
    distributed.destroy_process_group()


class InTwo(torch.Tensor):
    """A tensor that keeps its data in its attributes, as torchao's quantized tensors do: integers, scales, and another such tensor."""

    @staticmethod
    def __new__(cls, integers, scale, inner=None):
        return torch.Tensor._make_wrapper_subclass(cls, integers.shape, dtype=torch.float32)

    def __init__(self, integers, scale, inner=None):
        self.qdata, self.scale, self.inner, self.block_size = integers, scale, inner, [1, integers.shape[-1]]

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def make_in_parts(path):
    """Saves tensors of a class that keeps its data in its attributes, and returns the facts of these."""
    def new(first):
        return torch.arange(first, first + 6, dtype=torch.int8).reshape(2, 3), torch.tensor([0.5, first])

    inner = InTwo(*new(10))
    whole = InTwo(*new(1), inner)
    torch.save({"w": whole, "n": torch.ones(2)}, path)
    parts = {"w.qdata": whole.qdata, "w.scale": whole.scale, "w.inner.qdata": inner.qdata, "w.inner.scale": inner.scale}
    return facts((parts | {"n": torch.ones(2)}).items())


def make_views(path, view):
    """Several tensors over one storage, as other dtypes or without elements. Returns the facts of what torch.load reads."""
    numbers, floats, empty = torch.arange(8, dtype=torch.uint8), torch.arange(4.0), torch.empty(0)
    root = {
        "empty": lambda: {"a": empty, "b": empty.view(torch.int32)},
        "empty as others": lambda: {"a": empty.view(torch.int64), "b": empty, "c": empty.view(torch.uint8), "d": empty.reshape(0, 3)},
        "past the end": lambda: {"a": floats, "b": torch.as_strided(floats, (0,), (1,), 100), "c": floats[4:]},
    }.get(view, lambda: {"a": numbers, "b": numbers.view(getattr(torch, view))})()
    torch.save(root, path)
    return facts(named_tensors(load_checkpoint(path)))


def make_expanded(path, rows, columns):
    torch.save({"expanded": torch.ones(1, 1).expand(rows, columns)}, path)


def count_and_sum(archive):
    values = load(archive).state_dict().values()
    return [len(values), int(sum(t.item() for t in values))]


def edges(archive):
    """The first and last eight values of every tensor. Loads from the path, which takes less memory."""
    state = torch.jit.load(archive).state_dict()
    return {name: [t.flatten()[:8].tolist(), t.flatten()[-8:].tolist()] for name, t in state.items()}


def c_order_bytes(tensor):
    data = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(data.data_ptr(), data.numel() * data.element_size()) if data.numel() else b""


def facts(named):
    """The facts of each tensor that a conversion must preserve; storages are numbered by first use."""
    storages, out = {}, []
    for name, tensor in named:
        storage = tensor.untyped_storage()
        data = c_order_bytes(tensor)
        out.append({
            "name": name,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "storage_offset": tensor.storage_offset(),
            "storage": storages.setdefault(storage._cdata, len(storages)),
            "nbytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        })
    return out


def named_tensors(value, path=()):
    """(name, tensor) of everything in dicts, lists and tuples, in the file's order; names are `a.b.c`."""
    if isinstance(value, torch.Tensor):
        for part, tensor in parts(value):
            yield ".".join((*path, *part)), tensor
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from named_tensors(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from named_tensors(inner, (*path, str(i)))


def parts(tensor):
    """What represents a tensor in an archive: the tensor itself, or the plain tensors of which a sparse or quantized one consists."""
    if tensor.is_quantized:
        yield ("int_repr",), tensor.int_repr()
        yield ("scale",), torch.tensor(tensor.q_scale(), dtype=torch.float64)
        yield ("zero_point",), torch.tensor(tensor.q_zero_point())
    elif tensor.layout == torch.sparse_coo:
        yield ("indices",), tensor._indices()
        yield ("values",), tensor._values()
    else:
        yield (), tensor


def load_checkpoint(path, trusted=True):
    """`trusted`: the suite made the file itself, so torch may build any object from it."""
    return torch.load(path, map_location="cpu", weights_only=not trusted)


def describe_checkpoint(path, trusted=True):
    root = load_checkpoint(path, trusted)
    return {"root": type(root).__name__, "tensors": facts(named_tensors(root))}


def load(archive):
    return torch.jit.load(io.BytesIO(Path(archive).read_bytes()), map_location="cpu")


def describe_archive(path):
    module = load(path)
    state = module.state_dict()
    return {
        "tensors": facts(state.items()),
        "from_path": facts(torch.jit.load(path).state_dict().items()),
        "requires_grad": [n for n, t in [*module.named_parameters(), *module.named_buffers()] if t.requires_grad],
        "signature": str(module.forward.schema) if hasattr(module.forward, "schema") else str(module._c._get_method("forward").schema),
    }


def export(tensor):
    """The tensor in the dtype in which a weights module returns it, which the runner supports."""
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8)
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype == getattr(torch, "float4_e2m1fn_x2", None):
        return tensor.view(torch.uint8)
    if tensor.dtype in (torch.float16, torch.bfloat16) or str(tensor.dtype).startswith("torch.float8"):
        return tensor.to(torch.float32)
    return tensor


def compare_outputs(archive, checkpoint, select=None):
    """Differences between the result of forward and the exported tensors of the checkpoint; [] if there are none."""
    assert torch.is_grad_enabled()
    module = load(archive)
    expected = dict(named_tensors(load_checkpoint(checkpoint)))
    inputs = {name: torch.zeros(1) for name in select or []}
    differences = []
    for call in range(3):
        answer = module.forward(inputs)
        wanted = select or list(expected)
        if sorted(answer) != sorted(wanted):
            extra, lost = sorted(set(answer) - set(wanted)), sorted(set(wanted) - set(answer))
            differences.append(f"call {call}: extra {extra[:5]}, lost {lost[:5]}")
        for name in set(answer) & set(wanted):
            got, want = answer[name], export(expected[name].detach())
            if got.requires_grad:
                differences.append(f"{name}: requires grad")
            if (got.dtype, got.shape) != (want.dtype, want.shape):
                differences.append(f"{name}: {got.dtype} {list(got.shape)} instead of {want.dtype} {list(want.shape)}")
            elif c_order_bytes(got) != c_order_bytes(want) and not torch.allclose(got, want, rtol=0, atol=0, equal_nan=True):
                differences.append(f"{name}: values differ")
    return differences


def ask_for(archive, names):
    """What forward returns if it is asked for `names`: the names of the tensors, or its message; or what it raises."""
    try:
        answer = load(archive).forward({name: torch.zeros(1) for name in names})
    except Exception as error:
        return {"raised": str(error)}
    return {name: "tensor" if isinstance(value, torch.Tensor) else value for name, value in answer.items()}


def run(archive, tokens, outputs, times):
    """Writes the logits of every batch in the npz `tokens`, `times` times each, to the npz `outputs`."""
    assert torch.is_grad_enabled()
    module = load(archive)
    logits = {}
    for key, batch in numpy.load(tokens).items():
        for call in range(times):
            answer = module.forward({"tokens": torch.from_numpy(batch)})
            assert not answer["logits"].requires_grad, "logits require grad"
            logits[f"{key} {call}"] = answer["logits"].numpy()
    numpy.savez(outputs, **logits)
    return {"outputs": sorted(answer), "dtype": str(answer["logits"].dtype)}


serve({
    "version": lambda: torch.__version__,
    "make": make,
    "make_many": make_many,
    "make_module": make_module,
    "make_expanded": make_expanded,
    "count_and_sum": count_and_sum,
    "edges": edges,
    "describe_checkpoint": describe_checkpoint,
    "describe_archive": describe_archive,
    "make_pickle": make_pickle,
    "make_sharded": make_sharded,
    "make_traced": make_traced,
    "make_views": make_views,
    "make_in_parts": make_in_parts,
    "make_quantized": modules.make_quantized,
    "make_scripted": modules.make_scripted,
    "make_left_out": modules.make_left_out,
    "compare_outputs": compare_outputs,
    "ask_for": ask_for,
    "run": run,
})
