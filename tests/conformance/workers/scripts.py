"""TorchScript modules of many kinds, each with the calls that are compared.

`KINDS[name]` is `(module, calls)`. `module()` makes the TorchScript module in the version of torch that runs this. `calls()` is
a list of `(inputs, args, kwargs)`: the dict that the wrapped module gets, and what the original gets.
"""

from enum import Enum
from typing import Dict, Final, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn

KINDS = {}
# Kinds whose arguments cannot be made for the original: it has a class of its own for an enumeration. What Python computes is compared.
IN_PYTHON = {"Enums": lambda: Enums()}


def kind(*calls, module=None, name=None):
    def add(thing):
        make = module or (lambda: torch.jit.script(thing()))
        KINDS[name or thing.__name__] = (make if module is None else lambda: module(thing), lambda: [c() for c in calls])
        return thing

    return add


def x(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator)
    return (values * 4).to(dtype) if not dtype.is_floating_point else values.to(dtype)


def positional(**tensors):
    """Tensors that the original gets in the order of their names here."""
    return lambda: (tensors, list(tensors.values()), {})


def n(value):
    return torch.tensor(value)


# ---- arguments

@kind(positional(x=x(4, 3)))
class OneTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)


@kind(positional(a=x(3), b=x(3, seed=1)), positional(a=x(2, 3), b=x(1, seed=1)))
class TwoTensors(nn.Module):
    def forward(self, a, b):
        return a - 2 * b


@kind(lambda: ({}, [], {}))
class NoArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(x(3))

    def forward(self):
        return self.weight * 2


@kind(positional(x=x(3)), positional(x=x(3), mask=x(3, seed=1)))
class OptionalTensor(nn.Module):
    def forward(self, x, mask: Optional[Tensor] = None):
        if mask is None:
            return x
        return x * mask


@kind(lambda: ({"x": x(3)}, [x(3), None], {}), positional(x=x(3), mask=x(3, seed=1)))
class OptionalWithoutDefault(nn.Module):
    def forward(self, x, mask: Optional[Tensor]):
        if mask is None:
            return x + 1
        return x * mask


@kind(lambda: ({"x": x(3), "times": n(3)}, [x(3), 3], {}), lambda: ({"x": x(3), "times": n([2])}, [x(3), 2], {}),
      lambda: ({"x": x(3), "times": torch.tensor(5, dtype=torch.int32)}, [x(3), 5], {}))
class Int(nn.Module):
    def forward(self, x, times: int):
        for _ in range(times):
            x = x * 1.5
        return x


@kind(lambda: ({"x": x(3)}, [x(3)], {}), lambda: ({"x": x(3), "times": n(-3)}, [x(3), -3], {}))
class IntWithDefault(nn.Module):
    def forward(self, x, times: int = 7):
        return x * times


@kind(lambda: ({"x": x(3)}, [x(3)], {}), lambda: ({"x": x(3), "dim": n(0)}, [x(3), 0], {}))
class OptionalInt(nn.Module):
    def forward(self, x, dim: Optional[int] = None):
        return x.sum() if dim is None else x.sum(dim, keepdim=True)


@kind(lambda: ({"x": x(3)}, [x(3)], {}))
class OptionalIntWithDefault(nn.Module):
    def forward(self, x, dim: Optional[int] = 0):
        return x.sum() if dim is None else x.sum(dim, keepdim=True)


@kind(lambda: ({"x": x(3), "scale": torch.tensor(0.1, dtype=torch.float64)}, [x(3), 0.1], {}),
      lambda: ({"x": x(3), "scale": n(2)}, [x(3), 2.0], {}))
class Float(nn.Module):
    def forward(self, x, scale: float):
        return x.double() * scale


@kind(lambda: ({"x": x(3)}, [x(3)], {}), lambda: ({"x": x(3), "top": n(0.5)}, [x(3)], {"top": 0.5}))
class FloatDefaults(nn.Module):
    def forward(self, x, eps: float = 1e-5, top: float = float("inf"), bottom: float = float("-inf")):
        return torch.clamp(x + eps, bottom, top)


@kind(lambda: ({"x": x(3), "neg": n(1)}, [x(3), True], {}), lambda: ({"x": x(3), "neg": n(0)}, [x(3), False], {}),
      lambda: ({"x": x(3), "neg": torch.tensor(1, dtype=torch.uint8)}, [x(3), True], {}))
class Bool(nn.Module):
    def forward(self, x, neg: bool):
        return -x if neg else x


@kind(lambda: ({"x": x(3)}, [x(3)], {}), lambda: ({"x": x(3), "neg": n(0)}, [x(3)], {"neg": False}))
class BoolWithDefault(nn.Module):
    def forward(self, x, neg: bool = True, b: bool = False):
        return -x if neg else x


@kind(lambda: ({"x": x(2, 3), "shape": n([3, 2])}, [x(2, 3), [3, 2]], {}), lambda: ({"x": x(2, 3), "shape": n([6])}, [x(2, 3), [6]], {}),
      lambda: ({"x": x(2, 3), "shape": n(6)}, [x(2, 3), [6]], {}))
class IntList(nn.Module):
    def forward(self, x, shape: List[int]):
        return x.reshape(shape)


@kind(lambda: ({"x": x(2, 3)}, [x(2, 3)], {}), lambda: ({"x": x(2, 3), "shape": n([3, 2])}, [x(2, 3), [3, 2]], {}))
class OptionalIntList(nn.Module):
    def forward(self, x, shape: Optional[List[int]] = None):
        return x if shape is None else x.reshape(shape)


@kind(lambda: ({"x": x(3), "scales": n([0.5, 1.5])}, [x(3), [0.5, 1.5]], {}),
      lambda: ({"x": x(3), "scales": torch.zeros(0)}, [x(3), []], {}))
class FloatList(nn.Module):
    def forward(self, x, scales: List[float]):
        for scale in scales:
            x = x * scale
        return x


@kind(lambda: ({"x": x(3), "flags": n([1, 0, 1])}, [x(3), [True, False, True]], {}))
class BoolList(nn.Module):
    def forward(self, x, flags: List[bool]):
        for flag in flags:
            if flag:
                x = x + 1
        return x


@kind(lambda: ({"xs_0": x(2), "xs_1": x(2, seed=1)}, [[x(2), x(2, seed=1)]], {}),
      lambda: ({f"xs_{i}": x(2, seed=i) for i in range(12)}, [[x(2, seed=i) for i in range(12)]], {}))
class TensorList(nn.Module):
    def forward(self, xs: List[Tensor]):
        return torch.cat(xs)


@kind(lambda: ({"x": x(2)}, [x(2)], {}), lambda: ({"x": x(2), "more_0": x(2)}, [x(2), [x(2)]], {}))
class OptionalTensorList(nn.Module):
    def forward(self, x, more: Optional[List[Tensor]] = None):
        if more is not None:
            for m in more:
                x = x + m
        return x


@kind(lambda: ({"x": x(2), "state_0": x(2, seed=1), "state_1": x(2, seed=2)}, [x(2), (x(2, seed=1), x(2, seed=2))], {}))
class TensorTuple(nn.Module):
    def forward(self, x, state: Tuple[Tensor, Tensor]):
        return x + state[0], (state[1], x)


@kind(lambda: ({"x": x(2)}, [x(2), None], {}), lambda: ({"x": x(2), "hx_0": x(2), "hx_1": x(2)}, [x(2), (x(2), x(2))], {}))
class OptionalTuple(nn.Module):
    def forward(self, x, hx: Optional[Tuple[Tensor, Tensor]]):
        if hx is None:
            hx = (x, x)
        return x + hx[0], hx


@kind(lambda: ({"x_0": n(2), "x_1": n(0.5), "x_2_0": x(2), "x_2_1": n(1)}, [(2, 0.5, (x(2), True))], {}))
class NestedTuple(nn.Module):
    def forward(self, x: Tuple[int, float, Tuple[Tensor, bool]]):
        a, b, (c, d) = x
        return c * a + b if d else c


@kind(lambda: ({"xs_0_0": x(2), "xs_0_1": n(2), "xs_1_0": x(3), "xs_1_1": n(3)}, [[(x(2), 2), (x(3), 3)]], {}))
class ListOfTuples(nn.Module):
    def forward(self, xs: List[Tuple[Tensor, int]]):
        return [a * b for a, b in xs]


@kind(lambda: ({"xs_0_0": x(2), "xs_0_1": x(2), "xs_1_0": x(3)}, [[[x(2), x(2)], [x(3)]]], {}))
class ListOfLists(nn.Module):
    def forward(self, xs: List[List[Tensor]]):
        return [torch.cat(y) for y in xs]


@kind(lambda: ({"a": x(2), "b c": x(2)}, [{"a": x(2), "b c": x(2)}], {}), lambda: ({}, [{}], {}))
class DictOnly(nn.Module):
    def forward(self, inputs: Dict[str, Tensor]):
        out = {"sum": torch.zeros(2)}
        for name, value in inputs.items():
            out["sum"] = out["sum"] + value
            out["out " + name] = value * 2
        return out


@kind(lambda: ({"x": x(2), "d_a": x(2), "d_b": x(2, seed=1)}, [x(2), {"a": x(2), "b": x(2, seed=1)}], {}))
class DictAndTensor(nn.Module):
    def forward(self, x, d: Dict[str, Tensor]):
        return x + d["a"] * d["b"]


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Deep(NamedTuple):
    pair: Pair
    count: int
    rest: List[Tensor]
    table: Dict[str, Tensor]


@kind(lambda: ({"pair_left": x(2), "pair_right": x(3)}, [Pair(x(2), x(3))], {}))
class NamedTupleArgument(nn.Module):
    def forward(self, pair: Pair):
        return pair.left.sum() + pair.right


@kind(lambda: ({"x": x(3)}, [x(3), None, None], {}))
class FixedArguments(nn.Module):
    """Tensors cannot express these."""

    def forward(self, x, device: Optional[torch.device], other: Union[int, str, None], dtype: torch.dtype = torch.float64,
                last: torch.device = torch.device("cpu"), table: Optional[Dict[str, List[int]]] = None):
        return x.to(dtype) if device is None else x.to(device)


def text(value):
    return torch.tensor(list(value.encode()), dtype=torch.uint8)


@kind(lambda: ({"x": x(3), "mode": text("sum"), "name": text("aé漢\n{}")}, [x(3), "sum", "aé漢\n{}"], {}),
      lambda: ({"x": x(3), "mode": text(""), "name": text("")}, [x(3), "", ""], {}))
class Text(nn.Module):
    def forward(self, x, mode: str, name: str) -> Tuple[Tensor, str, int]:
        return x.sum() if mode == "sum" else x, name, len(name)


@kind(lambda: ({"x": x(3)}, [x(3)], {}),
      lambda: ({"x": x(3), "mode": text("m"), "name": text("n"), "many_0": text("a"), "many_1": text("")}, [x(3), "m", "n", ["a", ""]], {}))
class TextDefaults(nn.Module):
    def forward(self, x, mode: str = "quotes \" ' \\ { } \n é", name: Optional[str] = None, many: Optional[List[str]] = None):
        return x, mode, name, many


class Color(Enum):
    RED = 1
    BLUE = -2


class Mode(Enum):
    MEAN = "mean"
    SUM = "{}_EMPTY_"


class Rate(Enum):
    LOW = 0.5
    HIGH = 2e10


@kind(lambda: ({"x": x(3), "color": n(1), "mode": text("mean")}, [x(3), Color.RED, Mode.MEAN], {}),
      lambda: ({"x": x(3), "color": n(-2), "mode": text("{}_EMPTY_"), "rate": torch.tensor(2e10, dtype=torch.float64), "more": n([1])},
               [x(3), Color.BLUE, Mode.SUM, Rate.HIGH, Color.RED], {}))
class Enums(nn.Module):
    def forward(self, x, color: Color, mode: Mode, rate: Rate = Rate.LOW, more: Optional[Color] = None) -> Tuple[Tensor, Color, Dict[str, List[Mode]], Rate]:
        if mode == Mode.MEAN:
            x = x.mean()
        if color == Color.RED:
            x = x * 2
        if more is not None and more == Color.RED:
            x = x + 1
        return x, color, {"modes": [mode, Mode.MEAN]}, rate


@kind(lambda: ({"x": x(3), "a": torch.tensor([0.1, 1e300], dtype=torch.float64)}, [x(3), 0.1 + 1e300j], {}), lambda: ({"x": x(3), "a": n([1, 0]), "b": n([0, 1])}, [x(3), 1 + 0j, 1j], {}))
class Complex(nn.Module):
    def forward(self, x, a: complex, b: complex = 1 + 2j) -> Tuple[Tensor, complex, List[complex]]:
        return x.double() * a + b, a, [a, b]


@kind(lambda: ({"x": x(3), "a": x(3)}, [x(3), x(3)], {}), lambda: ({"x": x(3), "a": x(3), "b": x(1), "c": x(1), "d": x(1)}, [x(3), x(3), x(1), x(1), x(1)], {}))
class Unions(nn.Module):
    def forward(self, x, a: Union[Tensor, int], b: Union[List[Tensor], Tensor, None] = None, c: Union[Tensor, int] = 3,
                d: Union[Tensor, int, None] = 4, e: Union[int, str] = 5):
        if isinstance(a, Tensor):
            x = x * a
        if isinstance(b, Tensor):
            x = x + b
        if isinstance(c, Tensor):
            x = x - c
        else:
            x = x * c
        if isinstance(d, Tensor):
            x = x / d
        elif isinstance(d, int):
            x = x * d
        return x


@kind(lambda: ({"input": x(3), "inputs": x(3), "out": x(3), "name": x(3)}, [x(3), x(3), x(3), x(3)], {}))
class NamesOfOurs(nn.Module):
    """Arguments that are called as our own variables are."""

    def forward(self, inputs, out, name, input):
        return inputs + out * name - input


@kind(lambda: ({f"a{i}": x(2, seed=i) for i in range(30)}, [x(2, seed=i) for i in range(30)], {}))
class ManyArguments(nn.Module):
    def forward(self, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22,
                a23, a24, a25, a26, a27, a28, a29):
        return a0 - a29 + a7 * a13, a3, a11


@kind(lambda: ({"t": n(3)}, [n(3)], {}), lambda: ({"t": x(2, dtype=torch.int64)}, [x(2, dtype=torch.int64)], {}),
      lambda: ({"t": x(2, dtype=torch.float64)}, [x(2, dtype=torch.float64)], {}))
class AnyDtype(nn.Module):
    def forward(self, t):
        return t * 2


# ---- results

@kind(positional(x=x(3)))
class TwoResults(nn.Module):
    def forward(self, x):
        return x + 1, x > 0


@kind(positional(x=x(3)))
class ListResult(nn.Module):
    def forward(self, x):
        return [x, x[:1], x[:0]]


@kind(positional(x=x(3)))
class DictResult(nn.Module):
    def forward(self, x) -> Dict[str, Tensor]:
        return {"logits": x, "a/b c": x * 2, "error": x}


@kind(positional(x=x(3)))
class IntDictResult(nn.Module):
    def forward(self, x) -> Dict[int, Tensor]:
        return {3: x, -1: x * 2}


@kind(positional(x=x(3)))
class NamedTupleResult(nn.Module):
    def forward(self, x) -> Pair:
        return Pair(x, x[:2])


@kind(positional(x=x(3)))
class DeepResult(nn.Module):
    def forward(self, x) -> Tuple[Deep, Optional[Pair], List[Tuple[Tensor, Tensor]]]:
        return Deep(Pair(x, -x), 3, [x, x], {"k": x}), None, [(x, x * 2)]


@kind(positional(x=x(3)), positional(x=x(3, seed=9) + 100))
class OptionalResult(nn.Module):
    def forward(self, x) -> Tuple[Tensor, Optional[Tensor]]:
        if bool((x > 50).all()):
            return x, x * 2
        return x, None


@kind(positional(x=x(3)))
class Scalars(nn.Module):
    def forward(self, x):
        return x.numel(), float(x.sum().item()), bool((x > 0).any()), [1, 2, 3], [0.5], [True, False], "text", ["a", "b"]


@kind(positional(x=x(3)))
class OneInt(nn.Module):
    def forward(self, x) -> int:
        return x.numel()


@kind(positional(x=x(3)))
class OneText(nn.Module):
    def forward(self, x) -> str:
        return "n=" + str(x.numel())


@kind(positional(x=x(3)))
class Nothing(nn.Module):
    def forward(self, x) -> None:
        x.add_(0)


@kind(positional(x=x(3)))
class EmptyTuple(nn.Module):
    def forward(self, x) -> Tuple[Tensor, Tuple[Tensor]]:
        return x, (x,)


@kind(positional(x=x(3)))
class AllDtypes(nn.Module):
    def forward(self, x):
        return (x.half(), x.to(torch.bfloat16), x.double(), x > 0, x.to(torch.uint8), x.to(torch.int8), x.to(torch.int16), x.int(), x.long(),
                torch.complex(x, x), torch.complex(x.double(), -x.double()), torch.complex(x, x).conj(), x.half() * 1e-4)


@kind(positional(x=x(3, 4)))
class Layouts(nn.Module):
    def forward(self, x):
        return (x.t(), x[:, ::2], x.expand(2, 3, 4), x.to_sparse(), torch.quantize_per_tensor(x, 0.1, 3, torch.qint8),
                torch.quantize_per_channel(x, torch.full([3], 0.1), torch.zeros(3), 0, torch.quint8), torch.complex(x, x).conj().imag)


@kind(positional(x=x(3)))
class SameTensorTwice(nn.Module):
    def forward(self, x):
        return x, x, {"again": x}


@kind(positional(x=x(2, 3)))
class ListOfIntLists(nn.Module):
    def forward(self, x) -> List[List[int]]:
        return [[1, 2], [3]]


def union_result(which):
    return lambda: ({"which": n(which)}, [which], {})


@kind(*map(union_result, range(7)))
class UnionResult(nn.Module):
    def forward(self, which: int) -> Union[Tensor, List[Tensor], Tuple[Tensor, int], Tuple[Dict[str, Tensor]], int, str, None]:
        x = torch.arange(3)
        if which == 0:
            return x
        if which == 1:
            return [x, x[1:]]
        if which == 2:
            return (x, 7)
        if which == 3:
            return ({"a": x},)
        if which == 4:
            return 9
        if which == 5:
            return "text"
        return None


@kind(positional(x=x(3)))
class EmptyResults(nn.Module):
    def forward(self, x):
        tensors: List[Tensor] = []
        table: Dict[str, Tensor] = {}
        return x[:0], tensors, table, x.new_zeros([2, 0, 3])


@kind(positional(x=x(3)))
class NestedListResult(nn.Module):
    def forward(self, x) -> Tuple[List[Tuple[Pair, List[Tensor]]], Dict[str, Tuple[Tensor, Dict[int, Tensor]]], Tuple[Tuple[Tuple[Tensor]]]]:
        return [(Pair(x, -x), [x]), (Pair(x, x), [x, x])], {"k": (x, {1: x})}, (((x,),),)


@kind(positional(x=x(3)))
class LargeNumbers(nn.Module):
    def forward(self, x):
        return 9223372036854775807, [-9223372036854775807, 9007199254740993], 1e308, float("nan"), float("-inf"), 0.1, [0.1, 1e308, 1e-50]


# ---- modules

@kind(positional(x=x(2, 3, 16, 16)), lambda: ({"x": x(1, 3, 8, 8)}, [x(1, 3, 8, 8)], {}), module=lambda c: torch.jit.script(c().eval()))
class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1))
        self.head = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 3)])

    def forward(self, x):
        x = self.body(x).mean([2, 3])
        for layer in self.head:
            x = layer(x)
        return torch.softmax(x, -1)


@kind(positional(x=x(4, 3)))
class InTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(x))


@kind(positional(x=x(5, 2, 3)), lambda: ({"x": x(5, 2, 3), "hx_0": x(1, 2, 4), "hx_1": x(1, 2, 4)}, [x(5, 2, 3), (x(1, 2, 4), x(1, 2, 4))], {}))
class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x, hx: Optional[Tuple[Tensor, Tensor]] = None):
        return self.lstm(x, hx)


@kind(lambda: ({"src": x(5, 2, 8)}, [x(5, 2, 8)], {}), module=lambda c: torch.jit.script(c()))
def Transformer():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16).eval()


def attention(**more):
    same = x(3, 2, 8)  # the code asks whether they are one tensor
    return {"query": same, "key": same, "value": same, **{name: n(int(value)) for name, value in more.items()}}, [same] * 3, more


@kind(attention, lambda: attention(need_weights=False), module=lambda c: torch.jit.script(c()))
def Attention():
    torch.manual_seed(0)
    return nn.MultiheadAttention(8, 2).eval()


@kind(lambda: ({"input": x(2, dtype=torch.int64).abs()}, [x(2, dtype=torch.int64).abs()], {}))
def Embedding():
    torch.manual_seed(0)
    return nn.Embedding(50, 4)


class Inner(nn.Module):
    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale
        self.register_buffer("steps", torch.arange(3))
        self.names = ["a", "b"]
        self.table: Dict[str, int] = {"a": 1, "b": 2}

    def forward(self, x, k: int = 2):
        for name in self.names:
            x = x + self.table[name] * k
        return x * self.scale + self.steps

    @torch.jit.export
    def other(self, x):
        return x


@kind(positional(x=x(3)))
class Attributes(nn.Module):
    weights: List[Tensor]

    def __init__(self):
        super().__init__()
        self.first, self.second = Inner(0.5), Inner(2.0)
        self.weights = [x(3, seed=4), x(3, seed=5)]
        self.training_steps = 7

    def forward(self, x):
        return self.first(x) + self.second(x, 3) + self.weights[1] * self.training_steps


@kind(positional(x=x(2, 3)))
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.view = self.a.weight.detach()[1:]

    def forward(self, x):
        return self.b(self.a(x)) @ self.view.t()


class Mutating(nn.Module):
    count: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return x + self.count


kind(positional(x=x(3)), positional(x=x(3)), positional(x=x(3)))(Mutating)


@kind(positional(x=x(3)))
class Interfaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.dict = nn.ModuleDict({"left": nn.Linear(3, 3), "right": nn.Linear(3, 3)})
        self.params = nn.ParameterList([nn.Parameter(x(3)), nn.Parameter(x(3, seed=1))])

    def forward(self, x):
        for layer in self.dict.values():
            x = layer(x)
        for p in self.params:
            x = x * p
        return x


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value


@kind(positional(x=x(3)))
class ScriptClass(nn.Module):
    def forward(self, x):
        counter = Counter(3)
        return x * counter.add(4)


@kind(positional(x=x(3)))
class Controls(nn.Module):
    def forward(self, x):
        total = torch.zeros(1)
        i = 0
        while i < 10:
            if i % 2 == 0:
                i += 1
                continue
            total = total + x.sum() * i
            i += 1
        assert total.numel() == 1, "one"
        return total, f"{i}"


@kind(positional(x=x(3)))
class NoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(x(3))

    def forward(self, x):
        with torch.no_grad():
            y = self.w * x
        return y + self.w


@kind(positional(x=x(3)))
class Gradient(nn.Module):
    def forward(self, x):
        y = x.clone().requires_grad_(True)
        loss = (y * y * y).sum()
        grad = torch.autograd.grad([loss], [y])[0]
        assert grad is not None
        return loss, grad


class Doubled(nn.Module):
    def forward(self, x):
        return x * x


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Plus(nn.Module):
    def __init__(self, value: float):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.value


@kind(positional(x=x(3)))
class ModuleInterface(nn.Module):
    step: Step

    def __init__(self):
        super().__init__()
        self.step = Plus(2.5)

    def forward(self, x):
        return self.step.forward(x)


@kind(positional(x=x(3)))
class ManyAttributes(nn.Module):
    fixed: Final[int]
    table: Dict[str, Tensor]
    pairs: List[Tuple[int, Tensor]]
    nothing: Optional[Tensor]
    something: Optional[int]

    def __init__(self):
        super().__init__()
        self.fixed, self.table, self.nothing, self.something = 3, {"a": x(3), "b": x(3, seed=1)}, None, 4
        self.pairs = [(1, x(3)), (2, x(3, seed=2))]
        self.number, self.flag, self.name, self.dtype = 0.1, True, "a\n\"{}\"", torch.float64
        self.nested = ((1, 2.5), ("a", x(2)))
        self.ratio = 1 + 2j

    def forward(self, x):
        x = x * self.fixed + self.table["a"] * self.table["b"] * self.number
        for k, t in self.pairs:
            x = x + k * t
        something = self.something
        if self.nothing is None and something is not None:
            x = x * something
        return x.to(self.dtype), self.name, self.nested[1][1], x * self.ratio


@kind(positional(x=x(3)))
class ScriptedContainers(nn.Module):
    """Attributes that are lists and dicts of TorchScript."""

    numbers: List[int]
    table: Dict[str, int]

    def __init__(self):
        super().__init__()
        self.numbers, self.table = torch.jit.script([1, 2, 3]), torch.jit.script({"a": 1, "b": 2})

    def forward(self, x):
        for number in self.numbers:
            x = x * number
        return x + self.table["b"]


@kind(positional(x=x(3)))
class ObjectAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.counter = Counter(5)

    def forward(self, x):
        return x * self.counter.add(2)


@kind(positional(x=x(3)))
class Views(nn.Module):
    """Parameters and buffers that are parts of one storage, in other orders of the dimensions, and shared."""

    def __init__(self):
        super().__init__()
        base = x(4, 6)
        self.rows, self.columns = nn.Parameter(base[1:3]), nn.Parameter(base.t()[::2])
        self.register_buffer("whole", base)
        self.register_buffer("again", base)
        self.register_buffer("wide", x(1).expand(3))
        self.register_buffer("unsaved", x(3), persistent=False)

    def forward(self, x):
        return self.rows.sum() * x, self.columns @ self.whole, self.again, self.wide, self.unsaved


@kind(positional(x=x(3)))
class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner(2.0)

    @torch.jit.unused
    def python(self, x):
        return open(x)

    @torch.jit.export
    def exported(self, x, k: int = 3):
        return x * k

    def forward(self, x):
        if x.numel() > 1000:
            return self.python(x)
        return self.exported(self.inner.other(x), 2)


@kind(positional(x=x(3)))
class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Doubled()

    def forward(self, x):
        future = torch.jit.fork(self.inner, x)
        return torch.jit.wait(future) + x


@kind(positional(x=x(3)))
class SetState(nn.Module):
    """Its code runs when it is loaded."""

    def __init__(self):
        super().__init__()
        self.w = x(3)

    @torch.jit.export
    def __getstate__(self):
        return self.w, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[Tensor, bool]):
        self.w = state[0] * 2
        self.training = state[1]

    def forward(self, x):
        return x + self.w


@kind(positional(x=x(3)))
class InnerState(nn.Module):
    """Modules inside it whose code runs when they are loaded."""

    def __init__(self):
        super().__init__()
        self.one, self.two = SetState(), SetState()

    def forward(self, x):
        return self.two(self.one(x))


@kind(positional(x=x(5)), lambda: ({"x": x(5) + 100}, [x(5) + 100], {}))
class DataDependent(nn.Module):
    def forward(self, x):
        found = x[x > 0]
        steps = 0
        while bool(found.sum() > 1) and steps < 20:
            found = found / 2
            steps += 1
        values: List[Tensor] = []
        for i in range(int(x.numel())):
            if bool(x[i] > 0):
                values.append(x[i])
        return found, torch.nonzero(x), values, steps


@kind(positional(x=x(1, 3, 8, 8)))
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.ConvTranspose2d(3, 4, 2, stride=2), nn.Conv2d(4, 4, 3, groups=2, padding_mode="reflect", padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([4, 16, 16])])
        self.gru, self.bag = nn.GRU(16, 4, 2, bidirectional=True, batch_first=True), nn.EmbeddingBag(9, 3, mode="max")

    def forward(self, x):
        x = self.down(torch.relu(self.up(x)))
        for norm in self.norms:
            x = norm(x)
        y, h = self.gru(x[:, 0])
        return x, y, h, self.bag(torch.tensor([[1, 2], [3, 4]]))


# ---- ways to make a module

def traced(example, **options):
    return lambda c: torch.jit.trace(c().eval() if isinstance(c, type) else c(), example, **options)


@kind(positional(x=x(4, 3)), positional(x=x(2, 3)), module=traced((x(2, 3),)))
class Traced(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x) * torch.tensor([3.0, 4.0, 5.0])


@kind(lambda: ({"a": x(3), "b_0": x(3), "b_1": x(3, seed=1)}, [x(3), (x(3), x(3, seed=1))], {}), module=traced((x(3), (x(3), x(3)))))
class TracedTuples(nn.Module):
    def forward(self, a, b):
        return a + b[0], (b[1], [a, a * 2])


@kind(positional(x=x(3)), module=traced((x(3),), strict=False))
class TracedDict(nn.Module):
    def forward(self, x):
        return {"a": x, "b": x + 1}


@kind(lambda: ({"d": x(3)}, [{"d": x(3)}], {}), module=traced(({"d": x(3)},), strict=False))
class TracedDictArgument(nn.Module):
    def forward(self, inputs):
        return inputs["d"] * 2


@kind(positional(x=x(4, 3)), module=lambda c: torch.jit.freeze(torch.jit.script(c().eval())))
class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.scale = nn.Parameter(x(3))

    def forward(self, x):
        return self.inner(x) * self.scale


@kind(positional(x=x(4, 3)), module=lambda c: torch.jit.freeze(torch.jit.script(c().eval()), preserved_attrs=["scale", "other"]))
class FrozenInPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.scale = 2.0

    @torch.jit.export
    def other(self, x):
        return x * self.scale

    def forward(self, x):
        return self.other(self.norm(self.inner(x)))


@kind(positional(a=x(3), b=x(3)), module=lambda c: torch.jit.trace_module(c(), {"forward": (x(3), x(3)), "other": (x(3),)}))
class TracedMethods(nn.Module):
    def other(self, x):
        return x + 1

    def forward(self, a, b):
        return {"sum": a + b, "pair": (a, [b, b])}["pair"]


def add_all(a, b: float = 2.0, c: Optional[Tensor] = None):
    return a * b if c is None else a * b + c


# The schema of a function that is saved has no defaults.
kind(lambda: ({"a": x(3), "b": n(2.0)}, [x(3), 2.0, None], {}), lambda: ({"a": x(3), "b": n(3), "c": x(3)}, [x(3), 3.0, x(3)], {}),
     module=torch.jit.script, name="Function")(add_all)
kind(positional(a=x(3), b=x(3)), module=lambda f: torch.jit.trace(f, (x(3), x(3))), name="TracedFunction")(lambda a, b: a - b)


def quantized_dynamic(c):
    torch.backends.quantized.engine = "fbgemm"
    return torch.jit.script(torch.ao.quantization.quantize_dynamic(c(), {nn.Linear, nn.LSTM}, dtype=torch.qint8))


@kind(positional(input=x(4, 8)), module=quantized_dynamic)
def QuantizedDynamic():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


@kind(positional(x=x(5, 2, 3)), module=quantized_dynamic)
class QuantizedLstm(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x):
        return self.lstm(x)


@kind(positional(x=x(5, 2, 3)), module=lambda c: torch.jit.script(torch.ao.quantization.quantize_dynamic(c(), {nn.GRU, nn.LSTMCell, nn.Linear}, dtype=torch.qint8)))
class QuantizedGru(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.cell = nn.GRU(3, 4, 2), nn.LSTMCell(4, 3)

    def forward(self, x):
        y, h = self.gru(x)
        return y, h, self.cell(y[0])


@kind(positional(input=x(4, 8)), module=lambda c: torch.jit.script(torch.ao.quantization.quantize_dynamic(c(), {nn.Linear}, dtype=torch.float16)))
def QuantizedHalf():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 3))


def quantized_static(c):
    torch.backends.quantized.engine = "fbgemm"
    model = c()
    model.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    torch.ao.quantization.prepare(model, inplace=True)
    model(x(2, 3, 8, 8))
    return torch.jit.script(torch.ao.quantization.convert(model))


@kind(positional(x=x(2, 3, 8, 8)), module=quantized_static)
class QuantizedStatic(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
        self.eval()

    def forward(self, x):
        x = self.conv(self.quant(x)).mean([2, 3])
        return self.dequant(self.linear(x))


@kind(positional(x=x(2, 3, 8, 8)), module=lambda c: torch.jit.trace(quantized_static(c), (x(2, 3, 8, 8),)))
class QuantizedTraced(QuantizedStatic):
    pass


@kind(positional(x=x(2, 3, 8, 8)), module=quantized_static)
class QuantizedConvolutions(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.one, self.three, self.relu = nn.Conv1d(3, 4, 3), nn.Conv3d(1, 2, 2), nn.ReLU()
        self.add = torch.ao.nn.quantized.FloatFunctional()
        self.eval()

    def forward(self, x):
        x = self.quant(x)
        y = self.relu(self.one(x[:, :, :, 0]))
        z = self.three(self.add.cat([y, y], 0)[None, None].reshape(1, 1, 4, 4, -1))
        return self.dequant(z), self.dequant(self.add.add(y, y))


def with_hooks(c):
    module = c()

    def before(self, input: Tuple[Tensor]) -> Tuple[Tensor]:
        return (input[0] + 1,)

    def after(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
        return output * 2

    module.inner.register_forward_pre_hook(before)
    module.inner.register_forward_hook(after)
    return torch.jit.script(module)


@kind(positional(x=x(3)), module=with_hooks)
class Hooks(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Doubled()

    def forward(self, x):
        return self.inner(x) + 1


# Named tuples of a field that is called as a type, and a class in a module of dots.
class Tensors(NamedTuple):
    Tensor: Tensor
    List: List[Tensor]


@kind(positional(x=x(3)))
class StrangeFields(nn.Module):
    def forward(self, x) -> Tensors:
        return Tensors(x, [x])


@kind(positional(x=x(3, dtype=torch.float16)), positional(x=x(3, dtype=torch.bfloat16)))
class Half(nn.Module):
    def forward(self, x):
        return x.float() * 2


@kind(positional(x=x(3), y=x(3, dtype=torch.int64)))
class Texts(nn.Module):
    def forward(self, x, y):
        text = "quotes \" ' \\ { } \n é"
        return {text: x, "{}": y, "": x + y}
