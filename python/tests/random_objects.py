"""Random nested objects, in which tensors share storages and containers occur twice or in themselves.

`python tests/random_objects.py FIRST END` saves those of a range of seeds in both formats and the protocols 2 to 5, and compares what
`torch.load` and `torch2carton.load` return.
"""

from __future__ import annotations

import collections
import enum
import io
import random
import sys
import warnings
from typing import Any

import numpy as np
import torch
from deep_equal import Comparison

import torch2carton

Pair = collections.namedtuple("Pair", "first second")

DTYPES = (
    "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 complex128 float8_e4m3fn float8_e5m2"
).split()
ARRAYS = ("f4", "f8", "f2", "i1", "u1", "i4", "i8", "?", "c8", "<U3", "S4", "M8[ns]", "m8[s]", "O", ">f4", ">i8")


class Plain:
    pass


class Slots:
    __slots__ = ("value",)


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Reduced:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return (Reduced, (self.value,))


class Maker:
    """Makes objects from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        #: Objects that may occur again, and tensors of which a view may be taken.
        self.made: list[Any] = []
        self.bases: list[torch.Tensor] = []

    def scalar(self) -> Any:
        pick = self.random
        number, length = pick.randint(-(2**200), 2**200), pick.choice((0, 1, 8, 255, 256, 70_000))
        return pick.choice((
            None, True, False, number >> 200, number >> 160, number, pick.random(), float("inf"), float("nan"), -0.0,
            "é\n\0😀"[: pick.randint(0, 4)], "x" * length, b"x" * length, bytearray(b"ab"), complex(1, 2), range(1, 5, 2),
            slice(1, None, 2), torch.float32, torch.Size([2, 3]), torch.device("cpu"), torch.strided, torch.contiguous_format,
        ))  # fmt: skip

    def key(self) -> Any:
        pick = self.random
        return pick.choice((pick.randint(-3, 9), f"k{pick.randint(0, 99)}", ("t", 1), 1.5, None, b"k", frozenset([1, 2])))

    def tensor(self) -> torch.Tensor:
        pick = self.random
        if self.bases and pick.random() < 0.4:
            base = pick.choice(self.bases)
            views = [base, base.detach(), base.unsqueeze(0).expand(3, *base.shape)]
            if base.dim():
                views += [base[1:], base[..., ::2], base.transpose(0, -1)]
            return pick.choice(views)
        dtype = getattr(torch, pick.choice(DTYPES))
        made = torch.randint(0, 2, [pick.randint(0, 4) for _ in range(pick.randint(0, 4))]).to(dtype)
        self.bases.append(made)
        kind = pick.randint(0, 9)
        if dtype.is_floating_point and dtype.itemsize > 1 and kind < 2:
            return torch.nn.Parameter(made, requires_grad=kind == 0)
        if dtype.is_complex and kind < 4:
            return made.conj() if kind < 2 else made.imag
        if dtype == torch.float32 and made.dim() == 2 and kind < 5:
            return made.to_sparse() if kind < 3 else torch.quantize_per_tensor(made, 0.5, 3, torch.qint8)
        return made

    def array(self) -> Any:
        pick = self.random
        dtype, shape = pick.choice(ARRAYS), [pick.randint(0, 3) for _ in range(pick.randint(0, 3))]
        made = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape, order=pick.choice("CF"))
        if made.size and made.dtype != object and pick.random() < 0.2:
            return made.flat[0]
        return pick.choice((made, made, made, np.dtype(dtype), np.zeros(2, [("a", "f4"), ("b", "i8", (2,))])))

    def make(self, depth: int = 0) -> Any:
        pick = self.random
        if self.made and pick.random() < 0.12:
            return pick.choice(self.made)
        if depth > 5 or pick.random() < 0.25:
            return self.scalar()
        made = pick.choice((self.tensor, self.tensor, self.array, self.container, self.container, self.container))
        value = made(depth) if made == self.container else made()
        self.made.append(value)
        return value

    def container(self, depth: int) -> Any:
        pick = self.random
        kind = pick.randint(0, 13)
        items = [self.make(depth + 1) for _ in range(pick.randint(0, 5))]
        named = [(self.key(), item) for item in items]
        if kind == 0:
            return items + [items]
        if kind == 1:
            looped: dict[Any, Any] = dict(named)
            looped["self"] = looped
            return looped
        if kind == 2:
            plain: Any = pick.choice((Plain, Slots))()
            plain.value = items
            return plain
        return pick.choice((
            items, tuple(items), dict(named), collections.OrderedDict(named), collections.defaultdict(list, named),
            {key for key, _ in named}, frozenset(key for key, _ in named), Pair(items, named), collections.Counter("abca"),
            collections.deque(items, maxlen=9), Reduced(items), pick.choice(list(Colour)),
            torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)), torch.nn.Linear(2, 3).state_dict(),
            torch.arange(3.0).storage(), torch.arange(3).untyped_storage(),
        ))  # fmt: skip


def compare(seed: int) -> int:
    """Compares the objects of a seed, and returns the number of files that both programs load."""
    maker, compared = Maker(seed), 0
    value = [maker.make() for _ in range(6)]
    for is_zip in (True, False):
        for protocol in (2, 3, 4, 5):
            file = io.BytesIO()
            try:
                torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
                file.seek(0)
                expected = torch.load(file, weights_only=False)
            except Exception:
                continue  # PyTorch cannot save or load each of them.
            Comparison().run(expected, torch2carton.load(file.getvalue()))
            compared += 1
    return compared


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(sum(compare(seed) for seed in range(int(sys.argv[1]), int(sys.argv[2]))), "files are equal")
