"""The cases: one function each, which takes a seed. Seed 0 makes small tensors for the fixtures."""

import torch
from cases import Model, case
from libraries import awq, gptq, gptq_dynamic_get, hqq, modelopt, torchao_affine

BLOCK = [128, 128]


def sizes(seed, small, large):
    return large if seed else small


def fp8(shape, dtype=torch.float8_e4m3fn):
    """Random codes, all of them but NaN."""
    codes = torch.randint(0, 256, shape, dtype=torch.uint8)
    for bits in (0x7F, 0xFF) if dtype == torch.float8_e4m3fn else (0x7C, 0x7D, 0x7E, 0x7F, 0xFC, 0xFD, 0xFE, 0xFF):
        codes[codes == bits] = 0x38
    return codes.view(dtype)


def dequantize_grid(codes, scale):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    return Fp8Dequantize(None)._dequantize_one(codes, scale, output_dtype=torch.float32)


def norm_and_embedding(model):
    model.plain("model.norm.weight", torch.randn(24).to(torch.float32))
    model.plain("model.embed_tokens.weight", torch.randn(8, 24).to(torch.bfloat16))


@case
def fp8_block(seed):
    model = Model({"quant_method": "fp8", "weight_block_size": BLOCK, "activation_scheme": "dynamic"})
    rows, cols = sizes(seed, (256, 128), (512, 1152))
    codes = fp8((rows, cols))
    scale = torch.rand(rows // 128, cols // 128) * 0.01
    model.add("a", dequantize_grid(codes, scale), weight=codes, weight_scale_inv=scale)
    norm_and_embedding(model)
    model.shards = 3
    return model


@case
def fp8_ragged(seed):
    """Blocks that do not divide the shape, which only the code for the backward pass of transformers has."""
    from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

    block = sizes(seed, [32, 16], BLOCK)
    model = Model({"quant_method": "fp8", "weight_block_size": block}, dtype="float32")
    for name, shape in {"a": sizes(seed, (40, 24), (576, 200)), "b": sizes(seed, (48, 16), (192, 128))}.items():
        codes = fp8(shape)
        scale = torch.rand(-(-shape[0] // block[0]), -(-shape[1] // block[1]))
        model.add(name, _dequantize_fp8_weight(codes, scale, block, torch.float32), weight=codes, weight_scale_inv=scale)
    return model


@case
def fp8_tensor(seed):
    model = Model({"quant_method": "fp8", "activation_scheme": "static"}, dtype="float16")
    codes, scale = fp8(sizes(seed, (24, 16), (200, 312))), torch.tensor(0.0123)
    model.add("a", dequantize_grid(codes, scale), weight=codes, weight_scale_inv=scale)
    model.drop("a.activation_scale", torch.tensor(0.5))
    codes, scale = fp8(sizes(seed, (24, 16), (200, 312)), torch.float8_e5m2), torch.tensor([0.7], dtype=torch.bfloat16)
    model.add("b", dequantize_grid(codes, scale.reshape(())), weight=codes, weight_scale_inv=scale)
    return model


@case
def fp8_channel(seed):
    model = Model({"quant_method": "fbgemm_fp8"})
    rows, cols = sizes(seed, (24, 16), (200, 312))
    codes, scale = fp8((rows, cols)), torch.rand(rows, 1)
    model.add("a", dequantize_grid(codes, scale), weight=codes, weight_scale=scale)
    return model


@case
def fp8_exponents(seed):
    """ue8m0 scales, as a dtype of their own and as bytes."""
    model = Model({"quant_method": "fp8", "weight_block_size": [16, 16], "scale_fmt": "ue8m0"})
    rows, cols = sizes(seed, (32, 48), (320, 400))
    codes = fp8((rows, cols))
    bytes_ = torch.randint(100, 140, (rows // 16, cols // 16), dtype=torch.uint8)
    scale = bytes_.view(torch.float8_e8m0fnu)
    model.add("a", dequantize_grid(codes, scale), weight=codes, weight_scale_inv=scale)
    model.add("b", dequantize_grid(codes, bytes_), weight=codes, weight_scale_inv=bytes_)
    edges = torch.tensor([[0, 1], [253, 254]], dtype=torch.uint8)
    codes = fp8((32, 32))
    model.add("c", dequantize_grid(codes, edges.view(torch.float8_e8m0fnu)), weight=codes, weight_scale_inv=edges.view(torch.float8_e8m0fnu))
    return model


@case
def mxfp8(seed):
    model = Model({"quant_method": "mxfp8", "weight_block_size": [1, 32]})
    rows, cols = sizes(seed, (8, 64), (96, 1024))
    codes, scale = fp8((rows, cols)), torch.randint(110, 130, (rows, cols // 32), dtype=torch.uint8)
    model.add("a", dequantize_grid(codes, scale), weight=codes, weight_scale_inv=scale)
    return model


@case
def fp8_experts(seed):
    """Stacked experts, and experts in FP4 with a scale for each group next to FP8 in blocks."""
    model = Model({"quant_method": "fp8", "weight_block_size": [16, 16]})
    rows, cols = sizes(seed, (32, 48), (128, 192))
    codes, scale = fp8((3, rows, cols)), torch.rand(3, rows // 16, cols // 16)
    model.stored["experts.gate_up_proj"], model.stored["experts.gate_up_proj_scale_inv"] = codes, scale
    model.expected["experts.gate_up_proj"] = dequantize_grid(codes, scale).to(model.dtype)
    pairs = torch.randint(-128, 128, (rows, cols // 2), dtype=torch.int8)
    scale = torch.randint(110, 130, (rows, cols // 16), dtype=torch.uint8).view(torch.float8_e8m0fnu)
    model.add("experts.0.w1", dequantize_grid(pairs, scale), weight=pairs, weight_scale_inv=scale)
    codes, scale = fp8((rows, cols)), torch.rand(rows // 16, cols // 16)
    model.stored["own.weight"], model.stored["own.scale"] = codes, scale
    model.expected["own.weight"] = dequantize_grid(codes, scale).to(model.dtype)
    return model


@case
def mxfp4(seed):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    model = Model({"quant_method": "mxfp4", "modules_to_not_convert": ["model.norm"]})
    for name, (rows, groups) in {"gate_up_proj": sizes(seed, (12, 2), (200, 6)), "down_proj": sizes(seed, (5, 1), (131, 3))}.items():
        blocks = torch.randint(0, 256, (2, rows, groups, 16), dtype=torch.uint8)
        scales = torch.randint(110, 135, (2, rows, groups), dtype=torch.uint8)
        scales.view(-1)[:4] = torch.tensor([0, 1, 3, 254], dtype=torch.uint8)
        stem = f"model.layers.0.mlp.experts.{name}"
        model.stored[f"{stem}_blocks"], model.stored[f"{stem}_scales"] = blocks, scales
        model.expected[stem] = convert_moe_packed_tensors(blocks, scales, dtype=model.dtype)
        model.plain(f"{stem}_bias", torch.randn(2, rows).to(torch.bfloat16))
    norm_and_embedding(model)
    model.shards = 2
    return model


def gptq_layer(model, name, bits, v2, shape, group, scale_dtype=torch.float16, order=False):
    (cols, rows), groups = shape, 1 if group == -1 else shape[0] // group
    words = lambda *shape: torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).to(torch.int32)
    qweight, qzeros = words(cols * bits // 32, rows), words(groups, rows * bits // 32)
    scales = (torch.rand(groups, rows) * 0.1).to(scale_dtype)
    g_idx = torch.arange(cols, dtype=torch.int32) // (cols if group == -1 else group)
    if order:
        g_idx = g_idx[torch.randperm(cols)]
    numbers = gptq(bits, qweight, qzeros, scales, g_idx, v2).T
    model.add(name, numbers, qweight=qweight, qzeros=qzeros, scales=scales, g_idx=g_idx)
    model.plain(f"{name}.bias", torch.randn(rows).to(torch.float16))


def gptq_model(seed, bits, v2, scale_dtype=torch.float16, order=False, group=None):
    group = group or sizes(seed, 32, 64)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order, "sym": False}
    config["checkpoint_format"] = "gptq_v2" if v2 else "gptq"
    model = Model(config)
    gptq_layer(model, "model.layers.0.q_proj", bits, v2, sizes(seed, (64, 32), (320, 224)), group, scale_dtype, order)
    model.plain("model.layers.0.o_proj.weight", torch.randn(8, 8).to(torch.float16))
    return model


for _bits in (2, 3, 4, 8):
    for _v2 in (False, True):
        _make = lambda seed, bits=_bits, v2=_v2: gptq_model(seed, bits, v2)
        _make.__name__ = f"gptq_{_bits}_v{2 if _v2 else 1}"
        case(_make)


@case
def gptq_order(seed):
    return gptq_model(seed, 4, False, torch.bfloat16, order=True)


@case
def gptq_channel(seed):
    return gptq_model(seed, 8, True, torch.bfloat16, group=-1)


@case
def gptq_dynamic(seed):
    """Modules with bits and groups of their own; the first rule that matches a name applies, as in gptqmodel's `dynamic_get`."""
    rules = {r"-:.*o_proj": {}, r".*\.1\..*": {"bits": 8, "group_size": 16}, r"+:^model\.layers\.2\.": {"bits": 2}, r".*k_proj": {"bits": 3}}
    model = Model({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False, "checkpoint_format": "gptq", "dynamic": rules})
    names = [f"model.layers.{layer}.{part}_proj" for layer in range(3) for part in "qk"]
    for name in names:
        bits, group = (gptq_dynamic_get()(rules, name, key, default) for key, default in (("bits", 4), ("group_size", 32)))
        gptq_layer(model, name, bits, False, sizes(seed, (64, 32), (320, 224)), group)
        model.plain(name[:-6] + "o_proj.weight", torch.randn(8, 8).to(torch.float16))
    return model


@case
def awq_gemm(seed):
    group = sizes(seed, 32, 64)
    model = Model({"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True})
    for name, dtype in (("a", torch.float16), ("b", torch.bfloat16)):
        cols, rows = sizes(seed, (64, 32), (320, 224))
        words = lambda *shape: torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).to(torch.int32)
        qweight, qzeros = words(cols, rows // 8), words(cols // group, rows // 8)
        scales = (torch.rand(cols // group, rows) * 0.1).to(dtype)
        numbers = awq().dequantize_gemm(qweight, qzeros, scales, 4, group).T
        model.add(name, numbers, qweight=qweight, qzeros=qzeros, scales=scales)
    return model


def ct_model(format_, weights, dtype="bfloat16", **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None, "format": format_}
    return Model({"quant_method": "compressed-tensors", "format": format_, "config_groups": {"group_0": group}, "ignore": ["lm_head"],
                  "quantization_status": "compressed", "kv_cache_scheme": None} | more, dtype=dtype)  # fmt: skip


def ct_arguments(bits, kind, strategy, group=None, symmetric=True, block=None):
    return {"num_bits": bits, "type": kind, "symmetric": symmetric, "strategy": strategy, "group_size": group,
            "block_structure": block, "dynamic": False, "actorder": None}  # fmt: skip


def ct_add(model, name, format_, weights, shape, scale_dtype, global_scale=None):
    """Compresses random numbers with the library, and decompresses them with it."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    arguments = QuantizationArgs(**{key: value for key, value in weights.items() if key != "actorder"})
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    rows, cols = shape
    strategy, group, block = weights["strategy"], weights["group_size"], weights["block_structure"]
    grid = {"tensor": (1,), "channel": (rows, 1)}.get(strategy)
    if strategy in ("group", "tensor_group"):
        grid = (rows, cols // group)
    if strategy == "block":
        grid = (-(-rows // block[0]), -(-cols // block[1]))
    scale = (torch.rand(grid) * 0.02 + 0.01).to(scale_dtype)
    state = {"weight": torch.randn(shape).to(scale_dtype), "weight_scale": scale}
    if global_scale is not None:
        state["weight_global_scale"] = global_scale
        state["weight_scale"] = scale = (torch.rand(grid) * 10).to(torch.float8_e4m3fn).to(scale_dtype)
    if format_.startswith("mxfp"):
        state["weight_scale"] = 2.0 ** torch.randint(-8, 4, grid).to(torch.bfloat16)
    if not weights["symmetric"]:
        low = -(2 ** (weights["num_bits"] - 1))
        state["weight_zero_point"] = torch.randint(low, -low, grid, dtype=torch.int8)
    compressor = BaseCompressor.get_value_from_registry(format_)
    compressed = compressor.compress(state, scheme)
    numbers = compressor.decompress(compressed, scheme)["weight"]
    model.add(name, numbers, **{key: value for key, value in compressed.items()})


def ct_case(name, format_, weights, scale_dtype=torch.bfloat16, shape=None, global_scale=None):
    def make(seed):
        model = ct_model(format_, weights(seed))
        sides = shape or (lambda seed: sizes(seed, (24, 64), (200, 384)))
        ct_add(model, "model.layers.0.q_proj", format_, weights(seed), sides(seed), scale_dtype, global_scale)
        model.plain("lm_head.weight", torch.randn(8, 8).to(torch.bfloat16))
        model.drop("model.layers.0.q_proj.input_scale", torch.ones(1))
        model.drop("model.layers.0.self_attn.k_scale", torch.ones(1))
        return model

    make.__name__ = name
    case(make)


for _bits in (3, 4, 8):
    ct_case(f"ct_pack_{_bits}_group", "pack-quantized", lambda seed, bits=_bits: ct_arguments(bits, "int", "group", 32))
    ct_case(f"ct_pack_{_bits}_asymmetric", "pack-quantized", lambda seed, bits=_bits: ct_arguments(bits, "int", "group", 32, False),
            torch.float16, shape=lambda seed: sizes(seed, (37, 64), (203, 384)))  # fmt: skip
ct_case("ct_pack_channel", "pack-quantized", lambda seed: ct_arguments(4, "int", "channel"), shape=lambda seed: sizes(seed, (24, 61), (200, 383)))
ct_case("ct_pack_channel_asymmetric", "pack-quantized", lambda seed: ct_arguments(4, "int", "channel", symmetric=False), torch.float32)
ct_case("ct_int_channel", "int-quantized", lambda seed: ct_arguments(8, "int", "channel"))
ct_case("ct_int_tensor", "int-quantized", lambda seed: ct_arguments(8, "int", "tensor"), torch.float32)
ct_case("ct_int_asymmetric", "int-quantized", lambda seed: ct_arguments(8, "int", "channel", symmetric=False), torch.float16)
ct_case("ct_float_tensor", "float-quantized", lambda seed: ct_arguments(8, "float", "tensor"))
ct_case("ct_float_channel", "float-quantized", lambda seed: ct_arguments(8, "float", "channel"), torch.float32)
ct_case("ct_float_block", "float-quantized", lambda seed: ct_arguments(8, "float", "block", block=[16, 32]), shape=lambda seed: sizes(seed, (24, 48), (200, 389)))
ct_case("ct_naive_group", "naive-quantized", lambda seed: ct_arguments(8, "int", "group", 32), torch.float16)
ct_case("ct_nvfp4", "nvfp4-pack-quantized", lambda seed: ct_arguments(4, "float", "tensor_group", 16), torch.float32, global_scale=torch.tensor([1234.5]))
ct_case("ct_mxfp4", "mxfp4-pack-quantized", lambda seed: ct_arguments(4, "float", "group", 32))
ct_case("ct_mxfp8", "mxfp8-quantized", lambda seed: ct_arguments(8, "float", "group", 32))


@case
def ct_mixed(seed):
    """Modules of several formats, chosen by name, by pattern and by class."""
    model = ct_model("mixed-precision", {})
    groups = {
        "group_0": (["Linear"], "pack-quantized", ct_arguments(4, "int", "group", 32), torch.bfloat16),
        "group_1": (["re:.*down_proj"], "float-quantized", ct_arguments(8, "float", "channel"), torch.float32),
        "group_2": (["model.layers.1.down_proj"], "int-quantized", ct_arguments(8, "int", "channel"), torch.float16),
    }
    model.config["quantization_config"]["config_groups"] = {
        name: {"targets": targets, "format": format_, "weights": weights} for name, (targets, format_, weights, _) in groups.items()
    }
    shape = sizes(seed, (24, 64), (200, 384))
    for name, group in {"layers.0.q_proj": 0, "layers.0.down_proj": 1, "layers.1.down_proj": 2}.items():
        _, format_, weights, scale_dtype = groups[f"group_{group}"]
        ct_add(model, f"model.{name}", format_, weights, shape, scale_dtype)
    return model


def bnb_model(seed, kind, dtype, nested, block):
    import bitsandbytes.functional as bnb

    model = Model({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}, dtype="float32")
    # Where blocks do not divide the rows, the kernel for the CPU of bitsandbytes 0.50.2 takes the maxima of other blocks.
    for name, shape in {"a": sizes(seed, (24, block), (210, 384)), "b": sizes(seed, (3, block * 3), (37, 1152))}.items():
        numbers = (torch.randn(shape) * 0.05).to(dtype)
        codes, state = bnb.quantize_4bit(numbers, blocksize=block, compress_statistics=nested, quant_type=kind)
        stored = {"weight": codes} | {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        # The second zero of fp4 has no sign in the table, and has one in the kernels for some processors.
        model.add(name, bnb.dequantize_4bit(codes, state) + 0.0, **stored)
    return model


for _kind in ("nf4", "fp4"):
    for _nested in (False, True):
        _make = lambda seed, kind=_kind, nested=_nested: bnb_model(seed, kind, torch.bfloat16, nested, 64)
        _make.__name__ = f"bnb_{_kind}{'_double' if _nested else ''}"
        case(_make)


@case
def bnb_float16(seed):
    return bnb_model(seed, "nf4", torch.float16, True, 128)


@case
def bnb_float32(seed):
    return bnb_model(seed, "nf4", torch.float32, True, 64)


@case
def bnb_int8(seed):
    import bitsandbytes.functional as bnb

    model = Model({"quant_method": "bitsandbytes", "load_in_8bit": True}, dtype="float32")
    codes, maxima, _ = bnb.int8_vectorwise_quant((torch.randn(sizes(seed, (24, 64), (210, 384))) * 0.05).to(torch.float16))
    stored = {"weight": codes, "SCB": maxima, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    model.add("a", bnb.int8_vectorwise_dequant(codes, maxima), **stored)
    return model


@case
def modelopt_nvfp4(seed):
    model = Model(None)
    model.documents["hf_quant_config.json"] = {"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}}  # fmt: skip
    rows, cols = sizes(seed, (24, 64), (200, 384))
    packed = torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8)
    scale, scale_2 = (torch.rand(rows, cols // 16) * 400).to(torch.float8_e4m3fn), torch.tensor(0.000123)
    numbers = modelopt("nvfp4_tensor.py", packed, (rows, cols), scale=scale, double_scale=scale_2, block_sizes={-1: 16})
    model.add("a", numbers, weight=packed, weight_scale=scale, weight_scale_2=scale_2)
    model.drop("a.input_scale", torch.tensor(0.5))
    model.drop("k_proj.k_scale", torch.tensor(0.5))
    model.plain("lm_head.weight", torch.randn(8, 8).to(torch.bfloat16))
    return model


@case
def modelopt_fp8(seed):
    model = Model({"quant_method": "modelopt", "quant_algo": "FP8"}, dtype="float16")
    codes, scale = fp8(sizes(seed, (24, 16), (200, 312))), torch.tensor(0.0123)
    numbers = modelopt("fp8_tensor.py", codes, codes.shape, scale=scale)
    model.add("a", numbers, weight=codes, weight_scale=scale)
    return model


@case
def pytorch(seed):
    model = Model(None, dtype="float32")
    numbers = torch.randn(sizes(seed, (6, 4, 3, 3), (40, 30, 5, 5)))
    stored = {
        "tensor": torch.quantize_per_tensor(numbers, 0.0173, 100, torch.quint8),
        "channel": torch.quantize_per_channel(numbers, torch.rand(len(numbers)) + 0.01, torch.randint(-9, 9, (len(numbers),)), 0, torch.qint8),
        "dimension": torch.quantize_per_channel(numbers, torch.rand(numbers.shape[1]) + 0.01, torch.randint(-9, 9, (numbers.shape[1],)), 1, torch.qint8),
        "columns": torch.quantize_per_channel(numbers, torch.rand(numbers.shape[3]) + 0.01, torch.randint(0, 99, (numbers.shape[3],)), 3, torch.quint8),
        "float_zero_points": torch.quantize_per_channel(numbers, torch.rand(len(numbers)) + 0.01, torch.rand(len(numbers)) * 9, 0, torch.quint8),
        "double_scales": torch.quantize_per_channel(numbers, torch.rand(len(numbers), dtype=torch.float64), torch.randint(-9, 9, (len(numbers),)), 0, torch.qint8),
        "wide": torch.quantize_per_tensor(numbers, 1e-6, -123456789, torch.qint32),
        "wide_channel": torch.quantize_per_channel(numbers, torch.rand(len(numbers), dtype=torch.float64) * 1e-6, torch.randint(-(10**8), 10**8, (len(numbers),)), 0, torch.qint32),
    }
    odd = numbers.flatten(2).flatten(1)[:, :-1]
    for dtype in (torch.quint4x2, torch.quint2x4):
        stored[str(dtype)] = torch.quantize_per_channel(odd, torch.rand(len(odd)), torch.rand(len(odd)) * 3, 0, dtype)
    model.pickled = {name: tensor for name, tensor in stored.items()} | {"bias": torch.ones(3)}
    model.expected |= {name: tensor.dequantize() for name, tensor in stored.items()} | {"bias": torch.ones(3)}
    return model


def hqq_pickled(seed, arrange, quantize_scales=True, dtype=torch.float16):
    """A `qmodel.pt` of hqq: descriptions are values, and scales and zero points may be quantized, as versions before 0.2 did."""
    model = Model(None, dtype=str(dtype).removeprefix("torch."))
    rows, cols = sizes(seed, (24, 128), (208, 384))
    linear = torch.nn.Linear(cols, rows)
    weights = {"nbits": 4, "channel_wise": True, "group_size": 64, "optimize": True, "round_zero": True, "axis": 0, "view_as_float": False}
    scales = {"nbits": 8, "channel_wise": True, "group_size": rows, "optimize": False} if quantize_scales else None
    zeros = {"nbits": 8, "channel_wise": False, "group_size": None, "optimize": False} if quantize_scales else None
    torch.cuda.empty_cache = lambda: None
    config = {"weight_quant_params": weights, "scale_quant_params": scales, "zero_quant_params": zeros, "offload_meta": False}
    layer = hqq()(linear, config, compute_dtype=dtype, device="cpu", initialize=False)
    # The constructor of newer versions ignores the settings for scales and zero points; reading does not.
    layer.quantize(linear.weight.data, weights, scales, zeros)
    layer.bias, layer.encoded_state_dict = linear.bias.detach().to(dtype), False
    state = arrange(dict(layer.state_dict()))
    model.pickled, model.pickled_name = {"model.layers.0.q_proj": state, "lm_head": {"weight": torch.ones(2, 2, dtype=dtype)}}, "qmodel.pt"
    module = "model.layers.0.q_proj"
    model.expected = {f"{module}.weight": layer.dequantize(), f"{module}.bias": layer.bias, "lm_head.weight": torch.ones(2, 2, dtype=dtype)}
    return model


@case
def hqq_pickle(seed):
    return hqq_pickled(seed, lambda state: state, quantize_scales=False)


@case
def hqq_pickle_scales(seed):
    return hqq_pickled(seed, lambda state: state, dtype=torch.bfloat16)


@case
def hqq_pickle_meta(seed):
    outside = ("W_q", "bias")
    return hqq_pickled(seed, lambda state: {name: state.pop(name) for name in outside} | {"meta": state})


@case
def hqq_pickle_joined(seed):
    return hqq_pickled(seed, lambda state: state | {"zero_scale": torch.stack((state.pop("zero"), state.pop("scale")))}, quantize_scales=False)


def hqq_model(seed, bits, axis, dtype=torch.float16, group=64, view_as_float=False):
    model = Model({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": bits, "group_size": group, "axis": axis}}, "skip_modules": ["lm_head"]},
                  dtype=str(dtype).removeprefix("torch."))  # fmt: skip
    rows, cols = sizes(seed, (24, 128), (208, 384))
    layer = torch.nn.Linear(cols, rows).to(dtype)
    weights = {"nbits": bits, "channel_wise": True, "group_size": group, "optimize": True, "round_zero": bits == 4, "axis": axis, "view_as_float": view_as_float}
    config = {"weight_quant_params": weights, "scale_quant_params": None, "zero_quant_params": None, "offload_meta": False}
    torch.cuda.empty_cache = lambda: None
    layer = hqq()(layer, config, compute_dtype=dtype, device="cpu")
    state = {name: tensor for name, tensor in layer.state_dict().items() if tensor is not None}
    model.plain("model.layers.0.q_proj.bias", state.pop("bias").detach())
    model.add("model.layers.0.q_proj", layer.dequantize(), **{name: tensor.detach() for name, tensor in state.items()})
    model.plain("lm_head.weight", torch.randn(8, 8).to(dtype))
    return model


for _bits in (8, 4, 3, 2, 1):
    for _axis in (0, 1):
        _make = lambda seed, bits=_bits, axis=_axis: hqq_model(seed, bits, axis, torch.bfloat16 if bits == 2 else torch.float16)
        _make.__name__ = f"hqq_{_bits}_axis_{_axis}"
        case(_make)


@case
def hqq_channel(seed):
    return hqq_model(seed, 4, 1, torch.float32, None)


@case
def hqq_float_view(seed):
    return hqq_model(seed, 4, 0, torch.bfloat16, view_as_float=True)


def quanto_model(seed, qtype, dtype=torch.bfloat16, activations=None, bias=False):
    import os
    import sys

    import optimum.quanto as quanto

    # Its kernels are compiled when they are first called, with the `ninja` of this environment.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    rows, cols = sizes(seed, (24, 256), (200, 384))
    modules = {"q_proj": (cols, rows), "down_proj": (128, cols), "narrow": (48, rows), "odd": (40, 7)}
    if bias:
        modules["any"] = (cols, rows)
    layers = torch.nn.ModuleDict({name: torch.nn.Linear(*sides, bias=name == "any") for name, sides in modules.items()}).to(dtype)
    if activations:
        layers["norm"] = torch.nn.LayerNorm(rows).to(dtype)
    quanto.quantize(layers, weights=getattr(quanto, qtype), activations=activations and getattr(quanto, activations))
    quanto.freeze(layers)
    model = Model(None, dtype=str(dtype).removeprefix("torch."))
    model.config["hidden_size"] = cols
    model.documents["quanto_qmap.json"] = {name: {"weights": qtype, "activations": activations or "none"} for name in modules}
    state = layers.state_dict()
    names = {name.split(".weight.")[0] for name in state if ".weight." in name}
    for name in names:
        weight = layers[name].weight
        model.expected[f"{name}.weight"] = weight.dequantize().detach().contiguous()
    for name, tensor in state.items():
        model.stored[name] = tensor.detach().contiguous().clone()
        if name.endswith(("norm.weight", ".bias")):
            model.expected[name] = model.stored[name]
    return model


for _qtype in ("qint2", "qint4", "qint8", "qfloat8_e4m3fn", "qfloat8_e5m2"):
    _make = lambda seed, qtype=_qtype: quanto_model(seed, qtype, torch.float16 if qtype in ("qint8", "qint4") else torch.bfloat16)
    _make.__name__ = f"quanto_{_qtype}"
    case(_make)


@case
def quanto_activations(seed):
    return quanto_model(seed, "qint4", torch.float32, "qint8", bias=True)


def torchao_layers(seed):
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerAxis, PerGroup, quantize_

    configs = {
        "int8": Int8WeightOnlyConfig(version=2),
        "float8": Float8WeightOnlyConfig(version=2),
        "int4_groups": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "int5_channels": IntxWeightOnlyConfig(weight_dtype=torch.int5, granularity=PerAxis(0)),
    }
    rows, cols = sizes(seed, (24, 64), (200, 384))
    for name, config in configs.items():
        layer = torch.nn.Linear(cols, rows).to(torch.bfloat16)
        quantize_(layer, config)
        yield name, layer


@case
def torchao_pickled(seed):
    model = Model({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}})
    model.pickled = {}
    for name, layer in torchao_layers(seed):
        model.pickled |= {f"{name}.weight": layer.weight.data, f"{name}.bias": layer.bias.data}
        model.expected |= {f"{name}.weight": layer.weight.dequantize().detach().contiguous(), f"{name}.bias": layer.bias.data}
    return model


@case
def torchao_safetensors(seed):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    model = Model({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}})
    layers = dict(torchao_layers(seed))
    model.stored, _ = flatten_tensor_state_dict({f"{name}.weight": layer.weight.data for name, layer in layers.items()})
    model.expected = {f"{name}.weight": layer.weight.dequantize().detach().contiguous() for name, layer in layers.items()}
    return model


def torchao_small(seed):
    """Microscaled tensors and NF4, by name: with scales in rows and in tiles, and one with a scale for each expert."""
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

    rows, cols = sizes(seed, (40, 96), (256, 416))
    elements = {"mxfp8": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2, "mxfp4": torch.float4_e2m1fn_x2}
    for dtype in (torch.bfloat16, torch.float32):
        short = str(dtype).removeprefix("torch.")
        for is_tiled in (False, True):
            weight = torch.randn(rows, cols).to(dtype)
            where = f"{short}_tiled" if is_tiled else short
            for name, element in elements.items():
                yield f"{name}_{where}.weight", MXTensor.to_mx(weight, element, 32, is_swizzled_scales=is_tiled)
            scale = weight.abs().max().float() / (448 * 6)
            yield f"nvfp4_{where}.weight", NVFP4Tensor.to_nvfp4(weight, per_tensor_scale=scale, is_swizzled_scales=is_tiled)
            yield f"nvfp4_block_{where}.weight", NVFP4Tensor.to_nvfp4(weight, is_swizzled_scales=is_tiled)
    experts = torch.randn(3, 128, 64).to(torch.bfloat16)
    scales = experts.abs().amax(dim=(1, 2), keepdim=True).float() / (448 * 6)
    yield "experts.weight", NVFP4Tensor.to_nvfp4(experts, per_tensor_scale=scales, is_swizzled_scales=bool(seed))


@case
def torchao_small_pickled(seed):
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4

    model = Model({"quant_method": "torchao"})
    del model.config["torch_dtype"]
    model.pickled = dict(torchao_small(seed))
    for element in ("fp6_e2m3", "fp6_e3m2"):
        model.pickled[f"{element}.weight"] = MXTensor.to_mx(torch.randn(24, 64), element, 64 if seed else 32)
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        name = f"nf4_{dtype}.weight".replace("torch.", "")
        model.pickled[name] = to_nf4(torch.randn(48, 32 + 32 * (seed % 2)).to(dtype), block_size=32, scaler_block_size=16)
    numbers = lambda tensor: tensor.get_original_weight() if hasattr(tensor, "get_original_weight") else tensor.dequantize()
    model.expected = {name: numbers(tensor).contiguous() for name, tensor in model.pickled.items()}
    return model


@case
def torchao_small_safetensors(seed):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    model = Model({"quant_method": "torchao"})
    tensors = dict(torchao_small(seed))
    model.stored, _ = flatten_tensor_state_dict(tensors)
    model.expected = {name: tensor.dequantize().to(model.dtype).contiguous() for name, tensor in tensors.items()}
    return model


@case
def torchao_affine_pickled(seed):
    model = Model({"quant_method": "torchao"})
    del model.config["torch_dtype"]
    model.file, model.expected = torchao_affine(seed)
    return model
