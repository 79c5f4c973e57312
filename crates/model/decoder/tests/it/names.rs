//! A model in the other layout: names, rows, frequencies and documents, and all of it back again.

use std::collections::BTreeMap;

use byte_source::Blob;
use decoder::{DecoderOptions, Detected, LayoutOwner, ModelDocuments, TranslatedModel, detect, translate};
use proptest::prelude::*;
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use crate::fixtures::{tensors, zeros};
use crate::plans::{List, Plan, frequencies, plans};

/// The elements in C order.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    tensor.gathered().write_to(&mut out).expect("memory can be read");
    out
}

fn params(text: &str) -> DecoderOptions {
    let documents = ModelDocuments { params: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn config(text: &str) -> DecoderOptions {
    let documents = ModelDocuments { config: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn document(translated: &TranslatedModel) -> String {
    let document = translated.document.as_ref().expect("the layout is another one");
    document.text(&translated.tensors)
}

fn get<'t>(tensors: &'t [(String, Tensor)], name: &str) -> &'t Tensor {
    let found = tensors.iter().find(|(other, _)| other == name);
    &found.unwrap_or_else(|| panic!("no {name} in {:?}", names(tensors))).1
}

fn names(tensors: &[(String, Tensor)]) -> Vec<&str> {
    tensors.iter().map(|(name, _)| name.as_str()).collect()
}

fn notes(translated: &TranslatedModel) -> Vec<String> {
    translated.notes.iter().map(ToString::to_string).collect()
}

/// What a decoder is, without how it was found.
fn facts(tensors: &[(String, Tensor)], options: &DecoderOptions) -> String {
    let Detected::Model(model) = detect(&tensors.to_vec().into(), options).expect("a model") else {
        panic!("only weights")
    };
    format!(
        "{:?}",
        (
            model.dim(),
            model.n_layers(),
            model.n_heads(),
            model.n_kv_heads(),
            model.head_dim(),
            model.hidden(),
            model.vocab(),
            model.norm_eps(),
            model.rope(),
            model.windows(),
            model.biases()
        )
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Names, elements, ties, frequencies and what the documents mean.
    #[test]
    fn one_direction_undoes_the_other(plan in plans()) {
        let mut meta = plan.tensors();
        let original = params(&plan.params());
        if let Some(dtype) = plan.frequencies {
            meta.push(("rope.freqs".to_owned(), frequencies(&plan, dtype)));
        }
        let there = translate(meta.clone().into(), &original, LayoutOwner::HuggingFace).expect("a llama");
        prop_assert!(there.tensors.iter().all(|(name, _)| name.starts_with("model.") || name == "lm_head.weight"));
        let text = document(&there);
        prop_assert_eq!(facts(&meta, &original), facts(there.tensors.as_slice(), &config(&text)));
        let back = translate(there.tensors.clone(), &config(&text), LayoutOwner::Meta).expect("a llama");
        prop_assert_eq!(facts(&meta, &original), facts(back.tensors.as_slice(), &params(&document(&back))));

        let contents = |tensors: &[(String, Tensor)]| -> BTreeMap<String, (Dtype, Vec<u64>, Vec<u8>)> {
            let row = |(name, tensor): &(String, Tensor)| {
                (name.clone(), (tensor.dtype(), tensor.shape().to_vec(), bytes(tensor)))
            };
            tensors.iter().map(row).collect()
        };
        prop_assert_eq!(contents(back.tensors.as_slice()), contents(&meta));
        prop_assert_eq!(back.tensors.len(), meta.len());
        let (embedding, output) = (get(back.tensors.as_slice(), "tok_embeddings.weight"), get(back.tensors.as_slice(), "output.weight"));
        prop_assert_eq!(embedding.view_id() == output.view_id(), plan.tied);

        // The other way round, from Hugging Face's names.
        let again = translate(back.tensors.clone(), &params(&document(&back)), LayoutOwner::HuggingFace).expect("a llama");
        prop_assert_eq!(contents(again.tensors.as_slice()), contents(there.tensors.as_slice()));
        prop_assert_eq!(document(&again), text);
    }
}

const PARAMS: &str =
    r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": -1}"#;

fn error(tensors: List, options: &DecoderOptions, to: LayoutOwner) -> String {
    translate(tensors.into(), options, to).expect_err("it has no such layout").to_string()
}

/// `permute` of Hugging Face's script, element by element:
/// `w.view(n_heads, dim1 // n_heads // 2, 2, dim2).transpose(1, 2).reshape(dim1, dim2)`.
#[test]
fn rows_of_queries_and_keys_are_permuted_for_each_head() {
    let plan = Plan {
        kv_heads: 2,
        group: 2,
        head_dim: 6,
        usual_dim: true,
        layers: 1,
        multiple_of: 8,
        dtype: Dtype::Float32,
        transposed: false,
        tied: false,
        frequencies: None,
        scaled: None,
        theta: 1e4,
    };
    let there =
        translate(plan.tensors().into(), &params(&plan.params()), LayoutOwner::HuggingFace).expect("a llama");
    for (meta, hugging_face, heads) in [("wq", "q_proj", 4), ("wk", "k_proj", 2), ("wv", "v_proj", 0)] {
        let meta = plan.tensors().into_iter().find(|(name, _)| name.contains(meta)).expect("it is there").1;
        let new = get(there.tensors.as_slice(), &format!("model.layers.0.self_attn.{hugging_face}.weight"));
        let (old, new) = (bytes(&meta), bytes(new));
        let row = |bytes: &[u8], row: usize| bytes[row * 24 * 4..(row + 1) * 24 * 4].to_vec();
        for head in 0..heads {
            for pair in 0..3 {
                for side in 0..2 {
                    assert_eq!(row(&new, head * 6 + side * 3 + pair), row(&old, head * 6 + pair * 2 + side));
                }
            }
        }
        assert!(heads > 0 || old == new);
    }
}

#[test]
fn documents_say_what_the_other_layout_needs() {
    let mut meta = tensors(LayoutOwner::Meta, 1);
    meta.push(zeros("rope.freqs", &[2]));
    let computed = [0x80_u8, 0x3f, 0x24, 0x3c]; // 1.0 and 0.01 as bfloat16
    let storage = Storage::owned(computed.to_vec());
    meta.last_mut().expect("it was pushed").1 =
        Tensor::new(Dtype::BFloat16, vec![2], vec![1], 0, storage).expect("inside");
    let there = translate(meta.into(), &params(PARAMS), LayoutOwner::HuggingFace).expect("a llama");
    assert_eq!(
        notes(&there),
        [
            "`rope.freqs` is left out: it has what the model computes",
            "config.json: `max_position_embeddings` is 4096, as in Meta's models; no document states it",
            "config.json: `bos_token_id` and `eos_token_id` are null; no document states them",
        ]
    );
    assert_eq!(there.document.as_ref().map(decoder::LayoutDocument::file), Some("config.json"));
    let text = document(&there);
    assert_eq!(
        text,
        r#"{
  "architectures": [
    "LlamaForCausalLM"
  ],
  "attention_bias": false,
  "bos_token_id": null,
  "eos_token_id": null,
  "head_dim": 4,
  "hidden_act": "silu",
  "hidden_size": 16,
  "intermediate_size": 48,
  "max_position_embeddings": 4096,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 4,
  "num_hidden_layers": 2,
  "num_key_value_heads": 2,
  "rms_norm_eps": 0.00001,
  "rope_freqs": {
    "rope.freqs": "bfloat16"
  },
  "rope_theta": 10000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "vocab_size": 32
}
"#
    );
    let back = translate(there.tensors, &config(&text), LayoutOwner::Meta).expect("a llama");
    assert_eq!(notes(&back), ["`rope.freqs` is made again, as config.json records"]);
    assert_eq!(bytes(get(back.tensors.as_slice(), "rope.freqs")), computed);
    assert_eq!(
        document(&back),
        r#"{
  "dim": 16,
  "multiple_of": 16,
  "n_heads": 4,
  "n_kv_heads": 2,
  "n_layers": 2,
  "norm_eps": 0.00001,
  "rope_theta": 10000.0,
  "vocab_size": 32
}
"#
    );
}

#[test]
fn llama_3_has_its_own_numbers() {
    let scaled = PARAMS.replace('}', r#", "rope_theta": 5e5, "use_scaled_rope": true}"#);
    let there = translate(tensors(LayoutOwner::Meta, 1).into(), &params(&scaled), LayoutOwner::HuggingFace)
        .expect("a llama");
    let text = document(&there);
    assert!(text.contains(
        r#"  "rope_scaling": {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,"#
    ));
    let back = document(&translate(there.tensors, &config(&text), LayoutOwner::Meta).expect("a llama"));
    assert!(back.contains(r#""rope_scaling_factor": 8.0"#) && back.contains(r#""use_scaled_rope": true"#));
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    assert_eq!(
        error(hf, &config(&text.replace("8192,", "64,")), LayoutOwner::Meta),
        "params.json cannot express RoPE scaling with low_freq_factor 1, high_freq_factor 4 and original context 64: in Meta's code they are 1, 4 and 8192"
    );
}

#[test]
fn a_tied_output_is_left_out_for_hugging_face_and_repeated_for_meta() {
    let mut meta = tensors(LayoutOwner::Meta, 1);
    let embedding = meta[0].1.clone();
    meta[2].1 = embedding;
    let there = translate(meta.into(), &params(PARAMS), LayoutOwner::HuggingFace).expect("a llama");
    assert_eq!(
        get(there.tensors.as_slice(), "lm_head.weight").view_id(),
        get(there.tensors.as_slice(), "model.embed_tokens.weight").view_id()
    );
    assert!(document(&there).contains(r#""tie_word_embeddings": true"#));

    let mut meta = tensors(LayoutOwner::Meta, 1);
    meta.remove(2);
    let there = translate(meta.into(), &params(PARAMS), LayoutOwner::HuggingFace).expect("a llama");
    assert!(!names(there.tensors.as_slice()).contains(&"lm_head.weight"));
    let text = document(&there);
    assert!(text.contains(r#""tie_word_embeddings": true"#));
    let back = translate(there.tensors, &config(&text), LayoutOwner::Meta).expect("a llama");
    assert_eq!(
        get(back.tensors.as_slice(), "output.weight").view_id(),
        get(back.tensors.as_slice(), "tok_embeddings.weight").view_id()
    );
}

/// Two layers with one matrix have one matrix afterwards.
#[test]
fn permuted_ties_stay_ties() {
    let mut meta = tensors(LayoutOwner::Meta, 1);
    let first = get(&meta, "layers.0.attention.wk.weight").clone();
    let second =
        meta.iter_mut().find(|(name, _)| name == "layers.1.attention.wk.weight").expect("it is there");
    second.1 = first;
    let there = translate(meta.into(), &params(PARAMS), LayoutOwner::HuggingFace).expect("a llama");
    let of_layer = |n| {
        get(there.tensors.as_slice(), &format!("model.layers.{n}.self_attn.k_proj.weight")).storage().id()
    };
    assert_eq!(of_layer(0), of_layer(1));
}

#[test]
fn what_the_other_layout_lacks_is_an_error() {
    let (meta, hf) = (tensors(LayoutOwner::Meta, 1), tensors(LayoutOwner::HuggingFace, 1));
    let llama = document(
        &translate(meta.clone().into(), &params(PARAMS), LayoutOwner::HuggingFace).expect("a llama"),
    );
    let with = |mut tensors: List, name: &str, shape: &[u64]| {
        tensors.push(zeros(name, shape));
        tensors
    };
    assert_eq!(
        error(with(meta.clone(), "lora\x1b", &[1]), &params(PARAMS), LayoutOwner::HuggingFace),
        r"Hugging Face's layout has no name for `lora\u{1b}`"
    );
    assert_eq!(
        error(with(meta.clone(), "rope.freqs", &[2]), &params(PARAMS), LayoutOwner::HuggingFace),
        "tensor `rope.freqs`: element 0 is 0, expected 1 from a RoPE base (theta) of 10000"
    );
    assert_eq!(
        error(with(meta.clone(), "rope.freqs", &[3]), &params(PARAMS), LayoutOwner::HuggingFace),
        "tensor `rope.freqs`: shape [3], expected [2] from head_dim 4"
    );
    assert_eq!(
        error(meta, &DecoderOptions::default(), LayoutOwner::HuggingFace),
        "no other names are known for these tensors: no params.json or config.json next to it"
    );
    let mut biased = hf.clone();
    for layer in 0..2 {
        for (part, size) in [("q_proj", 16), ("k_proj", 8), ("v_proj", 8), ("o_proj", 16)] {
            biased.push(zeros(&format!("model.layers.{layer}.self_attn.{part}.bias"), &[size]));
        }
    }
    assert_eq!(
        error(
            biased,
            &config(&llama.replace(r#""attention_bias": false"#, r#""attention_bias": true"#)),
            LayoutOwner::Meta
        ),
        "Meta's layout has no biases, and there is `model.layers.0.self_attn.q_proj.bias`"
    );
    let mistral = llama.replace(r#""llama""#, r#""mistral""#).replace("Llama", "Mistral");
    assert_eq!(
        error(hf.clone(), &config(&mistral), LayoutOwner::Meta),
        "Meta's layout is for llama models, and this is a mistral model"
    );
    let same = translate(hf.clone().into(), &config(&mistral), LayoutOwner::HuggingFace)
        .expect("it has these names");
    assert_eq!(notes(&same), ["the tensors have Hugging Face's names already"]);
    assert!(same.document.is_none());
    for recorded in [r#""rope.freqs": "int8""#, r#""rope.freqs": 4"#, r#""lm_head.weight": "float32""#] {
        let text = llama.replacen('{', &format!("{{\"rope_freqs\": {{{recorded}}},"), 1);
        let error = error(hf.clone(), &config(&text), LayoutOwner::Meta);
        let expected = r#"expected "rope.freqs" and the name of a floating-point dtype"#;
        assert!(error.starts_with("config.json: `rope_freqs` is") && error.ends_with(expected), "{error}");
    }
}

#[test]
fn a_width_that_params_json_cannot_express_is_an_error() {
    let mut hf = tensors(LayoutOwner::HuggingFace, 1);
    for (name, tensor) in &mut hf {
        let shape: Vec<u64> =
            tensor.shape().iter().map(|size| if *size == 48 { 509 } else { *size }).collect();
        let storage = Storage::owned(vec![0; 2 * 509 * 16]);
        *tensor =
            Tensor::new(Dtype::BFloat16, shape.clone(), contiguous_strides(&shape), 0, storage).expect(name);
    }
    let text = r#"{"model_type": "llama", "num_attention_heads": 4, "rms_norm_eps": 1e-5}"#;
    assert_eq!(
        error(hf, &config(text), LayoutOwner::Meta),
        "params.json cannot express a feed-forward width of 509 with dim 16: no `multiple_of` that is a power of two leads to it, with or without an `ffn_dim_multiplier` of two decimals"
    );
}

/// What the first LLaMA's files have in each layer, and Hugging Face's older ones.
#[test]
fn frequencies_of_each_layer_are_left_out_too() {
    let frequencies = || {
        let bytes = [1.0_f32, 0.01].iter().flat_map(|n| n.to_le_bytes()).collect();
        Tensor::new(Dtype::Float32, vec![2], vec![1], 0, Storage::owned(bytes)).expect("inside")
    };
    let mut meta = tensors(LayoutOwner::Meta, 1);
    for layer in 0..2 {
        meta.push((format!("layers.{layer}.attention.inner_attention.rope.freqs"), frequencies()));
    }
    let there = translate(meta.clone().into(), &params(PARAMS), LayoutOwner::HuggingFace).expect("a llama");
    let text = document(&there);
    let mut hf = there.tensors;
    for layer in 0..2 {
        hf.push(format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq"), frequencies());
    }
    let back = translate(hf, &config(&text), LayoutOwner::Meta).expect("a llama");
    assert_eq!(names(back.tensors.as_slice()), names(&meta));
}
