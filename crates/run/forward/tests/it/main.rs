//! Logits against those that are computed in f64 the plain way, and against each other: whole passes, token by token, in
//! batches, with other numbers of threads.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a reference is written the plain way"
)]

mod flags;
mod formulas;
mod reference;
mod steps;

use std::sync::Arc;

use byte_source::{MappedFile, Observer, Region, Source};
use decoder::LayoutOwner;
use forward::{ForwardModel, ForwardOptions, KvCache, LogitPositions};
use proptest::prelude::*;
use reference::{Random, Shape, VOCAB};
use tensor::{Dtype, Storage, Tensor};

/// Stops at once.
struct Stop;

impl Observer for Stop {
    fn is_cancelled(&self) -> bool {
        true
    }
}

const ON: &dyn Observer = &();

/// The tensors of a cache, as a client sends them back.
fn past(cache: &KvCache) -> Vec<Tensor> {
    cache.tensors().expect("a few bytes").into_iter().map(|(_, tensor)| tensor).collect()
}

/// Kinds of models, one for each option that changes the arithmetic.
fn shapes() -> Vec<Shape> {
    let plain = Shape {
        layout: LayoutOwner::HuggingFace,
        document: r#", "model_type": "llama""#,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        has_biases: false,
        is_tied: false,
    };
    let scaled = r#", "use_scaled_rope": true, "rope_theta": 500000.0"#;
    vec![
        plain.clone(),
        Shape {
            kv_heads: 4,
            is_tied: true,
            document: r#", "model_type": "llama", "tie_word_embeddings": true"#,
            ..plain.clone()
        },
        Shape { kv_heads: 1, head_dim: 10, ..plain.clone() },
        Shape {
            has_biases: true,
            document: r#", "model_type": "llama", "attention_bias": true, "mlp_bias": true"#,
            ..plain.clone()
        },
        Shape { document: r#", "model_type": "mistral", "sliding_window": 5"#, ..plain.clone() },
        Shape { layout: LayoutOwner::Meta, document: "", ..plain.clone() },
        Shape { layout: LayoutOwner::Meta, document: scaled, head_dim: 64, ..plain },
    ]
}

fn model(random: &Random, threads: usize) -> ForwardModel {
    let options = ForwardOptions { threads: Some(threads) };
    ForwardModel::new(&random.decoder, &random.tensors.clone().into(), &random.assignment, &options)
        .expect("all is there")
}

fn tokens(count: usize, seed: usize) -> Vec<i64> {
    (0..count).map(|place| ((place * 7 + seed * 13 + place * place) % VOCAB) as i64).collect()
}

fn logits(model: &ForwardModel, tokens: &[i64]) -> Vec<f32> {
    let mut cache = model.cache(1).expect("a few bytes");
    model.forward(tokens, 1, &mut cache, LogitPositions::All, ON).expect("known ids")
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_are_those_of_the_plain_way() {
    for (number, shape) in shapes().iter().enumerate() {
        for (dtype, tolerance) in [
            (Dtype::Float64, 1e-6),
            (Dtype::Float32, 2e-5), // Products of many rows round to bfloat16 what they multiply weights with, as PyTorch does.
            (Dtype::BFloat16, 0.1),
            (Dtype::Float16, 2e-5),
        ] {
            let random = Random::new(shape, dtype, number as u64 + 1);
            let tokens = tokens(80, number);
            let expected: Vec<f32> = random.logits(&tokens).concat().into_iter().map(|n| n as f32).collect();
            let difference = largest_difference(&logits(&model(&random, 2), &tokens), &expected);
            assert!(difference < tolerance, "{shape:?} in {dtype}: {difference}");
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let random = Random::new(&shapes()[6], Dtype::BFloat16, 3);
    let tokens = tokens(130, 1);
    let one = logits(&model(&random, 1), &tokens);
    for threads in [2, 5] {
        assert_eq!(logits(&model(&random, threads), &tokens), one, "{threads}");
    }
}

#[test]
fn the_last_rows_of_a_batch_are_those_of_all() {
    let random = Random::new(&shapes()[0], Dtype::Float32, 4);
    let model = model(&random, 2);
    for (batch, seq) in [(3, 1), (3, 5), (2, 260), (520, 2)] {
        let tokens = tokens(batch * seq, 2);
        let run = |rows| {
            let mut cache = model.cache(batch).expect("a few bytes");
            let logits = model.forward(&tokens, batch, &mut cache, rows, ON).expect("known ids");
            assert_eq!((cache.len(), cache.batch()), (seq, batch));
            logits
        };
        let (all, last) = (run(LogitPositions::All), run(LogitPositions::Last));
        assert_eq!((all.len(), last.len()), (batch * seq * VOCAB, batch * VOCAB));
        for (all, last) in all.chunks(seq * VOCAB).zip(last.chunks(VOCAB)) {
            assert!(largest_difference(&all[(seq - 1) * VOCAB..], last) < 1e-5);
        }
        for (sequence, all) in all.chunks(seq * VOCAB).enumerate().take(3) {
            let alone = logits(&model, &tokens[sequence * seq..][..seq]);
            assert!(largest_difference(all, &alone) < 1e-5);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn parts_with_a_cache_are_the_whole(
        parts in prop::collection::vec(1_usize..70, 1..4),
        kind in 0_usize..7,
        f64 in any::<bool>(),
        batch in 1_usize..4,
    ) {
        let dtype = if f64 { Dtype::Float64 } else { Dtype::Float32 };
        let random = Random::new(&shapes()[kind], dtype, 5);
        let model = model(&random, 2);
        let sequences: Vec<Vec<i64>> = (0..batch).map(|seed| tokens(parts.iter().sum(), seed)).collect();
        let mut cache = model.cache(batch).expect("a few bytes");
        let whole: Vec<Vec<f32>> = sequences.iter().map(|sequence| logits(&model, sequence)).collect();
        let mut first = 0;
        for part in parts {
            let tokens: Vec<i64> = sequences.iter().flat_map(|it| &it[first..first + part]).copied().collect();
            let found = model.forward(&tokens, batch, &mut cache, LogitPositions::All, ON).expect("known ids");
            for (whole, found) in whole.iter().zip(found.chunks(part * VOCAB)) {
                prop_assert!(largest_difference(found, &whole[first * VOCAB..][..part * VOCAB]) < 2e-5);
            }
            first += part;
            // As a client that sends the outputs back.
            cache = model.cache_from_tensors(batch, &past(&cache)).expect("its own");
            prop_assert_eq!(cache.len(), first);
        }
    }
}

/// Returns blocks of `Q8_0` near the numbers of a matrix, which all have the scale 2^-7; `None` for other tensors.
fn blocks(tensor: &Tensor) -> Option<Tensor> {
    let &[rows, cols] = tensor.shape() else { return None };
    let codes = bytes(tensor)
        .as_chunks()
        .0
        .iter()
        .map(|it| (f32::from_le_bytes(*it) * 128.0) as i8 as u8)
        .collect::<Vec<_>>();
    let stored =
        codes.chunks(32).flat_map(|codes| [0, 0x20].into_iter().chain(codes.iter().copied())).collect();
    let shape = vec![rows, cols.div_ceil(32) * 34];
    let stride = tensor::contiguous_strides(&shape);
    let blocks = Tensor::new(Dtype::UInt8, shape, stride, 0, Storage::owned(stored)).ok()?;
    cols.is_multiple_of(32).then(|| Tensor::from_q8_0_blocks(&blocks))?
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    byte_source::Blob::write_to(&tensor.gathered(), &mut bytes).expect("memory can be read");
    bytes
}

#[test]
fn blocks_have_the_logits_of_their_numbers() {
    let mut random = Random::new(&shapes()[6], Dtype::Float32, 9);
    let whole = model(&random, 2).weights_nbytes();
    for (_, tensor) in &mut random.tensors {
        *tensor = blocks(tensor).unwrap_or_else(|| tensor.clone());
    }
    let of_blocks = model(&random, 2);
    // Only the projections of attention's results have rows of whole blocks.
    assert!(of_blocks.weights_nbytes() < whole, "{} of {whole}", of_blocks.weights_nbytes());
    for (_, tensor) in &mut random.tensors {
        let numbers = Storage::owned(bytes(tensor));
        *tensor = tensor.with_storage(Dtype::Float32, 0, numbers).expect("as many");
    }
    let of_numbers = model(&random, 2);
    for count in [1, 5, 40] {
        let tokens = tokens(count, 3);
        let (found, expected) = (logits(&of_blocks, &tokens), logits(&of_numbers, &tokens));
        let largest = expected.iter().fold(0.0, |most: f32, logit| most.max(logit.abs()));
        assert!(largest_difference(&found, &expected) <= 3e-6 * largest, "{count} tokens, {largest}");
    }
}

#[test]
fn a_model_has_the_sizes_of_its_decoder() {
    let random = Random::new(&shapes()[0], Dtype::BFloat16, 8);
    let model = model(&random, 3);
    let sizes = [model.vocab(), model.n_layers(), model.n_kv_heads(), model.head_dim(), model.threads()];
    assert_eq!(sizes, [VOCAB, 2, 2, 6, 3]);
    let numbers: u64 = random.tensors.iter().map(|(_, tensor)| tensor.shape().iter().product::<u64>()).sum();
    assert_eq!(model.weights_nbytes(), 2 * numbers);
    let mut cache = model.cache(2).expect("a few bytes");
    assert!(cache.is_empty() && cache.batch() == 2);
    model.forward(&[1, 2], 2, &mut cache, LogitPositions::Last, ON).expect("known ids");
    assert!(!cache.is_empty() && cache.len() == 1);
    let known = ["portable", "avx2", "avx512", "avx512-bf16", "amx-bf16"];
    assert!(known.contains(&model.kernel()), "{}", model.kernel());
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx512bw") {
        assert!(model.kernel().starts_with("avx512") || model.kernel() == "amx-bf16", "{}", model.kernel());
    }
}

#[test]
fn wrong_inputs_are_errors() {
    let random = Random::new(&shapes()[0], Dtype::Float32, 6);
    let model = model(&random, 1);
    let mut cache = model.cache(2).expect("a few bytes");
    let mut run = |tokens: &[i64], batch| {
        model.forward(tokens, batch, &mut cache, LogitPositions::All, ON).expect_err("wrong").to_string()
    };
    let counts = "expected at least one for each sequence and as many for all";
    assert_eq!(run(&[], 2), format!("0 tokens in a batch of 2, {counts}"));
    assert_eq!(run(&[1, 2, 3], 2), format!("3 tokens in a batch of 2, {counts}"));
    assert_eq!(run(&[1], 0), format!("1 tokens in a batch of 0, {counts}"));
    assert_eq!(run(&[1, -1], 2), "the input tokens has ids from -1 to 1, expected ids from 0 to 39");
    assert_eq!(run(&[1, 40], 2), "the input tokens has ids from 1 to 40, expected ids from 0 to 39");
    assert_eq!(
        run(&[40, i64::MIN], 2),
        format!("the input tokens has ids from {} to 40, expected ids from 0 to 39", i64::MIN)
    );
    assert_eq!(run(&[1, 2, 3], 3), "the cache is of another model or batch");
    let stopped = model.forward(&[1, 2], 2, &mut cache, LogitPositions::All, &Stop);
    assert!(stopped.is_err_and(|error| error.is_cancelled()));
    assert_eq!(cache.len(), 0);
    assert!(model.cache(usize::MAX / 8).is_err_and(|error| error.code() == "forward::Memory"));

    let past = |dtype: Dtype, shape: [u64; 5]| {
        let bytes = vec![0; 4096];
        Tensor::new(dtype, shape.to_vec(), tensor::contiguous_strides(&shape), 0, Storage::owned(bytes))
            .expect("4096 bytes suffice")
    };
    let good = past(Dtype::Float32, [2, 2, 3, 2, 6]);
    assert_eq!(model.cache_from_tensors(2, &[good.clone(), good.clone()]).expect("its shape").len(), 3);
    for other in [
        past(Dtype::Float32, [2, 2, 4, 2, 6]),
        past(Dtype::Float32, [2, 1, 3, 2, 6]),
        past(Dtype::Float32, [2, 2, 3, 1, 6]),
        past(Dtype::Int32, [2, 2, 3, 2, 6]),
    ] {
        assert!(
            model
                .cache_from_tensors(2, &[good.clone(), other.clone()])
                .is_err_and(|error| error.code() == "forward::PastShape")
        );
        assert!(
            model
                .cache_from_tensors(2, &[other.clone(), good.clone()])
                .is_err_and(|error| error.code() == "forward::PastShape")
        );
    }
    let none = past(Dtype::Float32, [2, 2, 0, 2, 6]);
    assert_eq!(model.cache_from_tensors(2, &[none.clone(), none]).expect("no tokens yet").len(), 0);
}

#[test]
fn a_weight_that_repeats_its_storage_is_not_copied_without_end() {
    let mut random = Random::new(&shapes()[0], Dtype::Float32, 7);
    let embedding = random.tensors.iter_mut().find(|(name, _)| name == "model.embed_tokens.weight");
    let (_, tensor) = embedding.expect("it is there");
    // The decoder was made for the other shape, so this is also a shape that it does not expect.
    *tensor = Tensor::new(Dtype::Float32, vec![1 << 40, 24], vec![0, 1], 0, tensor.storage().clone())
        .expect("in bounds");
    let options = ForwardOptions { threads: Some(1) };
    let error =
        ForwardModel::new(&random.decoder, &random.tensors.clone().into(), &random.assignment, &options)
            .expect_err("it is huge");
    assert_eq!(error.to_string(), "a weight of shape [1099511627776, 24] does not fit in memory");
}

#[test]
fn an_embedding_that_is_stored_by_columns_has_the_same_rows() {
    let mut random = Random::new(&shapes()[0], Dtype::Float32, 9);
    let expected = logits(&model(&random, 1), &tokens(9, 2));
    let embedding = random.tensors.iter_mut().find(|(name, _)| name == "model.embed_tokens.weight");
    let (_, tensor) = embedding.expect("it is there");
    let &[vocab, dim] = tensor.shape() else { panic!("a matrix") };
    let mut turned: Vec<u8> = Vec::new();
    let by_columns = tensor.transpose(0, 1).expect("a matrix");
    byte_source::Blob::write_to(&by_columns.gathered(), &mut turned).expect("memory takes it");
    // Only the columns of a mapped file can be used as they are.
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), &turned).expect("it is written");
    let file: Arc<dyn Source> = Arc::new(MappedFile::open(file.path()).expect("it opens"));
    let storage = Storage::stored(Region::new(&file, 0..file.len()).expect("it is in the file"), None);
    *tensor = Tensor::new(Dtype::Float32, vec![vocab, dim], vec![1, vocab], 0, storage).expect("as long");
    assert_eq!(logits(&model(&random, 1), &tokens(9, 2)), expected);
}
