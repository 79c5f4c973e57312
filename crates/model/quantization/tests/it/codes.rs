//! Codes of files without a configuration: ComfyUI's names, and what a cast must not touch.

use quantization::{
    Codes, Problem, QuantizationDocuments, QuantizedModel, config_with_dtype, not_quantized, recognise,
};
use tensor::{Dtype, Storage, Tensor, Tensors, contiguous_strides};

use crate::refusals::model;

fn tensor(dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Tensor {
    let strides = contiguous_strides(shape);
    Tensor::new(dtype, shape.to_vec(), strides, 0, Storage::owned(bytes.to_vec())).expect("it fits")
}

fn fp8(shape: &[u64]) -> Tensor {
    let count = shape.iter().product::<u64>();
    tensor(Dtype::Float8E4M3Fn, shape, &vec![0x38; usize::try_from(count).expect("few")])
}

fn scale() -> Tensor {
    tensor(Dtype::Float32, &[1], &0.5_f32.to_le_bytes())
}

fn tensors(parts: &[(&str, Tensor)]) -> Tensors {
    parts.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect::<Vec<_>>().into()
}

fn names_and_schemes(tensors: &Tensors) -> Vec<(String, String)> {
    let model =
        recognise(&QuantizationDocuments::default(), tensors).expect("it is whole").expect("it is quantized");
    let schemes: Vec<String> = model.tensors.iter().map(|tensor| tensor.scheme.clone()).collect();
    let (tensors, _) = model.dequantize(tensors, |_| Dtype::Float32).expect("it fits");
    let schemes = schemes.into_iter().chain(std::iter::repeat(String::new()));
    tensors.names().map(str::to_owned).zip(schemes).collect()
}

#[test]
fn scales_without_a_configuration_are_found_by_their_names() {
    let own = [
        ("m.scaled_fp8", fp8(&[2])),
        ("m.q.weight", fp8(&[2, 2])),
        ("m.q.scale_weight", scale()),
        ("m.q.scale_input", scale()),
    ];
    let layer = tensor(Dtype::UInt8, &[26], br#"{"format":"float8_e4m3fn"}"#);
    let newer = [("m.q.weight", fp8(&[2, 2])), ("m.q.weight_scale", scale()), ("m.q.comfy_quant", layer)];
    let fixed = [("m.q.weight", fp8(&[2, 2])), ("m.q.weight_scale", scale()), ("m.q.input_scale", scale())];
    let expected = [("m.q.weight".to_owned(), "FP8, a scale for each tensor".to_owned())];
    for parts in [&own[..], &newer, &fixed] {
        assert_eq!(names_and_schemes(&tensors(parts)), expected);
    }
    let layer = tensor(Dtype::UInt8, &[18], br#"{"format":"fp444"}"#);
    let other =
        tensors(&[("m.q.weight", fp8(&[2, 2])), ("m.q.weight_scale", scale()), ("m.q.comfy_quant", layer)]);
    let refused = recognise(&QuantizationDocuments::default(), &other).expect_err("it is another format");
    assert!(refused.to_string().contains("format` is `fp444`"), "{refused}");
}

#[test]
fn a_tensor_with_a_scale_is_a_code() {
    let integers = tensor(Dtype::Int8, &[1], &[1]);
    let all = tensors(&[
        ("a.weight", fp8(&[2, 2])),
        ("a.weight_scale", scale()),
        ("b.weight", integers.clone()),
        ("b.SCB", scale()),
        ("c.qweight", tensor(Dtype::Int32, &[1], &[0; 4])),
        ("c.scales", scale()),
        ("d.weight", fp8(&[2])),
        ("e.weight", scale()),
        ("e.scale", scale()),
        ("f.mask", integers),
        ("f.scale", scale()),
    ]);
    let codes = Codes::new(&all);
    let companion = |name: &str| codes.companion(name, all.get(name).expect("it is there").dtype());
    assert_eq!(companion("a.weight").as_deref(), Some("a.weight_scale"));
    assert_eq!(companion("b.weight").as_deref(), Some("b.SCB"));
    assert_eq!(companion("c.qweight").as_deref(), Some("c.scales"));
    for numbers in ["a.weight_scale", "d.weight", "e.weight", "f.mask"] {
        assert_eq!(companion(numbers), None, "{numbers}");
    }
    let marked = tensors(&[("scaled_fp8", fp8(&[2])), ("d.weight", fp8(&[2])), ("e.weight", scale())]);
    let codes = Codes::new(&marked);
    assert_eq!(codes.companion("d.weight", Dtype::Float8E4M3Fn).as_deref(), Some("scaled_fp8"));
    assert_eq!(codes.companion("e.weight", Dtype::Float32), None);
}

/// Mistral's, TensorRT-LLM's and other names; SDXL has a scale of another thing next to a projection.
#[test]
fn a_scale_of_any_name_makes_a_code() {
    for scale_name in
        ["qscale_weight", "weights_scaling_factor", "weight.scale", "weight_descale", "weight_inv_scale"]
    {
        let name = format!("a.{scale_name}");
        let all = tensors(&[("a.weight", fp8(&[2, 2])), (&name, scale())]);
        assert_eq!(Codes::new(&all).companion("a.weight", Dtype::Float8E4M3Fn), Some(name));
        let error = not_quantized(&all);
        assert!(matches!(error, Problem::UnknownCodes { .. }), "{error}");
    }
    let other = tensors(&[("a.text_projection", fp8(&[2, 2])), ("a.logit_scale", scale())]);
    assert_eq!(Codes::new(&other).companion("a.text_projection", Dtype::Float8E4M3Fn), None);
    assert!(matches!(not_quantized(&other), Problem::NotQuantized));
}

/// So that FSDP divides them like the other weights.
#[test]
fn codes_may_lie_in_floating_point_elements() {
    let stored = tensor(Dtype::BFloat16, &[1], &[0; 2]);
    let all = tensors(&[
        ("a.weight", stored.clone()),
        ("a.weight.absmax", scale()),
        ("b.W_q", stored.clone()),
        ("b.scale", scale()),
        ("c.weight", stored),
    ]);
    let codes = Codes::new(&all);
    let companion = |name: &str| codes.companion(name, Dtype::BFloat16);
    assert_eq!(companion("a.weight").as_deref(), Some("a.weight.absmax"));
    assert_eq!(companion("b.W_q").as_deref(), Some("b.scale"));
    assert_eq!(companion("c.weight"), None);
}

/// The first libraries for GPTQ and AWQ wrote documents of their own before `config.json` had a member for them.
#[test]
fn older_documents_are_read() {
    for name in ["gptq_4_v1", "awq_gemm"] {
        let (documents, tensors) = model(name);
        let expected = recognise(&documents, &tensors).expect("it is read").expect("it is quantized");
        let config: serde_json::Value =
            serde_json::from_str(documents.config.as_deref().expect("a configuration")).expect("JSON");
        let mut members = config["quantization_config"].clone();
        members.as_object_mut().expect("an object").remove("quant_method");
        let document = Some(members.to_string());
        let older = QuantizationDocuments {
            config: documents.config_without_quantization().expect("an object"),
            gptq: document.clone().filter(|_| name != "awq_gemm"),
            awq: document.filter(|_| name == "awq_gemm"),
            ..QuantizationDocuments::default()
        };
        let found = recognise(&older, &tensors).expect("it is read").expect("it is quantized");
        let schemes =
            |model: &QuantizedModel| model.tensors.iter().map(|it| it.scheme.clone()).collect::<Vec<_>>();
        assert_eq!(schemes(&found), schemes(&expected), "{name}");
    }
}

#[test]
fn a_configuration_says_the_dtype_that_is_written() {
    let text = r#"{"dtype": "bfloat16", "text_config": {"torch_dtype": "bfloat16"}, "quantization_config": {"dtype": "x"}}"#;
    let changed = config_with_dtype(text, Dtype::Float16).expect("it says another dtype");
    assert_eq!(changed.matches("float16\"").count(), 2, "{changed}");
    assert!(!changed.contains("bfloat16") && changed.contains("\"x\""), "{changed}");
    assert_eq!(config_with_dtype(&changed, Dtype::Float16), None);
    assert_eq!(config_with_dtype("{}", Dtype::Float16), None);
    assert_eq!(config_with_dtype("[NaN", Dtype::Float16), None);
}
