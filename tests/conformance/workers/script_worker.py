"""One version of torch: writes TorchScript archives, and compares a wrapped one with its original.

Like Carton's torchscript runner, it calls `forward(dict)`, leaves gradients on and never calls eval().
"""

import io
import sys
import warnings
from enum import Enum
from pathlib import Path
from typing import Optional

import torch

warnings.simplefilter("ignore")
sys.path.insert(0, str(Path(__file__).resolve().parent))
import overloads  # noqa: E402
import scripts  # noqa: E402
from line_server import serve  # noqa: E402

torch.set_num_threads(1)
torch._C._jit_set_texpr_fuser_enabled(False)  # it compiles a larger graph into other code


def load(path):
    """From memory, as Carton's runner does."""
    return torch.jit.load(io.BytesIO(Path(path).read_bytes()), map_location="cpu")


def kinds():
    return list(scripts.KINDS)


def save(kind, path):
    module, _ = scripts.KINDS[kind]
    torch.jit.save(module(), path)


class Dangerous(torch.nn.Module):
    def forward(self, x):
        torch.save(x, "file")
        return x


class Narrow(torch.nn.Module):
    """Layers in a dtype, with a shared weight, a list and a layer without a bias."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4, bias=False), torch.nn.Conv1d(2, 2, 1)])
        self.last = torch.nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return self.last(self.norm(x))


class Casts(torch.nn.Module):
    """Makes tensors of a dtype, by its number in the text."""

    def __init__(self, dtype):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(4))
        self.dtype = dtype

    def forward(self, x):
        return (x * self.w).to(self.dtype).to(torch.float32)


class NewerBranch(torch.nn.Module):
    def forward(self, x, narrow: bool):
        kind = torch.float16
        if narrow:
            kind = torch.float8_e5m2
        return x.to(kind).to(torch.float32)


class Optimized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))


class Texts(torch.nn.Module):
    def forward(self, x: torch.Tensor, reduction: str = "sum", note: Optional[str] = None):
        if reduction == "mean":
            x = x.mean()
        elif reduction == "sum":
            x = x.sum()
        return {"value": x, "reduction": reduction if note is None else reduction + note}


def save_case(kind, path, dtype="float32"):
    """Saves a module that is not one of scripts.py."""
    torch.manual_seed(0)
    dtype = getattr(torch, dtype)
    example = torch.ones(1, 2, 4)
    if kind == "narrow":
        module = torch.jit.script(Narrow().to(dtype))
    elif kind == "traced narrow":
        module = torch.jit.trace(Narrow().to(dtype), example.to(dtype))
    elif kind == "casts":
        module = torch.jit.trace(Casts(dtype), torch.ones(4))
    elif kind == "branch":
        module = torch.jit.script(NewerBranch())
    elif kind == "optimized":
        module = torch.jit.optimize_for_inference(torch.jit.script(Optimized().eval()))
    elif kind == "texts":
        module = torch.jit.script(Texts())
    torch.jit.save(module, path)


def widened(original, wrapped):
    """How far the outputs of a wrapped module are from those of the original in float64, and what its state and a call are."""
    exact, wrapped = load(original).double(), load(wrapped)
    x = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(1))
    found = [wrapped({"x": x})["output"], wrapped._c._get_method("forward")({"x": x})["output"]]
    narrow = wrapped({"x": x.half()})
    found += [narrow["output"]] if "output" in narrow else []
    wanted = exact(x.double())
    again = io.BytesIO()
    torch.jit.save(wrapped, again)
    again.seek(0)
    found.insert(0, torch.jit.load(again)({"x": x})["output"])
    return {"far": [(one.double() - wanted).abs().max().item() for one in found], "dtypes": sorted({str(one.dtype) for one in found}),
            "names": sorted(wrapped.state_dict()) == sorted("module." + name for name in load(original).state_dict())}


def save_overload(kind, path):
    torch.jit.save(torch.jit.script(overloads.KINDS[kind]()), path)


def save_dangerous(path):
    torch.jit.save(torch.jit.script(Dangerous()), path)


def save_lite(kind, path):
    """For mobile devices: the source text and bytecode."""
    module, _ = scripts.KINDS[kind]
    module()._save_for_lite_interpreter(path)


def returned(value, name="output", top=True):
    """What a wrapped module returns for what the original returns: names and values."""
    def join(part):
        return f"{name}_{part}" if name else str(part)

    if value is None:
        return
    if isinstance(value, torch.Tensor):
        yield name, exported(value)
    elif isinstance(value, bool):
        yield name, torch.tensor(value, dtype=torch.uint8)
    elif isinstance(value, int):
        yield name, torch.tensor(value, dtype=torch.int64)
    elif isinstance(value, float):
        yield name, torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, complex):
        yield name, torch.view_as_real(torch.tensor(value, dtype=torch.complex128))
    elif isinstance(value, Enum):
        yield from returned(value.value, name, False)
    elif isinstance(value, str):
        yield name, value
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield name, value
    elif isinstance(value, list) and value and all(isinstance(item, (int, float)) for item in value):
        dtype = {bool: torch.uint8, int: torch.int64, float: torch.float64}[type(value[0])]
        yield name, torch.tensor(value, dtype=dtype)
    elif isinstance(value, dict):
        if top and all(isinstance(key, str) for key in value):
            name = ""
        for key, item in value.items():
            yield from returned(item, join(key), False)
    elif hasattr(value, "_fields"):
        if top:
            name = ""
        for field, item in zip(value._fields, value):
            yield from returned(item, join(field), False)
    else:
        for number, item in enumerate(value):
            yield from returned(item, join(number), False)


def exported(t):
    """A tensor as Carton's runner can return it."""
    t = t.detach()
    if t.is_quantized:
        t = t.dequantize()
    if t.layout != torch.strided:
        t = t.to_dense()
    t = t.resolve_conj().resolve_neg()
    if t.is_complex():
        t = torch.view_as_real(t)
    if t.dtype == torch.bool:
        return t.to(torch.uint8)
    if t.dtype in (torch.float16, torch.bfloat16):
        return t.to(torch.float32)
    return t


def bits(value):
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if value.requires_grad:
        return "it requires a gradient"
    return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes().hex()


def compare(original, wrapped, kind):
    """How the outputs of the calls of a kind differ."""
    original = scripts.IN_PYTHON[kind]() if kind in scripts.IN_PYTHON else load(original)
    return differences(original, wrapped, scripts.KINDS[kind][1]())


def differences(original, wrapped, calls):
    wrapped, other = load(wrapped), load(wrapped)  # a module may have a state that a call changes
    found = []
    in_cpp = other._c._get_method("forward")  # what Carton's runner calls; Python finds the submodule `forward` first
    for number, (inputs, args, kwargs) in enumerate(calls):
        torch.manual_seed(number)
        wanted = dict(returned(original(*args, **kwargs)))
        torch.manual_seed(number)
        got = wrapped(inputs)
        if inputs:
            torch.manual_seed(number)
            again = in_cpp(inputs)
            found += [f"call {number}: {name} in C++" for name in got.keys() | again.keys() if bits(got.get(name)) != bits(again.get(name))]
        if isinstance(got.get("error"), str):
            found.append(f"call {number}: {got['error']}")
            continue
        if sorted(got) != sorted(wanted):
            found.append(f"call {number}: {sorted(got)}, not {sorted(wanted)}")
        found += [f"call {number}: {name}: {got[name]}, not {wanted[name]}"
                  for name in got if name in wanted and bits(got[name]) != bits(wanted[name])]
    return found


def can_run(original):
    """Why this version of torch does not load an archive, or None."""
    try:
        load(original)
    except Exception as error:
        return str(error)


def compare_real(original, wrapped, arguments):
    """The same for calls with random tensors: `arguments` are `[name, value]`, tensors as `[dtype, shape]`, tuples as lists."""
    generator = torch.Generator().manual_seed(0)

    def made(value):
        if isinstance(value, list) and value and isinstance(value[0], str):
            dtype = getattr(torch, value[0])
            if dtype.is_floating_point:
                return torch.randn(value[1], generator=generator).to(dtype)
            return torch.randint(0, 2, value[1], generator=generator).to(dtype)
        return tuple(map(made, value)) if isinstance(value, list) else value

    def made_of(value):
        return list(value[1:]) if isinstance(value, list) and value[:1] == ["texts"] else made(value)

    def named(name, value):
        if isinstance(value, str):
            return {name: torch.tensor(list(value.encode()), dtype=torch.uint8)}
        if isinstance(value, (tuple, list)):
            return {k: v for number, item in enumerate(value) for k, v in named(f"{name}_{number}", item).items()}
        if value is None:
            return {}
        return {name: value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)}

    values = [(name, made_of(value)) for name, value in arguments]
    inputs = {k: v for name, value in values for k, v in named(name, value).items()}
    return differences(load(original), wrapped, [(inputs, [value for _, value in values], {})] * 2)


def same_state(original, wrapped):
    """Whether the state of the original is that of the wrapped module without the prefix, with the same sharing."""
    def facts(state, prefix):
        return [(name[len(prefix):], str(t.dtype), tuple(t.shape), t.stride() if t.layout == torch.strided else None,
                 bits(exported(t))) for name, t in state.items() if name.startswith(prefix)]

    one, other = load(original).state_dict(), load(wrapped).state_dict()
    return facts(one, "") == facts(other, "module.") and len(one) == len(other)


def call(wrapped, inputs, values=False):
    """What a wrapped module returns for inputs as `[dtype, values]`: texts as they are, shapes or values of tensors."""
    inputs = {name: value if isinstance(value, str) else torch.tensor(value[1], dtype=getattr(torch, value[0])) for name, value in inputs.items()}
    try:
        got = load(wrapped)(inputs)
    except Exception as error:
        return {"raised": str(error)}
    if values:
        return {name: value.tolist() for name, value in got.items()}
    return {name: value if isinstance(value, str) else [str(value.dtype)[6:], list(value.shape)] for name, value in got.items()}


def positional(original, path, kind):
    """Calls of a model for Triton that differ from the original, the arguments of its forward, and whether it freezes. It is run
    as Triton's PyTorch backend does: with tensors, each of which has a dimension."""
    with torch.inference_mode():
        model, reference = load(path), load(original)
        names = [argument.name for argument in model._c._get_method("forward").schema.arguments[1:]]
        frozen, wrong = torch.jit.freeze(load(path).eval()), []
        for number, (inputs, arguments, named) in enumerate(scripts.KINDS[kind][1]()):
            if sorted(inputs) != sorted(names):
                continue
            wanted = dict(returned(reference(*arguments, **named))).values()
            given = [t.reshape(1) if t.dim() == 0 else t for t in (inputs[name] for name in names)]
            for module in (model, frozen):
                found = module(*given)
                found = found if isinstance(found, tuple) else (found,)
                same = [bits(a) == bits(b.reshape(1) if b.dim() == 0 else b) for a, b in zip(found, wanted, strict=True)]
                if not (same and all(same)):
                    wrong.append(number)
        return names, wrong


def signature(path):
    """The one that Carton's runner calls, and whether its types take a dict of tensors and a dict of tensors and texts."""
    schema = load(path)._c._get_method("forward").schema
    text, any_type = torch._C.StringType.get(), torch._C.AnyType.get()
    argument = schema.arguments[1].type
    return str(schema), [torch._C.DictType(text, of).isSubtypeOf(argument) for of in (torch._C.TensorType.get(), any_type)]


serve({f.__name__: f for f in [kinds, save, save_overload, save_dangerous, save_lite, compare, can_run, compare_real, same_state, call, positional, signature, save_case, widened]})
