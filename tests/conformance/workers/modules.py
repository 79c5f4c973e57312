"""Whole pickled modules whose `state_dict()` is not just parameters and buffers, and modules that hold more than it returns."""

import functools
import hashlib
from pathlib import Path

import torch
from torch import nn
from torch.ao import quantization
from torch.ao.nn import quantized
from torch.ao.nn.quantized import dynamic
from torch.ao.quantization import quantize_fx

ENGINE = "fbgemm"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.relu, self.fc = nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Linear(3, 4)

    def forward(self, x):
        return self.dequant(self.fc(self.relu(self.conv(self.quant(x))).mean((2, 3))))


class Functional(nn.Module):
    """Its weight belongs to no submodule, so FX packs it into an attribute of the graph module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2))

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


class TupleState(nn.Module):
    """TorchScript calls its `__getstate__` when it saves it."""

    def __init__(self):
        super().__init__()
        self.w, self.extra = nn.Parameter(torch.arange(3.0)), torch.arange(2)

    @torch.jit.export
    def __getstate__(self):
        return self.w, [self.extra], self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, list[torch.Tensor], bool]):
        self.w, self.extra, self.training = state[0], state[1][0], state[2]

    def forward(self, x):
        return x * self.w


class TensorState(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.arange(5.0))

    @torch.jit.export
    def __getstate__(self):
        return self.w

    @torch.jit.export
    def __setstate__(self, state: torch.Tensor):
        self.w = state
        self.training = False

    def forward(self, x):
        return x * self.w


class Parent(nn.Module):
    def __init__(self, child):
        super().__init__()
        self.child, self.own = child, nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.child(x) * self.own


def hook(tensor, *arguments):
    return None


def eager(module, *shape):
    module.eval().qconfig = quantization.get_default_qconfig(ENGINE)
    prepared = quantization.prepare(module)
    prepared(torch.randn(shape))
    return quantization.convert(prepared)


def graph(module, *shape, convert=quantize_fx.convert_fx):
    example = torch.randn(shape)
    prepared = quantize_fx.prepare_fx(module.eval(), quantization.get_default_qconfig_mapping(ENGINE), (example,))
    prepared(example)
    return convert(prepared)


def quantized_modules():
    """(name, module) of each kind."""
    torch.manual_seed(0)
    torch.backends.quantized.engine = ENGINE
    yield "eager", eager(Net(), 2, 2, 4, 4)
    yield "graph", graph(Net(), 2, 2, 4, 4)
    yield "functional", graph(Functional(), 2, 2)
    yield "reference", graph(nn.Sequential(nn.Linear(2, 2)), 2, 2, convert=quantize_fx.convert_to_reference_fx)
    layers = nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, 2, bidirectional=True), nn.GRU(4, 2))
    yield "dynamic", quantization.quantize_dynamic(layers, {nn.Linear, nn.LSTM, nn.GRU}, dtype=torch.qint8)
    for cell in (dynamic.LSTMCell, dynamic.GRUCell):
        yield cell.__name__, cell(2, 3)
    yield "embedding", quantized.Embedding(4, 3)
    yield "bag", nn.Sequential(quantized.EmbeddingBag(4, 6))
    yield "transposed", quantized.ConvTranspose2d(2, 3, 2)
    yield "without_bias", quantized.Conv1d(2, 3, 2, bias=False)
    yield "functions", nn.ModuleDict({"add": quantized.QFunctional(), "norm": quantized.LayerNorm(
        [2], nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2)), 0.5, 3)})


def named(value, path=()):
    """(name, tensor) of what a state dict holds; a C++ object is what it pickles as."""
    if isinstance(value, torch.Tensor):
        yield ".".join(path), value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from named(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from named(inner, (*path, str(index)))
    elif isinstance(value, torch.ScriptObject):
        yield from named(value.__getstate__()[0], path)  # and the name of its class


def fact(name, tensor):
    plain = tensor.int_repr() if tensor.is_quantized else tensor
    data = plain.detach().contiguous().numpy().tobytes()
    return [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), hashlib.sha256(data).hexdigest()]


def make_quantized(folder):
    """Saves each module and its state; returns what is in the state."""
    answer = {}
    for name, module in quantized_modules():
        torch.save(module, Path(folder) / f"{name}.pt")
        # Not of the loaded module: PyTorch does not restore all attributes of a quantized convolution.
        torch.save(module.state_dict(), Path(folder) / f"{name}.state.pt")
        answer[name] = [fact(*pair) for pair in named(module.state_dict())]
    return answer


def make_scripted(folder):
    """Saves scripted modules with a state of their own; returns the tensors in each."""
    torch.manual_seed(0)
    torch.backends.quantized.engine = ENGINE
    answer = {}
    for name, module in {
        "tuple": Parent(TupleState()), "tensor": Parent(TensorState()), "tuple_root": TupleState(), "eager": eager(Net(), 2, 2, 4, 4),
    }.items():
        torch.jit.script(module).save(str(Path(folder) / f"{name}.pt"))
        answer[name] = [fact(*pair) for pair in named(module.state_dict())]
    return answer


def make_left_out(path):
    """A module that holds a tensor in each place where `state_dict()` does not look; returns the names in its state."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module[0].cache = torch.ones(3)
    module[0].nested = {"a": [torch.ones(5)]}
    module[0].register_buffer("mask", torch.ones(7, dtype=torch.int16), persistent=False)
    module[1].register_forward_hook(functools.partial(hook, torch.ones(11)))
    module[0].weight.kept = torch.ones(13)
    torch.save({"model": module, "epoch": 1}, path)
    return list(module.state_dict())
