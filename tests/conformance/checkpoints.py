"""The checkpoints that the suite converts. `MAKERS[kind]()` is the object that torch.save writes.

Runs inside a worker, in either version of torch, so it uses only what 2.0.1 has.
"""

import collections

import torch

LLAMA_PARAMS = {"dim": 64, "multiple_of": 32, "n_heads": 4, "n_layers": 2, "norm_eps": 1e-05, "vocab_size": -1}
VOCAB, HIDDEN = 96, 192  # HIDDEN: 2/3 of 4 * dim rounded up to multiple_of, Meta's formula


def random(*shape, scale=1.0, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def llama(dtype, n_kv_heads=4, rope_freqs=True):
    """Meta's names in Meta's order; weights scaled to keep activations near 1."""
    dim, head = LLAMA_PARAMS["dim"], LLAMA_PARAMS["dim"] // LLAMA_PARAMS["n_heads"]
    shapes = {"tok_embeddings.weight": (VOCAB, dim), "norm.weight": (dim,), "output.weight": (VOCAB, dim)}
    for i in range(LLAMA_PARAMS["n_layers"]):
        shapes[f"layers.{i}.attention.wq.weight"] = (dim, dim)
        shapes[f"layers.{i}.attention.wk.weight"] = (n_kv_heads * head, dim)
        shapes[f"layers.{i}.attention.wv.weight"] = (n_kv_heads * head, dim)
        shapes[f"layers.{i}.attention.wo.weight"] = (dim, dim)
        shapes[f"layers.{i}.feed_forward.w1.weight"] = (HIDDEN, dim)
        shapes[f"layers.{i}.feed_forward.w2.weight"] = (dim, HIDDEN)
        shapes[f"layers.{i}.feed_forward.w3.weight"] = (HIDDEN, dim)
        shapes[f"layers.{i}.attention_norm.weight"] = (dim,)
        shapes[f"layers.{i}.ffn_norm.weight"] = (dim,)
    tensors = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        if len(shape) == 1:
            tensor = 1 + random(*shape, scale=0.1, seed=seed)
        elif name.startswith("tok_"):
            tensor = random(*shape, seed=seed)
        else:
            tensor = random(*shape, scale=2 / shape[1] ** 0.5, seed=seed)
        tensors[name] = tensor.to(dtype)
    if rope_freqs:
        tensors["rope.freqs"] = (1.0 / 10000.0 ** (torch.arange(0, head, 2).double() / head)).to(dtype)
    return tensors


def dtypes():
    """Every dtype that torch 2.0.1 loads from a checkpoint."""
    tensors = {}
    for name in "uint8 int8 int16 int32 int64".split():
        dtype = getattr(torch, name)
        info = torch.iinfo(dtype)
        tensors[name] = torch.tensor([info.min, info.max, 0, 1, 77], dtype=dtype)
    for name in "float16 bfloat16 float32 float64".split():
        tensors[name] = random(3, 5).to(getattr(torch, name))
    tensors["bool"] = torch.tensor([[True, False], [False, True]])
    for name in "complex64 complex128".split():
        tensors[name] = torch.complex(random(4, 2), random(4, 2, seed=1)).to(getattr(torch, name))
    return tensors


def bit_patterns():
    """NaN payloads, signalling NaNs, negative zeros, infinities, subnormals: bit patterns that arithmetic would change."""
    every_16_bits = torch.arange(-(2**15), 2**15, dtype=torch.int16).reshape(256, 256)
    f32 = [0, -0x80000000, 0x7F800000, -0x800000, 0x7FC00000, 0x7FC12345, 0x7F800001, 0x7FBFFFFF, -1, 1, 0x7FFFFF]
    f64 = [0, -(2**63), 0x7FF << 52, -(1 << 52), (0x7FF << 52) + 1, (0x7FF8 << 48) + 0x123456789, -1, 1, (1 << 52) - 1]
    return {
        "every_float16": every_16_bits.view(torch.float16),
        "every_bfloat16": every_16_bits.clone().view(torch.bfloat16),
        "float32": torch.tensor(f32, dtype=torch.int32).view(torch.float32),
        "float64": torch.tensor(f64, dtype=torch.int64).view(torch.float64),
        "complex64": torch.tensor([f32[5], f32[6], f32[1], f32[9]], dtype=torch.int32).view(torch.complex64),
    }


def views():
    base = random(6, 8).float()
    cube = torch.arange(60, dtype=torch.int32).reshape(3, 4, 5)
    return {
        "base": base,
        "transposed": base.t(),
        "row": base[2],
        "column": base[:, 3],
        "corner": base[4:, 6:],
        "every_other": base[::2, 1::3],
        "expanded_from_base": base[0, 0].expand(4, 3),
        "expanded": torch.tensor([2.5, 3.5]).unsqueeze(1).expand(2, 7),
        "permuted": cube.permute(2, 0, 1),
        "inside_of_a_cube": cube[1:, 1:3, ::2],
        "zero_dimensional": torch.tensor(1.25, dtype=torch.float64),
        "zero_dimensional_view": base[5, 7],
        "one": torch.tensor([True]),
        "empty": torch.empty(0),
        "empty_2d": torch.empty(0, 5, dtype=torch.int64),
        "empty_middle": torch.empty(3, 0, 2, dtype=torch.bfloat16),
        "empty_slice": base[3:3],
        "overlapping": torch.arange(9.0).as_strided((4, 3), (2, 1)),
    }


def sharing():
    """Tied weights, in every way in which checkpoints tie them."""
    weight, other = random(4, 3).float(), random(4, 3, seed=1).float()
    return {
        "embed.weight": weight,
        "head.weight": weight,
        "alias.weight": weight.view(-1),
        "upper": weight[:2],
        "lower": weight[2:],
        "equal_but_apart": weight.clone(),
        "other": other,
        "tail_of_other": other[3:],
    }


def grouped():
    """Names in an order that a module would not give: tensors after submodules, split groups, deep paths."""
    names = "b.weight a.x.w b.bias top z.0.w a.y a.x.v z.1.w z.0.b last a.x.deep.er.w b.weight2 z.10.w z.2.w".split()
    return {name: torch.tensor([float(i)]) for i, name in enumerate(names)}


def names():
    """Names that need escaping somewhere: digits, keywords, quotes, newline, unicode, empty components."""
    awkward = [
        "0", "1.weight", "10.2.bias", "class", "def.weight", "None", "True", "lambda.for", "with space", "dash-ed.a-b",
        'double"quote', "single'quote", "back\\slash", "new\nline", "tab\tbed", "bell\x07", "escape\x1b[31mred",
        "größe.ß", "重み.0", "\U0001f999", "e\u0301.\u00e9", "a..b", ".leading", "trailing.", "..", "{braces}", "%s", "#hash", "a/b",
        "self", "inputs", "torch", "Module", "code", "training.x", "forward.weight", "_parameters.x", "x" * 300, "deep." * 40 + "end",
    ]
    return {name: torch.tensor([i], dtype=torch.int32) for i, name in enumerate(awkward)}


RESERVED = "forward training __tensors__ __parameters__ __buffers__ __annotations__ _parameters _modules state_dict".split()


def reserved(name):
    """A tensor at the top level whose name TorchScript or PyTorch's modules reserve."""
    return {"before": torch.ones(2), name: torch.tensor([3.0]), "after": torch.zeros(1)}


def harmless_names():
    """Awkward names without reserved words and empty components, which do not need a flat archive."""
    odd = [
        "0", "1.weight", "10.2.bias", "class", "def.weight", "None", "with space", "dash-ed.a-b", 'double"quote', "back\\slash",
        "new\nline", "größe.ß", "重み.0", "\U0001f999",
    ]
    return {name: torch.tensor([i], dtype=torch.int32) for i, name in enumerate(odd)}


def prefixes():
    """`a` is both a tensor and the prefix of `a.b`, so no tree of modules can hold both."""
    return {"m.z": torch.ones(1), "a.b": torch.ones(2), "top": torch.ones(3), "a": torch.ones(4), "m.y": torch.ones(5)}


def parameters():
    weight = random(3, 2).float()
    return {
        "trained": torch.nn.Parameter(weight),
        "frozen": torch.nn.Parameter(weight[1:], requires_grad=False),
        "half": torch.nn.Parameter(random(2, 2).half()),
        "wants_gradient": random(2).requires_grad_(True),
    }


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("forgotten", torch.ones(2), persistent=False)


def module_state():
    """state_dict() of a real module: an OrderedDict with `_metadata`, and buffers as well as parameters."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(collections.OrderedDict(first=Block(), second=Block(), head=torch.nn.Linear(3, 2)))
    model.head.weight = torch.nn.Parameter(random(2, 3).float())
    return model.state_dict()


def training_run():
    """Tensors two levels down, an optimizer's integer keys, plain values everywhere."""
    return {
        "epoch": 12,
        "network": {"encoder": {"weight": random(2, 3).float(), "bias": random(2).float()}, "scale": torch.tensor(2.0)},
        "optimizer": {
            "state": {0: {"step": torch.tensor(10.0), "exp_avg": random(2, 3).float()}, 1: {"exp_avg": random(2).float()}},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1], "foreach": None}],
        },
        "config": {"name": "tiny", "layers": [64, 32], "big": 2**70, "ratio": -0.5},
        "best": float("inf"),
    }


def windows():
    """Storages around and across the edges of 1 MiB windows, and one of a prime number of bytes."""
    sizes = {"below": 2**20 - 1, "exactly": 2**20, "above": 2**20 + 1, "three": 3 * 2**20 + 12, "prime": 5_000_011, "tiny": 1}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randint(0, 256, (n,), dtype=torch.uint8, generator=generator) for name, n in sizes.items()}


def many(count=2500):
    """More tensors than fit into one batch of SETITEMS, and more memo entries than fit into one byte."""
    return {f"layers.{i}.weight": torch.tensor([i], dtype=torch.int16) for i in range(count)}


def empty():
    return {"only": torch.empty(0)}


def shared_dict():
    inner = {"w": torch.ones(2), "b": torch.zeros(1)}
    return {"first": inner, "second": inner}


def in_sequences():
    return {"list": [torch.ones(1), {"deep": torch.ones(2)}], "tuple": (torch.ones(3), 4), "w": torch.ones(4)}


def other_keys():
    return {0: torch.ones(1), -7: torch.ones(2), "10": torch.ones(3), "w": torch.ones(4)}


def stranger_keys():
    return {(1, 2): torch.ones(1), None: torch.ones(2), 1.5: torch.ones(3), True: torch.ones(4)}


def same_name_twice():
    return {1: torch.ones(1), "1": torch.ones(2)}


def lazy_bits():
    """Tensors whose bytes differ from their values: a conjugate and a negative that are marked but not computed."""
    z, other = (torch.complex(random(3, seed=s), random(3, seed=s + 1)) for s in (0, 2))
    return {"plain": z, "conjugate": z.conj(), "negative": other.conj().imag}


def sparse():
    return {"dense": torch.ones(2), "sparse": torch.eye(3).to_sparse()}


def quantized():
    return {"dense": torch.ones(2), "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}


def parameter_with_attributes():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.partition_dim = 0
    return {"weight": weight, "other": torch.zeros(3)}


def default_dict():
    tensors = collections.defaultdict(list)
    tensors["w"] = torch.ones(2)
    return tensors


def newer_dtypes():
    """Saved with `_rebuild_tensor_v3`, which torch 2.0.1 does not know."""
    wide = {name: torch.tensor([0, 1, 77]).to(getattr(torch, name)) for name in ("uint16", "uint32", "uint64")}
    every = torch.arange(256, dtype=torch.uint8)  # all bit patterns, including NaN
    names = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")
    small = {name: every.clone().view(getattr(torch, name)) for name in names}
    return wide | small | {"part": small["float8_e5m2"][16:32], "float32": torch.ones(2)}


def llama_with_extra():
    return llama(torch.float32) | {"layers.0.attention.wq.lora_a": random(4, 64).float()}


def llama_without_norm():
    return {k: v for k, v in llama(torch.float32).items() if k != "layers.1.ffn_norm.weight"}


ODD = {f.__name__: f for f in (
    shared_dict, in_sequences, other_keys, stranger_keys, same_name_twice, lazy_bits, sparse, quantized, parameter_with_attributes,
    default_dict, newer_dtypes, llama_with_extra, llama_without_norm)}
WEIGHTS = {f.__name__: f for f in (
    dtypes, bit_patterns, views, sharing, grouped, harmless_names, names, prefixes, parameters, module_state, training_run,
    windows, many, empty)}
LLAMAS = {
    "llama_float32": lambda: llama(torch.float32),
    "llama_float16": lambda: llama(torch.float16),
    "llama_bfloat16": lambda: llama(torch.bfloat16),
    "llama_no_rope_freqs": lambda: llama(torch.float32, rope_freqs=False),
    "llama_float64": lambda: llama(torch.float64),
    "llama_gqa": lambda: llama(torch.float32, n_kv_heads=2),
}
MAKERS = WEIGHTS | LLAMAS | ODD | {f"reserved {name}": (lambda name=name: reserved(name)) for name in RESERVED}
