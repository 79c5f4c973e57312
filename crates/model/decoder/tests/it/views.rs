//! Weights that are parts of tensors, as views; and records of decoders.

use proptest::prelude::*;

use decoder::{Decoder, DecoderOptions, Detected, LayerPart, ModelDocuments, Weight, detect};
use tensor::{Dtype, Tensor};

type List = Vec<(String, Tensor)>;

fn tensor(shape: &[u64]) -> Tensor {
    test_support::zeros(Dtype::Float32, shape)
}

fn options(config: &str) -> DecoderOptions {
    let documents = ModelDocuments { config: Some(config.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn decoder(config: &str, tensors: &List) -> Decoder {
    match detect(&tensors.clone().into(), &options(config)).expect("document and shapes agree") {
        Detected::Model(decoder) => *decoder,
        Detected::Weights { no_model_reason: why, .. } => panic!("{why}"),
    }
}

/// Of each weight: where it begins, its shape and its strides.
fn view(decoder: &Decoder, tensors: &List, weight: Weight) -> (u64, Vec<u64>, Vec<u64>) {
    let tensors = &tensors.clone().into();
    let assignment = decoder.assign(tensors, false).expect("all is there");
    let assigned = assignment.weights.iter().find(|assigned| assigned.weight == weight).expect("it has one");
    let tensor = assigned.tensor(tensors).expect("it has one");
    (tensor.storage_offset(), tensor.shape().to_vec(), tensor.stride().to_vec())
}

const PHI3: &str = r#"{"model_type": "phi3", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 32, "tie_word_embeddings": true}"#;

fn phi3() -> List {
    let layer = "model.layers.0.";
    [
        ("model.embed_tokens.weight".to_owned(), vec![32, 16]),
        ("model.norm.weight".to_owned(), vec![16]),
        (format!("{layer}self_attn.qkv_proj.weight"), vec![32, 16]),
        (format!("{layer}self_attn.o_proj.weight"), vec![16, 16]),
        (format!("{layer}mlp.gate_up_proj.weight"), vec![96, 16]),
        (format!("{layer}mlp.down_proj.weight"), vec![16, 48]),
        (format!("{layer}input_layernorm.weight"), vec![16]),
        (format!("{layer}post_attention_layernorm.weight"), vec![16]),
    ]
    .into_iter()
    .map(|(name, shape)| (name, tensor(&shape)))
    .collect()
}

#[test]
fn fused_matrices_are_views_of_their_rows() {
    let tensors = phi3();
    let decoder = decoder(PHI3, &tensors);
    let view = |part| view(&decoder, &tensors, Weight::Layer { layer: 0, part });
    assert_eq!(view(LayerPart::Wq), (0, vec![16, 16], vec![16, 1]));
    assert_eq!(view(LayerPart::Wk), (16 * 16, vec![8, 16], vec![16, 1]));
    assert_eq!(view(LayerPart::Wv), (24 * 16, vec![8, 16], vec![16, 1]));
    assert_eq!(view(LayerPart::W1), (0, vec![48, 16], vec![16, 1]));
    assert_eq!(view(LayerPart::W3), (48 * 16, vec![48, 16], vec![16, 1]));
}

#[test]
fn errors_about_fused_matrices_name_all_their_rows() {
    let mut tensors = phi3();
    tensors[2].1 = tensor(&[48, 16]);
    let error = decoder(PHI3, &tensors)
        .assign(&tensors.clone().into(), false)
        .expect_err("too many rows")
        .to_string();
    assert_eq!(
        error,
        "tensor `model.layers.0.self_attn.qkv_proj.weight`: shape [48, 16], expected [32, 16] from num_attention_heads 4 \
         (of 4 each) plus num_key_value_heads 2 (of 4 each) plus num_key_value_heads 2 (of 4 each) and hidden_size 16"
    );
}

/// The tensors of a layer without its feed-forward layer, and those outside of it.
fn attention(bias: bool) -> List {
    let layer = "model.layers.0.";
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![32, 16]),
        ("model.norm.weight".to_owned(), vec![16]),
        ("lm_head.weight".to_owned(), vec![32, 16]),
        (format!("{layer}input_layernorm.weight"), vec![16]),
        (format!("{layer}post_attention_layernorm.weight"), vec![16]),
    ];
    for (name, rows) in [("q", 16), ("k", 8), ("v", 8), ("o", 16)] {
        shapes.push((format!("{layer}self_attn.{name}_proj.weight"), vec![rows, 16]));
        if bias {
            shapes.push((format!("{layer}self_attn.{name}_proj.bias"), vec![rows]));
        }
    }
    shapes.into_iter().map(|(name, shape)| (name, tensor(&shape))).collect()
}

#[test]
fn experts_in_one_tensor_are_views_of_it() {
    let config = r#"{"model_type": "mixtral", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24, "num_local_experts": 3}"#;
    let mut tensors = attention(false);
    let moe = |name: &str, shape: &[u64]| (format!("model.layers.0.mlp.{name}"), tensor(shape));
    tensors.extend([
        moe("gate.weight", &[3, 16]),
        moe("experts.gate_up_proj", &[3, 48, 16]),
        moe("experts.down_proj", &[3, 16, 24]),
    ]);
    let decoder = decoder(config, &tensors);
    let view = |part, expert| view(&decoder, &tensors, Weight::Expert { layer: 0, part, expert });
    assert_eq!(view(LayerPart::W1, 2), (2 * 48 * 16, vec![24, 16], vec![16, 1]));
    assert_eq!(view(LayerPart::W3, 2), (2 * 48 * 16 + 24 * 16, vec![24, 16], vec![16, 1]));
    assert_eq!(view(LayerPart::W2, 1), (16 * 24, vec![16, 24], vec![24, 1]));
}

#[test]
fn transposed_experts_are_views_with_their_strides() {
    let config = r#"{"model_type": "gpt_oss", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24, "num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 4}"#;
    let mut tensors = attention(true);
    let layer = |name: &str, shape: &[u64]| (format!("model.layers.0.{name}"), tensor(shape));
    tensors.extend([
        layer("self_attn.sinks", &[4]),
        layer("mlp.router.weight", &[3, 16]),
        layer("mlp.router.bias", &[3]),
        layer("mlp.experts.gate_up_proj", &[3, 16, 48]),
        layer("mlp.experts.gate_up_proj_bias", &[3, 48]),
        layer("mlp.experts.down_proj", &[3, 24, 16]),
        layer("mlp.experts.down_proj_bias", &[3, 16]),
    ]);
    let decoder = decoder(config, &tensors);
    let matrix = |part| view(&decoder, &tensors, Weight::Expert { layer: 0, part, expert: 2 });
    let bias = |part| view(&decoder, &tensors, Weight::ExpertBias { layer: 0, part, expert: 2 });
    assert_eq!(matrix(LayerPart::W13), (2 * 16 * 48, vec![48, 16], vec![1, 48]));
    assert_eq!(bias(LayerPart::W13), (2 * 48, vec![48], vec![1]));
    assert_eq!(matrix(LayerPart::W2), (2 * 24 * 16, vec![16, 24], vec![1, 16]));
    assert_eq!(bias(LayerPart::W2), (2 * 16, vec![16], vec![1]));
}

#[test]
fn records_are_checked_like_documents() {
    let tensors = phi3();
    let text = decoder(PHI3, &tensors).record(1);
    assert!(Decoder::from_record(&text, &tensors.clone().into()).is_ok());
    for (from, to, expected) in [
        ("\"phi3\"", "\"phi5\"", "unknown architecture `phi5`"),
        (
            "\"phi3\"",
            "\"qwen3\"",
            "this is not a qwen3 model: there is no tensor `model.layers.0.self_attn.q_proj.weight`",
        ),
        (
            "\"n_layers\":1",
            "\"n_layers\":2",
            "the shapes: `num_hidden_layers` is 2, expected 1, the number of layers in the checkpoint",
        ),
        (
            "\"n_heads\":4",
            "\"n_heads\":3",
            "the shapes: `num_key_value_heads` is 2, expected a divisor of num_attention_heads 3",
        ),
        (
            "\"head_dim\":4",
            "\"head_dim\":0",
            "the shapes: `head_dim` is 0, expected an even number, because RoPE rotates pairs",
        ),
        (
            "\"rotated\":4",
            "\"rotated\":3",
            "the shapes: `partial_rotary_factor` is 3 numbers of a head, expected a part that makes an even number of head_dim 4",
        ),
        (
            "\"rotated\":4",
            "\"rotated\":18446744073709551614",
            "the shapes: `partial_rotary_factor` is 18446744073709551614 numbers of a head, expected a part that makes an even number of head_dim 4",
        ),
        (
            "\"norm_eps\":0.00001",
            "\"norm_eps\":-1",
            "the shapes: `norm_eps` is -1, expected a number above 0",
        ),
        ("\"theta\":10000.0", "\"theta\":0", "the shapes: `rope_theta` is 0, expected a number above 0"),
        ("[{\"theta\":10000.0,\"scaling\":null}]", "[]", "the record: `ropes` is missing"),
        (
            "\"rope_of_layer\":null",
            "\"rope_of_layer\":[0,0]",
            "the shapes: `rope_of_layer` is a list of 2, expected one entry for each of 1 layers",
        ),
        (
            "\"rope_of_layer\":null",
            "\"rope_of_layer\":[7]",
            "the shapes: `rope_of_layer` is 7, expected less than 1",
        ),
        (
            "\"layers\":\"All\"",
            "\"layers\":{\"Listed\":[]}",
            "the shapes: `layer_types` is a list of 0, expected one entry for each of 1 layers",
        ),
        ("\"experts\":null", "\"experts\":{}", "the record: missing field `count` at line 1 column"),
        (
            "\"experts\":null",
            "\"experts\":{\"count\":18446744073709551615,\"per_token\":1,\"hidden\":8,\"softmax\":\"AfterChoice\",\"renormalised\":true,\"biases\":false,\"interleaved\":false,\"shared\":null,\"layers\":[true]}",
            "the shapes: `num_experts` is 18446744073709551615, expected 1 to 4096",
        ),
        ("\"embedding\":1.0", "\"embedding\":1e999", "the record: number out of range at line 1 column"),
        ("\"architecture\"", "\"other\":1,\"architecture\"", "the record: unknown field `other`"),
    ] {
        assert!(text.contains(from), "{from} is not in {text}");
        let error = Decoder::from_record(&text.replacen(from, to, 1), &tensors.clone().into())
            .expect_err(to)
            .to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Numbers that a hostile text may have.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "2",
    "3",
    "1e308",
    "-1e308",
    "5e-324",
    "0.5",
    "65536",
    "4294967296",
    "9007199254740993",
    "18446744073709551614",
    "18446744073709551615",
];

/// A record with everything that a record can have.
fn rich(tensors: &List) -> String {
    let text = decoder(PHI3, tensors).record(1);
    let longrope = r#"{"theta":10000.0,"scaling":{"LongRope":{"short":[1.0,2.0],"long":[3.0,4.0],"old":32.0,"magnitude":1.5}}}"#;
    let yarn = r#"{"theta":10000.0,"scaling":{"Yarn":{"factor":4.0,"fast":32.0,"slow":1.0,"old":16.0,"magnitude":1.1,"truncate":true}}}"#;
    let dynamic = r#"{"theta":10000.0,"scaling":{"Dynamic":{"factor":4.0,"old":16.0}}}"#;
    let llama3 = r#"{"theta":10000.0,"scaling":{"Llama3":{"factor":4.0,"low":1.0,"high":4.0,"old":16.0}}}"#;
    let text =
        text.replace(r#"{"theta":10000.0,"scaling":null}"#, &[longrope, yarn, dynamic, llama3].join(","));
    let text = text.replace(r#""rope_of_layer":null"#, r#""rope_of_layer":[3]"#);
    text.replace(r#"{"size":null,"layers":"All"}"#, r#"{"size":7,"layers":{"From":1}}"#)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever numbers a record has, it is refused or it makes a decoder that can be used.
    #[test]
    fn hostile_records_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), 0..NUMBERS.len()), 1..4)) {
        let tensors = phi3();
        let mut text = rich(&tensors);
        for (place, number) in changes {
            let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | 'e' | '+');
            let starts: Vec<usize> = text
                .char_indices()
                .filter(|(at, c)| is_digit(*c) && c.is_ascii_digit() && text[..*at].ends_with([':', '[', ',', '-']))
                .map(|(at, _)| at)
                .collect();
            let start = *place.get(&starts);
            let (before, after) = text.split_at(start);
            text = [before, NUMBERS[number], after.trim_start_matches(is_digit)].concat();
        }
        if let Ok(decoder) = Decoder::from_record(&text, &tensors.clone().into()) {
            for rope in decoder.ropes() {
                let frequencies = rope.frequencies(decoder.rotated(), 100);
                prop_assert_eq!(frequencies.len() as u64, decoder.rotated() / 2);
                prop_assert!(rope.magnitude() > 0.0);
            }
            prop_assert_eq!(decoder.record(1), Decoder::from_record(&decoder.record(1), &tensors.clone().into()).expect("its own").record(1));
            let _ = decoder.assign(&tensors.clone().into(), true);
        }
    }
}

#[test]
fn a_rich_record_is_right() {
    let tensors = phi3();
    assert_eq!(
        Decoder::from_record(&rich(&tensors), &tensors.clone().into()).expect("right").ropes().len(),
        4
    );
}
