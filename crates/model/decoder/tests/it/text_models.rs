//! The text model of folders with several parts: which tensors it has in each spelling, and which are left out.

use decoder::{Decoder, DecoderOptions, Detected, ModelDocuments, Problem, detect};
use tensor::{Tensor, Tensors};

use super::fixtures::zeros;

const TEXT: &str = r#""hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2"#;

/// The tensors of two or more layers with the names that begin with `text`, and those of a tower.
fn tensors(text: &str, output: &str, layers: u64, embeddings: u64) -> Tensors {
    let mut all: Vec<(String, Tensor)> = vec![
        zeros(&format!("{text}embed_tokens.weight"), &[embeddings, 16]),
        zeros(&format!("{text}norm.weight"), &[16]),
        zeros(output, &[32, 16]),
        zeros("visual.blocks.0.weight", &[3]),
        zeros("model.visual.merger.weight", &[3]),
    ];
    for layer in 0..layers {
        let parts = [("q", [16, 16]), ("k", [8, 16]), ("v", [8, 16]), ("o", [16, 16])]
            .map(|(part, shape)| (format!("self_attn.{part}_proj"), shape.to_vec()));
        let mlp = [("gate", [48, 16]), ("up", [48, 16]), ("down", [16, 48])]
            .map(|(part, shape)| (format!("mlp.{part}_proj"), shape.to_vec()));
        let norms = ["input_layernorm", "post_attention_layernorm"].map(|name| (name.to_owned(), vec![16]));
        for (part, shape) in parts.into_iter().chain(mlp).chain(norms) {
            all.push(zeros(&format!("{text}layers.{layer}.{part}.weight"), &shape));
        }
    }
    all.into()
}

fn found(config: &str, tensors: &Tensors) -> decoder::Result<Detected> {
    let documents = ModelDocuments { config: Some(config.to_owned()), ..ModelDocuments::default() };
    detect(tensors, &DecoderOptions { documents, ..DecoderOptions::default() })
}

fn model(config: &str, tensors: &Tensors) -> Decoder {
    match found(config, tensors).expect("documents and shapes agree") {
        Detected::Model(decoder) => *decoder,
        Detected::Weights { no_model_reason, .. } => panic!("{no_model_reason}"),
    }
}

#[test]
fn both_spellings_are_the_same_model_and_towers_are_left_out() {
    let config =
        format!(r#"{{"model_type": "llava", "text_config": {{{TEXT}}}, "vision_config": {{"a": 1}}}}"#);
    for (text, output) in [
        ("language_model.model.", "language_model.lm_head.weight"),
        ("model.language_model.", "lm_head.weight"),
    ] {
        let all = tensors(text, output, 2, 32);
        let decoder = model(&config, &all);
        let (kept, note) = decoder.without_other_parts(&all).expect("there are two parts");
        assert_eq!(
            note.to_string(),
            "2 tensors are left out, which logits of text do not depend on: `visual`, `model.visual`"
        );
        assert_eq!(kept.len(), all.len() - 2);
        decoder.assign(&kept, false).expect("all are used");
        let again = Decoder::from_record(&decoder.record(1), &kept).expect("its own record");
        assert_eq!(again.record(1), decoder.record(1));
        assert!(decoder.without_other_parts(&kept).is_none());
    }
}

#[test]
fn layers_that_look_at_pictures_are_skipped_wherever_they_are() {
    for (looking, skipped) in [("[0, 3]", vec![0, 3]), ("[1]", vec![1]), ("[2, 3, 9]", vec![2, 3])] {
        let config = format!(
            r#"{{"model_type": "mllama", "text_config": {{{TEXT}, "vocab_size": 32, "num_hidden_layers": 4,
                "cross_attention_layers": {looking}}}}}"#
        );
        let all = tensors("language_model.model.", "language_model.lm_head.weight", 4, 40);
        let decoder = model(&config, &all);
        assert_eq!((decoder.n_layers(), decoder.vocab()), (4 - skipped.len() as u64, 32));
        let (kept, note) = decoder.without_other_parts(&all).expect("there are layers to leave out");
        for layer in skipped {
            assert!(note.to_string().contains(&format!("`language_model.model.layers.{layer}`")), "{note}");
        }
        decoder.assign(&kept, false).expect("all are used");
        let again = Decoder::from_record(&decoder.record(1), &kept).expect("its own record");
        again.assign(&kept, false).expect("all are used");
    }
}

#[test]
fn a_record_with_layers_out_of_order_is_refused() {
    let config = format!(
        r#"{{"model_type": "mllama", "text_config": {{{TEXT}, "vocab_size": 32, "cross_attention_layers": [0, 2]}}}}"#
    );
    let all = tensors("model.language_model.", "lm_head.weight", 4, 40);
    let record = model(&config, &all).record(1);
    for wrong in ["[2,0]", "[0,0]", "[0,1,2,3]"] {
        let record = record.replace(r#""skipped_layers":[0,2]"#, &format!(r#""skipped_layers":{wrong}"#));
        assert!(record.contains(wrong), "{record}");
        Decoder::from_record(&record, &all).expect_err(wrong);
    }
}

#[test]
fn a_text_model_of_another_type_is_none() {
    let all = tensors("language_model.model.", "language_model.lm_head.weight", 2, 32);
    let config = r#"{"model_type": "llava", "text_config": {"model_type": "t5"}}"#;
    let Detected::Weights { no_model_reason, .. } = found(config, &all).expect("weights") else {
        panic!("a model")
    };
    assert_eq!(no_model_reason.to_string(), "no forward for model_type \"t5\"");
    let documents = ModelDocuments { config: Some(config.to_owned()), ..ModelDocuments::default() };
    let options = DecoderOptions { documents, ..DecoderOptions::default() };
    let error = decoder::build_decoder("llava", &all, &options).expect_err("no such text model");
    let error: Problem = error.downcast().expect("its own");
    assert_eq!(
        error.to_string(),
        "config.json: `text_config.model_type` is \"t5\", expected \"llama\" or \"mistral\" or \"qwen2\""
    );
}

#[test]
fn published_names_of_gpt2_lack_a_prefix_and_masks_are_left_out() {
    let config = r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 16, "n_head": 4, "n_layer": 2,
        "n_positions": 8, "n_ctx": 8, "vocab_size": 32}"#;
    for prefix in ["", "transformer."] {
        let name = |rest: &str| format!("{prefix}{rest}");
        let mut all = vec![
            zeros(&name("wte.weight"), &[32, 16]),
            zeros(&name("wpe.weight"), &[8, 16]),
            zeros(&name("ln_f.weight"), &[16]),
            zeros(&name("ln_f.bias"), &[16]),
        ];
        for layer in 0..2 {
            for (part, shape) in [
                ("attn.c_attn", [16, 48]),
                ("attn.c_proj", [16, 16]),
                ("mlp.c_fc", [16, 64]),
                ("mlp.c_proj", [64, 16]),
            ] {
                all.push(zeros(&name(&format!("h.{layer}.{part}.weight")), &shape));
                all.push(zeros(&name(&format!("h.{layer}.{part}.bias")), &shape[1..]));
            }
            for part in ["ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"] {
                all.push(zeros(&name(&format!("h.{layer}.{part}")), &[16]));
            }
            all.push(zeros(&name(&format!("h.{layer}.attn.bias")), &[8, 8]));
        }
        let all: Tensors = all.into();
        let decoder = model(config, &all);
        let (kept, note) = decoder.without_other_parts(&all).expect("there are masks");
        assert_eq!(
            note.to_string(),
            "2 tensors are left out, which logits of text do not depend on: `attn.bias`"
        );
        let assignment = decoder.assign(&kept, false).expect("all are used");
        for assigned in &assignment.weights {
            let tensor = assigned.tensor(&kept).expect("it has one");
            assert_eq!(tensor.shape(), decoder.part_dimensions(assigned.weight), "{:?}", assigned.weight);
        }
        let key = decoder::Weight::Layer { layer: 1, part: decoder::LayerPart::Wk };
        let key = assignment.weights.iter().find(|it| it.weight == key).and_then(|it| it.tensor(&kept));
        let key = key.expect("it is a part of a matrix");
        // Columns 16 to 31 of a matrix of 16 rows.
        assert_eq!((key.storage_offset(), key.stride()), (16, &[1, 48][..]));
    }
}

#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let config = format!(
        r#"{{"model_type": "glm4_moe", {TEXT}, "num_hidden_layers": 2, "first_k_dense_replace": 9, "vocab_size": 32}}"#
    );
    let all = tensors("model.", "lm_head.weight", 3, 32);
    let towers = ["visual.blocks.0.weight", "model.visual.merger.weight"];
    let all: Tensors =
        all.iter().filter(|(name, _)| !towers.contains(&name.as_str())).cloned().collect::<Vec<_>>().into();
    let decoder = model(&config, &all);
    let (kept, note) = decoder.without_other_parts(&all).expect("there is one more layer");
    assert!(note.to_string().ends_with(": `model.layers.2`"), "{note}");
    decoder.assign(&kept, false).expect("all are used");
    assert_eq!(Decoder::from_record(&decoder.record(1), &kept).expect("its own record").n_layers(), 2);
}

#[test]
fn older_files_of_gpt_neox_name_the_output_otherwise_and_have_masks() {
    let config = r#"{"model_type": "gpt_neox", "num_attention_heads": 2, "vocab_size": 32}"#;
    for output in ["lm_head.weight", "embed_out.weight"] {
        let mut all = vec![
            zeros("gpt_neox.embed_in.weight", &[32, 16]),
            zeros("gpt_neox.final_layer_norm.weight", &[16]),
            zeros("gpt_neox.final_layer_norm.bias", &[16]),
            zeros(output, &[32, 16]),
            zeros("gpt_neox.layers.0.attention.masked_bias", &[]),
        ];
        for (part, shape) in [
            ("attention.query_key_value", vec![48, 16]),
            ("attention.dense", vec![16, 16]),
            ("mlp.dense_h_to_4h", vec![64, 16]),
            ("mlp.dense_4h_to_h", vec![16, 64]),
            ("input_layernorm", vec![16]),
            ("post_attention_layernorm", vec![16]),
        ] {
            all.push(zeros(&format!("gpt_neox.layers.0.{part}.weight"), &shape));
            all.push(zeros(&format!("gpt_neox.layers.0.{part}.bias"), &shape[..1]));
        }
        let all: Tensors = all.into();
        let decoder = model(config, &all);
        let (kept, _) = decoder.without_other_parts(&all).expect("there is a mask");
        decoder.assign(&kept, false).expect("all are used");
        let again = Decoder::from_record(&decoder.record(1), &kept).expect("its own record");
        assert_eq!(again.record(1), decoder.record(1));
    }
}
