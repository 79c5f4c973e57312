//! Which architecture a checkpoint has, by its names and documents.

use decoder::{
    Decoder, DecoderNote, DecoderOptions, Detected, LayerPart, LayoutOwner, ModelDocuments, NoModelReason,
    Overrides, Result, Weight, build_decoder, detect,
};
use tensor::{Tensor, Tensors};

use crate::fixtures::{name, tensors, zeros};

const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 32}"#;

type List = [(String, Tensor)];

fn config(text: &str) -> DecoderOptions {
    let documents = ModelDocuments { config: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn changed(from: &str, to: &str) -> DecoderOptions {
    assert!(CONFIG.contains(from), "{from}");
    config(&CONFIG.replace(from, to))
}

fn with(more: &str) -> DecoderOptions {
    changed("{", &format!("{{{more}, "))
}

/// Everything that is known of a model, or of weights, as text.
fn outcome(tensors: &List, options: &DecoderOptions) -> Result<String> {
    match detect(&tensors.to_vec().into(), options)? {
        Detected::Model(decoder) => {
            let assignment = decoder.assign(&tensors.to_vec().into(), options.keep_extra)?;
            Ok(format!("{decoder:?} {assignment:?}"))
        }
        Detected::Weights { no_model_reason: why, .. } => Ok(why.to_string()),
    }
}

#[test]
fn config_json_and_hugging_faces_names_make_a_model() {
    let mut all = tensors(LayoutOwner::HuggingFace, 1);
    all.push(zeros("model.layers.1.self_attn.rotary_emb.inv_freq", &[2]));
    let options = config(CONFIG);
    let Detected::Model(found) = detect(&all.clone().into(), &options).expect("config and shapes agree")
    else {
        panic!("weights")
    };
    assert_eq!(found.architecture().name(), "llama");
    assert!(found.rotates_halves());
    assert_eq!([found.n_heads(), found.n_kv_heads(), found.head_dim()], [4, 2, 4]);
    assert!(found.assign(&all.clone().into(), false).expect("all is there").notes.is_empty());
    let named = build_decoder("llama", &all.clone().into(), &options).expect("it is one");
    assert_eq!(format!("{named:?}"), format!("{found:?}"));
}

#[test]
fn weights_have_a_reason_why_they_are_not_a_model() {
    let why = |tensors: &List, options: &DecoderOptions| match detect(&tensors.to_vec().into(), options)
        .expect("no error")
    {
        Detected::Weights { no_model_reason: why, .. } => why.to_string(),
        Detected::Model(decoder) => panic!("{decoder:?}"),
    };
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    let nothing = DecoderOptions::default();
    assert_eq!(why(&hf, &nothing), "no params.json or config.json next to it");
    let shard = [zeros("layers.0.attention.wq.weight", &[1])];
    assert_eq!(why(&shard, &nothing), "no params.json or config.json next to it");
    assert_eq!(why(&[zeros("layer1.0.conv1.weight", &[1])], &nothing), "no known architecture");
    let t5 = changed("\"llama\"", "\"t5\"");
    assert_eq!(why(&hf, &t5), "no forward for model_type \"t5\"");
    assert_eq!(why(&hf, &config("{}")), "config.json has no model_type");
    let adapter = r#"{"base_model_name_or_path": "meta-llama/Llama-2-7b"}"#.to_owned();
    let mut both = config(CONFIG);
    both.documents.adapter = Some(adapter);
    assert_eq!(why(&hf, &both), "an adapter, which runs only after it is merged into meta-llama/Llama-2-7b");
    let bare: Vec<_> = hf
        .iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix("model.")?.to_owned(), tensor.clone())))
        .collect();
    assert_eq!(why(&bare, &config(CONFIG)), "a bare LlamaModel: it has no lm_head to compute logits");
    let headless: Vec<_> = hf.iter().filter(|(name, _)| name != "lm_head.weight").cloned().collect();
    let classifier = with(r#""architectures": ["LlamaForSequenceClassification"]"#);
    assert_eq!(
        why(&headless, &classifier),
        "a LlamaForSequenceClassification: it has no lm_head to compute logits"
    );
    let missing = "config.json says llama, but there is no tensor `model.layers.0.self_attn.q_proj.weight`";
    assert_eq!(why(&[zeros("w", &[1])], &config(CONFIG)), missing);
    let Detected::Weights { no_model_reason: reason, notes } =
        detect(&tensors(LayoutOwner::Meta, 1).clone().into(), &nothing).expect("weights")
    else {
        panic!("a model without its numbers")
    };
    assert_eq!((reason, notes), (NoModelReason::NoDocuments, vec![DecoderNote::LlamaNames]));
    assert_eq!(why(&[zeros("w", &[1])], &config("[")), "no known architecture");
}

#[test]
fn the_reason_depends_on_names_and_documents() {
    let detected = |tensors: &List, options: &DecoderOptions| match detect(&tensors.to_vec().into(), options)
    {
        Ok(Detected::Weights { no_model_reason, notes }) => (no_model_reason.to_string(), notes),
        other => panic!("{other:?}"),
    };
    let why = |tensors: &List, options: &DecoderOptions| detected(tensors, options).0;
    // A part of a LLaMA's names is not worth a note.
    let shard = [zeros("layers.0.attention.wq.weight", &[1])];
    assert_eq!(detected(&shard, &DecoderOptions::default()).1, []);
    let documents = ModelDocuments { params: Some("{}".to_owned()), ..ModelDocuments::default() };
    let params = DecoderOptions { documents, ..DecoderOptions::default() };
    assert_eq!(why(&[zeros("w", &[1])], &params), "there is no tensor `layers.0.attention.wq.weight`");
    assert_eq!(why(&tensors(LayoutOwner::HuggingFace, 1), &params), "no config.json next to it");
    // Embeddings alone are not a bare model.
    let embeddings = [zeros("embed_tokens.weight", &[32, 16])];
    let missing = "config.json says llama, but there is no tensor `model.layers.0.self_attn.q_proj.weight`";
    assert_eq!(why(&embeddings, &config(CONFIG)), missing);
    // Of two layouts, the first one is expected.
    let mixtral = config(r#"{"model_type": "mixtral"}"#);
    assert_eq!(
        why(&[zeros("w", &[1])], &mixtral),
        "config.json says mixtral, but there is no tensor `model.layers.0.self_attn.q_proj.weight`"
    );
    for (len, shown) in [(80, "x".repeat(80)), (81, format!("{}…", "x".repeat(80)))] {
        let model_type = config(&format!(r#"{{"model_type": "{}"}}"#, "x".repeat(len)));
        assert_eq!(
            why(&tensors(LayoutOwner::HuggingFace, 1), &model_type),
            format!("no forward for model_type \"{shown}\"")
        );
    }
}

#[test]
fn a_class_names_the_architecture_if_there_is_no_model_type() {
    let name = |class: &str| {
        let options = changed(r#""model_type": "llama""#, &format!(r#""architectures": ["{class}"]"#));
        match detect(&tensors(LayoutOwner::HuggingFace, 1).into(), &options).expect("no error") {
            Detected::Model(decoder) => decoder.architecture().name(),
            Detected::Weights { no_model_reason, .. } => panic!("{no_model_reason}"),
        }
    };
    assert_eq!(name("LlamaForCausalLM"), "llama");
    assert_eq!(name("MistralForCausalLM"), "mistral");
}

#[test]
fn an_output_without_a_tensor_is_tied_if_no_document_denies_it() {
    let all = tensors(LayoutOwner::HuggingFace, 1);
    let headless: Vec<_> = all.into_iter().filter(|(name, _)| name != "lm_head.weight").collect();
    let overrides =
        Overrides { n_heads: Some(4), rope_theta: Some(1e4), norm_eps: Some(1e-5), ..Overrides::default() };
    let tied = |options: &DecoderOptions| {
        let decoder =
            build_decoder("llama", &headless.clone().into(), options).expect("the shapes are right");
        decoder.assign(&headless.clone().into(), false).map(|assignment| assignment.notes)
    };
    let note = DecoderNote::TiedOutput { name: "lm_head.weight".to_owned() };
    assert_eq!(
        tied(&DecoderOptions { overrides, ..DecoderOptions::default() }).expect("tied"),
        std::slice::from_ref(&note)
    );
    assert_eq!(tied(&with(r#""tie_word_embeddings": true"#)).expect("tied"), [note]);
    assert!(tied(&config(CONFIG)).is_err());
}

#[test]
fn a_gap_between_layers_is_a_missing_tensor() {
    let mut all = tensors(LayoutOwner::HuggingFace, 1);
    all.push(zeros("model.layers.1000.input_layernorm.weight", &[16]));
    assert_eq!(
        outcome(&all, &config(CONFIG)).expect_err("a gap").to_string(),
        "there is no tensor `model.layers.2.self_attn.q_proj.weight`, which a model of 1001 layers needs"
    );
}

#[test]
fn settings_without_a_forward_are_errors() {
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    let error = |options: &DecoderOptions| outcome(&hf, options).expect_err("wrong").to_string();
    for (more, expected) in [
        (
            r#""quantization_config": {"bits": 4}"#,
            "`quantization_config` changes the result and is not supported",
        ),
        (
            r#""quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}"#,
            "the weights are quantized with `fp8`, expected float32, float16, bfloat16 or float64 in a model that runs",
        ),
        (
            r#""quantization_config": {"quant_method": "gptq", "bits": 4}"#,
            "the weights are quantized with `gptq` (4 bits), expected float32, float16, bfloat16 or float64 in a model that \
             runs",
        ),
        (
            r#""quantization_config": {"load_in_4bit": false, "load_in_8bit": true}"#,
            "the weights are quantized with `bitsandbytes` (8 bits), expected float32, float16, bfloat16 or float64 in a \
             model that runs",
        ),
        (r#""quantization_config": "gptq""#, "`quantization_config` is \"gptq\", expected an object"),
        (
            r#""hidden_act": "relu6""#,
            "`hidden_act` is \"relu6\", expected \"silu\" or \"swish\" or \"gelu\" or \"gelu_pytorch_tanh\" or \"gelu_new\" or \"relu\" or \"relu2\"",
        ),
        (r#""head_dim": 3"#, "`head_dim` is 3, expected an even number, because RoPE rotates pairs"),
        (
            r#""rope_parameters": {"rope_type": "proportional", "factor": 2.0}"#,
            "`rope_parameters.rope_type` is \"proportional\", expected \"default\" or \"linear\" or \"dynamic\" or \"yarn\" or \"longrope\" or \"llama3\"",
        ),
        (r#""rope_scaling": {"type": "linear"}"#, "`rope_scaling.factor` is missing"),
        (r#""rope_scaling": {"type": "longrope"}"#, "`rope_scaling.short_factor` is missing"),
        (
            r#""rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0]}"#,
            "`long_factor` is a list of 1, expected one factor for each of 2 pairs",
        ),
        (r#""rope_scaling": {"type": "dynamic", "factor": 0.5}"#, "`factor` is 0.5, expected at least 1"),
        (
            r#""rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}"#,
            "`high_freq_factor` is 4, expected more than low_freq_factor 4",
        ),
        (
            r#""rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2.0}"#,
            "`rope_theta` is 1, expected more than 1, because YaRN divides by its logarithm",
        ),
        (
            r#""rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "max_position_embeddings": 64"#,
            "`rope_scaling.low_freq_factor` is missing",
        ),
        (
            r#""rope_parameters": {"full_attention": {"rope_type": "default"}}"#,
            "`rope_parameters.rope_type` changes the result and is not supported",
        ),
        (
            r#""partial_rotary_factor": 0.5"#,
            "`partial_rotary_factor` changes the result and is not supported",
        ),
        (r#""rope_theta": "10000""#, "`rope_theta` is \"10000\", expected a number above 0"),
    ] {
        assert_eq!(error(&with(more)), format!("config.json: {expected}"));
    }
    assert!(outcome(&hf, &with(r#""rope_scaling": {"type": "dynamic", "factor": 1.0}"#)).is_ok());
    assert_eq!(
        error(&changed("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1")),
        "config.json: `num_hidden_layers` is 1, expected 2, the number of layers in the checkpoint"
    );
    assert_eq!(
        error(&changed("\"vocab_size\": 32", "\"vocab_size\": 31")),
        "tensor `model.embed_tokens.weight`: shape [32, 16], expected [31, 16] from vocab_size 31 and hidden_size 16"
    );
    assert_eq!(
        error(&changed("\"num_attention_heads\": 4, ", "")),
        "config.json has no `num_attention_heads`, which cannot be inferred from the tensor shapes"
    );
    assert!(error(&config("{")).starts_with("config.json: EOF while parsing"));
}

#[test]
fn frequencies_that_float32_lacks_are_errors() {
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    let error = |more: &str| outcome(&hf, &with(more)).expect_err("infinite").to_string();
    for more in [
        r#""rope_theta": 1e-100"#,
        r#""rope_theta": 1e-39"#,
        r#""rope_scaling": {"type": "linear", "factor": 1e-39}"#,
        r#""rope_scaling": {"type": "longrope", "short_factor": [1, 1e-42], "long_factor": [1, 1]}"#,
        r#""rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1e-40, 1]}"#,
        r#""rope_scaling": {"type": "dynamic", "factor": 1e17}"#,
    ] {
        let error = error(more);
        assert!(error.starts_with("config.json: `rope_theta` is "), "{more}: {error}");
    }
    assert_eq!(
        error(r#""rope_scaling": {"type": "linear", "factor": 1e-39}"#),
        "config.json: `rope_theta` is 10000, expected a base that gives frequencies of at most 3.4e38, but with its \
         scaling one is 1.0e39"
    );
    assert!(outcome(&hf, &with(r#""rope_scaling": {"type": "linear", "factor": 1e-38}"#)).is_ok());
    assert!(outcome(&hf, &with(&format!(r#""rope_theta": {:e}"#, f64::from(f32::MIN_POSITIVE)))).is_ok());
}

#[test]
fn the_number_of_heads_is_inferred_from_the_size_of_a_head_unless_the_matrix_is_fused() {
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    let inferred = outcome(&hf, &config(r#"{"model_type": "llama", "head_dim": 8}"#)).expect("16 rows");
    assert!(inferred.contains("n_heads: 2, n_kv_heads: 1, head_dim: 8"), "{inferred}");
    // The rows of a fused matrix are those of keys and values, too.
    let mut fused = hf.clone();
    fused.retain(|(name, _)| !["q_proj", "k_proj", "v_proj"].iter().any(|part| name.contains(part)));
    fused.extend(
        (0..2).map(|layer| zeros(&format!("model.layers.{layer}.self_attn.qkv_proj.weight"), &[32, 16])),
    );
    let phi3 = config(r#"{"model_type": "phi3", "head_dim": 8}"#);
    assert_eq!(
        detect(&fused.into(), &phi3).expect_err("no number of heads").to_string(),
        "config.json has no `num_attention_heads`, which cannot be inferred from the tensor shapes"
    );
}

#[test]
fn weights_that_a_layout_has_no_names_for_are_missing() {
    let documents =
        ModelDocuments { params: Some(r#"{"n_heads": 4}"#.to_owned()), ..ModelDocuments::default() };
    let options = DecoderOptions { documents, ..DecoderOptions::default() };
    let all: Tensors = tensors(LayoutOwner::Meta, 1).into();
    let Detected::Model(decoder) = detect(&all, &options).expect("a llama") else { panic!("weights") };
    let record = decoder.record(1).replace(r#""qkv":false"#, r#""qkv":true"#);
    let biased = Decoder::from_record(&record, &all).expect("the record is valid");
    assert_eq!(
        biased.assign(&all, false).expect_err("no biases").to_string(),
        "there is no tensor `Bias { layer: 0, part: Wq }`, which a model of 2 layers needs"
    );
}

#[test]
fn an_error_about_heads_that_the_document_states_too_names_it() {
    let overrides = Overrides { n_heads: Some(3), ..Overrides::default() };
    let options =
        DecoderOptions { overrides, ..changed("\"num_attention_heads\": 4", "\"num_attention_heads\": 3") };
    assert_eq!(
        outcome(&tensors(LayoutOwner::HuggingFace, 1), &options).expect_err("16 / 3").to_string(),
        "config.json: `num_attention_heads` is 3, expected a divisor of hidden_size 16"
    );
}

#[test]
fn a_given_base_is_that_of_layers_with_full_attention() {
    let document = r#"{"model_type": "gemma3_text", "rope_parameters": {"sliding_attention": {"rope_theta": 1e4},
        "full_attention": {"rope_theta": 5e5}}}"#;
    let overrides = Overrides { rope_theta: Some(1e4), ..Overrides::default() };
    let options = DecoderOptions { overrides, ..config(document) };
    let error = build_decoder("gemma3_text", &tensors(LayoutOwner::HuggingFace, 1).into(), &options);
    assert_eq!(
        error.expect_err("another base").to_string(),
        "rope_theta is given as 10000, but config.json says 500000"
    );
}

#[test]
fn errors_without_a_document_name_none() {
    let overrides = Overrides {
        n_heads: Some(4),
        rope_theta: Some(1e-100),
        norm_eps: Some(1e-5),
        ..Overrides::default()
    };
    for layout in [LayoutOwner::Meta, LayoutOwner::HuggingFace] {
        let options = DecoderOptions { overrides, ..DecoderOptions::default() };
        let error = build_decoder("llama", &tensors(layout, 1).into(), &options).expect_err("a tiny base");
        assert!(error.to_string().starts_with("the shapes: `rope_theta` is "), "{error}");
        assert_eq!(error.location().path, None);
    }
}

#[test]
fn given_numbers_fill_in_what_config_json_omits() {
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    let outcome =
        |more: &str, given: Overrides| outcome(&hf, &DecoderOptions { overrides: given, ..with(more) });
    let heads = |n_heads| Overrides { n_heads: Some(n_heads), ..Overrides::default() };
    let theta = |theta| Overrides { rope_theta: Some(theta), ..Overrides::default() };
    let factor = |factor| Overrides { rope_factor: Some(factor), ..Overrides::default() };
    let eps = |eps| Overrides { norm_eps: Some(eps), ..Overrides::default() };
    let base = r#""rope_theta": 5e5"#;
    let inner = r#""rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}"#;
    let untyped = r#""rope_parameters": {"rope_theta": 5e5}"#;
    let yarn = r#""rope_scaling": {"type": "yarn", "factor": 8}"#;
    let llama3 = |factor: &str, theta: &str| {
        format!(
            r#""rope_scaling": {{"rope_type": "llama3", {factor}"low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}{theta}"#
        )
    };
    let scaled = llama3(r#""factor": 8, "#, "");
    for (more, given, expected) in [
        (base, heads(2), "n_heads is given as 2, but config.json says 4"),
        (base, theta(123.0), "rope_theta is given as 123, but config.json says 500000"),
        (inner, theta(123.0), "rope_theta is given as 123, but config.json says 500000"),
        (r#""rms_norm_eps": 1e-6"#, eps(1e-5), "norm_eps is given as 1e-5, but config.json says 1e-6"),
        (&scaled, factor(32.0), "rope_factor is given as 32, but config.json says 8"),
        (
            inner,
            factor(8.0),
            r#"rope_factor is given as 8, but config.json says `rope_parameters.rope_type` "default""#,
        ),
        (yarn, factor(8.0), r#"rope_factor is given as 8, but config.json says `rope_scaling.type` "yarn""#),
    ] {
        assert_eq!(outcome(more, given).expect_err("two answers").to_string(), expected);
    }
    // An equal number changes nothing, and what is missing can come from either side.
    for (more, given, same) in [
        (base, heads(4), base),
        (base, theta(5e5), base),
        (inner, theta(5e5), base),
        (r#""rms_norm_eps": 1e-5"#, eps(0.000_01), r#""rms_norm_eps": 1e-5"#),
        (r#""x": null"#, eps(1e-5), r#""rms_norm_eps": 1e-5"#),
        (r#""rope_theta": null"#, theta(5e5), base),
        (&scaled, factor(8.0), &scaled),
        (&llama3("", ""), factor(8.0), &scaled),
        (r#""rope_scaling": null"#, factor(8.0), &scaled),
        (untyped, factor(8.0), &llama3(r#""factor": 8, "#, r#", "rope_theta": 5e5"#)),
    ] {
        let nothing = Overrides::default();
        assert_eq!(outcome(more, given).expect(more), outcome(same, nothing).expect(same), "{more}");
    }
}

#[test]
fn a_named_architecture_has_to_fit() {
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    let error = |name: &str, options: &DecoderOptions| {
        build_decoder(name, &hf.clone().into(), options).expect_err("wrong").to_string()
    };
    assert_eq!(
        error("mistral", &config(CONFIG)),
        "config.json: `model_type` is \"llama\", expected \"mistral\""
    );
    assert_eq!(
        error("qwen2", &DecoderOptions::default()),
        "there is no config.json, which qwen2 models need"
    );
    assert_eq!(
        error("llama", &DecoderOptions::default()),
        "there is no config.json, and `num_attention_heads`, `rope_theta` and `rms_norm_eps` cannot be inferred from the tensor shapes"
    );
    assert_eq!(
        build_decoder("mistral", &tensors(LayoutOwner::Meta, 1).clone().into(), &config(CONFIG))
            .expect_err("Meta's names")
            .to_string(),
        "this is not a mistral model: there is no tensor `model.layers.0.self_attn.q_proj.weight`"
    );
    assert_eq!(error("gpt9", &DecoderOptions::default()), "unknown architecture `gpt9`");
}

#[test]
fn qwen2_has_biases_of_queries_keys_and_values() {
    let mut all = tensors(LayoutOwner::HuggingFace, 1);
    let options = config(r#"{"model_type": "qwen2", "num_attention_heads": 4}"#);
    assert_eq!(
        outcome(&all, &options).expect_err("no biases").to_string(),
        "there is no tensor `model.layers.0.self_attn.q_proj.bias`, which a model of 2 layers needs"
    );
    for layer in 0..2 {
        for (part, size) in [(LayerPart::Wq, 16), (LayerPart::Wk, 8), (LayerPart::Wv, 8)] {
            all.push(zeros(&name(LayoutOwner::HuggingFace, Weight::Bias { layer, part }), &[size]));
        }
    }
    assert!(outcome(&all, &options).is_ok());
}
