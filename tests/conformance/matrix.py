"""Checkpoints of every kind that PyTorch writes, made by real torch, and what torch itself reads from them.

An object (`OBJECTS`, by group) is written by writers (`WRITERS`: containers and pickle protocols). `read` says what the
program that reads such files finds in one: a row for each tensor, in order. To add an object, add a function to a
group; to add a container, a writer: the checks in test_matrix.py and docs/compatibility.md then have it.

Runs inside a worker, in either version of torch; what an old one lacks fails there when it is made, and is skipped.
"""

import argparse
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import hashlib
import io
import pathlib
import pickle
import re
import struct
import tarfile
import types
import warnings
import zipfile

import numpy
import torch

warnings.simplefilter("ignore")

# --- Classes, which pickles must be able to import -------------------------------------------------------------


class Call:
    """An object that is pickled as a call: for functions that this torch no longer calls, or that need a device."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


Pair = collections.namedtuple("Pair", "weight bias")


@dataclasses.dataclass
class Settings:
    width: int
    weight: torch.Tensor


class Slots:
    __slots__ = ("weight", "bias")


class Attributes(dict):
    """A dict with attributes, like the configurations of Lightning and DeepSpeed."""


class Tagged(torch.Tensor):
    """A subclass that adds no data."""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        self.scale = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("cache", torch.ones(4), persistent=False)
        self.register_parameter("missing", None)
        self.shared = self.inner[0]
        self.note = "an attribute"
        self.loose = torch.zeros(5)  # neither a parameter nor a buffer: state_dict() omits it

    def forward(self, x: torch.Tensor):
        return self.inner(x) * self.scale


class Scripted(torch.nn.Module):
    """A module for torch.jit.script: parameters, buffers, a plain tensor attribute, a list of tensors."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.layer.weight.data = torch.arange(6.0).reshape(2, 3) / 8
        self.layer.bias.data = torch.arange(2.0)
        self.register_buffer("steps", torch.tensor([1, 2, 3]))
        self.register_buffer("view", torch.arange(12.0).reshape(3, 4).t())
        self.small = torch.nn.Parameter(torch.ones(2).half())
        self.tied = self.layer.weight

    def forward(self, x: torch.Tensor):
        return self.layer(x)


# --- Objects -----------------------------------------------------------------------------------------------------------


def numbers(*shape):
    """Values that differ for every order of the elements."""
    count = int(numpy.prod(shape, dtype=int))
    return (torch.arange(count, dtype=torch.float32) / 8 - 1).reshape(shape)


def raw(dtype, shape=(2, 3)):
    """A tensor of any dtype, made from bytes, because torch cannot compute with all dtypes."""
    probe = torch.empty(1, dtype=dtype)
    size, count = probe.element_size(), int(numpy.prod(shape, dtype=int))
    data = torch.arange(count * size, dtype=torch.uint8).reshape(count, size) % (2 if dtype == torch.bool else 120)
    return data.view(dtype).reshape(shape)


def plain():
    return {"w": numbers(2, 3), "n": torch.arange(3)}


def every_dtype():
    """All dtypes of this torch, except those of quantized tensors, and integers of less than 8 bits, which cannot be saved."""
    found = {}
    for name, dtype in vars(torch).items():
        if isinstance(dtype, torch.dtype) and str(dtype) == f"torch.{name}" and not re.search(r"^q|int[1-7]$", name):
            found[name] = lambda dtype=dtype: {"x": raw(dtype)}
    return found


def untyped(tensor):
    return tensor.untyped_storage()


def quantized(dtype):
    return lambda: {"x": torch.quantize_per_tensor(numbers(2, 3), 0.125, 3 if dtype != torch.qint8 else -3, dtype)}


def per_channel(dtype, axis=0):
    def make():
        shape = (2, 3)
        scales = torch.arange(1, shape[axis] + 1, dtype=torch.float64) / 16
        return {"x": torch.quantize_per_channel(numbers(*shape), scales, torch.arange(shape[axis]), axis, dtype)}

    return make


def quantized_view():
    return {"x": quantized(torch.qint8)()["x"].t()}


def float_parameters():
    zero_points, scales = torch.tensor([0.5, 1.5]), torch.tensor([0.25, 0.125])
    return {"x": torch.quantize_per_channel(numbers(2, 4), scales, zero_points, 0, torch.quint4x2)}


def attributes_of(parameter):
    parameter.partition_dim = 0
    parameter.main_grad = numbers(2)
    return parameter


def tagged():
    tensor = numbers(2, 3).as_subclass(Tagged)
    tensor.note = "kept"
    return tensor


def two_tensor():
    from torch.testing._internal.two_tensor import TwoTensor
    return TwoTensor(numbers(2, 3), numbers(2, 3) + 1)


def slots():
    value = Slots()
    value.weight, value.bias = numbers(2), numbers(3)
    return value


def attributes():
    value = Attributes(weight=numbers(2))
    value.extra = numbers(3)
    return value


def cyclic_dict():
    value = {"w": numbers(2)}
    value["self"] = value
    return value


def cyclic_list():
    value = [numbers(2), []]
    value[1].append(value)
    return value


def with_metadata():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).state_dict()


def training():
    """What most training loops save: weights, optimizer state, plain values."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"epoch": 3, "loss": 0.5, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}


def lightning():
    """The layout of pytorch_lightning's Trainer.save_checkpoint."""
    weight = numbers(2, 3)
    return {
        "epoch": 2, "global_step": 30, "pytorch-lightning_version": "2.5.0",
        "state_dict": collections.OrderedDict(weight=weight, bias=numbers(2)),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": {"ready": 3}}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5), "dirpath": pathlib.PurePosixPath("/runs")}},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(30.0), "exp_avg": torch.zeros(2, 3)}}, "param_groups": [{"lr": 1e-3, "params": [0, 1]}]}],
        "lr_schedulers": [{"last_epoch": 2, "_last_lr": [1e-3]}],
        "hparams_name": "kwargs", "hyper_parameters": Attributes(width=3, stage=Colour.RED, args=argparse.Namespace(lr=1e-3)),
    }


def conjugate():
    z, other = (torch.complex(numbers(3), numbers(3) + more) for more in (2, 5))
    return {"plain": z, "conj": z.conj(), "neg": other.conj().imag, "both": torch._neg_view(z).conj()}


def tied():
    weight = numbers(4, 3)
    return {"embed": weight, "head": weight, "flat": weight.view(-1), "rows": weight[1:3], "apart": weight.clone()}


LAYOUTS = {
    "contiguous": lambda: numbers(2, 3),
    "transposed": lambda: numbers(2, 3).t(),
    "permuted": lambda: numbers(2, 3, 4).permute(2, 0, 1),
    "channels last": lambda: numbers(2, 3, 2, 2).to(memory_format=torch.channels_last),
    "slice of rows": lambda: numbers(4, 3)[1:3],
    "slice of columns": lambda: numbers(4, 3)[:, 1:],
    "every other": lambda: numbers(6, 4)[::2, 1::2],
    "expanded": lambda: numbers(3, 1).expand(3, 5),
    "overlapping": lambda: numbers(9).as_strided((4, 3), (2, 1)),
    "0-d": lambda: torch.tensor(1.5),
    "0-d view": lambda: numbers(4, 3)[2, 1],
    "empty": lambda: torch.empty(0),
    "empty of 2 dimensions": lambda: torch.empty(3, 0),
    "five dimensions": lambda: numbers(1, 2, 1, 3, 2),
}

REBUILDS = {
    "_rebuild_tensor": lambda: {"x": Call(torch._utils._rebuild_tensor, torch.FloatStorage([1.0, 2.0, 3.0]), 1, (2,), (1,))},
    "_rebuild_tensor_v2": plain,
    "_rebuild_tensor_v3": lambda: {"x": raw(torch.uint16)},
    "_rebuild_parameter": lambda: {"x": torch.nn.Parameter(numbers(2, 3)), "y": torch.nn.Parameter(torch.arange(3), False)},
    "_rebuild_parameter_with_state": lambda: {"x": attributes_of(torch.nn.Parameter(numbers(2, 3)))},
    "nn.Buffer": lambda: {"x": torch.nn.Buffer(numbers(2, 3))},
    "_rebuild_from_type_v2": lambda: {"x": tagged()},
    "_rebuild_from_type": lambda: {"x": Call(
        torch._tensor._rebuild_from_type, torch._utils._rebuild_tensor, Tagged, (torch.FloatStorage([1.0, 2.0]), 0, (2,), (1,)), {})},
    "state of a tensor class (0.1)": lambda: {"x": Call(torch.FloatTensor, state=(torch.FloatStorage([1.0, 2.0, 3.0]), 1, (2,), (1,)))},
    "_rebuild_sparse_tensor, COO": lambda: {"x": (torch.eye(3) * 2).to_sparse(), "dense": numbers(2)},
    "_rebuild_sparse_tensor, COO not coalesced": lambda: {"x": torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))},
    "_rebuild_sparse_tensor, COO of rows": lambda: {"x": torch.sparse_coo_tensor([[0, 2]], numbers(2, 3), (4, 3))},
    "_rebuild_sparse_tensor, CSR": lambda: {"x": torch.eye(3).to_sparse_csr()},
    "_rebuild_sparse_tensor, CSC": lambda: {"x": torch.eye(3).to_sparse_csc()},
    "_rebuild_sparse_tensor, BSR": lambda: {"x": torch.eye(4).to_sparse_bsr((2, 2))},
    "_rebuild_sparse_tensor, BSC": lambda: {"x": torch.eye(4).to_sparse_bsc((2, 2))},
    "_rebuild_qtensor, per tensor, qint8": quantized(torch.qint8),
    "_rebuild_qtensor, per tensor, quint8": quantized(torch.quint8),
    "_rebuild_qtensor, per tensor, qint32": quantized(torch.qint32),
    "_rebuild_qtensor, transposed": quantized_view,
    "_rebuild_qtensor, per channel, qint8": per_channel(torch.qint8),
    "_rebuild_qtensor, per channel, quint8": per_channel(torch.quint8, axis=1),
    "_rebuild_qtensor, per channel, qint32": per_channel(torch.qint32),
    "_rebuild_qtensor, float parameters, quint4x2": float_parameters,
    "_rebuild_nested_tensor": lambda: {"x": torch.nested.nested_tensor([numbers(2, 3), numbers(1, 3)])},
    "_rebuild_njt (jagged)": lambda: {"x": torch.nested.nested_tensor([numbers(2, 3), numbers(1, 3)], layout=torch.jagged)},
    "_rebuild_meta_tensor_no_storage": lambda: {"x": torch.empty(2, 3, dtype=torch.bfloat16, device="meta"), "y": numbers(2)},
    "_rebuild_wrapper_subclass": lambda: {"x": two_tensor(), "y": numbers(2)},
    "_rebuild_device_tensor_from_numpy": lambda: {"x": Call(
        torch._utils._rebuild_device_tensor_from_numpy, numbers(2, 3).numpy(), torch.float32, "cpu", False)},
    "_rebuild_device_tensor_from_cpu_tensor": lambda: {"x": Call(
        torch._utils._rebuild_device_tensor_from_cpu_tensor, numbers(2, 3), torch.float32, "cpu", False)},
}

ROOTS = {
    "tensor": lambda: numbers(2, 3),
    "parameter": lambda: torch.nn.Parameter(numbers(2, 3)),
    "list": lambda: [numbers(2), 4, numbers(3)],
    "tuple": lambda: (numbers(2), "text", numbers(3)),
    "dict": plain,
    "OrderedDict": lambda: collections.OrderedDict(plain()),
    "OrderedDict with _metadata": with_metadata,
    "defaultdict": lambda: collections.defaultdict(list, plain()),
    "Counter": lambda: collections.Counter(plain()),
    "deque": lambda: collections.deque([numbers(2), numbers(3)]),
    "nested dicts": lambda: {"a": {"b": {"w": numbers(2)}, "w": numbers(3)}, "w": numbers(4)},
    "nested lists": lambda: {"a": [[numbers(2)], (numbers(3), {"w": numbers(4)})]},
    "training checkpoint": training,
    "Lightning checkpoint with custom classes": lightning,
    "keys: int": lambda: {0: numbers(2), -7: numbers(3), 2**40: numbers(4)},
    "keys: float, bool, None": lambda: {1.5: numbers(2), True: numbers(3), None: numbers(4), float("inf"): numbers(1), 1e300: numbers(5)},
    "keys: tuple": lambda: {(1, "a"): numbers(2), (): numbers(3), (2.5,): numbers(4)},
    "keys: bytes": lambda: {b"raw\x00": numbers(2), b"it's": numbers(3)},
    "keys: huge int": lambda: {2**70: numbers(2), -(2**70): numbers(3)},
    "keys: text in tuples": lambda: {("it's", "\n", "ü"): numbers(2)},
    "keys: quotes and escapes": lambda: {"it's \"x\"": numbers(2), "a\nb": numbers(3), "\u00fc\U0001f600": numbers(4), "": numbers(5)},
    "keys: dtype, enum": lambda: {torch.float16: numbers(2), Colour.RED: numbers(3)},
    "keys: IntEnum": lambda: {Level.HIGH: numbers(2)},
    "empty dict": dict,
    "no tensors": lambda: {"a": 1, "b": [2.5, None]},
    "cyclic dict": cyclic_dict,
    "cyclic list": cyclic_list,
    "namedtuple": lambda: Pair(numbers(2), numbers(3)),
    "dataclass": lambda: Settings(3, numbers(2)),
    "object with __slots__": slots,
    "dict subclass with attributes": attributes,
    "argparse.Namespace": lambda: argparse.Namespace(weight=numbers(2), lr=1e-3),
    "SimpleNamespace": lambda: types.SimpleNamespace(weight=numbers(2)),
    "nn.Linear": lambda: torch.nn.Linear(3, 2),
    "custom module": Net,
    "modules in a dict": lambda: {"net": Net(), "epoch": 3},
    "optimizer": lambda: torch.optim.Adam(torch.nn.Linear(3, 2).parameters()).state_dict(),
    "storage": lambda: torch.FloatStorage([1.0, 2.0, 3.0]),
}

SPECIAL = {
    "tied and overlapping tensors": tied,
    "conj and neg bits": conjugate,
    "one conj bit": lambda: {"x": conjugate()["conj"]},
    "UntypedStorage": lambda: {"s": untyped(numbers(3))},
    "TypedStorage": lambda: {"s": torch.DoubleStorage([1.0, 2.0]), "b": torch.BoolStorage([True, False]), "i": torch.ShortStorage([1, 2, 3])},
    "storage and its tensor": lambda: (lambda t: {"t": t, "s": torch.storage.TypedStorage(wrap_storage=untyped(t), dtype=t.dtype)})(numbers(3)),
    "a small slice of a large storage": lambda: {"x": numbers(5000)[100:104]},
    "2,500 tensors": lambda: {f"layers.{i}.weight": numbers(2) + i for i in range(2500)},
    "deep nesting": lambda: deep(200),
    "values of every kind": lambda: {
        "w": numbers(2), "none": None, "big": 2**100, "nan": float("nan"), "complex": 1 + 2j, "bytes": b"\x00\xff", "bytearray": bytearray(b"ab"),
        "set": {1, 2}, "frozenset": frozenset({3}), "range": range(3), "slice": slice(1, 2), "path": pathlib.PurePosixPath("a/b"),
        "date": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), "decimal": decimal.Decimal("1.5"), "enum": Colour.RED,
        "class": Settings, "function": torch.nn.functional.relu, "ellipsis": ..., "surrogate": "\ud800"},
    "torch's values": lambda: {
        "w": numbers(2), "device": torch.device("cpu"), "dtype": torch.bfloat16, "size": torch.Size([1, 2]), "layout": torch.strided,
        "format": torch.channels_last, "rng": torch.Generator().manual_seed(1).get_state()},
}


def deep(levels):
    value = {"w": numbers(2)}
    for _ in range(levels):
        value = {"a": value}
    return value


def array(code, order="C"):
    dtype = numpy.dtype(code)
    count = 6 * dtype.itemsize
    data = bytes(i % (2 if dtype.kind == "b" else 120) for i in range(count))
    return numpy.asarray(numpy.frombuffer(data, dtype).reshape(2, 3), order=order)


CODES = "?bBhHiIlLqQefdFD"  # NumPy's letters for all dtypes that torch has too
ARRAYS = {
    **{f"array of {numpy.dtype(code).name}": lambda code=code: {"a": array(code)} for code in CODES},
    **{f"array of {numpy.dtype(code).name}, big-endian": lambda code=code: {"a": array(code)} for code in (">f4", ">i2", ">u8", ">c16", ">f2")},
    "array in Fortran order": lambda: {"a": array("f4", "F")},
    "array of 0 dimensions": lambda: {"a": numpy.array(1.5)},
    "array without elements": lambda: {"a": numpy.zeros((0, 3), "i4")},
    "array of every second column": lambda: {"a": array("f4")[:, ::2]},
    "the same array twice": lambda: (lambda a: {"a": a, "b": a})(array("f4")),
    "array of text": lambda: {"a": numpy.array(["ab", "c"])},
    "array of bytes": lambda: {"a": numpy.array([b"ab", b"c"])},
    "array of objects": lambda: {"a": numpy.array([{"x": 1}, None], dtype=object)},
    "array of records": lambda: {"a": numpy.zeros(2, [("x", "f4"), ("y", "i8")])},
    "array of dates": lambda: {"a": numpy.array(["2026-01-02"], "datetime64[D]")},
    "array of long doubles": lambda: {"a": numpy.zeros(2, "g")},
    "masked array": lambda: {"a": numpy.ma.masked_array([1.0, 2.0], [False, True])},
    "scalars": lambda: {code: numpy.dtype(code).type(1) for code in CODES},
    "array as root": lambda: array("f8"),
    "random state": lambda: {"rng": numpy.random.RandomState(1).get_state()},
}

OBJECTS = {
    "root": ROOTS,
    "dtype": every_dtype(),
    "layout": {name: (lambda make=make: {"x": make()}) for name, make in LAYOUTS.items()},
    "rebuild function": REBUILDS,
    "special": SPECIAL,
    "numpy": ARRAYS,
}

# Objects for the checkpoints that the program writes; docs/compatibility.md does not list them.
FOR_OUTPUT = {"storage": {
    "three dtypes": lambda: (lambda t: {"a": t, "b": t.view(torch.uint32), "c": t.view(torch.uint8)[3:5]})(
        numbers(4).to(torch.int16).view(torch.uint16)),
}}
# Objects that torch itself reads wrongly, because it uses sizes and strides before it has read the bytes of their storages.
MISREAD = {("_rebuild_nested_tensor", f"legacy, protocol {n}") for n in range(6)}

# --- Writers -----------------------------------------------------------------------------------------------------------


def save(protocol, zipped):
    def write(value, path):
        torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)

    return write


def dump(protocol):
    def write(value, path):
        with open(path, "wb") as file:
            pickle.dump(value, file, protocol)

    return write


def rezip(compression=zipfile.ZIP_STORED, zip64=False, root=None, change=None):
    """The records of torch.save, written again with zipfile."""

    def write(value, path):
        data = io.BytesIO()
        torch.save(value, data)
        with zipfile.ZipFile(data) as old, zipfile.ZipFile(path, "w", compression) as new:
            for record in old.namelist():
                body = old.read(record)
                body = change(record, body) if change else body
                name = record if root is None else f"{root}/{record.split('/', 1)[1]}"
                with new.open(zipfile.ZipInfo(name), "w", force_zip64=zip64) if not compression else new.open(name, "w") as file:
                    file.write(body)

    return write


def big_endian(record, body):
    """The file that a big-endian machine writes for `plain()`: data/0 is float32, data/1 is int64."""
    if record.endswith("byteorder"):
        return b"big"
    if "/data/" in record:
        dtype = "f4" if record.endswith("/0") else "i8"
        return numpy.frombuffer(body, f"<{dtype}").astype(f">{dtype}").tobytes()
    return body


def without_checksums(value, path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(value, path)
    finally:
        torch.serialization.set_crc32_options(True)


class Holder(torch.nn.Module):
    """A module in which TorchScript keeps a tensor."""

    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("x", tensor)

    def forward(self, y: torch.Tensor):
        return y


def script(value, path):
    """A module as it is; for a dict, its tensor `x` in a module."""
    torch.jit.save(torch.jit.script(value if isinstance(value, torch.nn.Module) else Holder(value["x"])), path)


def safetensors(value, path):
    from safetensors.torch import save_file
    save_file(value, path, {"format": "pt"})


def tar(value, path):
    """The format of torch 0.1: storages and tensors outside the pickle, each with a number."""
    tensors, storages, views = io.BytesIO(), io.BytesIO(), []
    kinds = {torch.float32: torch.FloatTensor, torch.int64: torch.LongTensor}
    pickle.dump(len(value), tensors, 2)
    pickle.dump(len(value), storages, 2)
    for i, tensor in enumerate(value.values()):
        kind = kinds[tensor.dtype]
        storage = getattr(torch, kind.__name__.replace("Tensor", "Storage"))
        pickle.dump((100 + i, "cpu", storage), storages, 2)
        storages.write(struct.pack("<q", tensor.numel()) + c_order_bytes(tensor))
        pickle.dump((200 + i, 100 + i, kind), tensors, 2)
        tensors.write(struct.pack(f"<i4x{2 * tensor.dim() + 1}q", tensor.dim(), *tensor.shape, *tensor.stride(), 0))
    pickle.dump(views, storages, 2)

    root = io.BytesIO()
    pickler = pickle._Pickler(root, 2)
    keys = {id(tensor): str(200 + i) for i, tensor in enumerate(value.values())}
    pickler.persistent_id = lambda found: keys.get(id(found))
    pickler.dump(value)
    members = {
        "sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, 2),
        "pickle": root.getvalue(), "tensors": tensors.getvalue(), "storages": storages.getvalue()}
    with tarfile.open(path, "w") as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))


# name: (what writes it, what reads it)
WRITERS = {
    **{f"zip, protocol {n}": (save(n, True), "torch") for n in range(6)},
    **{f"legacy, protocol {n}": (save(n, False), "torch") for n in range(6)},
    **{f"pickle, protocol {n}": (dump(n), "pickle") for n in range(6)},
}
CONTAINERS = {
    "zip, deflated": (rezip(zipfile.ZIP_DEFLATED), "torch"),
    "zip, zip64 fields": (rezip(zip64=True), "torch"),
    "zip, root folder with dots and spaces": (rezip(root="my model.v1.zip"), "torch"),
    "zip, big-endian": (rezip(change=big_endian), "torch"),
    "zip, no checksums": (without_checksums, "torch"),
    "tar (0.1)": (tar, "torch"),
    "safetensors": (safetensors, "safetensors"),
    "TorchScript": (script, "jit"),
}
# The objects that are written as TorchScript archives too.
SCRIPTED = {"dtype": set(OBJECTS["dtype"]), "layout": set(LAYOUTS), "rebuild function": {
    name for name in REBUILDS if name.startswith(("_rebuild_sparse", "_rebuild_qtensor"))}, "special": {"one conj bit"}}
ALL_WRITERS = WRITERS | CONTAINERS
SAVED = [name for name in WRITERS if not name.startswith("pickle")]

# --- What the program that such a file is for reads ----------------------------------------------------------------


def c_order_bytes(tensor):
    data = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(data.data_ptr(), data.numel() * data.element_size()) if data.numel() else b""


def read(path, reader, weights_only=False):
    """A row for each tensor: its name, and every fact that must be the same."""
    if reader == "pickle":
        with open(path, "rb") as file:
            root = pickle.load(file)
    elif reader == "safetensors":
        from safetensors import safe_open
        with safe_open(path, "pt") as file:
            root = {name: file.get_tensor(name) for name in file.keys()}
    elif reader == "jit":
        root = torch.jit.load(path).state_dict()
    else:
        root = torch.load(path, map_location="cpu", weights_only=weights_only)
    rows, storages = [], {}
    for name, leaf in leaves(root, (), set()):
        rows += [row | {"name": ".".join((*name, *part))} for part, row in facts(leaf, storages)]
    return rows


def leaves(value, path, inside):
    """(path, tensor, array or storage) of everything in the root, in its order."""
    if isinstance(value, (torch.Tensor, numpy.ndarray, torch.UntypedStorage, torch.storage.TypedStorage)):
        yield path, value
        return
    if isinstance(value, (enum.Enum, type, pathlib.PurePath, numpy.generic)) or callable(value) and not isinstance(value, torch.nn.Module):
        return
    if id(value) in inside:
        return
    inside = inside | {id(value)}
    for key, inner in children(value):
        yield from leaves(inner, (*path, key), inside)


def children(value):
    if isinstance(value, torch.nn.Module):
        yield from value.state_dict().items()
        return
    if not isinstance(value, collections.OrderedDict):  # its attributes are not part of a checkpoint
        yield from getattr(value, "__dict__", {}).items()
    for name in getattr(type(value), "__slots__", ()):
        if hasattr(value, name) and isinstance(name, str):
            yield name, getattr(value, name)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield spelled(key), inner
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        for i, inner in enumerate(value):
            yield str(i), inner


def spelled(key):
    """A dict's key in a name: a string as it is, otherwise its repr. The repr of an enum is not in a pickle, but the call that makes it is."""
    if isinstance(key, enum.Enum):
        return f"{type(key).__module__}.{type(key).__qualname__}({key.value!r})"
    return key if type(key) is str else repr(key)


def facts(leaf, storages):
    """(suffix of the name, facts) of a leaf, and of each of its parts."""
    if isinstance(leaf, numpy.ndarray):
        kind = leaf.dtype.newbyteorder("<")
        if kind.kind + str(kind.itemsize) not in {numpy.dtype(c).str[1:] for c in CODES} or type(leaf) is not numpy.ndarray:
            return
        yield (), {
            "dtype": leaf.dtype.name, "shape": list(leaf.shape), "stride": [s // leaf.itemsize for s in leaf.strides], "storage_offset": 0,
            "storage": storages.setdefault(id(leaf), len(storages)), "nbytes": leaf.nbytes, "sha256": digest(leaf.astype(kind).tobytes())}
        return
    if isinstance(leaf, torch.UntypedStorage):
        leaf = torch.empty(0, dtype=torch.uint8).set_(leaf)
    elif isinstance(leaf, torch.storage.TypedStorage):
        leaf = torch.empty(0, dtype=leaf.dtype).set_(leaf._untyped_storage)
    whole = {"dtype": str(leaf.dtype).removeprefix("torch."), "storage": None}
    if leaf.is_nested and leaf.layout == torch.jagged:
        yield (), whole | {"layout": "jagged", "shape": list(leaf.values().shape)}
        yield ("values",), strided(leaf.values(), storages)
        yield ("offsets",), strided(leaf.offsets(), storages)
    elif leaf.is_nested:
        yield (), whole | {"layout": "nested", "shape": list(leaf.values().shape)}
        named = leaf.values(), leaf._nested_tensor_size(), leaf._nested_tensor_strides(), leaf._nested_tensor_storage_offsets()
        for name, part in zip(("values", "sizes", "strides", "offsets"), named):
            yield (name,), strided(part, storages)
    elif leaf.is_meta or type(leaf).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        yield (), whole | {"shape": list(leaf.shape)}
        for name in () if leaf.is_meta else leaf.__tensor_flatten__()[0]:
            yield (name,), strided(getattr(leaf, name), storages)
    elif leaf.layout != torch.strided:
        layout = str(leaf.layout).removeprefix("torch.")
        names = {
            "sparse_coo": ("_indices", "_values"), "sparse_csr": ("crow_indices", "col_indices", "values"),
            "sparse_bsr": ("crow_indices", "col_indices", "values"), "sparse_csc": ("ccol_indices", "row_indices", "values"),
            "sparse_bsc": ("ccol_indices", "row_indices", "values")}[layout]
        yield (), whole | {"shape": list(leaf.shape), "layout": layout}
        for name in names:
            yield (name.lstrip("_"),), strided(getattr(leaf, name)(), storages)
    else:
        yield (), strided(leaf, storages)


def strided(tensor, storages):
    storage = tensor.untyped_storage()._cdata
    if tensor.is_conj() or tensor.is_neg():
        storage = id(tensor)  # its bytes are not in any storage yet
    row = {
        "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "stride": list(tensor.stride()),
        "storage_offset": tensor.storage_offset(), "storage": storages.setdefault(storage, len(storages))}
    if tensor.is_quantized:
        scheme = str(tensor.qscheme()).removeprefix("torch.")
        row["quantizer"] = {"scheme": scheme, "axis": tensor.q_per_channel_axis() if "channel" in scheme else None}
        tensor = tensor.int_repr()
    data = c_order_bytes(tensor)
    return row | {"nbytes": len(data), "sha256": digest(data)}


def digest(data):
    return hashlib.sha256(data).hexdigest()
