//! Rotary frequency tensors that are left out or restored when a model gets the names of the other layout.

use decoder::{DecoderOptions, LayoutOwner, ModelDocuments, TranslatedModel, translate};
use tensor::{Dtype, Storage, Tensor};

use crate::fixtures::tensors;

const PARAMS: &str = r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "norm_eps": 1e-5, "vocab_size": -1}"#;

fn documents(params: Option<&str>, config: Option<&str>) -> DecoderOptions {
    let (params, config) = (params.map(str::to_owned), config.map(str::to_owned));
    let documents = ModelDocuments { params, config, ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn notes(translated: &TranslatedModel) -> Vec<String> {
    translated.notes.iter().map(ToString::to_string).collect()
}

fn frequencies(numbers: [f32; 2]) -> Tensor {
    let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    Tensor::new(Dtype::Float32, vec![2], vec![1], 0, Storage::owned(bytes)).expect("inside")
}

#[test]
fn one_inexact_tensor_makes_all_inexact() {
    let note = |first: f32| {
        let mut meta = tensors(LayoutOwner::Meta, 1);
        for (layer, second) in [first, 0.01].into_iter().enumerate() {
            let name = format!("layers.{layer}.attention.inner_attention.rope.freqs");
            meta.push((name, frequencies([1.0, second])));
        }
        let there = translate(meta.into(), &documents(Some(PARAMS), None), LayoutOwner::HuggingFace)
            .expect("a llama");
        notes(&there).swap_remove(0)
    };
    assert!(note(0.01).ends_with("they have what the model computes"), "{}", note(0.01));
    let near = note(0.01_f32.next_up());
    assert!(near.ends_with("they have what the model computes, up to the last place"), "{near}");
}

#[test]
fn recorded_frequencies_are_restored_only_for_metas_names() {
    let config = r#"{"model_type": "llama", "rope_freqs": {"rope.freqs": "float32"}}"#;
    let both = documents(Some(PARAMS), Some(config));
    let there =
        translate(tensors(LayoutOwner::Meta, 1).into(), &both, LayoutOwner::HuggingFace).expect("a llama");
    assert!(there.tensors.get("rope.freqs").is_none());
    assert!(!notes(&there).iter().any(|note| note.contains("rope.freqs")));
}

/// A model of one layer with one large head, whose tensors are views of one number.
fn large_head(layout: LayoutOwner, head_dim: u64) -> Vec<(String, Tensor)> {
    let mut all = tensors(layout, 1);
    all.retain(|(name, _)| !name.contains("layers.1."));
    for (name, tensor) in &mut all {
        let mut shape = tensor.shape().to_vec();
        if let [rows, columns] = shape.as_mut_slice() {
            if ["q_proj", "k_proj", "v_proj"].iter().any(|part| name.contains(part)) {
                *rows = head_dim;
            } else if name.contains("o_proj") {
                *columns = head_dim;
            }
        }
        let stride = vec![0; shape.len()];
        *tensor = Tensor::new(Dtype::BFloat16, shape, stride, 0, Storage::owned(vec![0; 2])).expect("inside");
    }
    all
}

#[test]
fn the_number_of_restored_frequencies_is_limited() {
    let head_dim = 1 << 16;
    let restored = |count: usize| {
        let name = |layer| format!(r#""layers.{layer}.attention.inner_attention.rope.freqs": "float32""#);
        let recorded: Vec<String> = (0..count).map(name).collect();
        let config = format!(
            r#"{{"model_type": "llama", "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": {head_dim},
                "rms_norm_eps": 1e-5, "rope_freqs": {{{}}}}}"#,
            recorded.join(", ")
        );
        let tensors = large_head(LayoutOwner::HuggingFace, head_dim).into();
        translate(tensors, &documents(None, Some(&config)), LayoutOwner::Meta)
            .map(|translated| translated.tensors.len())
    };
    assert_eq!(restored(32).expect("the largest number"), large_head(LayoutOwner::Meta, head_dim).len() + 32);
    assert_eq!(
        restored(33).expect_err("one more").to_string(),
        "config.json: `rope_freqs` is 33 tensors of 32768 numbers, expected at most 1048576 numbers"
    );
}
