//! Documents that are written for the other layout, where they depend on the sizes of the model.

use decoder::{DecoderOptions, LayoutOwner, ModelDocuments, translate};
use tensor::{Dtype, Storage, Tensor};

use crate::fixtures::tensors;

/// A LLaMA whose embeddings and output have `vocab` rows, which are views of one number.
fn with_vocab(vocab: u64) -> Vec<(String, Tensor)> {
    let mut all = tensors(LayoutOwner::Meta, 1);
    for (name, tensor) in &mut all {
        if ["tok_embeddings.weight", "output.weight"].contains(&name.as_str()) {
            let storage = Storage::owned(vec![0; 2]);
            *tensor =
                Tensor::new(Dtype::BFloat16, vec![vocab, 16], vec![0, 0], 0, storage).expect("one number");
        }
    }
    all
}

#[test]
fn begin_and_end_tokens_follow_from_the_size_of_metas_vocabularies() {
    for (vocab, begin, end) in
        [(32_000, "1", "2"), (32_016, "1", "2"), (128_256, "128000", "128001"), (32_001, "null", "null")]
    {
        let params = Some(r#"{"n_heads": 4, "vocab_size": -1}"#.to_owned());
        let documents = ModelDocuments { params, ..ModelDocuments::default() };
        let options = DecoderOptions { documents, ..DecoderOptions::default() };
        let there = translate(with_vocab(vocab).into(), &options, LayoutOwner::HuggingFace).expect("a llama");
        let text = there.document.expect("another layout").text(&there.tensors);
        for (key, id) in [("bos_token_id", begin), ("eos_token_id", end)] {
            assert!(text.contains(&format!("\"{key}\": {id},")), "{vocab}: {text}");
        }
    }
}
