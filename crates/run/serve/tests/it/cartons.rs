//! Cartons as models: what requests may cost, switches, and the memory of weights. What models compute is compared with
//! PyTorch in `tests/conformance/test_serve_cartons.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::Blob;
use bytes::Bytes;
use convert::{ArchitectureChoice, CartonOptions, ConvertOptions, ModelOptions, convert};
use kserve::{Datatype, InferRequest, InputTensor, OutputTensor, RequestedOutput, TensorConfig};
use runtime::{Runnable, RunnableOptions};
use serve::{CancelToken, InferModel, ModelError, RequestLimits};
use tensor::{Dtype, Storage, Tensor};

fn model(carton: &Path, memory: usize) -> Arc<dyn InferModel> {
    limited(carton, RequestLimits { memory, ..RequestLimits::default() })
}

fn limited(carton: &Path, limits: RequestLimits) -> Arc<dyn InferModel> {
    let runnable = Runnable::open(carton, &RunnableOptions::default(), &()).expect("a carton of ours");
    serve::carton_model(runnable, &limits).expect("KServe has its dtypes")
}

/// The checkpoint of the README as a model, with 2 layers, 4 heads of 16 and 256 tokens.
pub(crate) fn decoder(folder: &Path) -> PathBuf {
    test_support::tiny_llama::write(folder).expect("the checkpoint is written");
    let mut options = ConvertOptions::new(folder);
    options.output = Some(folder.join("x.carton"));
    convert(&options, &()).expect("it converts");
    folder.join("x.carton")
}

fn integers(name: &str, shape: &[u64], values: &[i64]) -> InputTensor {
    InputTensor {
        name: name.to_owned(),
        datatype: Datatype::Int64,
        shape: shape.to_vec(),
        parameters: Vec::new(),
        data: Bytes::from(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()),
        is_binary: true,
    }
}

/// The answer to a request for these outputs; without any, for those that are not optional.
fn infer(
    model: &dyn InferModel,
    inputs: Vec<InputTensor>,
    outputs: &[&str],
) -> Result<Vec<OutputTensor>, ModelError> {
    let output =
        |name: &&str| RequestedOutput { name: (*name).to_owned(), parameters: Vec::new(), is_binary: true };
    let lists_outputs = !outputs.is_empty();
    let outputs = if lists_outputs { outputs } else { &["logits"] }.iter().map(output).collect();
    let request = InferRequest { id: None, parameters: Vec::new(), inputs, outputs, lists_outputs };
    model.infer(&request, &CancelToken::never())
}

/// Sums depend on how many tokens are computed at once.
fn assert_close(one: &[u8], other: &[u8]) {
    assert_eq!(one.len(), other.len());
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    for (one, other) in one.as_chunks::<4>().0.iter().zip(other.as_chunks::<4>().0) {
        assert!((number(one) - number(other)).abs() < 1e-4, "{} {}", number(one), number(other));
    }
}

fn shapes(outputs: &[OutputTensor]) -> Vec<(&str, &[u64])> {
    outputs.iter().map(|output| (output.name.as_str(), output.shape.as_slice())).collect()
}

#[test]
fn switches_and_the_cache_of_a_batch() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = model(&decoder(folder.path()), 1 << 30);
    let tokens = || integers("tokens", &[2, 3], &[1, 2, 3, 4, 5, 6]);
    let all = infer(&*model, vec![tokens()], &["logits"]).expect("it runs");
    assert_eq!(shapes(&all), [("logits", &[2, 3, 256][..])]);

    let off = integers("last_only", &[2], &[0, 0]);
    let also_all = infer(&*model, vec![tokens(), off], &["logits"]).expect("it runs");
    assert_eq!(also_all[0].data, all[0].data);
    let last = infer(&*model, vec![tokens(), integers("last_only", &[2], &[1, 1])], &["logits"]);
    let last = last.expect("it runs");
    assert_eq!(shapes(&last), [("logits", &[2, 1, 256][..])]);
    let row = 256 * 4;
    assert_close(&last[0].data[..row], &all[0].data[2 * row..3 * row]);
    assert_close(&last[0].data[row..], &all[0].data[5 * row..]);
    let both = infer(&*model, vec![tokens(), integers("last_only", &[2], &[0, 1])], &["logits"]);
    let error = both.expect_err("one sequence wants all of them");
    assert_eq!(error.to_string(), "the input `last_only` differs within the batch");
    assert!(matches!(error, ModelError::Input(_)), "{error:?}");

    // The cache is sent with the first dimension of KServe, and each sequence gets its own part of it.
    let kept = || vec![tokens(), integers("use_cache", &[2], &[1, 1])];
    let listed = infer(&*model, kept(), &["logits"]).expect("it runs");
    assert_eq!(shapes(&listed), [("logits", &[2, 3, 256][..])]);
    let cached = infer(&*model, kept(), &[]).expect("it runs");
    let cache = &[2, 2, 3, 4, 16][..];
    assert_eq!(
        shapes(&cached),
        [("logits", &[2, 3, 256][..]), ("present_key", cache), ("present_value", cache)]
    );
    for sequence in 0..2 {
        let values: Vec<i64> = (1..=3).map(|token| token + 3 * sequence).collect();
        let alone =
            infer(&*model, vec![integers("tokens", &[1, 3], &values)], &["present_key"]).expect("it runs");
        let at = usize::try_from(sequence).expect("0 or 1") * alone[0].data.len();
        assert_close(&cached[1].data[at..at + alone[0].data.len()], &alone[0].data);
    }
    let past = |from: usize, name: &str| InputTensor { name: name.to_owned(), ..cached[from].clone() };
    let next = vec![integers("tokens", &[2, 1], &[7, 8]), past(1, "past_key"), past(2, "past_value")];
    let next = infer(&*model, next, &[]).expect("it runs");
    assert_eq!(shapes(&next)[1], ("present_key", &[2, 2, 4, 4, 16][..]));
    let whole = integers("tokens", &[2, 4], &[1, 2, 3, 7, 4, 5, 6, 8]);
    let whole =
        infer(&*model, vec![whole, integers("last_only", &[2], &[1, 1])], &["logits"]).expect("it runs");
    assert_close(&next[0].data, &whole[0].data);

    let half = vec![integers("tokens", &[2, 1], &[7, 8]), past(1, "past_key")];
    let error = infer(&*model, half, &["logits"]).expect_err("only one of two");
    assert!(matches!(error, ModelError::Input(_)), "{error:?}");
    let error =
        infer(&*model, vec![integers("tokens", &[1, 1], &[256])], &["logits"]).expect_err("no such token");
    assert!(matches!(error, ModelError::Input(_)), "{error:?}");
}

#[test]
fn switches_and_caches_are_optional() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = model(&decoder(folder.path()), 1 << 30).config();
    let optional = |tensors: &[TensorConfig]| {
        tensors.iter().map(|tensor| (tensor.name.clone(), tensor.optional)).collect::<Vec<_>>()
    };
    let named = |names: &[(&str, bool)]| {
        names.iter().map(|(name, optional)| ((*name).to_owned(), *optional)).collect::<Vec<_>>()
    };
    let inputs = [
        ("tokens", false),
        ("last_only", true),
        ("use_cache", true),
        ("past_key", true),
        ("past_value", true),
    ];
    assert_eq!(optional(&config.input), named(&inputs));
    assert_eq!(
        optional(&config.output),
        named(&[("logits", false), ("present_key", true), ("present_value", true)])
    );
}

#[test]
fn a_request_may_not_need_more_memory_than_allowed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Keys and values of 10 tokens in 2 layers with 4 heads of 16, and their logits.
    let (cache, logits) = (2 * 10 * 2 * 4 * 16 * 4, 10 * 256 * 4);
    let carton = decoder(folder.path());
    let tokens = || integers("tokens", &[1, 10], &[1; 10]);
    infer(&*model(&carton, cache + logits), vec![tokens()], &["logits"]).expect("it is allowed");
    let less = model(&carton, cache + logits - 1);
    let error = infer(&*less, vec![tokens()], &["logits"]).expect_err("it is not");
    assert_eq!(
        error.to_string(),
        format!(
            "the request needs {} bytes of memory, and {} are allowed",
            cache + logits,
            cache + logits - 1
        )
    );
    assert!(matches!(error, ModelError::Input(_)), "{error:?}");
    infer(&*less, vec![tokens(), integers("last_only", &[1], &[1])], &["logits"]).expect("fewer logits");
}

#[test]
fn a_request_may_not_have_more_tokens_than_allowed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let carton = decoder(folder.path());
    let tokens = |shape: &[u64]| {
        let count = shape.iter().product::<u64>();
        vec![integers("tokens", shape, &vec![1; usize::try_from(count).expect("few")])]
    };
    let limits = RequestLimits { tokens: 12, positions: Some(4), ..RequestLimits::default() };
    let model = limited(&carton, limits);
    infer(&*model, tokens(&[3, 4]), &["logits"]).expect("both are allowed");
    let error = |inputs| infer(&*model, inputs, &["logits"]).expect_err("it is too long").to_string();
    assert_eq!(error(tokens(&[4, 4])), "the request has 16 tokens, and 12 are allowed");
    let positions = "a sequence has 5 tokens with its past, and the model has 4 positions";
    assert_eq!(error(tokens(&[1, 5])), positions);
    // The past counts.
    let cached = infer(&*model, tokens(&[1, 3]), &["present_key", "present_value"]).expect("it runs");
    let past = |from: usize, name: &str| InputTensor { name: name.to_owned(), ..cached[from].clone() };
    let next = [tokens(&[1, 2]), vec![past(0, "past_key"), past(1, "past_value")]].concat();
    assert_eq!(error(next), positions);
    // The carton of the README does not say how many positions the model has.
    let error =
        infer(&*self::model(&carton, 1 << 40), tokens(&[1, 8193]), &["logits"]).expect_err("it is long");
    assert!(error.to_string().ends_with("the model has 8192 positions"), "{error}");
}

#[test]
fn a_long_prompt_in_pieces_has_the_logits_of_a_whole_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let carton = decoder(folder.path());
    let model = model(&carton, 1 << 30);
    let values: Vec<i64> = (0..600).map(|token| token * 7 % 256).collect();
    for (shape, steps) in [([1, 600], 5), ([2, 300], 5), ([200, 3], 3), ([1, 128], 1)] {
        let count = usize::try_from(shape[0] * shape[1]).expect("few");
        let tokens = integers("tokens", &shape, &values[..count]);
        let request = |inputs| InferRequest {
            id: None,
            parameters: Vec::new(),
            inputs,
            outputs: Vec::new(),
            lists_outputs: false,
        };
        assert_eq!(model.steps(&request(vec![tokens.clone()])), steps);
        let found = infer(&*model, vec![tokens.clone()], &["logits"]).expect("it runs");
        let runnable = Runnable::open(&carton, &RunnableOptions::default(), &()).expect("a carton of ours");
        let (stride, data) = (vec![shape[1], 1], Storage::owned(tokens.data.to_vec()));
        let whole = Tensor::new(Dtype::Int64, shape.to_vec(), stride, 0, data).expect("it fits");
        let whole = runnable.infer(&[("tokens".to_owned(), whole)], None).expect("it runs");
        let mut bytes = Vec::new();
        Blob::write_to(&whole[0].1.gathered(), &mut bytes).expect("memory takes it");
        assert_close(&found[0].data, &bytes);
    }
}

#[test]
fn weights_are_sent_from_the_map() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    test_support::tiny_llama::write(folder.path()).expect("the checkpoint is written");
    let path = folder.path().join("w.carton");
    let mut options = ConvertOptions::new(folder.path());
    options.output = Some(path.clone());
    let weights = ModelOptions::new(ArchitectureChoice::Weights);
    options.target = CartonOptions::default().model(weights).into();
    convert(&options, &()).expect("it converts");
    // Nothing needs memory, so none has to be allowed.
    let model = model(&path, 0);
    let config = model.config();
    assert!(config.input.is_empty() && config.max_batch_size == 0);
    assert!(config.output.iter().all(|output| output.datatype == Datatype::Bf16), "{config:?}");
    let runnable = Runnable::open(&path, &RunnableOptions::default(), &()).expect("a carton of ours");
    let names: Vec<&str> = config.output.iter().map(|output| output.name.as_str()).collect();
    let outputs = infer(&*model, Vec::new(), &names).expect("all of them");
    assert_eq!(model.memory(&outputs), 0);
    assert_eq!(outputs.len(), runnable.tensors().len());
    for (output, (name, tensor)) in outputs.iter().zip(runnable.tensors()) {
        assert_eq!((&output.name, output.shape.as_slice()), (name, tensor.shape()));
        assert_eq!(Some(&output.data[..]), tensor.mapped_bytes());
    }
}
