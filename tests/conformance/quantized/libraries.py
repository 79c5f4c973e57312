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
