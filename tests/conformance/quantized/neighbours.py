"""Cases of transformers' own packings for BitNet and Metal, and of auto-round."""

import torch
from cases import Model, case
from libraries import auto_round, auto_round_mlx, auto_round_settings
from schemes import sizes


def bitnet(seed, linear_class, scale_dtype, dtype):
    from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights, unpack_weights

    method = {"quant_method": "bitnet", "modules_to_not_convert": ["lm_head"]}
    if linear_class:
        method |= {"linear_class": linear_class, "quantization_mode": "offline"}
    model = Model(method, dtype=dtype)
    shapes = sizes(seed, {"q_proj": (24, 16), "down_proj": (4, 5)}, {"q_proj": (516, 384), "down_proj": (64, 1027), "v_proj": (4, 1)})
    for name, (rows, cols) in shapes.items():
        packed = pack_weights(torch.randint(-1, 2, (rows, cols)))
        scale = (torch.rand(1) + 0.3).to(scale_dtype)
        codes = unpack_weights(packed, dtype=scale_dtype)
        if linear_class == "autobitlinear":
            layer = AutoBitLinear(cols, rows, bias=False, dtype=scale_dtype)
            layer.weight.data, layer.weight_scale = codes, scale
            numbers = layer(torch.eye(cols, dtype=scale_dtype)).T
        else:
            layer = BitLinear(cols, rows, bias=True, dtype=scale_dtype)
            numbers = layer.post_quant_process(codes, 1, scale)
            model.plain(f"model.{name}.bias", torch.randn(rows).to(scale_dtype))
        model.add(f"model.{name}", numbers, weight=packed, weight_scale=scale)
    model.plain("lm_head.weight", torch.randn(8, 24).to(scale_dtype))
    model.shards = 2
    return model


@case
def bitnet_divides(seed):
    return bitnet(seed, None, torch.bfloat16, "bfloat16")


@case
def bitnet_multiplies(seed):
    return bitnet(seed, "autobitlinear", torch.bfloat16, "bfloat16")


@case
def bitnet_float32(seed):
    return bitnet(seed, "bitlinear", torch.float32, "float16")


def metal(seed, bits, group, dtype):
    from transformers.integrations.metal_quantization import MetalDequantize, _affine_quantize_tensor

    class Quantizer:
        class quantization_config:
            pass

    Quantizer.quantization_config.bits, Quantizer.quantization_config.group_size = bits, group
    model = Model({"quant_method": "metal", "bits": bits, "group_size": group, "modules_to_not_convert": ["lm_head"]}, dtype=str(dtype)[6:])
    rows, groups = sizes(seed, (6, 2), (130, 9))
    packed, scales, biases = _affine_quantize_tensor(torch.randn(rows, groups * group), group, bits)
    parts = {"weight": packed, "scales": scales.to(dtype), "qbiases": biases.to(dtype)}
    numbers = MetalDequantize(Quantizer).convert({name: [part] for name, part in parts.items()}, full_layer_name="a")["a"]
    model.add("model.q_proj", numbers, **parts)
    model.plain("model.q_proj.bias", torch.randn(rows).to(dtype))
    model.plain("lm_head.weight", torch.randn(8, 24).to(dtype))
    return model


for _name, _settings in {"4": (4, 64, torch.bfloat16), "2": (2, 32, torch.float16), "8": (8, 24, torch.float32)}.items():
    _make = lambda seed, settings=_settings: metal(seed, *settings)
    _make.__name__ = f"metal_{_name}"
    case(_make)


AUTO_ROUND = {"a": (4, 32), "b": (2, 64), "c": (3, 32), "d": (5, 32), "e": (6, -1), "f": (7, 32), "g": (8, 32)}


def auto_round_model(seed, packing, layers=AUTO_ROUND):
    """Layers with bits of their own: some named, the others by patterns."""
    extra = {"model.layers.0.a": {"bits": 4}, r".*layers\.0\.[b-d]$": {"bits": 3}, ".*layers.*": {"bits": 6, "group_size": -1}, "lm_head": {"bits": 16}}
    for name, (bits, group) in layers.items():
        if name not in "ace":
            extra[f"model.layers.0.{name}"] = {"bits": bits, "group_size": group}
    model = Model({"quant_method": "auto-round", "packing_format": packing, "bits": 5, "group_size": 32, "sym": False, "extra_config": extra}, dtype="float16")
    cols, rows = sizes(seed, (64, 32), (320, 192))  # the class with g_idx takes no more rows than columns
    names = [f"model.layers.0.{name}" for name in layers]
    settings = auto_round_settings(names, model.config["quantization_config"])
    for name in names:
        bits, group = settings[name]
        stored, numbers = auto_round(packing, bits, group, torch.randn(rows, cols))
        model.add(name, numbers, **stored)
        if "bias" in stored:
            model.plain(f"{name}.bias", stored["bias"])
    model.plain("lm_head.weight", torch.randn(8, 24).half())
    model.shards = 2
    return model


@case
def auto_round_own(seed):
    return auto_round_model(seed, "auto_round")


@case
def auto_round_gptq(seed):
    return auto_round_model(seed, "auto_round:auto_gptq")


@case
def auto_round_gptqmodel(seed):
    return auto_round_model(seed, "auto_round:gptqmodel")


@case
def auto_round_awq(seed):
    return auto_round_model(seed, "auto_round:auto_awq", layers={name: AUTO_ROUND[name] for name in "adef"})


@case
def auto_round_mlx_packing(seed):
    model = Model({"quant_method": "auto-round", "packing_format": "mlx", "bits": 4, "group_size": 32, "sym": True, "data_type": "int"}, dtype="float16")
    cols, rows = sizes(seed, (64, 32), (320, 192))
    settings = model.config["quantization"] = {"group_size": 32, "bits": 4}
    for name, bits, group in ("a", 4, 32), ("b", 2, 64), ("c", 3, 32), ("d", 5, 32), ("e", 6, 64), ("f", 8, 32):
        stored, numbers = auto_round_mlx(bits, group, rows, cols)
        settings[f"model.layers.0.{name}"] = {"group_size": group, "bits": bits}
        model.add(f"model.layers.0.{name}", numbers, **stored)
    settings["lm_head"] = False
    model.plain("lm_head.weight", torch.randn(64, 64).half())
    return model
