"""Functions of libraries that cannot be imported as a whole: of the sources of gptqmodel and autoawq."""

import ast
import contextlib
import copy
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch

SOURCES = Path(os.environ.get("T2C_QUANTIZED_SOURCES", ""))  # folder of the unpacked sdists


def source(pattern):
    found = sorted(SOURCES.glob("**/" + pattern))
    if not found:
        raise FileNotFoundError(f"{pattern} is not in {SOURCES} (T2C_QUANTIZED_SOURCES)")
    return found[-1]


@functools.cache
def awq():
    """autoawq's packing_utils.py, which imports nothing but torch."""
    spec = importlib.util.spec_from_file_location("packing_utils", source("autoawq-*/awq/utils/packing_utils.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions(path, names, namespace):
    """Executes the named functions of a module or of its classes, unchanged, and returns their namespace."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in names and node.name not in namespace:
            node.decorator_list, node.returns = [], None
            for argument in node.args.args + node.args.kwonlyargs:
                argument.annotation = None
            exec(compile(ast.Module([node], []), str(path), "exec"), namespace)
    return namespace


@functools.cache
def gptqmodel():
    linear = {"t": torch, "torch": torch}
    path = source("gptqmodel-*/gptqmodel/nn_modules/qlinear/__init__.py")
    tree = ast.parse(path.read_text())
    of_class = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "PackableQuantLinear")
    for node in of_class.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("_wf_device", "_init_wf_unsqueeze_buffers", "dequantize_weight", "_dequantize_from_codes"):
            exec(compile(ast.Module([node], []), str(path), "exec"), linear)
    functions(path, ("_torch_right_shift", "_torch_left_shift"), linear)
    return linear


@functools.cache
def to_v2():
    """gptqmodel's conversion of zero points of version 1 to those of version 2."""
    log = types.SimpleNamespace(info=types.SimpleNamespace(once=lambda text: None))
    namespace = {"torch": torch, "log": log, "isinstance": lambda *_: True}
    namespace["BaseQuantLinear"] = object
    dequant = {"torch": torch}
    path = source("gptqmodel-*/gptqmodel/utils/model_dequant.py")
    names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    for name in ("PLANAR_BITS",):
        dequant[name] = ()
    functions(path, {name for name in names if "qzeros" in name or "cols" in name or "3bit" in name}, dequant)
    namespace["_correct_gptq_v1_qzeros"] = dequant["_correct_gptq_v1_qzeros"]
    path = source("gptqmodel-*/gptqmodel/utils/model.py")
    functions(path, ("convert_gptq_v1_to_v2_format_module",), namespace)
    return namespace["convert_gptq_v1_to_v2_format_module"]


def gptq(bits, qweight, qzeros, scales, g_idx, v2):
    """`dequantize_weight` of gptqmodel's linear layer: numbers as [in, out]."""
    layer = types.SimpleNamespace(
        bits=bits, qweight=qweight, qzeros=qzeros.clone(), scales=scales, g_idx=g_idx, in_features=len(g_idx), planar=False,
        pack_dtype_bits=32, pack_factor=32 // bits, maxq=2**bits - 1, enable_wf_unsqueeze=True, _buffers={},
        dequant_dtype=torch.int16 if bits == 8 else torch.int8, qzero_format=lambda format=None: 1,
    )  # fmt: skip
    layer.register_buffer = lambda name, value, persistent: setattr(layer, name, value)
    if not v2:
        to_v2()(layer, bits, torch.int32)
    code = gptqmodel()
    for name in ("_wf_device", "_init_wf_unsqueeze_buffers", "_dequantize_from_codes"):
        setattr(layer, name, types.MethodType(code[name], layer))
    return code["dequantize_weight"](layer)


@functools.cache
def gptq_dynamic_get():
    """gptqmodel's `dynamic_get`, with `re` for `pcre`, without its caches of compiled patterns."""
    path = source("gptqmodel-*/gptqmodel/quantization/config.py")
    namespace = {"pcre": re, "copy": copy, "DYNAMIC_FIELD_SYNONYMS": {}, "_DYNAMIC_NO_MATCH": object(), "_DYNAMIC_CACHE_LOCK": contextlib.nullcontext()}
    namespace |= {"_dynamic_lock_for": lambda _: contextlib.nullcontext(), "_dynamic_cache_key": lambda _: None, "_dynamic_override_cache_for": lambda _: {}}
    for cache in ("PATTERN", "EXACT_LOOKUP", "ALL_EXACT", "REGEX_PATTERN"):
        namespace[f"_DYNAMIC_{cache}_CACHE"] = Forgetful()
    return functions(path, ("dynamic_get", "_resolve_dynamic_override", "_get_dynamic_patterns", "_extract_literal_regex_pattern"), namespace)["dynamic_get"]


class Forgetful(dict):
    """A dict that keeps nothing."""

    def __setitem__(self, key, value):
        pass


def modelopt(file, codes, shape, **arguments):
    """`dequantize` of a tensor class of nvidia-modelopt, whose package imports many others, in float32."""
    path = source(f"modelopt/torch/quantization/qtensor/{file}")
    tree, namespace = ast.parse(path.read_text()), {"torch": torch}
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and "e2m1_values" in ast.unparse(node.targets[0])]
    for node in tables[:1]:
        exec(compile(ast.Module([node], []), str(path), "exec"), namespace)
    functions(path, ("dequantize",), namespace)
    tensor = types.SimpleNamespace(_quantized_data=codes, metadata={"shape": torch.Size(shape), "dtype": torch.float32})
    tensor.get_e2m1_values = lambda device: namespace["e2m1_values"]
    return namespace["dequantize"](tensor, torch.float32, **arguments)


@functools.cache
def hqq():
    """hqq's `HQQLinear`; the package is not built."""
    sys.path.insert(0, str(source("hqq-*/hqq/core/quantize.py").parent.parent.parent))
    from hqq.core.quantize import HQQLinear

    return HQQLinear


def torchao_affine(seed):
    """File of `torch.save` with tensors of torchao 0.15.0, and their numbers."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tensors.pt")
        script = Path(__file__).resolve().parent / "torchao_affine.py"
        subprocess.run([sys.executable, script, source("torchao==0.15.0/torchao").parent, file, str(seed)], check=True, capture_output=True)
        return file.read_bytes(), torch.load(f"{file}.numbers")


@functools.cache
def auto_round_packing(file):
    """A module of auto-round, without the packages that its others import."""
    def load(name, path):
        spec = importlib.util.spec_from_file_location(name, source(f"auto-round==*/{path}"))
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    for name in "auto_round", "auto_round.utils", "auto_round_extension", "auto_round_extension.torch":
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["auto_round.utils"].get_packing_device = lambda device: "cpu"
    load("auto_round.utils.bit_packing", "auto_round/utils/bit_packing.py")
    load("auto_round_extension.torch.qlinear_torch", "auto_round_extension/torch/qlinear_torch.py")
    return load("auto_round_loaded." + file.split("/")[-1], file + ".py")


def auto_round(packing, bits, group, weight):
    """A layer as auto-round packs it, with any zero points in a group, and the numbers that its classes multiply with."""
    rows, cols = weight.shape
    size = cols if group == -1 else group
    groups = weight.reshape(rows, cols // size, size)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).clamp(min=1e-5)
    zeros = (-low / scales).round().clamp(1, 2**bits - 1)
    linear = torch.nn.Linear(cols, rows)
    linear.weight.data = weight
    any_zeros = lambda layer: layer.qzeros[0].random_(-(2**31), 2**31)
    if packing.endswith("awq"):
        module = auto_round_packing("auto_round/export/export_to_awq/utils")
        layer = module.WQLinear_GEMM.from_linear(linear, bits, group, scales=scales.T.contiguous(), zeros=zeros.T.contiguous(), device="cpu")
        any_zeros(layer)
        numbers = module.dequantize_gemm(layer.qweight, layer.qzeros, layer.scales, bits, size)
    else:
        file = "auto_round_extension/torch/qlinear_torch" + ("_zp" if packing.endswith("auto_gptq") else "")
        layer = auto_round_packing(file).QuantLinear(bits, group, cols, rows, bias=True, g_idx=packing.endswith("gptqmodel"))
        layer.device = "cpu"
        layer.pack(linear, scales, zeros, None, device="cpu")
        any_zeros(layer)
        bias, layer.bias = layer.bias, None
        numbers = layer(torch.eye(cols, dtype=torch.float16))
        layer.bias = bias
    return dict(layer.state_dict()) | {"bias": layer.bias.detach()}, numbers.T.contiguous()


def auto_round_mlx(bits, group, rows, cols):
    """A layer in auto-round's packing for MLX, with any codes, and the numbers that its class multiplies with."""
    layer = auto_round_packing("auto_round_extension/mlx/qlinear_mlx").QuantLinearMLX(bits, group, cols, rows, bias=False)
    namespace = {"torch": torch}
    functions(source("auto-round==*/auto_round/export/export_to_mlx/export.py"), ("_pack_weight_mlx",), namespace)
    layer.weight = namespace["_pack_weight_mlx"](torch.randint(0, 2**bits, (rows, cols)), bits)
    layer.scales.uniform_(0.01, 0.1)
    layer.biases.uniform_(-4, 0)
    return dict(layer.state_dict()), layer._forward_torch(torch.eye(cols)).T.contiguous()


def auto_round_settings(names, config):
    """Bits and group of each layer by auto-round's own rule."""
    root = torch.nn.Module()
    for name in [*names, "lm_head"]:
        *parents, last = name.split(".")
        parent = root
        for part in parents:
            if not hasattr(parent, part):
                parent.add_module(part, torch.nn.Module())
            parent = getattr(parent, part)
        parent.add_module(last, torch.nn.Linear(1, 1))
    namespace = {"re": re, "SUPPORTED_LAYER_TYPES": (torch.nn.Linear,)}
    functions(source("auto-round==*/auto_round/inference/utils.py"), ("_expand_regex_config",), namespace)
    extra = dict(config["extra_config"])
    expanded = namespace["_expand_regex_config"](extra, extra, names, root)
    return {name: tuple(expanded.get(name, {}).get(key, config[key]) for key in ("bits", "group_size")) for name in names}
