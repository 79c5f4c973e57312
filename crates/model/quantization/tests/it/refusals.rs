//! Models that are refused, each with the name of what is wrong.

use byte_source::ErrorKind;
use quantization::{QuantizationDocuments, method, recognise};
use tensor::{Dtype, Tensors};
use test_support::zeros;

use crate::models::{documents, models, stored};

pub(crate) fn model(name: &str) -> (QuantizationDocuments, Tensors) {
    let path = models().into_iter().find(|path| path.ends_with(name)).expect("it exists");
    (documents(&path), stored(&path))
}

fn refused(documents: &QuantizationDocuments, tensors: &Tensors) -> String {
    recognise(documents, tensors).expect_err("it is wrong").to_string()
}

/// The error for a model without one of its tensors.
fn without(name: &str, tensor: &str) -> String {
    let (documents, tensors) = model(name);
    assert!(tensors.contains(tensor), "{name} has {tensor}");
    let rest: Tensors = tensors.into_iter().filter(|(name, _)| name != tensor).collect();
    refused(&documents, &rest)
}

/// The error for a model with one more tensor, or with another one in its place.
fn with(name: &str, tensor: &str, dtype: Dtype, shape: &[u64]) -> String {
    let (documents, tensors) = model(name);
    let mut rest: Tensors = tensors.into_iter().filter(|(name, _)| name != tensor).collect();
    rest.push(tensor.to_owned(), zeros(dtype, shape));
    refused(&documents, &rest)
}

/// The error for a model with another configuration.
fn configured(name: &str, from: &str, to: &str) -> String {
    let (mut documents, tensors) = model(name);
    let text = documents.config.take().expect("a configuration");
    assert!(text.contains(from), "{text}");
    documents.config = Some(text.replace(from, to));
    refused(&documents, &tensors)
}

#[test]
fn models_of_mlx_name_what_is_wrong() {
    let layer = "model.layers.0.self_attn.q_proj";
    for tensor in ["weight", "biases", "scales"] {
        let error = without("mlx_affine_float16", &format!("{layer}.{tensor}"));
        assert!(error.contains(&format!("`{layer}.{tensor}` is missing")), "{error}");
    }
    let (documents, tensors) = model("mlx_mixtral");
    let global = "model.layers.0.block_sparse_moe.switch_mlp.gate_proj.global_scale";
    let rest: Tensors = tensors.into_iter().filter(|(name, _)| name != global).collect();
    let config = documents.config.map(|text| text.replace("\"nvfp4\"", "\"nvfp4\", \"global_scale\": true"));
    let error = refused(&QuantizationDocuments { config, ..QuantizationDocuments::default() }, &rest);
    assert!(error.contains("_proj.global_scale` is missing"), "{error}");
    for (name, from, to, expected) in [
        ("mlx_affine_float16", "\"bits\": 5", "\"bits\": 7", "mlx: `bits` is 7, expected 4, 2, 3, 5, 6, 8"),
        (
            "mlx_affine_float16",
            "\"bits\": 5",
            "\"bits\": 4",
            "has the shape [8, 10], expected rows of groups of 32 codes of 4 bits",
        ),
        (
            "mlx_affine_float16",
            "\"affine\"",
            "\"other\"",
            "mlx: `mode` is \"other\", expected affine, nvfp4, mxfp4, mxfp8",
        ),
        (
            "mlx_affine_float16",
            "\"group_size\": 32",
            "\"group_size\": 64",
            "has the shape [8, 2], expected [8, 1]",
        ),
        ("mlx_affine_float16", "q_proj\": true", "q_proj\": false", "q_proj.scales` belongs to no tensor"),
        (
            "mlx_affine_float16",
            "\"llama\"",
            "\"gpt_oss\"",
            "mlx: `model_type` is gpt_oss, expected one whose names are known",
        ),
        (
            "mlx_mixtral",
            "\"mixtral\"",
            "\"llama\"",
            "mlx: `model_type` is llama, expected one whose names are known",
        ),
    ] {
        let error = configured(name, from, to);
        assert!(error.contains(expected), "{error}");
    }
    let error = with("mlx_affine_float16", &format!("{layer}.biases"), Dtype::Float32, &[8, 2]);
    assert_eq!(error, format!("tensor `{layer}.biases` is float32, expected float16"));
    let error = with(
        "mlx_mixtral",
        "model.layers.0.block_sparse_moe.switch_mlp.gate_proj.global_scale",
        Dtype::Float32,
        &[3],
    );
    assert!(error.contains("global_scale` has the shape [3], expected [11]"), "{error}");
    let error = with(
        "mlx_mixtral",
        "model.layers.0.block_sparse_moe.switch_mlp.up_proj.weight",
        Dtype::BFloat16,
        &[9, 0],
    );
    assert!(
        error.contains("up_proj.weight` has the shape [9, 0], expected experts in the first dimension"),
        "{error}"
    );
    let (documents, tensors) = model("mlx_affine_float16");
    assert_eq!(method(&documents, &tensors).as_deref(), Some("mlx"));
    let error = refused(&QuantizationDocuments::default(), &tensors);
    assert_eq!(error, "mlx: `bits` is missing, expected the settings of MLX in `config.json`");
    let text = documents.config_without_quantization().expect("it is an object").expect("there is one");
    assert!(!text.contains("quantization"), "{text}");
}

#[test]
fn settings_of_auto_round_are_named() {
    for (from, to, expected) in [
        (r#""bits": 4"#, r#""bits": 9"#, "auto-round: `model.layers.0.a: bits` is 9, expected 2 to 8"),
        (
            r#"".*layers.*""#,
            r#""(?<!x)layers""#,
            "auto-round: `extra_config` is `(?<!x)layers`, expected names",
        ),
        (
            r#""sym": false"#,
            r#""rotation_config": {"a": 1}"#,
            "`rotation_config` is {\"a\":1}, expected weights that are not rotated",
        ),
        (
            r#""auto_round""#,
            r#""auto_round:other""#,
            "`packing_format` is \"auto_round:other\", expected auto_round, ",
        ),
        (r#""auto_round""#, r#""auto_round:auto_awq""#, "`model.layers.0.b: bits` is 2, expected 4 to 7"),
    ] {
        let error = configured("auto_round_own", from, to);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn settings_of_bitnet_and_metal_are_named() {
    for (name, from, to, expected) in [
        (
            "bitnet_multiplies",
            "autobit",
            "otherbit",
            "bitnet: `linear_class` is \"otherbitlinear\", expected bitlinear or autobitlinear",
        ),
        (
            "bitnet_multiplies",
            "offline",
            "online",
            "bitnet: `quantization_mode` is \"online\", expected offline",
        ),
        (
            "bitnet_divides",
            r#""bitnet","#,
            r#""bitnet", "linear_class": "autobitlinear","#,
            "down_proj.bias`: `model.",
        ),
        ("metal_4", r#""bits": 4"#, r#""bits": 3"#, "metal: `bits` is 3, expected 2, 4 or 8"),
        (
            "metal_4",
            r#""group_size": 64"#,
            r#""group_size": 0"#,
            "metal: `group_size` is 0, expected a positive number",
        ),
    ] {
        let error = configured(name, from, to);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn methods_whose_numbers_are_not_computed_say_why() {
    for (method, reason) in [
        ("fp_quant", "rotated by a matrix"),
        ("nvfp4", "a kernel for GPUs packs them"),
        ("quark", "what Quark exports as `fp8` or `awq`"),
    ] {
        let error = configured("metal_4", "\"metal\"", &format!("\"{method}\""));
        let start = format!("the weights are quantized with `{method}`, whose numbers are not computed: ");
        assert!(error.starts_with(&start) && error.contains(reason), "{error}");
    }
}

#[test]
fn layers_of_comfyui_name_what_is_wrong() {
    for tensor in ["a.fp8.weight_scale", "a.nvfp4.weight_scale_2", "a.mxfp8.weight", "a.int8.weight"] {
        let error = without("comfy", tensor);
        assert!(error.contains(&format!("`{tensor}` is missing")), "{error}");
    }
    let error = with("comfy", "a.nvfp4.weight_scale", Dtype::Float8E4M3Fn, &[48, 4]);
    assert!(
        error.contains("has the shape [48, 4], expected tiles of 128 × 4 for a grid of [48, 4]"),
        "{error}"
    );
    let described = |layer: &str| {
        let (mut documents, tensors) = model("comfy");
        documents.comfy = Some(format!("{{\"layers\": {{\"a.int8\": {layer}}}}}"));
        documents
            .comfy
            .is_some()
            .then(|| {
                tensors.into_iter().filter(|(name, _)| name != "a.int8.comfy_quant").collect::<Tensors>()
            })
            .map(|tensors| refused(&documents, &tensors))
    };
    for (layer, expected) in [
        (
            r#"{"format": "int8_tensorwise", "convrot": true}"#,
            "comfyui: `a.int8: convrot` is true, expected weights that are not rotated",
        ),
        (
            r#"{"format": "convrot_w4a4"}"#,
            "comfyui: `a.int8: format` is `convrot_w4a4`, expected float8_e4m3fn",
        ),
        (r#"{"format": "float8_e4m3fn"}"#, "tensor `a.int8.weight` is int8, expected float8_e4m3fn"),
    ] {
        let error = described(layer).unwrap_or_default();
        assert!(error.contains(expected), "{error}");
    }
    let (mut documents, tensors) = model("comfy");
    documents.comfy = Some(r#"{"layers": {"a.int8": {"format": "mxfp8"}}}"#.to_owned());
    let error = refused(&documents, &tensors);
    assert_eq!(error, "tensor `a.int8.comfy_quant`: the header of the file describes another format");
    documents.has_modelopt_header = true;
    assert!(
        refused(&documents, &tensors)
            .contains("_quantization_metadata: next to it is a `quantization_config`")
    );
}

#[test]
fn a_missing_companion_is_named() {
    for (name, tensor) in [
        ("gptq_4_v1", "model.layers.0.q_proj.qzeros"),
        ("gptq_order", "model.layers.0.q_proj.g_idx"),
        ("awq_gemm", "a.scales"),
        ("mxfp4", "model.layers.0.mlp.experts.down_proj_scales"),
        ("bnb_nf4_double", "a.weight.nested_absmax"),
        ("bnb_nf4", "a.weight.quant_map"),
        ("bnb_nf4", "a.weight.quant_state.bitsandbytes__nf4"),
        ("ct_pack_4_asymmetric", "model.layers.0.q_proj.weight_zero_point"),
        ("ct_pack_4_group", "model.layers.0.q_proj.weight_shape"),
        ("ct_float_channel", "model.layers.0.q_proj.weight_scale"),
        ("ct_nvfp4", "model.layers.0.q_proj.weight_global_scale"),
        ("modelopt_nvfp4", "a.weight_scale_2"),
        ("fp8_block", "a.weight_scale_inv"),
        ("hqq_4_axis_1", "model.layers.0.q_proj.zero"),
        ("hqq_4_axis_1", "model.layers.0.q_proj.shape"),
        ("quanto_qint4", "q_proj.weight._shift"),
        ("quanto_qint8", "q_proj.weight._scale"),
        ("torchao_safetensors", "int8._weight_scale"),
    ] {
        let text = without(name, tensor);
        assert!(text.contains(&format!("`{tensor}` is missing")), "{name}: {text}");
    }
}

#[test]
fn a_companion_without_codes_is_named() {
    for (name, tensor) in [
        ("gptq_4_v1", "b.g_idx"),
        ("awq_gemm", "c.qzeros"),
        ("mxfp4", "x_scales"),
        ("bnb_nf4", "c.weight.nested_absmax"),
        ("ct_pack_4_group", "x.weight_zero_point"),
        ("fp8_block", "b.weight_scale_inv"),
        ("fp8_tensor", "c.activation_scale"),
        ("modelopt_fp8", "a.pre_quant_scale"),
        ("hqq_4_axis_1", "x.zero"),
        ("quanto_qint4", "x.weight._shift"),
        ("torchao_safetensors", "int8._weight_act_pre_scale"),
    ] {
        let text = with(name, tensor, Dtype::Float32, &[1]);
        assert!(text.starts_with(&format!("tensor `{tensor}` belongs to no tensor")), "{name}: {text}");
    }
}

#[test]
fn a_wrong_shape_or_dtype_is_named() {
    let text = with("fp8_ragged", "a.weight_scale_inv", Dtype::Float32, &[3, 2]);
    assert_eq!(
        text,
        "tensor `a.weight_scale_inv` has the shape [3, 2], expected one scale for each block of 32 × 16 of [40, 24]"
    );
    let text = with("gptq_4_v1", "model.layers.0.q_proj.qzeros", Dtype::Int32, &[2, 5]);
    assert_eq!(text, "tensor `model.layers.0.q_proj.qzeros` has the shape [2, 5], expected [2, 4]");
    let text = with("gptq_4_v1", "model.layers.0.q_proj.qweight", Dtype::Int64, &[8, 32]);
    assert_eq!(text, "tensor `model.layers.0.q_proj.qweight` is int64, expected int32");
    let text = with("mxfp4", "model.layers.0.mlp.experts.down_proj_scales", Dtype::UInt8, &[2, 5, 2]);
    assert!(text.ends_with("has the shape [2, 5, 2], expected [2, 5, 1]"), "{text}");
    let text = with("bnb_nf4", "a.weight.absmax", Dtype::Float32, &[23]);
    assert_eq!(text, "tensor `a.weight.absmax` has the shape [23], expected [24]");
    let text = with("ct_pack_4_group", "model.layers.0.q_proj.weight_packed", Dtype::Int32, &[24, 9]);
    assert!(text.ends_with("has the shape [24, 9], expected [24, 8]"), "{text}");
    let text = with("ct_int_channel", "model.layers.0.q_proj.weight", Dtype::BFloat16, &[24, 64]);
    assert!(text.ends_with("is bfloat16, expected int8 or float8, because it has a scale"), "{text}");
}

#[test]
fn unknown_layouts_are_named() {
    let text = with("torchao_safetensors", "x._weight_qdata", Dtype::UInt8, &[2, 4]);
    assert!(
        text.starts_with("tensor `x._weight_qdata`: torchao: its codes are uint8, as in `Int4Tensor`"),
        "{text}"
    );
    let text =
        with("torchao_small_safetensors", "mxfp8_float32._weight_scale", Dtype::Float8E8M0FnU, &[40, 4]);
    assert!(
        text.ends_with(
            "has the shape [40, 4], expected [40, 3], or whole tiles of 128 rows and 4 columns of it"
        ),
        "{text}"
    );
    let text = with("torchao_small_safetensors", "mxfp4_float32._weight_qdata", Dtype::UInt8, &[40, 96]);
    assert!(text.contains("the bytes may be FP6 of either kind"), "{text}");
    let text =
        with("torchao_small_safetensors", "nvfp4_float32._weight_per_tensor_scale", Dtype::Float32, &[2]);
    assert!(text.ends_with("has the shape [2], expected one float32, or one for each matrix"), "{text}");
    let text = with("hqq_4_axis_1", "model.layers.0.q_proj.packing", Dtype::UInt8, &[1]);
    assert!(text.contains("expected one of 8bit_u8, 4bit_u8"), "{text}");
    let text = with("hqq_4_axis_1", "model.layers.0.q_proj.W_q", Dtype::UInt8, &[3]);
    assert!(text.contains("words of `4bit_u8` for the shape [24, 128]"), "{text}");
    let text = configured("quanto_qint4", r#""hidden_size""#, r#""width""#);
    assert!(text.contains("quanto does not store the shape of a weight in groups of 128"), "{text}");
}

#[test]
fn groups_out_of_range_are_named() {
    let (documents, tensors) = model("gptq_order");
    let name = "model.layers.0.q_proj.g_idx";
    let mut rest: Tensors = tensors.into_iter().filter(|(known, _)| known != name).collect();
    let indices = 7_i32.to_le_bytes().repeat(64);
    rest.push(name.to_owned(), test_support::tensor(Dtype::Int32, &[64], indices));
    assert_eq!(refused(&documents, &rest), format!("tensor `{name}`: the group 7 is not one of 2"));
}

#[test]
fn unknown_methods_and_formats_are_named() {
    let text = configured("gptq_4_v1", r#""gptq","#, r#""aqlm","#);
    assert!(
        text.starts_with(
            "the weights are quantized with `aqlm`, which is not known; the known methods are comfyui, fp8"
        ),
        "{text}"
    );
    assert!(
        configured("gptq_4_v1", r#""bits": 4"#, r#""bits": 5"#)
            .starts_with("gptq: `bits` is 5, expected 2, 3, 4 or 8")
    );
    assert!(
        configured("awq_gemm", r#""gemm""#, r#""gemv""#)
            .starts_with("awq: `version` is \"gemv\", expected `gemm`")
    );
    let text = configured("ct_mixed", r#""mixed-precision""#, r#""marlin-24""#);
    assert!(text.starts_with("compressed-tensors: `format` is \"marlin-24\""), "{text}");
    let rotated = configured(
        "ct_mixed",
        r#""ignore": ["#,
        r#""transform_config": {"r1": {"type": "hadamard"}}, "ignore": ["#,
    );
    assert!(rotated.starts_with("compressed-tensors: `transform_config`"), "{rotated}");
}

#[test]
fn plain_models_are_not_quantized() {
    let none = QuantizationDocuments::default();
    let tensors: Tensors = [("w.weight".to_owned(), zeros(Dtype::Float32, &[2]))].into();
    assert!(recognise(&none, &tensors).expect("it is read").is_none() && method(&none, &tensors).is_none());
    assert!(!quantization::is_possible(&none, tensors.names()));
    let (documents, _) = model("gptq_4_v1");
    let error = recognise(&documents, &tensors).expect_err("nothing has codes");
    assert!(error.code() == "quantization::NothingQuantized" && error.kind() == ErrorKind::Input);
    let broken = QuantizationDocuments { config: Some("[]".to_owned()), ..none };
    assert_eq!(refused(&broken, &tensors), "config.json: it is not an object");
}

#[test]
fn only_the_description_of_the_quantization_is_removed() {
    let config = r#"{"b": 1, "quantization_config": {"bits": 4}, "a": {"quantization_config": 2}, "text_config": {"compression_config": {}, "x": 1}}"#;
    let documents =
        QuantizationDocuments { config: Some(config.to_owned()), ..QuantizationDocuments::default() };
    let text = documents.config_without_quantization().expect("an object").expect("a text");
    let text: String = text.split_whitespace().collect();
    assert_eq!(text, r#"{"b":1,"a":{"quantization_config":2},"text_config":{"x":1}}"#);
    let plain = QuantizationDocuments { config: Some("{ }".to_owned()), ..documents };
    assert_eq!(plain.config_without_quantization().expect("an object").as_deref(), Some("{ }"));
}

/// Python compiles it, and modules that it names must not fall to another group.
#[test]
fn a_target_that_cannot_be_compiled_is_named() {
    let text = configured("ct_pack_4_group", r#""Linear""#, r#""re:(?!lm_head).*""#);
    assert!(text.contains("without lookaround instead of `re:(?!lm_head).*`"), "{text}");
}
