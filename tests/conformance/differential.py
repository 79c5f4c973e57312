"""Random objects that torch saves, and random pickle programs that torch loads, each made from a seed.

`random_object(seed)` is a tree of containers, modules and values around tensors of every kind. `random_program(seed)` is a
zip checkpoint whose pickle no version of torch writes: it changes objects after a call has taken them, sets the state of
tensors, and uses keys that Python takes for equal. Facts: `torch/_weights_only_unpickler.py` lists the opcodes and functions
that an untrusted file may use.

Runs inside a worker, in either version of torch.
"""

import collections
import pickle
import random
import struct
import types
import zipfile

import matrix
import torch

# --- Objects --------------------------------------------------------------------------------------------------------


class PythonPickle:
    """Python's pickler that is written in Python; it memoises and frames like the one in C, with code of its own."""

    Pickler = pickle._Pickler
    __name__ = "pickle"


def random_object(seed):
    """(the object, the arguments for torch.save)"""
    maker = Maker(random.Random(seed))
    root = maker.container(0) if maker.r.random() < 0.95 else maker.tensor()
    writer = {"pickle_protocol": maker.r.choice([2, 2, 2, 3, 4, 5]), "_use_new_zipfile_serialization": maker.r.random() < 0.7}
    if maker.r.random() < 0.3:
        writer["pickle_module"] = PythonPickle
    return root, writer


class Maker:
    def __init__(self, r):
        self.r = r
        self.tensors, self.containers = [], []
        self.dtypes = [dtype for name, dtype in sorted(vars(torch).items()) if name in matrix.OBJECTS["dtype"]]

    def choose(self, *weighted):
        """Calls one of `(weight, function)`."""
        return self.r.choices([function for _, function in weighted], [weight for weight, _ in weighted])[0]()

    # Tensors

    def tensor(self):
        if self.tensors and self.r.random() < 0.2:
            return self.r.choice(self.tensors)
        tensor = self.choose(
            (60, self.strided), (8, self.parameter), (3, self.buffer), (8, self.signed), (5, self.quantized), (5, self.sparse),
            (3, self.nested), (2, self.tagged), (2, lambda: torch.empty(2, 3, device="meta")), (2, self.storage),
            (3, lambda: matrix.array(self.r.choice(matrix.CODES), self.r.choice("CF"))))
        self.tensors.append(tensor)
        return tensor

    def shape(self, most=4):
        return [self.r.choice([0, 1, 1, 2, 3, 4, 5]) for _ in range(self.r.choice([0, 1, 1, 2, 2, 2, 3, 4][: most + 4]))]

    def strided(self):
        bases = [t for t in self.tensors if isinstance(t, torch.Tensor) and t.layout == torch.strided and not t.is_quantized
                 and not t.is_nested and not t.is_meta and type(t) in (torch.Tensor, torch.nn.Parameter)]
        if bases and self.r.random() < 0.3:
            return self.view(self.r.choice(bases).detach())
        tensor = self.contiguous()
        return tensor if self.r.random() < 0.5 else self.view(tensor)

    def contiguous(self, dtype=None):
        tensor = matrix.raw(dtype or self.r.choice(self.dtypes), [max(size, 0) for size in self.shape()])
        # Different values in tensors of the same shape.
        if tensor.numel() and self.r.random() < 0.8:
            bytes_ = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            at = self.r.randrange(bytes_.numel())
            bytes_[at] = bytes_[at] ^ 1
        return tensor

    def view(self, t):
        def narrow():
            dim = self.r.randrange(t.dim())
            start = self.r.randint(0, t.shape[dim])
            return t.narrow(dim, start, self.r.randint(0, t.shape[dim] - start))

        def strided():
            size = [self.r.randint(0, 3) for _ in range(self.r.randint(0, 3))]
            stride = [self.r.randint(0, 3) for _ in size]
            length = t.untyped_storage().nbytes() // t.element_size()
            last = sum((a - 1) * b for a, b in zip(size, stride)) if all(size) else 0
            if last >= length:
                return t
            return t.as_strided(size, stride, self.r.randint(0, length - last - 1))

        def reread():
            return t.view(self.r.choice([d for d in self.dtypes if d.itemsize == t.dtype.itemsize]))

        ways = [strided, lambda: t.unsqueeze(self.r.randint(0, t.dim())), lambda: t.unsqueeze(0).expand(3, *t.shape), reread]
        if t.dim():
            ways += [narrow, narrow, lambda: t.permute(*self.r.sample(range(t.dim()), t.dim())), lambda: t[..., ::2], lambda: t.flip(0)]
        try:
            return self.r.choice(ways)()
        except (RuntimeError, NotImplementedError, AttributeError):  # this dtype or this torch does not have the operation
            return t

    def parameter(self):
        data = self.strided()
        differentiable = data.is_floating_point() or data.is_complex()
        parameter = torch.nn.Parameter(data, differentiable and self.r.random() < 0.7)
        if self.r.random() < 0.2:
            parameter.note = self.r.choice([1, "text", [1, 2]])
        return parameter

    def buffer(self):
        kind = getattr(torch.nn, "Buffer", None)
        return kind(self.strided()) if kind else self.strided()

    def signed(self):
        z = torch.complex(matrix.numbers(2, 3), matrix.numbers(2, 3) + self.r.randint(1, 5))
        return self.choose(
            (1, z.conj), (1, lambda: z.conj().imag), (1, lambda: torch._neg_view(z)), (1, lambda: torch._neg_view(z).conj().t()),
            (1, lambda: z.conj()[:, 1:]), (1, lambda: torch._neg_view(matrix.numbers(4))[::2]))

    def quantized(self):
        dtype = self.r.choice([torch.qint8, torch.quint8, torch.qint32])
        make = self.r.choice([matrix.quantized(dtype), matrix.per_channel(dtype, self.r.randint(0, 1)), matrix.quantized_view])
        return make()["x"]

    def sparse(self):
        name = self.r.choice([name for name in matrix.REBUILDS if name.startswith("_rebuild_sparse")])
        return matrix.REBUILDS[name]()["x"]

    def nested(self):
        return matrix.REBUILDS[self.r.choice(["_rebuild_nested_tensor", "_rebuild_njt (jagged)"])]()["x"]

    def tagged(self):
        tensor = self.strided().as_subclass(matrix.Tagged)
        if self.r.random() < 0.5:
            tensor.note = self.tensor() if self.r.random() < 0.3 else "kept"
        return tensor

    def storage(self):
        if self.r.random() < 0.5:
            return matrix.untyped(matrix.numbers(3))
        return self.r.choice([torch.DoubleStorage([1.0, 2.0]), torch.BoolStorage([True, False]), torch.ShortStorage([1, 2, 3])])

    # Containers

    def value(self, depth):
        if depth < 4 and self.r.random() < 0.3:
            return self.container(depth)
        return self.tensor() if self.r.random() < 0.55 else self.scalar()

    def scalar(self):
        return self.r.choice([
            None, True, False, 0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**63 - 1, 2**64, -(2**100), 0.0, -0.0, 1.5, float("inf"),
            float("nan"), 1e300, "", "text", "é", "\U0001f600", "a\nb", "a.b", b"", b"raw\xff", (), [], {}, torch.Size([1, 2]), torch.float16,
            torch.device("cpu"), {1, 2}, range(3), 1 + 2j, bytearray(b"x")])

    def key(self):
        return self.r.choice([
            *(f"k{i}" for i in range(8)), "weight", "bias", "a.b", "", "é", "\n", "state_dict", "model", "module.x", 0, 1, 2, -7, 2**40, 1.5, True,
            None, b"raw", (1, "a"), torch.float16])

    def items(self, depth):
        return [(self.key(), self.value(depth + 1)) for _ in range(self.r.randint(0, 5))]

    def container(self, depth):
        if self.containers and self.r.random() < 0.1:
            return self.r.choice(self.containers)
        made = self.choose(
            (30, lambda: dict(self.items(depth))), (20, lambda: collections.OrderedDict(self.items(depth))),
            (12, lambda: [self.value(depth + 1) for _ in range(self.r.randint(0, 4))]),
            (12, lambda: tuple(self.value(depth + 1) for _ in range(self.r.randint(0, 4)))),
            (4, lambda: collections.defaultdict(list, self.items(depth))), (4, lambda: matrix.Attributes(self.items(depth))),
            (3, lambda: matrix.Pair(self.value(depth + 1), self.value(depth + 1))),
            (3, lambda: matrix.Settings(3, self.value(depth + 1))),
            (3, lambda: types.SimpleNamespace(**{f"k{i}": self.value(depth + 1) for i in range(self.r.randint(0, 3))})),
            (9, lambda: self.module(depth)))
        self.containers.append(made)
        return made

    def module(self, depth):
        module = self.choose(
            (2, lambda: torch.nn.Linear(3, 2)), (2, matrix.Net), (1, lambda: torch.nn.BatchNorm1d(3)), (2, torch.nn.Module),
            (1, lambda: torch.nn.ParameterList([matrix.numbers(2)])), (1, lambda: torch.nn.Embedding(4, 2)),
            (1, lambda: torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())))
        for i in range(self.r.randint(0, 2)):
            if isinstance(module, torch.nn.ParameterList):
                break
            if self.r.random() < 0.5:
                module.register_buffer(f"b{i}", self.strided(), persistent=self.r.random() < 0.7)
            else:
                module.register_parameter(f"p{i}", self.parameter())
        if depth < 3 and self.r.random() < 0.3 and not isinstance(module, (torch.nn.ParameterList, torch.nn.Sequential)):
            module.inner = self.module(depth + 1)
        if self.r.random() < 0.3:
            module.note = self.r.choice(["text", 3, None])
        return module


# --- Programs -------------------------------------------------------------------------------------------------------

STORAGES = [("FloatStorage", 4), ("ShortStorage", 2), ("ByteStorage", 1), ("ComplexFloatStorage", 8)]
BYTES = 240


def random_program(seed, path):
    """Writes a checkpoint of a random program."""
    program = Program(random.Random(seed))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program.pickle())
        archive.writestr("archive/byteorder", "little")
        for key in range(len(STORAGES)):
            archive.writestr(f"archive/data/{key}", bytes((i + 77 * key) * 37 % 251 for i in range(BYTES)))
        archive.writestr("archive/version", "3\n")


class Program:
    """Writes opcodes. Every method that pushes leaves one object on the stack."""

    def __init__(self, r):
        self.r, self.out, self.memo = r, [b"\x80\x02"], 0
        self.known = {"tensor": [], "list": [], "dict": [], "ordered": []}
        self.keys = {}  # the key of the storage of each known tensor: `set_` takes no storage of another dtype
        self.count = 0

    def pickle(self):
        self.emit(b"}")
        for _ in range(self.r.randint(1, 6)):
            self.key(top=True)
            self.any(0)
            self.emit(b"s")
            # Afterwards, something that was made before may change.
            if self.r.random() < 0.6:
                self.text(f"changed{self.count}")
                self.changed()
                self.emit(b"s")
        return b"".join(self.out) + b"."

    def emit(self, *parts):
        self.out.extend(parts)

    # Pieces

    def text(self, text):
        raw = text.encode()
        self.emit(b"X", struct.pack("<I", len(raw)), raw)

    def int(self, n):
        self.emit(b"K" + bytes([n]) if 0 <= n < 256 else b"J" + struct.pack("<i", n))

    def call(self, module, name, *arguments):
        self.emit(f"c{module}\n{name}\n".encode(), b"(")
        for argument in arguments:
            argument()
        self.emit(b"tR")

    def remember(self, kind):
        self.known[kind].append(self.memo)
        self.emit(b"r", struct.pack("<I", self.memo))
        self.memo += 1

    def again(self, *kinds):
        """Pushes a known object of one of the kinds, and returns its key of the memo; None if there is no such object."""
        known = [memo for kind in kinds for memo in self.known[kind]]
        if not known:
            return None
        memo = self.r.choice(known)
        self.emit(b"j", struct.pack("<I", memo))
        return memo

    def key(self, top=False):
        self.count += 1
        kind = self.r.random()
        if kind < 0.6:
            self.text(f"k{self.count}")
        elif kind < 0.7:
            self.text(self.r.choice(["k", "1", "True", "nan"]))
        elif kind < 0.95:
            self.emit(self.r.choice([b"K\x01", b"K\x00", b"\x88", b"\x89", b"N", b"G" + struct.pack(">d", 1.0), b"G" + struct.pack(">d", float("nan")),
                                     b"G\x80" + b"\0" * 7, b"G" + b"\0" * 8, b"\x8a\x01\x01"]))
        else:
            self.emit(b"(K\x01\x88t")

    # Objects

    def any(self, depth):
        ways = [self.tensor] * 4 + [self.parameter, self.typed]
        if depth < 3:
            ways += [lambda: self.dict(depth), lambda: self.ordered(depth), lambda: self.list(depth), lambda: self.tuple(depth)]
        ways += [lambda: self.again("tensor", "list", "dict", "ordered") is None and self.int(5), lambda: self.int(7)]
        self.r.choice(ways)()

    def storage(self, key):
        name, size = STORAGES[key]
        self.emit(b"(")
        self.text("storage")
        self.emit(f"ctorch\n{name}\n".encode())
        self.text(str(key))
        self.text("cpu")
        self.int(BYTES // size)
        self.emit(b"tQ")

    def geometry(self):
        """Offset, size and stride; sizes are tuples, or lists that may change later."""
        rank = self.r.randint(0, 3)
        size = [self.r.randint(0, 3) for _ in range(rank)]
        stride = [self.r.randint(0, 4) for _ in range(rank)]
        self.int(self.r.randint(0, 5))
        for numbers in (size, stride):
            if self.r.random() < 0.25:
                self.emit(b"]")
                if self.r.random() < 0.7:
                    self.remember("list")
                for n in numbers:
                    self.int(n)
                    self.emit(b"a")
            else:
                self.emit(b"(")
                for n in numbers:
                    self.int(n)
                self.emit(b"t")

    def arguments(self, key):
        self.storage(key)
        self.geometry()
        self.emit(b"\x89")
        if self.r.random() > 0.3 or self.again("ordered") is None:
            self.emit(b"ccollections\nOrderedDict\n)R")
        if self.r.random() < 0.2:
            self.emit(b"}")
            if self.r.random() < 0.5:
                self.remember("dict")
            for bit in self.r.sample(["conj", "neg"] if STORAGES[key][0].startswith("Complex") else ["neg"], self.r.randint(0, 1)):
                self.text(bit)
                self.emit(self.r.choice([b"\x88", b"\x89"]), b"s")

    def tensor(self, key=None):
        key = self.r.randrange(len(STORAGES)) if key is None else key
        self.call("torch._utils", "_rebuild_tensor_v2", lambda: self.arguments(key))
        self.keys[self.memo] = key
        self.remember("tensor")

    def data(self):
        """Pushes a tensor and returns the key of its storage."""
        memo = self.again("tensor")
        if memo is not None:
            return self.keys[memo]
        self.tensor()
        return self.keys[self.memo - 1]

    def state(self):
        """The attributes of a parameter or tensor; `data` replaces its values."""
        self.emit(b"}")
        if self.r.random() < 0.3:
            self.remember("dict")
        for name in self.r.sample(["data", "note", "requires_grad"], self.r.randint(0, 2)):
            self.text(name)
            if name == "data":
                self.data()
            else:
                self.emit(b"\x89")
            self.emit(b"s")

    def parameter(self):
        key = []
        data = lambda: key.append(self.data())  # noqa: E731
        hooks = lambda: self.emit(b"ccollections\nOrderedDict\n)R")  # noqa: E731
        no = lambda: self.emit(b"\x89")  # noqa: E731
        if self.r.random() < 0.5:
            self.call("torch._utils", "_rebuild_parameter", data, no, hooks)
        else:
            self.call("torch._utils", "_rebuild_parameter_with_state", data, no, hooks, self.state)
        self.keys[self.memo] = key[0]
        self.remember("tensor")

    def typed(self):
        key = self.r.randrange(len(STORAGES))
        function = lambda: self.emit(b"ctorch._utils\n_rebuild_tensor_v2\n")  # noqa: E731
        kind = lambda: self.emit(self.r.choice([b"ctorch\nTensor\n", b"ctorch.nn.parameter\nParameter\n"]))  # noqa: E731

        def arguments():
            self.emit(b"(")
            self.arguments(key)
            self.emit(b"t")

        self.call("torch._tensor", "_rebuild_from_type_v2", function, kind, arguments, self.state)
        self.keys[self.memo] = key
        self.remember("tensor")

    def dict(self, depth):
        self.emit(b"}")
        self.remember("dict")
        self.fill(depth)

    def fill(self, depth):
        self.emit(b"(")
        for _ in range(self.r.randint(0, 3)):
            self.key()
            self.any(depth + 1)
        self.emit(b"u")

    def list(self, depth):
        self.emit(b"]")
        self.remember("list")
        self.emit(b"(")
        for _ in range(self.r.randint(0, 3)):
            self.any(depth + 1)
        self.emit(b"e")

    def tuple(self, depth):
        self.emit(b"(")
        for _ in range(self.r.randint(0, 3)):
            self.any(depth + 1)
        self.emit(b"t")

    def ordered(self, depth):
        def pairs():
            self.emit(b"]")
            self.remember("list")
            for _ in range(self.r.randint(0, 3)):
                self.emit(self.r.choice([b"]", b"("]))
                is_list = self.out[-1] == b"]"
                if is_list:
                    self.remember("list")
                self.key()
                if is_list:
                    self.emit(b"a")
                self.any(depth + 1)
                self.emit(b"a" if is_list else b"t")
                self.emit(b"a")

        def mapping():
            if self.again("dict") is None:
                self.dict(depth + 1)

        arguments = self.r.choice([(), (), (pairs,), (mapping,)])
        self.call("collections", "OrderedDict", *arguments)
        self.remember("ordered")
        if self.r.random() < 0.5:
            self.fill(depth)

    def changed(self):
        """Pushes a known object after changing it."""
        kinds = [kind for kind in self.known if self.known[kind]]
        if not kinds:
            return self.int(9)
        kind = self.r.choice(kinds)
        memo = self.again(kind)
        if kind == "tensor":
            choice = self.r.random()
            if choice < 0.7:
                self.emit(b"(")
                self.storage(self.keys[memo] if self.r.random() < 0.9 else 0)
                self.geometry()
                self.emit(self.r.choice([b"", b"", b"", b"\x89"]), b"tb")
            elif choice < 0.8:
                self.state()
                self.emit(b"b")
            elif choice < 0.9:
                self.emit(b"K\x00K\x01s")
            else:
                self.emit(b"K\x01a")
        elif kind == "list":
            self.r.choice([lambda: self.int(1), lambda: self.any(2)])()
            self.emit(b"a")
        elif kind == "dict":
            if self.r.random() < 0.4:
                self.text(self.r.choice(["conj", "neg", "data"]))
                self.r.choice([lambda: self.emit(b"\x88"), self.data])()
            else:
                self.key()
                self.any(2)
            self.emit(b"s")
        elif self.r.random() < 0.8:
            self.key()
            self.any(2)
            self.emit(b"s")
        else:
            self.state()
            self.emit(b"b")


# --- Values ---------------------------------------------------------------------------------------------------------

SIMPLE = (str, int, float, bool, type(None))


def scalars(path):
    """The paths, types and values of the numbers and texts in plain containers of a file, as `inspect --all --json` gives them."""
    root = torch.load(path, weights_only=False)
    named = {type(None): "None"}
    return [[".".join(steps), named.get(type(value), type(value).__name__), written(value)] for steps, value in simple(root, (), set())]


def simple(value, steps, inside):
    if type(value) in SIMPLE:
        yield steps, value
    elif type(value) in (dict, collections.OrderedDict, list, tuple) and id(value) not in inside:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            name = matrix.spelled(key) if isinstance(value, dict) else str(key)
            yield from simple(inner, (*steps, name), inside | {id(value)})


def written(value):
    """The value in the JSON of `inspect --all`, see docs/json.md; None if it has another form there."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        return {"$int": str(value)}
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return {"$float": str(value)}
    return value
