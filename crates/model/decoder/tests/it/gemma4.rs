//! Gemma 4: heads of two sizes, shared keys and values, and inputs of layers, in names of text models and of folders with towers.

use decoder::{Decoder, DecoderOptions, Detected, ModelDocuments, detect};
use tensor::{Dtype, Storage, Tensor, Tensors};

const TEXT: &str = r#""hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "global_head_dim": 6,
    "intermediate_size": 24, "vocab_size": 32, "vocab_size_per_layer_input": 34, "hidden_size_per_layer_input": 5,
    "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]"#;

fn zeros(name: String, shape: &[u64]) -> (String, Tensor) {
    let stride = vec![0; shape.len()];
    let tensor = Tensor::new(Dtype::BFloat16, shape.to_vec(), stride, 0, Storage::owned(vec![0; 2]));
    (name, tensor.expect("one element"))
}

/// A model of four layers, of which the last two have keys and values that they do not use.
fn tensors(body: &str) -> Tensors {
    let mut all = vec![
        zeros(format!("{body}embed_tokens.weight"), &[32, 16]),
        zeros(format!("{body}embed_tokens_per_layer.weight"), &[34, 20]),
        zeros(format!("{body}per_layer_model_projection.weight"), &[20, 16]),
        zeros(format!("{body}per_layer_projection_norm.weight"), &[5]),
        zeros(format!("{body}norm.weight"), &[16]),
    ];
    let sizes = [(4, 24), (6, 24), (4, 48), (6, 48)];
    for (layer, (head, hidden)) in sizes.into_iter().enumerate() {
        let [queries, keys] = if head == 4 { [16, 8] } else { [24, 12] };
        let parts: [(&str, &[u64]); 17] = [
            ("self_attn.q_proj.weight", &[queries, 16]),
            ("self_attn.k_proj.weight", &[keys, 16]),
            ("self_attn.v_proj.weight", &[keys, 16]),
            ("self_attn.o_proj.weight", &[16, queries]),
            ("self_attn.q_norm.weight", &[head]),
            ("self_attn.k_norm.weight", &[head]),
            ("mlp.gate_proj.weight", &[hidden, 16]),
            ("mlp.up_proj.weight", &[hidden, 16]),
            ("mlp.down_proj.weight", &[16, hidden]),
            ("input_layernorm.weight", &[16]),
            ("post_attention_layernorm.weight", &[16]),
            ("pre_feedforward_layernorm.weight", &[16]),
            ("post_feedforward_layernorm.weight", &[16]),
            ("per_layer_input_gate.weight", &[5, 16]),
            ("per_layer_projection.weight", &[16, 5]),
            ("post_per_layer_input_norm.weight", &[16]),
            ("layer_scalar", &[1]),
        ];
        all.extend(parts.map(|(part, shape)| zeros(format!("{body}layers.{layer}.{part}"), shape)));
    }
    if body != "model." {
        all.push(zeros("model.vision_tower.encoder.weight".to_owned(), &[2]));
    }
    all.into()
}

fn model(config: String, tensors: &Tensors) -> Decoder {
    let documents = ModelDocuments { config: Some(config), ..ModelDocuments::default() };
    match detect(tensors, &DecoderOptions { documents, ..DecoderOptions::default() }).expect("valid") {
        Detected::Model(decoder) => *decoder,
        Detected::Weights { no_model_reason, .. } => panic!("{no_model_reason}"),
    }
}

#[test]
fn keys_and_values_that_no_layer_uses_are_left_out() {
    let plain = format!(r#"{{"model_type": "gemma4_text", {TEXT}}}"#);
    let nested =
        format!(r#"{{"model_type": "gemma4", "text_config": {{"model_type": "gemma4_text", {TEXT}}}}}"#);
    for (config, body, tower) in
        [(plain, "model.", ""), (nested, "model.language_model.", "`model.vision_tower`")]
    {
        let all = tensors(body);
        let decoder = model(config, &all);
        let (kept, note) = decoder.without_other_parts(&all).expect("there are some");
        for part in ["`self_attn.k_proj`", "`self_attn.v_proj`", "`self_attn.k_norm`", tower] {
            assert!(note.to_string().contains(part), "{note}");
        }
        decoder.assign(&kept, false).expect("all are used");
        assert_eq!(decoder.key_layers(), [0, 1, 0, 1]);
        let (far, near) = decoder.cache_layers();
        assert_eq!((far.layers, far.head_dim), (1, 6));
        assert_eq!(near.map(|near| (near.layers, near.head_dim)), Some((1, 4)));
        let again = Decoder::from_record(&decoder.record(1), &kept).expect("its own record");
        assert_eq!(again.record(1), decoder.record(1));
        again.assign(&kept, false).expect("all are used");
    }
}

#[test]
fn records_with_other_layers_are_refused() {
    let all = tensors("model.");
    let record = model(format!(r#"{{"model_type": "gemma4_text", {TEXT}}}"#), &all).record(1);
    for (part, wrong) in [
        (r#""first_shared":2"#, r#""first_shared":1"#),
        (r#""first_shared":2"#, r#""first_shared":5"#),
        (r#""head_dim":6"#, r#""head_dim":5"#),
        (r#""head_dim":6"#, r#""head_dim":0"#),
        (r#""head_dim":6"#, r#""head_dim":9000000000000"#),
        (r#""kv_heads":2,"keys"#, r#""kv_heads":3,"keys"#),
        (r#""kv_heads":2,"keys"#, r#""kv_heads":0,"keys"#),
        (r#""rope_of_layer":[1,0,1,0]"#, r#""rope_of_layer":[1,0,1,1]"#),
        (r#""rope_of_layer":[1,0,1,0]"#, r#""rope_of_layer":null"#),
        ("[true,false,true,false]", "[true,false,true,true]"),
        (r#""head_norm":"Head""#, r#""head_norm":"Projection""#),
        (r#""part":0.25"#, r#""part":1.5"#),
        (r#""width":5"#, r#""width":0"#),
        (r#""vocab":34"#, r#""vocab":31"#),
    ] {
        assert!(record.contains(part), "{part}: {record}");
        Decoder::from_record(&record.replacen(part, wrong, 1), &all).expect_err(wrong);
    }
}
